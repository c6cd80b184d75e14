"""Ranks of torchrun with different batches, compared with one model that has all batches; and models that torch shards."""

import pathlib
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
import twins
import uneven_program
from models import make
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

from geminid import errors

PROGRAM = pathlib.Path(__file__).parent / "uneven_program.py"
PATIENCE_SECONDS = 300


@pytest.mark.parametrize("count", [2, 4])
def test_ranks_with_batches_of_their_own_train_as_one_model_on_all(tmp_path, count):
    model = make("llama", reentrant=False)
    plain = twins.Twin(model, twins.adamw(model.parameters()))
    for number in range(uneven_program.STEPS):
        losses = [uneven_program.loss_of(model, number, rank, count) for rank in range(count)]
        plain.losses.append(sum(loss.item() for loss in losses) / count)
        (sum(losses) / count).backward()
        twins.finish(plain)
    subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}",
                    str(PROGRAM), str(tmp_path)], check=True, timeout=PATIENCE_SECONDS)
    ranks = [torch.load(tmp_path / f"rank{rank}.pt") for rank in range(count)]
    mean = [sum(losses) / count for losses in zip(*(rank["losses"] for rank in ranks))]
    twins.assert_close(mean, plain.losses, twins.LOSS, "losses")
    for rank in ranks:
        twins.assert_close(rank["norms"], plain.norms, twins.NORM, "norms")


@pytest.fixture
def mesh():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def test_weights_that_torch_has_sharded_are_refused_by_name(mesh):
    model = make("llama")
    parallelize_module(model, mesh, {"blocks.*.up": ColwiseParallel()})
    with pytest.raises(errors.Refused, match=r"'blocks\.0\.up\.weight' is a DTensor.*Leave parallelize_module"):
        twins.prepared(model, twins.adamw(model.parameters()))


def test_a_module_of_fsdp_is_refused_by_name(mesh):
    model = make("llama", layers=1)
    fully_shard(model, mesh=mesh)
    with pytest.raises(errors.Refused, match="is a DTensor.*fully_shard"):
        twins.prepared(model, twins.adamw(model.parameters()))
