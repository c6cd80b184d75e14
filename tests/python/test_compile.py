"""torch.compile of a prepared model's blocks, in each way in which users write it."""

import copy

import pytest
import torch
import torch._dynamo

import geminid.torch
import models
import twins
from geminid import errors
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


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("how, name", [(lambda model: torch.compile(model), "_orig_mod.embedding.weight"),
                                       (lambda model: by_wrapper(model) or model, "blocks.0._orig_mod.norm1.weight")],
                         ids=["model", "blocks"])
def test_state_of_a_compiled_model_in_another_model_is_refused_by_both_names(how, name, strict):
    compiled = how(make("llama", seed=3)).state_dict()
    short = name.replace("_orig_mod.", "")
    model = make("llama")
    model, _ = twins.prepared(model, twins.adamw(model.parameters()))
    with pytest.raises(errors.Refused, match=f"the state has '{name}', and the model has '{short}'.*module.compile"):
        model.load_state_dict(compiled, strict=strict)
    missing, _ = model.load_state_dict({"norm.weight": compiled.get("norm.weight", torch.ones(models.WIDTH))}, strict=False)
    assert short in missing
    other = how(make("llama"))
    other, _ = twins.prepared(other, twins.adamw(other.parameters()))
    with pytest.raises(errors.Refused, match=f"the state has '{short}', and the model has '{name}'"):
        other.load_state_dict(model.state_dict(), strict=strict)
    other.load_state_dict(compiled)
    assert all(torch.equal(value, compiled[key]) for key, value in other.state_dict().items())


def test_checkpoint_of_a_compiled_model_has_the_names_of_the_model(tmp_path):
    compiled = torch.compile(make("llama", seed=3), backend="aot_eager")
    ours = twins.Twin(*twins.prepared(compiled, twins.adamw(compiled.parameters())))
    twins.run([ours], one_batch, steps=1)
    geminid.torch.save(ours.model, tmp_path)
    model = make("llama")
    plain = twins.Twin(*twins.prepared(model, twins.adamw(model.parameters())))
    geminid.torch.load(plain.model, tmp_path)
    for twin in (ours, plain):
        twin.losses.clear()
        twins.run([twin], one_batch, steps=2)
    assert ours.losses == plain.losses
