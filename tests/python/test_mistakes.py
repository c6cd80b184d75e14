"""A wrong combination of libraries gets one message that says what to write instead, before anything has changed."""

import pytest
import torch
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DistributedDataParallel

import geminid.torch
import twins
from geminid import errors
from models import batch, make
from steps import one_batch
from test_wrappers import group

__all__ = ["group"]


def refused(words):
    return pytest.raises(errors.Refused, match=words)


def as_before(model):
    return all(type(p) is torch.nn.Parameter for p in model.parameters())


WRAPPERS = {"DistributedDataParallel": lambda m: DistributedDataParallel(m), "DataParallel": torch.nn.DataParallel,
            "DataParallel of a part": lambda m: torch.nn.Sequential(torch.nn.DataParallel(m)),
            "FullyShardedDataParallel": lambda m: FullyShardedDataParallel(m, device_id=torch.device("cpu"))}


@pytest.mark.parametrize("name", WRAPPERS)
def test_model_in_a_wrapper_is_refused_with_the_line_to_delete(group, name):
    model = WRAPPERS[name](make("gpt"))
    optimizer = twins.adamw(model.parameters())
    with refused(rf"the model is wrapped by {name.split()[0]}.*delete the line with {name.split()[0]}"
                 if " " not in name else r"'0' of the model is wrapped by DataParallel"):
        twins.prepared(model, optimizer)
    assert as_before(model)


def test_model_that_torch_has_sharded_is_refused(group):
    model = make("gpt")
    fully_shard(model, mesh=torch.distributed.device_mesh.init_device_mesh("cpu", (1,)))
    with refused("is a DTensor, which torch has sharded.*fully_shard out"):
        twins.prepared(model, twins.adamw(model.parameters()))


def test_optimizer_made_before_the_model_was_changed_is_refused():
    model = make("gpt")
    optimizer = twins.adamw(model.parameters())
    model.head = torch.nn.Linear(64, 96, bias=False)  # like resize_token_embeddings
    with refused("'head.weight' requires a gradient, and the optimizer does not have it"):
        twins.prepared(model, optimizer)


def test_optimizer_that_prepare_was_given_is_not_stepped():
    both = twins.pair(make("gpt"))
    twins.run(both, one_batch, steps=1)
    model = make("gpt")
    given = twins.adamw(model.parameters())
    scheduler = torch.optim.lr_scheduler.LinearLR(given, 1.0, 0.1, 4)
    model, optimizer = twins.prepared(model, given)
    later = torch.optim.lr_scheduler.LinearLR(given, 1.0, 0.1, 4)
    model(*batch(0)).backward()
    with refused(r"step the optimizer that prepare returned: model, optimizer = geminid.torch.prepare"):
        given.step()
    optimizer.step()
    for one in (scheduler, later):  # schedulers of the given optimizer still work
        one.step()
    assert optimizer.param_groups[0]["lr"] < 1e-4


def test_optimizer_of_accelerate_is_refused_with_the_order_of_calls():
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True)
    model = make("gpt")
    model, optimizer = accelerator.prepare(model, twins.adamw(model.parameters()))
    with refused("AcceleratedOptimizer is around torch.optim.adamw.AdamW.*accelerator.prepare after geminid.torch.prepare"):
        geminid.torch.prepare(model, optimizer, device_memory="8MiB")
    assert as_before(model)


def call_from(package, function):
    """Calls the function as if a module of the package called it."""
    made = {"__name__": f"{package}.something"}
    exec("def call(function):\n    return function()", made)
    return made["call"](function)


@pytest.mark.parametrize("package, words", [
    ("accelerate", r"model = accelerator.prepare_model\(model, device_placement=False, evaluation_mode=True\)"),
    ("transformers", r"use geminid.transformers.Trainer in place of transformers.Trainer"),
    ("lightning", r"Trainer\(strategy=geminid.lightning.GeminidStrategy\(device_memory=...\)\)"),
    ("ray", r"delete the line with ray.train.torch.prepare_model"),
])
def test_wrapper_that_a_library_puts_around_is_refused_with_what_to_write_there(group, package, words):
    model = make("gpt")
    model, _ = twins.prepared(model, twins.adamw(model.parameters()))
    with refused(words):
        call_from(package, lambda: DistributedDataParallel(model))
    with refused(words):  # names the library that the script calls, not a library that this one calls
        call_from(package, lambda: call_from("accelerate", lambda: DistributedDataParallel(model)))


def test_second_trainer_moves_a_prepared_model_nowhere():
    model = make("gpt")
    model, _ = twins.prepared(model, twins.adamw(model.parameters()))
    with refused("Call them before geminid.torch.prepare"):
        model.to("meta")
