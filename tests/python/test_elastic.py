"""Runs whose number of ranks changes continue from the memory of the previous ranks."""

import multiprocessing
import os
import signal
import uuid

import pytest
import torch

import elastic_program
from elastic_program import STEPS, passes, train
from geminid.session import Session, run_ranks
from geminid.torch import holding
from geminid.torch.elastic import Choice, Found, Image, InPass, Left, choose, common, place_in_pass, whole_image
from geminid.torch.image import run_of_image

PATIENCE_SECONDS = 300
FLAGS = ["--host-memory", "512MiB", "--device-memory", "64MiB"]
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["elastic_program"])


@pytest.fixture(scope="module")
def daemon():
    """Starts a daemon and yields its socket."""
    keeper = Session(64 << 10, private_daemon=True, daemon_flags=FLAGS)
    yield keeper.describe()["socket"]
    keeper.close()


class Group:
    """Starts ranks of one run, as torchrun does."""

    def __init__(self, daemon, folder):
        self.daemon, self.folder, self.name, self.starts = daemon, folder, uuid.uuid4().hex, 0

    def start(self, world, work=train, death=None, daemons=None, **options):
        """Returns the result of each rank, or nothing if one of them dies: then the other ranks are told to end."""
        folder = self.folder / f"{self.name} {self.starts}"
        folder.mkdir()
        processes = []
        for rank in range(world):
            environment = {"GEMINID_SOCKET": daemons[rank] if daemons else self.daemon, "TORCHELASTIC_RUN_ID": self.name,
                           "TORCHELASTIC_MAX_RESTARTS": "9", "TORCHELASTIC_RESTART_COUNT": str(min(self.starts, 8)),
                           "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
            processes.append(_FORKS.Process(target=elastic_program.rank_of, args=(
                environment, str(folder), rank, world, work, death, options)))
            processes[-1].start()
        self.starts += 1
        if death is not None:
            processes[death[2]].join(PATIENCE_SECONDS)
            for process in processes:
                process.terminate()
        for process in processes:
            process.join(PATIENCE_SECONDS)
        self.said = "".join((folder / f"said{rank}").read_text() for rank in range(world))
        codes = [process.exitcode for process in processes]
        if death is not None:
            assert codes[death[2]] == -signal.SIGKILL, self.said
            return None
        assert codes == [0] * world, self.said
        return [torch.load(folder / f"made{rank}.pt", weights_only=False) for rank in range(world)]

    def left(self):
        """Returns the ranks of the run in the daemon, and the memory that it holds for a change."""
        return run_ranks(self.daemon, self.name) + run_ranks(self.daemon, run_of_image(self.name))


@pytest.fixture
def group(daemon, tmp_path):
    return Group(daemon, tmp_path)


@pytest.fixture(scope="module")
def by_checkpoint(daemon, tmp_path_factory):
    """Returns a function: the results of `after` ranks that load the checkpoint of `before` ranks after some steps."""
    made = {}

    def of(before, after, steps, **options):
        key = before, after, steps, *options.items()
        if key not in made:
            folder = tmp_path_factory.mktemp("reference")
            saved = folder / "checkpoint"
            Group(daemon, folder).start(before, save=(str(saved), steps), **options)
            made[key] = Group(daemon, folder).start(after, load=(str(saved), steps), **options)
        return made[key]

    return of


def assert_goes_on(made, expected, step, before):
    for mine, theirs in zip(made, expected, strict=True):
        assert mine["resumed"] and mine["before"] == before
        assert mine["step"] == mine["steps"] == STEPS and mine["rate"] == theirs["rate"]
        assert set(mine["losses"]) == set(range(step - 1, STEPS))
        for number in range(step, STEPS):
            assert mine["losses"][number] == theirs["losses"][number], number
        for key, value in theirs["state"].items():
            assert torch.equal(mine["state"][key], value), key


@pytest.mark.parametrize("before, after, death, step, options", [
    (2, 1, ("stepped", 3, 1), 4, {"state_dtype": "bf16"}), (1, 2, ("backward", 3, 0), 3, {"optimizer": "sgd"}),
    (2, 3, ("backward", 3, 1), 3, {})], ids=["2 to 1", "1 to 2", "2 to 3"])
def test_ranks_of_another_number_go_on_as_from_a_checkpoint_of_that_step(group, by_checkpoint, before, after, death, step,
                                                                         options):
    group.start(before, death=death, **options)
    made = group.start(after, **options)
    plural = "s" if before > 1 else ""
    assert f"goes on after step {step}, from the memory of {before} rank{plural}, now {after}" in group.said
    assert_goes_on(made, by_checkpoint(before, after, step, **options), step, before)
    assert group.left() == [], "the memory of the ranks before was given back"


@pytest.mark.parametrize("death", [("collected", 0, 0), ("recorded", 0, 0), ("begun", 2, 2)], ids=lambda death: death[0])
def test_death_in_the_middle_of_a_change_begins_it_again(group, by_checkpoint, death):
    """Two ranks leave their state. Three ranks take it, and one of them dies before its first step. Then one rank resumes."""
    group.start(2, death=("stepped", 2, 0))
    group.start(3, death=death)
    made = group.start(1)
    assert "from the memory of 2 ranks, now 1" in group.said
    assert_goes_on(made, by_checkpoint(2, 1, 3), 3, 2)
    assert group.left() == []


def test_state_of_which_a_rank_is_missing_is_not_gone_on_from(group):
    group.start(2, death=("stepped", 3, 1))
    Session(0, socket=group.daemon, run=group.name, place=elastic_program.Spot(1, 2), keep_on_death=True).close()
    made = group.start(1)
    assert "(rank 1 of 2 has left no state); begins anew. A script that saves checkpoints loads the newest" in group.said
    assert not made[0]["resumed"] and made[0]["before"] == 0 and set(made[0]["losses"]) == set(range(STEPS))
    assert group.left() == []


def test_state_on_two_daemons_goes_to_ranks_on_either(group, by_checkpoint):
    other = Session(64 << 10, private_daemon=True, daemon_flags=FLAGS)
    there = other.describe()["socket"]
    group.start(2, death=("stepped", 3, 1), daemons=[group.daemon, there])
    made = group.start(2, daemons=[there, group.daemon])
    assert "from the memory of 2 ranks, now 2" in group.said
    assert_goes_on(made, by_checkpoint(2, 2, 4), 4, 2)
    assert group.left() == [] and run_ranks(there, group.name) == []
    other.close()


def test_batches_of_a_pass_are_shared_out(group):
    """2 ranks train 12 samples, and 12 are left: 3 batches of 2 for each of 2 ranks, 2 batches for each of 3."""
    group.start(2, work=passes, death=("done", (0, 2), 0))
    made = group.start(3, work=passes)
    assert [rank["batches"] for rank in made] == [6, 6, 6]
    assert "6 batches were trained; each of 3 ranks goes on with its batch 2\n" in group.said
    seen = [which for rank in made for epoch, which in rank["seen"] if epoch == 0]
    order = torch.randperm(24, generator=torch.Generator().manual_seed(3)).tolist()
    assert sorted(seen) == sorted(order[12:])
    assert sorted(which for rank in made for epoch, which in rank["seen"] if epoch == 1) == list(range(24))


# --- decisions -------------------------------------------------------------------------------------


def left(world, *ranks, step=5):
    return tuple(Left(world, rank, step) for rank in ranks)


def test_ranks_that_are_where_they_were_claim_their_own():
    assert choose([0, 0], [Found(left(2, 0, 1))]) == Choice((0, 0), claims=True)
    assert choose([0, 1], [Found(left(2, 0)), Found(left(2, 1))]) == Choice((0, 1), claims=True)


def test_ranks_of_another_number_or_place_are_collected():
    assert choose([0], [Found(left(2, 0, 1))]) == Choice((0, 0))
    assert choose([0, 1], [Found(left(2, 1)), Found(left(2, 0))]) == Choice((1, 0))
    assert choose([0, 1, 1], [Found(), Found(left(2, 0, 1))]) == Choice((1, 1))


def test_group_that_is_not_whole_is_named():
    assert choose([0], [Found(left(2, 1))]) == Choice(missing="rank 0 of 2 has left no state")
    assert choose([0], [Found(left(4, 1, 2))]).missing == "2 of 4 ranks have left no state"
    assert choose([0], [Found()]) == Choice()


def test_group_that_has_come_farthest_counts():
    assert choose([0], [Found(left(1, 0, step=3) + left(2, 0, 1, step=7))]).world == 2
    assert choose([0], [Found(left(1, 0, step=7) + left(2, 0, 1, step=7))]).world == 1
    assert choose([0], [Found(left(1, 0, step=3) + left(2, 0, step=7))]).world == 1


def test_ranks_that_were_in_one_group_are_taken_together():
    """No rank commits a step before all ranks have committed the previous step. Steps farther apart are of different groups:
    a host that was away has old state. The daemon's step may be one behind the committed step; 0 means unknown."""
    stale = Found(left(2, 0, 1, step=3))
    assert choose([0], [stale, Found(left(2, 1, step=7))]).owners == (0, 0), "rank 0 of step 7 is gone"
    assert choose([0], [stale, Found(left(2, 0, step=8)), Found(left(2, 1, step=7))]).owners == (1, 2)
    assert choose([0], [Found(left(2, 0, step=3)), Found(left(2, 1, step=4))]).owners == (0, 1)
    assert choose([0], [Found(left(2, 0, step=7)), Found(left(2, 1, step=0))]).owners == (0, 1)
    in_doubt = [Found(left(2, 0, step=7)), Found(left(2, 1, step=0)), Found(left(2, 1, step=6))]
    assert choose([0], in_doubt).owners == (0, 2)
    assert choose([0], [*in_doubt[:2], stale]).owners == (0, 1), "the newest, though a step is unknown"


def test_ranks_of_different_steps_are_not_whole():
    of_two = [Found(left(2, 0, step=3)), Found(left(2, 1, step=7))]
    assert choose([0], of_two) == Choice(missing="what 2 ranks have left in memory is of different steps")
    assert choose([0, 1], of_two).claims is False
    assert choose([0], [*of_two, Found(left(1, 0, step=2))]).world == 1
    apart = [Found(left(3, 0, step=5)), Found(left(3, 1, step=6)), Found(left(3, 2, step=7))]
    assert choose([0], apart).world == 0


def test_images_count_where_those_of_one_generation_have_all_ranks():
    one, two, old = Image(1, 2, (0,), 4), Image(1, 2, (1,), 4), Image(2, 2, (1,), 9)
    assert whole_image([Found(image=one), Found(image=two)]) == one
    assert whole_image([Found(image=one), Found(image=old)]) is None
    assert whole_image([Found(image=one)]) is None and whole_image([]) is None


def test_common_ranges_are_those_of_both():
    assert list(common(10, 10, [(0, 10), (20, 5)])) == []
    assert list(common(10, 10, [(0, 11), (15, 2), (19, 100)])) == [(10, 1), (15, 2), (19, 1)]


@pytest.mark.parametrize("batch, every, before, now, length, expected", [
    (2, 1, 2, 3, 4, InPass(2, 1, 0)),
    (2, 1, 2, 4, None, InPass(1, 0, 2)),
    (0, 1, 1, 2, 12, InPass(0, 0, 1)),  # the pass begins again after the committed step
    (3, 2, 2, 1, 20, InPass(8, 7, 0)),
    (3, 2, 1, 2, 20, InPass(2, 1, 0)),
    (3, 2, 2, 3, 20, InPass(2, 1, 2)),  # only whole steps of two batches count
    (3, 1, 3, 2, 5, InPass(5, 4, 0)),  # a sampler has padded
])
def test_place_in_a_pass_of_another_number_of_ranks(batch, every, before, now, length, expected):
    assert place_in_pass(batch, every, before, now, length) == expected


@pytest.mark.parametrize("most, rank, resume, warns", [("0", "0", True, True), ("3", "0", True, False), ("0", "1", True, False),
                                                       ("0", "0", "a name", False), ("0", "0", False, False)])
def test_torchrun_that_starts_nothing_again_is_warned_of(monkeypatch, recwarn, most, rank, resume, warns):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "run")
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", most)
    monkeypatch.setenv("RANK", rank)
    holding.warn_of_no_restarts(resume)
    assert len(recwarn) == warns and all("--max-restarts" in str(warning.message) for warning in recwarn)


@pytest.mark.parametrize("job, given, name", [
    ("", "none", "none:29500"), ("", "", "run:29500"), ("", "mine", "mine"), ("job", "none", "job"), ("job", "", "job"),
    ("job", "mine", "job.mine")])
def test_run_is_told_apart_by_the_names_that_it_was_given(monkeypatch, job, given, name):
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "3")
    monkeypatch.setenv("MASTER_PORT", "29500")
    monkeypatch.setenv("GEMINID_JOB_ID", job)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", given)
    assert holding.run_name(True) == (name, True)
    assert len(run_of_image(name)) <= 63 and run_of_image(name) != name


def test_runs_with_long_names_are_told_apart(monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "3")
    monkeypatch.delenv("GEMINID_JOB_ID", raising=False)
    names = []
    for end in "ab":
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x" * 80 + end)
        name, _ = holding.run_name(True)
        names += [name, run_of_image(name)]
    assert len(set(names)) == 4 and all(len(name) == 63 for name in names)
