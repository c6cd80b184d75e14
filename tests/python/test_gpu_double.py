"""Weights and gradients are copied to and from torch's memory as on a GPU, with a simulated CUDA driver."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

import twins

WITH_DOUBLE = pathlib.Path(os.environ.get("GEMINID_DAEMON", "")).parent / "geminid-with-double"
OFFLOADED = ("accumulate:block:offload", "retained:leaf:offload")
SCENARIOS = ("one_batch:block", "accumulate:leaf", "evaluate_between:block", "generate:leaf", *OFFLOADED)
STEPS = 3


@pytest.fixture(scope="module")
def found():
    if not WITH_DOUBLE.exists():
        pytest.skip("geminid-with-double is not built")
    program = pathlib.Path(__file__).parent / "double_program.py"
    done = subprocess.run([WITH_DOUBLE, "--memory", "256", sys.executable, program, *SCENARIOS], capture_output=True,
                          text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario_on_gpu_without_one_is_that_of_torch(found, scenario):
    assert found[scenario]["loss"] <= twins.LOSS and found[scenario]["norm"] <= twins.NORM, found[scenario]
    assert found[scenario]["moved_bytes"] > 1.5 * STEPS * found[scenario]["weight_bytes"], "chunks stayed"


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_weights_nobody_uses_take_no_memory_of_torch(found, scenario):
    assert found[scenario]["bytes_left_in_torch"] == 0


@pytest.mark.parametrize("scenario", OFFLOADED)
def test_activations_cross_the_link_to_the_gpu_and_are_forgotten(found, scenario):
    assert found[scenario]["activation_bytes"] > 0 and found[scenario]["activation_items"] == 0


def test_torch_gets_what_the_arena_leaves_of_the_gpu(found):
    gib, arena = 1 << 30, 2 << 20
    assert found["one_batch:block"]["fraction"] == (gib - arena) / gib
    assert found["one_batch:block"]["torch_memory"]["limit_bytes"] == gib - arena


def test_peak_of_torch_in_a_unit_is_its_weights_where_torch_has_nothing_else(found):
    one = found["one_batch:block"]
    named = {unit["name"]: unit for unit in one["torch_memory"]["units"]}
    assert set(named) == set(one["unit_bytes"])
    for name, nbytes in one["unit_bytes"].items():
        assert named[name]["forward_peak_bytes"] == nbytes, name
    # At the end of one unit's backward the next begins, and both may be in memory.
    largest = max(one["unit_bytes"].values())
    for name, nbytes in one["unit_bytes"].items():
        assert nbytes <= named[name]["backward_peak_bytes"] <= nbytes + largest, name
    assert "torch's memory, at most 1022 MiB: unit" in one["table"] and "blocks.0" in one["table"]
