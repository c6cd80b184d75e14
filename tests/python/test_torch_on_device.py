"""A whole run of tools/gpu-verify/torch-on-device, on the host and with small models."""

import json
import os
import pathlib
import subprocess
import sys

ON_DEVICE = pathlib.Path(__file__).parents[2] / "tools" / "gpu-verify" / "torch-on-device"
TINY = ("--device", "cpu", "--tiny", "--seconds", "400")


def call(folder, *arguments, **variables):
    return subprocess.run([sys.executable, ON_DEVICE, folder, *arguments], capture_output=True, text=True,
                          env={**os.environ, **variables})


def items(folder):
    return {row["name"]: row for row in json.loads((folder / "torch.json").read_text())["items"]}


def test_call_after_one_with_a_failure_runs_what_failed_and_what_is_new(tmp_path):
    trained = "1.5b/plain,1.5b/geminid-6GiB"
    first = call(tmp_path, *TINY, "--only", trained, GEMINID_LIBRARY="/nowhere")
    failed, plain = (items(tmp_path)[name] for name in ("1.5b/geminid-6GiB", "1.5b/plain"))
    assert first.returncode == 1 and plain["passed"] and not failed["passed"], first.stdout
    assert failed["error"].startswith("first cause, line ") and "/nowhere" in failed["error"], failed["error"]

    second = call(tmp_path, *TINY, "--only", f"scenarios-fp32,{trained}")
    assert second.returncode == 0, second.stdout + second.stderr
    found = items(tmp_path)
    assert list(found) == ["scenarios-fp32", "1.5b/plain", "1.5b/geminid-6GiB"] and all(row["passed"] for row in found.values())
    assert found["1.5b/plain"] == plain  # it was not run again
    ours = found["1.5b/geminid-6GiB"]
    assert ours["loss_difference"] <= 2e-2 and len(ours["losses"]) == 4 and len(set(ours["losses"])) == 4

    third = call(tmp_path, *TINY[:3], "--seconds", "0", "--only", f"scenarios-fp32,{trained}")
    assert third.returncode == 0, third.stdout
