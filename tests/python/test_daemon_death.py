"""The daemon is killed while a model trains. The next daemon continues to serve it, and no bit changes."""

import os
import pathlib
import signal

import pytest
import torch
import twins
from geminid.session import Session
from models import batch, make

STEPS = 4


def daemon_of(session):
    """Returns the process of the session's daemon."""
    folder = str(pathlib.Path(session.describe()["socket"]).parent).encode()
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"/geminid") and any(folder in word for word in words):
            return int(process.name)
    return None


def train(kill_at):
    """Returns losses, norms and weights. kill_at: a function that is called with the session, in the middle of each
    backward and between steps."""
    session = Session(384 << 10, private_daemon=True, daemon_flags=["--host-memory", "256MiB", "--device-memory", "64MiB"])
    model = make("gpt")
    twin = twins.Twin(*twins.prepared(model, twins.adamw(model.parameters()), session=session))

    def hook_output(_module, _inputs, output):
        output.register_hook(lambda _gradient: kill_at("backward", session))

    twin.model.blocks[1].register_forward_hook(hook_output)
    twin.model.blocks[1].register_forward_pre_hook(lambda *_: kill_at("forward", session))
    for number in range(STEPS):
        loss = twin.model(*batch(number))
        twin.losses.append(loss.item())
        loss.backward()
        twins.finish(twin)
        kill_at("between", session)
    twins.assert_moved(twin, STEPS)
    return twin.losses, twin.norms, twin.model.state_dict()


@pytest.fixture(scope="module")
def calm():
    return train(lambda *_: None)


@pytest.mark.parametrize("where", ["forward", "backward", "between"])
def test_killed_daemon_changes_no_bit(calm, where):
    killed = []

    def kill_at(here, session):
        process = daemon_of(session)
        if here == where and process is not None and process not in killed:
            killed.append(process)
            os.kill(process, signal.SIGKILL)

    losses, norms, state = train(kill_at)
    assert len(killed) >= 2, "the second one is the one that was started again"
    assert losses == calm[0] and norms == calm[1]
    for name, values in calm[2].items():
        assert torch.equal(state[name], values), name
