"""Processes die and are restarted: the run continues with the bits of an undisturbed run."""

import contextlib
import gc
import importlib
import os
import pathlib
import subprocess
import sys
import uuid

import pytest
import torch

import geminid.torch
from geminid import errors
from geminid._library import LIB
from geminid.session import Session
from geminid.torch import activations
from models import batch, make
from resumed_program import Noisy, loader, prepared, train
from torch.utils.data import DataLoader
from twins import adamw

resume_ = importlib.import_module("geminid.torch.resume")

PROGRAM = pathlib.Path(__file__).parent / "resumed_program.py"
PATIENCE_SECONDS = 400
FLAGS = ["--host-memory", "512MiB", "--device-memory", "64MiB"]


class Died(Exception):
    pass


@pytest.fixture(scope="module")
def daemon():
    """Starts a daemon that retains the memory of dead processes, and yields its socket."""
    keeper = Session(64 << 10, private_daemon=True, daemon_flags=FLAGS)
    yield keeper.describe()["socket"]
    keeper.close()


@pytest.fixture
def name():
    return uuid.uuid4().hex


def assert_same(made, expected):
    for what in ("rate", "best", "scale", "step"):
        assert made[what] == expected[what], what
    assert torch.equal(made["random"], expected["random"])
    for key, value in expected["state"].items():
        assert torch.equal(made["state"][key], value), key
    for key, loss in made["losses"].items():
        assert loss == expected["losses"][key], key


@pytest.fixture(scope="module")
def undisturbed():
    return train(lambda *_: None)


@contextlib.contextmanager
def life(daemon, name):
    """Opens a session as a process of the run does. A block that ends with an exception counts as a death."""
    session = Session(448 << 10, socket=daemon, run=name, keep_on_death=True)
    try:
        yield session
    except BaseException:
        session.leave()
        raise
    finally:
        gc.collect()
        session.close()


def dies_at(daemon, name, *event, **options):
    """Runs one process of the run. It dies at the event."""
    def at(*here):
        if here == event:
            raise Died

    with pytest.raises(Died), life(daemon, name) as session:
        train(at, session=session, **options)
    gc.collect()  # the exception's frames still refer to the model


@pytest.mark.parametrize("own", [True, False])
def test_daemon_that_ends_with_the_process_is_warned_of(daemon, name, own, monkeypatch, recwarn):
    if not own:
        monkeypatch.setenv("GEMINID_SOCKET", daemon)
    model = make("gpt")
    geminid.torch.prepare(model, adamw(model.parameters()), device_memory="1MiB", resume=name)
    said = [str(warning.message) for warning in recwarn if "resume=" in str(warning.message)]
    assert len(said) == (1 if own else 0) and all("Start `geminid` and set GEMINID_SOCKET" in text for text in said)


def test_interrupt_of_a_step_counts_it(daemon, name, monkeypatch):
    """Python raises KeyboardInterrupt as a call of the library returns."""
    call = LIB.call

    def interrupted(what, *arguments):
        call(what, *arguments)
        if what == "engine_step":
            raise KeyboardInterrupt

    with life(daemon, name) as session:
        model = make("gpt")
        model, optimizer = prepared(model, adamw(model.parameters()), session=session)
        run = geminid.torch.resume(model)
        for number in run.range(2):
            model(*batch(number)).backward()
            with monkeypatch.context() as patched:
                patched.setattr(LIB, "call", interrupted)
                with pytest.raises(KeyboardInterrupt):
                    optimizer.step()
            optimizer.zero_grad()
            assert run.step == number + 1


EVENTS = [("forward", 0, 3), ("backward", 0, 2), ("clipped", 0, 3), ("stepped", 0, 3), ("noted", 0, 3), ("done", 0, 3),
          ("epoch", 0, None), ("forward", 1, 0), ("stepped", 1, 1), ("epoch", 1, None)]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: f"{event[0]} {event[1]} {event[2]}")
def test_process_that_takes_over_goes_on_to_the_bit(daemon, name, undisturbed, event, capfd):
    dies_at(daemon, name, *event)
    with life(daemon, name) as session:
        made = train(lambda *_: None, session=session)
    assert made["resumed"]
    assert "goes on after step" in capfd.readouterr().err
    assert_same(made, undisturbed)


@pytest.mark.parametrize("event", EVENTS[:4], ids=lambda event: f"{event[0]} {event[1]} {event[2]}")
def test_process_whose_activations_are_in_host_memory_goes_on_to_the_bit(daemon, name, undisturbed, event, monkeypatch):
    monkeypatch.setattr(activations, "SMALLEST", 512)
    dies_at(daemon, name, *event, activations="offload")
    with life(daemon, name) as session:
        made = train(lambda *_: None, session=session, activations="offload")
    assert made["resumed"]
    assert_same(made, undisturbed)


