"""Ranks agree on the state that they take over. The tests use fake ranks and sessions."""

import ctypes
import importlib
import pickle
import threading
import weakref

import pytest
import torch

import geminid.torch

from geminid.engine import Optimizer
from geminid.errors import Aborted, DataLoss, DeadlineExceeded, Refused
from geminid.torch import handover, holding
from geminid.torch.elastic import Choice, Found, Image, Left
from geminid.torch.image import Contents, ImageMemory

prepare_ = importlib.import_module("geminid.torch.prepare")


class Meeting:
    """Lets ranks meet that are threads."""

    def __init__(self, world):
        self.barrier = threading.Barrier(world, timeout=60)
        self.data = [b""] * world


class FakeRanks:
    def __init__(self, meeting, rank):
        self.meeting, self.rank, self.world_size = meeting, rank, len(meeting.data)
        self.gathers = 0

    def gather(self, data):
        self.gathers += 1
        self.meeting.data[self.rank] = data
        self.meeting.barrier.wait()
        gathered = list(self.meeting.data)
        self.meeting.barrier.wait()
        return gathered


def as_ranks(world, work):
    """Returns the result or the exception of `work` on each rank."""
    meeting, made = Meeting(world), [None] * world

    def run(rank):
        try:
            made[rank] = work(FakeRanks(meeting, rank))
        except Exception as problem:
            made[rank] = problem

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return made


def test_ranks_meet_while_one_works(monkeypatch):
    """The work ends when all ranks have met three times."""
    monkeypatch.setattr(handover, "_MEET_SECONDS", 0.001)
    done = threading.Event()

    def work(ranks):
        gather = ranks.gather

        def counted(data):
            if ranks.gathers == 3:
                done.set()
            return gather(data)

        ranks.gather = counted
        return handover._together(ranks, lambda: done.wait(60) if ranks.rank == 0 else "at once")

    assert as_ranks(2, work) == [True, "at once"]


def test_problem_of_one_rank_is_raised_on_all():
    def fail():
        raise DataLoss("gone")

    made = as_ranks(2, lambda ranks: handover._together(ranks, fail if ranks.rank else int))
    assert isinstance(made[0], Aborted) and "rank 1" in str(made[0]) and "DataLoss: gone" in str(made[0])
    assert isinstance(made[1], DataLoss)


class FakeFormer:
    """A rank that left `terms`, or that died before it wrote any."""

    def __init__(self, events, left, has_terms=True, problem=None):
        self.events, self.rank, self.problem, self.engine = events, left.rank, problem, None
        self.terms = {"unit": "block"} if has_terms else {}

    def claim(self, _script):
        self.events.append(("claim", self.rank))
        if self.problem is not None:
            raise self.problem

    def finish(self, _script, _connect):
        self.events.append(("finish", self.rank))

    def end(self, leaves):
        self.events.append(("end", self.rank, leaves))


def group_of(ranks, left):
    """Returns a group of ranks on one daemon."""
    group = object.__new__(handover._Group)
    group.ranks, group.run, group.memory = ranks, None, None
    group.places, group.leaders, group._left = [0] * ranks.world_size, [0], [left]
    group.daemon, group.leads = 0, ranks.rank == 0
    return group


TWO = (Left(2, 0), Left(2, 1))


def test_group_that_died_before_its_first_step_is_not_gone_on_from_and_ends(monkeypatch):
    events = []
    monkeypatch.setattr(handover, "_Former", lambda _run, left: FakeFormer(events, left, has_terms=left.rank == 0))
    assert as_ranks(3, lambda ranks: group_of(ranks, TWO).collect(Choice((0, 0)), None)) == [None] * 3
    assert sorted(events) == [("claim", 0), ("claim", 1), ("end", 0, False), ("end", 1, False)]


