"""Two ranks on half batches, compared with one model on whole batches."""

import os
import pathlib
import re
import subprocess
import sys
import uuid

import torch

import twins
from models import batch, make

PROGRAM = pathlib.Path(__file__).parent / "rank_program.py"
PATIENCE_SECONDS = 300


def run_ranks(folder, *more):
    job = uuid.uuid4().hex  # so that two runs use different shared memory
    processes = [subprocess.Popen([sys.executable, str(PROGRAM), str(folder), *more], env=dict(
        os.environ, RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE="2", GEMINID_JOB_ID=job,
        MASTER_ADDR="127.0.0.1")) for rank in range(2)]
    try:
        for process in processes:
            assert process.wait(PATIENCE_SECONDS) == 0
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return [torch.load(folder / f"rank{rank}.pt") for rank in range(2)]


def test_two_ranks_train_as_one(tmp_path):
    first, second = run_ranks(tmp_path)
    model = make("gpt", tied="shared", reentrant=False)
    plain = twins.Twin(model, twins.adamw(model.parameters()))
    for number in range(5):
        if number == 4:
            with torch.no_grad():
                model.norm.weight.mul_(2)
        for micro in range(2):
            loss = plain.model(*batch(10 * number + micro, size=4)) / 2
            plain.losses.append(loss.item())
            loss.backward()
        twins.finish(plain)
    mean = [(a + b) / 2 for a, b in zip(first["losses"], second["losses"])]
    twins.assert_close(mean, plain.losses, twins.LOSS, "losses")
    twins.assert_close(first["norms"], plain.norms, twins.NORM, "norms")
    assert first["norms"] == second["norms"]
    for name, values in first["state"].items():
        assert torch.equal(values, second["state"][name]), name
    assert_same_state(first["optimizer"], plain.optimizer.state_dict())
    for other in (second["optimizer"], first["again"], second["again"]):
        assert_same_state(other, first["optimizer"], rtol=0, atol=0)


def assert_same_state(made, expected, rtol=1e-4, atol=1e-7):
    assert made["state"].keys() == expected["state"].keys()
    for number, entry in expected["state"].items():
        for name, value in entry.items():
            torch.testing.assert_close(made["state"][number][name], value, rtol=rtol, atol=atol)
    assert [group["params"] for group in made["param_groups"]] == [group["params"] for group in expected["param_groups"]]


def test_ranks_that_begin_with_different_values_are_refused_by_name(tmp_path):
    for rank in run_ranks(tmp_path, "different"):
        assert rank["refusal"].startswith("'blocks.2.down.weight' has not the same values on all ranks; call torch.manual_seed")


def test_ranks_that_call_other_modules_are_told_what_each_did_and_what_a_script_has_to_do(tmp_path):
    for rank in run_ranks(tmp_path, "alone"):
        assert re.search(r"This rank (gathered|added the gradient of) '[\w.]+'.*same modules in the same order on all ranks"
                         ".*evaluation.*DistributedSampler",
                         rank["error"]), rank["error"]


def test_a_save_on_one_rank_alone_is_named_on_both_within_seconds(tmp_path):
    first, second = run_ranks(tmp_path, "saves")
    for rank in (first, second):
        for words in ("ranks disagree", "rank 0 called Barrier for saving a checkpoint", "rank 1 called AllGather"):
            assert words in rank["error"], rank["error"]
        assert rank["seconds"] < 50  # less than any timeout of ranks
    assert "This rank called geminid.torch.save" in first["error"]
    assert re.search(r"This rank gathered '[\w.]+'", second["error"]), second["error"]