def test_process_that_dies_again_and_again_goes_on_to_the_bit(daemon, name, undisturbed):
    for event in [("noted", 0, 1), ("backward", 0, 1), ("stepped", 0, 5), ("done", 0, 5), ("clipped", 1, 1)]:
        dies_at(daemon, name, *event)
    with life(daemon, name) as session:
        made = train(lambda *_: None, session=session)
    assert_same(made, undisturbed)
    assert set(made["losses"]) < set(undisturbed["losses"]), "what was done is not done again"


def test_process_that_died_before_its_first_step_begins_anew(daemon, name, undisturbed):
    dies_at(daemon, name, "clipped", 0, 1)
    with life(daemon, name) as session:
        made = train(lambda *_: None, session=session)
    assert not made["resumed"]
    assert_same(made, undisturbed)


def test_run_that_ended_leaves_nothing(daemon, name, undisturbed):
    for _ in range(2):
        with life(daemon, name) as session:
            made = train(lambda *_: None, session=session)
        assert not made["resumed"]
        assert_same(made, undisturbed)


def refused_in(daemon, name, words, script):
    with pytest.raises(errors.Refused, match=words), life(daemon, name) as session:
        script(session)
    gc.collect()


@pytest.mark.parametrize("words, script", [
    ("optimizer 'sgd'.*had 'adamw'", lambda session: prepared(
        model := Noisy(), torch.optim.SGD(model.parameters(), lr=0.1), session=session)),
    ("number of parameters", lambda session: prepared(
        model := Noisy(layers=3), torch.optim.AdamW(model.parameters()), session=session)),
    ("'inner.embedding.weight' as parameter 0.*another name, shape, type or group", lambda session: prepared(
        model := Noisy().bfloat16(), torch.optim.AdamW(model.parameters()), session=session)),
    ("unit 'leaf'.*had 'block'", lambda session: geminid.torch.prepare(
        model := Noisy(), torch.optim.AdamW(model.parameters()), device_memory="448KiB", unit="leaf", session=session,
        chunk_elements=16384)),
    ("chunk_elements", lambda session: geminid.torch.prepare(
        model := Noisy(), torch.optim.AdamW(model.parameters()), device_memory="448KiB", unit="block", session=session)),
    ("is given.*and the process before gave it.*GradScaler", lambda session: geminid.torch.resume(
        prepared(model := Noisy(), torch.optim.AdamW(model.parameters()), session=session)[0])),
], ids=["optimizer", "size", "type", "unit", "engine", "objects"])
def test_another_script_is_refused_and_the_right_one_goes_on(daemon, name, undisturbed, words, script):
    dies_at(daemon, name, "forward", 0, 3)
    refused_in(daemon, name, words, script)
    with life(daemon, name) as session:
        made = train(lambda *_: None, session=session)
    assert made["resumed"]
    assert_same(made, undisturbed)


def test_checkpoint_loaded_over_what_was_left_is_refused(daemon, name, tmp_path):
    plain = prepared(model := Noisy(), torch.optim.AdamW(model.parameters()))
    geminid.torch.save(plain[0], tmp_path)
    state = plain[0].state_dict()
    for load in (lambda model, _: geminid.torch.load(model, tmp_path), lambda model, _: model.load_state_dict(state),
                 lambda _, optimizer: optimizer.load_state_dict(plain[1].state_dict())):
        dies_at(daemon, name, "forward", 0, 3)
        refused_in(daemon, name, "if not run.resumed", lambda session: load(
            *prepared(model := Noisy(), torch.optim.AdamW(model.parameters()), session=session)))


def test_step_without_resume_or_outside_of_its_loops_is_refused(daemon, name):
    def begun(session):
        model = make("gpt", layers=1)
        return prepared(model, adamw(model.parameters()), session=session)

    def without(session):
        model, optimizer = begun(session)
        model(*batch(0)).backward()
        optimizer.step()

    refused_in(daemon, name, "call geminid.torch.resume", without)

    def outside(session):
        model, optimizer = begun(session)
        geminid.torch.resume(model)
        model(*batch(0)).backward()
        optimizer.step()

    refused_in(daemon, name, "outside of run.range", outside)

    def drawn_by_hand(session):
        run = geminid.torch.resume(begun(session)[0])
        batches = run.batches("abc")
        for _ in run.range(2):
            next(batches)

    refused_in(daemon, name, "loop over run.batches alone", drawn_by_hand)