def test_daemon_that_does_not_answer_one_rank_fails_all(monkeypatch):
    def look(run):
        if run == "run of rank 1":
            raise DeadlineExceeded("no answer")
        return {"daemon": "one", "left": [], "image": False}

    monkeypatch.setattr(handover, "_look", look)
    made = as_ranks(2, lambda ranks: handover._Group(ranks, handover._Run(f"run of rank {ranks.rank}", True)))
    assert isinstance(made[0], Aborted) and "no answer" in str(made[0]) and isinstance(made[1], DeadlineExceeded)


def test_memory_that_cannot_be_given_back_is_said_and_the_rest_is(capsys):
    ended = []

    class Run:
        def session(self, left, _device_bytes):
            ended.append(left.rank)
            if left.rank == 0:
                raise DeadlineExceeded("rank 0 does not answer")
            return FakeSession()

    def work(ranks):
        group = group_of(ranks, TWO)
        group.run = Run()
        group.end_others(Choice(), False)

    assert as_ranks(2, work) == [None, None] and ended == [0, 1]
    assert capsys.readouterr().err == "geminid: rank 0 does not answer\n"


class FakeSession:
    def __init__(self, is_successor=True):
        self.is_successor = is_successor

    def describe(self):
        return {"is_successor": self.is_successor}

    def close(self):
        pass


class FakeRun:
    def __init__(self, is_successor):
        self.is_successor = is_successor

    def session(self, _left, _device_bytes):
        return FakeSession(self.is_successor)


class FakeHolding:
    """The held memory of a process that left no terms."""

    def __init__(self, _session):
        pass

    def left(self):
        return None


@pytest.mark.parametrize("step, is_successor, is_lost", [(0, True, False), (3, True, True), (0, False, True)])
def test_rank_without_terms_has_lost_something_where_it_had_committed_a_step(monkeypatch, step, is_successor, is_lost):
    monkeypatch.setattr(handover, "Holding", FakeHolding)
    former = handover._Former(FakeRun(is_successor), Left(2, 0, step))
    if is_lost:
        with pytest.raises(DataLoss, match="rank 0 of 2 left in memory"):
            former.claim(None)
    else:
        former.claim(None)
    assert not former.terms


class FakeMemory:
    """The memory of a complete image."""

    def __init__(self, events, terms):
        self.events, self.found, self.terms = events, Image(1, 2, (0, 1), 4), terms

    def header(self):
        return pickle.dumps(Contents(step=4, notes={0: b"note", 1: b"note"}, terms=self.terms))

    def leave(self):
        self.events.append("leave")

    def close(self):
        self.events.append("close")


def refuse_others(left):
    if left != {"script": "this one"}:
        raise Refused("another script")


class FakeGroup:
    """A group that has found only an image of two ranks."""

    def __init__(self, ranks, terms, events):
        self.ranks, self.places, self.events = ranks, [0] * ranks.world_size, events
        self.memory = FakeMemory(events, terms) if ranks.rank == 0 else None

    def found_nothing(self):
        return False

    def find(self):
        return [Found((), Image(1, 2, (0, 1), 4))]

    def end_others(self, _choice, _collected):
        self.events.append("end others")


def taken_over(monkeypatch, terms):
    events = []
    monkeypatch.setattr(handover, "_Group", lambda ranks, _run: FakeGroup(ranks, terms, events))
    script = handover.Script([], "fp32", refuse_others, None)
    return as_ranks(3, lambda ranks: handover.take_over(ranks, "run", True, script)), events


def test_image_of_another_script_is_refused_before_anything_ends(monkeypatch):
    made, events = taken_over(monkeypatch, {"script": "that one"})
    assert all(isinstance(each, Refused) for each in made) and events == ["leave"]


def test_image_of_this_script_is_taken(monkeypatch):
    made, events = taken_over(monkeypatch, {"script": "this one"})
    assert [(each.world, each.step) for each in made] == [(2, 4)] * 3 and events == ["end others"] * 3


