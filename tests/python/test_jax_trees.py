"""python/examples/jax_trees.py: training of a JAX tree in pinned host memory continues after its process was killed."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest

pytest.importorskip("jax")

from geminid.session import Session

PROGRAM = pathlib.Path(__file__).resolve().parents[2] / "python/examples/jax_trees.py"
PATIENCE_SECONDS = 300


def run(environment, *arguments):
    """Returns (exit code, the lines with losses)."""
    done = subprocess.run([sys.executable, str(PROGRAM), *arguments], env={**os.environ, **environment}, text=True,
                          stdout=subprocess.PIPE, timeout=PATIENCE_SECONDS, check=False)
    return done.returncode, [line for line in done.stdout.splitlines() if line.startswith("loss ")]


def test_tree_of_the_last_committed_step_is_restored_after_kill_9():
    code, whole = run({})
    assert code == 0 and len(whole) == 6
    keeper = Session(64 << 10, private_daemon=True, daemon_flags=["--host-memory", "256MiB", "--device-memory", "64MiB"])
    kept = {"GEMINID_SOCKET": keeper.describe()["socket"], "GEMINID_JOB_ID": "jax-trees-test"}
    code, first = run(kept, "--die-at", "3")
    assert code == -signal.SIGKILL and first == whole[:4]
    code, second = run(kept)
    assert code == 0 and second == whole[3:], "it goes on with the step that was not committed"
    keeper.close()
