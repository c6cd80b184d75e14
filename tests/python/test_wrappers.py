"""torch's wrappers that do the engine's work are refused by name, before they have changed anything."""

import pytest
import torch
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DistributedDataParallel

import twins
from geminid import errors
from models import make
from steps import one_batch


@pytest.fixture
def group(tmp_path):
    """Makes a process group of one process."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def look(model):
    """Returns the properties of a model that a wrapper would change."""
    return {name: (type(module), set(module.__dict__), list(module._parameters.values()), *map(len, (
        module._forward_pre_hooks, module._forward_hooks, module._backward_hooks)))
        for name, module in model.named_modules()}


WRAPPERS = {
    "DistributedDataParallel": lambda m: DistributedDataParallel(m),
    "DistributedDataParallel around": lambda m: DistributedDataParallel(module=torch.nn.Sequential(m)),
    "DistributedDataParallel as it is": lambda m: DistributedDataParallel(m, init_sync=False),
    "fully_shard": lambda m: fully_shard(m),
    "fully_shard of a block": lambda m: fully_shard(m.blocks[0]),
    "fully_shard of several": lambda m: fully_shard([m.norm, m.head]),
    "fully_shard by its module": lambda m: torch.distributed.fsdp.fully_shard(module=m),
    "FullyShardedDataParallel": lambda m: FullyShardedDataParallel(m),
}


@pytest.mark.parametrize("name", WRAPPERS)
def test_wrapper_around_a_prepared_model_is_refused_with_what_to_delete(group, name):
    both = twins.pair(make("gpt"), device_memory="448KiB")
    twins.run(both, one_batch, steps=1)
    model = both[1].model
    before = look(model)
    wrapper = name.split()[0]
    with pytest.raises(errors.Refused, match=rf"^{wrapper} was given .* with '[a-z0-9.]+', a parameter of a prepared model.*"
                                             rf"delete the line with {wrapper}, and train the model that"):
        WRAPPERS[name](model)
    assert look(model) == before
    twins.run(both, one_batch, steps=3)
    twins.assert_same(both)


@pytest.mark.parametrize("wrap", [DistributedDataParallel, fully_shard],
                         ids=lambda wrap: wrap.__name__)
def test_wrapper_around_another_model_works_as_before(group, wrap):
    twins.prepared(model := make("gpt"), twins.adamw(model.parameters()))
    around = wrap(torch.nn.Linear(4, 4))
    around(torch.ones(2, 4)).sum().backward()
    assert all(p.grad is not None for p in around.parameters())
