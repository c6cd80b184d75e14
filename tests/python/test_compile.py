"""torch.compile of a prepared model's blocks, in each way in which users write it."""

import copy

import pytest
import torch
import torch._dynamo

import twins
from models import batch, make
from steps import accumulate, evaluate_between, one_batch


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def by_method(model, **options):
    for block in model.blocks:
        block.compile(**options)


def by_forward(model, **options):
    for block in model.blocks:
        block.forward = torch.compile(block.forward, **options)


def by_wrapper(model, **options):
    for number, block in enumerate(model.blocks):
        model.blocks[number] = torch.compile(block, **options)


def compiled_pair(kind, how, before, unit="block", memory=None, model=None, **options):
    """Returns (plain, prepared with compiled blocks)."""
    plain = model or make(kind)
    other = copy.deepcopy(plain)
    if before:
        how(other, **options)
    ours = twins.Twin(*twins.prepared(other, twins.adamw(other.parameters()), unit=unit,
                                      device_memory=memory or twins.SMALL[kind, unit]))
    if not before:
        how(ours.model, **options)
    return twins.Twin(plain, twins.adamw(plain.parameters())), ours


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("kind, unit", [("gpt", "block"), ("llama", "block"), ("gpt", "leaf")])
def test_compiled_blocks_train_as_plain_ones(kind, unit, backend):
    both = compiled_pair(kind, by_method, before=False, unit=unit, backend=backend)
    twins.run(both, one_batch, steps=4)
    twins.assert_same(both)
    twins.assert_moved(both[1], steps=2)
    with twins.nothing_open(both[1]):
        pass


@pytest.mark.parametrize("how, before", [(by_method, False), (by_method, True), (by_forward, False), (by_forward, True),
                                         (by_wrapper, True), (by_wrapper, False)])
@pytest.mark.parametrize("kind", ["gpt", "llama"])
def test_blocks_compiled_as_one_graph_train_as_plain_ones(kind, how, before):
    both = compiled_pair(kind, how, before, backend="aot_eager", fullgraph=True)
    twins.run(both, one_batch, steps=3)
    twins.assert_same(both)
    with twins.nothing_open(both[1]):
        pass


def whole(model, **options):
    model.compile(**options)


@pytest.mark.parametrize("how, unit", [(by_method, "leaf"), (whole, "block")])
def test_graph_that_would_have_hooks_inside_is_refused_or_broken_there(how, unit):
    both = compiled_pair("llama", how, before=False, unit=unit, backend="aot_eager", fullgraph=True)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="geminid.torch gathers weights here.*block.compile"):
        both[1].model(*batch(0))
    torch._dynamo.reset()
    both = compiled_pair("llama", how, before=False, unit=unit, backend="aot_eager")
    twins.run(both, one_batch, steps=3)
    twins.assert_same(both)
    with twins.nothing_open(both[1]):
        pass


@pytest.mark.parametrize("how, before", [(by_method, True), (by_forward, True), (by_forward, False), (by_wrapper, True)],
                         ids=["method_before", "forward_before", "forward_after", "wrapper_before"])
def test_blocks_compiled_in_other_ways_train_as_plain_ones(how, before):
    both = compiled_pair("llama", how, before, backend="aot_eager")
    twins.run(both, one_batch, steps=3)
    twins.assert_same(both)
    with twins.nothing_open(both[1]):
        pass


@pytest.mark.parametrize("step", [accumulate, evaluate_between], ids=lambda step: step.__name__)
def test_compiled_blocks_accumulate_and_evaluate(step):
    both = compiled_pair("llama", by_method, before=False, backend="aot_eager")
    twins.run(both, step, steps=4)
    twins.assert_same(both)