def test_image_stays_for_the_next_process_where_this_one_fails(monkeypatch):
    (first, *others), events = taken_over(monkeypatch, {"script": "this one"})
    for each in (*others, first, first):
        each.leave()
        each.close()
    assert events[3:] == ["leave"]


def test_notes_of_all_ranks_go_with_the_image(monkeypatch):
    made, _ = taken_over(monkeypatch, {"script": "this one"})
    for each in made:
        assert each.notes == {0: b"note", 1: b"note"}
        each.stepped()
        assert each.notes
        each.stepped()
        assert each.notes == {} and each._parts == [] and each.world == 2


def test_former_that_cannot_be_left_is_closed_all_the_same():
    events = []

    class Session(FakeSession):
        def leave(self):
            raise DataLoss("not left")

        def close(self):
            events.append("closed")

    former = handover._Former(None, TWO[0])
    former._session = Session()
    with pytest.raises(DataLoss, match="not left"):
        former.end(leaves=True)
    assert events == ["closed"]


def test_failure_of_a_collection_leaves_all_formers(monkeypatch):
    events = []
    monkeypatch.setattr(handover, "_Former", lambda _run, left: FakeFormer(
        events, left, problem=DataLoss("gone") if left.rank else None))
    made = as_ranks(2, lambda ranks: group_of(ranks, TWO).collect(Choice((0, 0)), None))
    assert isinstance(made[0], DataLoss) and isinstance(made[1], Aborted)
    assert sorted(events) == [("claim", 0), ("claim", 1), ("end", 0, True), ("end", 1, True)]


class SessionOfImage:
    def __init__(self, events):
        self.events = events
        self.close = weakref.finalize(self, events.append, "close")

    def hold(self, _name, nbytes):
        self.memory = (ctypes.c_char * nbytes)()
        return ctypes.addressof(self.memory), False

    def leave(self):
        self.events.append("leave")


def test_memory_of_an_image_that_is_left_is_no_longer_this_process_s():
    events = []
    memory = ImageMemory(lambda: SessionOfImage(events))
    events.clear()
    memory.leave()
    memory.leave()
    assert events == ["leave", "close"]


@pytest.mark.parametrize("failing", ["_connect", "_hold", "_bind"])
def test_prepare_that_fails_leaves_what_it_took_over(monkeypatch, failing):
    """Only the failing function is fake."""
    left = []

    class FakeHandover:
        world = 0

        def leave(self):
            left.append(True)

        def close(self):
            pass

    def fail(*_arguments):
        raise DataLoss("a failure")

    monkeypatch.setattr(prepare_, "_take_over", lambda *_arguments: FakeHandover())
    monkeypatch.setattr(holding, "run_name", lambda _resume: ("run of test_handover", True))
    monkeypatch.setattr(prepare_, failing, fail)
    model = torch.nn.Linear(2, 2)
    with pytest.raises(DataLoss, match="a failure"):
        geminid.torch.prepare(model, torch.optim.AdamW(model.parameters()), device_memory="1MiB", resume=True)
    assert left == [True]


# --- what must be the same ---------------------------------------------------------------------------


def terms(**options):
    return {**holding.terms_of({}, Optimizer("adamw", {}), options), "unit": "block"}


def test_options_that_change_no_bit_may_differ():
    of_before = terms(state_dtype="bf16", update_threads=4, timeout_seconds=60.0, state_disk_limit_bytes=1 << 30,
                      state_disk_endurance_bytes=1 << 40)
    holding.check(of_before, terms(state_dtype="bf16"), {})
    with pytest.raises(Refused, match="options of the engine") as raised:
        holding.check(of_before, terms(state_dtype="fp32"), {})
    assert "state_disk" not in str(raised.value)


def test_state_disk_of_another_rank_is_refused_with_what_would_do():
    with pytest.raises(Refused, match="give all of them the same folders"):
        holding.check(terms(state_disk="/disk/0"), terms(state_disk="/disk/1"), {})
    holding.check(terms(state_disk="/disk"), terms(state_disk="/disk"), {})