def test_loops_are_plain_ones_where_nothing_is_held():
    for model in (make("gpt", layers=1), prepared(other := make("gpt", layers=1), adamw(other.parameters()))[0]):
        run = geminid.torch.resume(model)
        assert [(epoch, list(run.enumerate("ab"))) for epoch in run.range(1, 3)] == [
            (1, [(0, "a"), (1, "b")]), (2, [(0, "a"), (1, "b")])]
        assert list(run.batches("xy")) == ["x", "y"] and not run.resumed and not run.replays


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(range(4))


class StreamOfFour(Stream):
    def __len__(self):
        return 4


def test_length_of_a_loader_is_unknown_where_its_dataset_has_none():
    lengths = [resume_._length(DataLoader(each)) for each in (Stream(), StreamOfFour(), range(4))]
    assert lengths == [None, 4, 4] and resume_._length(iter(())) is None


@pytest.mark.parametrize("own", [False, True], ids=["global", "own"])
def test_second_pass_that_is_resumed_has_its_own_order(daemon, name, own):
    """Its order is neither that of the first pass nor one from the generator's state in the middle of the pass."""
    def script(session, seen, last):
        torch.manual_seed(3)
        generator = torch.Generator().manual_seed(4) if own else None
        model = make("gpt", layers=1)
        model, optimizer = prepared(model, adamw(model.parameters()), session=session)
        run, samples = geminid.torch.resume(model), loader(generator)
        for epoch in run.range(2):
            for number, (tokens,) in run.enumerate(samples):
                seen[epoch, number] = tokens
                model(tokens[:, :-1], tokens[:, 1:]).backward()
                torch.rand(3)  # other code draws random numbers meanwhile
                optimizer.step()
                optimizer.zero_grad()
                if (epoch, number) == last:
                    raise Died

    calm, before, after = {}, {}, {}
    with life(daemon, name + "0") as session:
        script(session, calm, None)
    with pytest.raises(Died), life(daemon, name) as session:
        script(session, before, (1, 3))
    gc.collect()
    with life(daemon, name) as session:
        script(session, after, None)
    assert list(after) == [(1, number) for number in range(3, 6)]
    for key, tokens in calm.items():
        for seen in (before, after):
            assert key not in seen or torch.equal(seen[key], tokens), key


def test_note_that_does_not_fit_says_how_much_room_it_needs(daemon, name):
    class Large:
        def state_dict(self):
            return {"x": torch.zeros(1 << 20)}

    def script(session):
        model = make("gpt", layers=1)
        model, optimizer = prepared(model, adamw(model.parameters()), session=session)
        run = geminid.torch.resume(model, Large())
        for _ in run.range(1):
            model(*batch(0)).backward()
            optimizer.step()

    with pytest.raises(errors.ResourceExhausted, match="held_bytes="), life(daemon, name) as session:
        script(session)


# --- torchrun --------------------------------------------------------------------------------------


def torchrun(folder, socket, ranks, *deaths):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--max-restarts", "3",
               "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", "--rdzv-id", uuid.uuid4().hex,
               "--monitor-interval", "0.1", str(PROGRAM), str(folder), *deaths]
    done = subprocess.run(command, env=dict(os.environ, GEMINID_SOCKET=socket), timeout=PATIENCE_SECONDS,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    assert all((folder / death).exists() for death in deaths), "somebody was to die and did not"
    return [torch.load(folder / f"rank{rank}.pt", weights_only=False) for rank in range(ranks)], done.stdout


@pytest.mark.parametrize("ranks, deaths", [
    (1, ["backward:0:3:0", "stepped:1:1:0"]),
    (2, ["stepped:0:3:1", "forward:1:2:0", "noted:1:3:0"]),
], ids=["one rank", "two ranks"])
def test_ranks_killed_under_torchrun_go_on_to_the_bit(daemon, tmp_path, ranks, deaths):
    (tmp_path / "calm").mkdir()
    (tmp_path / "killed").mkdir()
    calm, _ = torchrun(tmp_path / "calm", daemon, ranks)
    killed, said = torchrun(tmp_path / "killed", daemon, ranks, *deaths)
    assert said.count("goes on after step") == len(deaths)
    for made, expected in zip(killed, calm):
        assert made["resumed"]
        assert_same(made, expected)


def test_ranks_killed_before_their_first_step_say_that_they_begin_anew(daemon, tmp_path):
    _, said = torchrun(tmp_path, daemon, 1, "clipped:0:1:0")
    assert "start 2: not all ranks left their state in memory; begins anew" in said
