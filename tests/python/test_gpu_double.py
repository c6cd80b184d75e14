"""The way of weights and gradients that a GPU takes, on a driver without one: copies into memory of torch's, and from there."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

import twins

WITH_DOUBLE = pathlib.Path(os.environ.get("GEMINID_DAEMON", "")).parent / "geminid-with-double"
SCENARIOS = ("one_batch:block", "accumulate:leaf", "evaluate_between:block", "generate:leaf")
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


ON_DEVICE = pathlib.Path(__file__).parents[2] / "tools" / "gpu-verify" / "torch-on-device"


def test_torch_on_device_runs_on_the_host_and_leaves_what_each_item_found(tmp_path):
    items = ["scenarios fp32", "1.5b geminid 4 GiB", "1.5b plain"]
    command = [sys.executable, ON_DEVICE, tmp_path, "--device", "cpu", "--tiny", "--seconds", "400", "--only", ",".join(items)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "torch.json").read_text())["items"]
    assert [row["name"] for row in found] == items and all(row["passed"] for row in found)
    assert found[1]["loss_difference"] <= 2e-2 and len(found[1]["losses"]) == 4
    again = subprocess.run([*command, "--seconds", "0"], capture_output=True, text=True)
    assert again.returncode == 0, again.stdout  # what has passed is not run again


def test_torch_on_device_without_time_says_so(tmp_path):
    done = subprocess.run([sys.executable, ON_DEVICE, tmp_path, "--device", "cpu", "--tiny", "--seconds", "0"],
                          capture_output=True, text=True)
    assert done.returncode == 6 and "not run" in done.stdout
