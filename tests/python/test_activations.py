"""Offloaded activations: the same bits as without, in every order in which autograd reads its saved tensors."""

import contextlib
import copy
import gc

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

import geminid.torch
import steps
import twins
from geminid.errors import InvalidArgument, ResourceExhausted
from geminid.torch import activations
from models import batch, loss_of, make

SMALL_ENOUGH = 512  # bytes; the models are so small that their activations are


@pytest.fixture(autouse=True)
def small_tensors_too(monkeypatch):
    monkeypatch.setattr(activations, "SMALLEST", SMALL_ENOUGH)


def said(model):
    return geminid.torch.statistics(model)


def pair(model, **options):
    """Returns (kept, offloaded): two prepared models that are equal at the start."""
    other = copy.deepcopy(model)
    return tuple(twins.Twin(*twins.prepared(each, twins.adamw(each.parameters()), activations=how, **options))
                 for each, how in ((model, "keep"), (other, "offload")))


def assert_same_bits(both):
    kept, offloaded = both
    assert kept.losses == offloaded.losses and len(kept.losses) > 0
    assert kept.norms == offloaded.norms
    expected = kept.model.state_dict()
    for name, value in offloaded.model.state_dict().items():
        assert torch.equal(value, expected[name]), name
    gc.collect()
    figures = said(offloaded.model)
    assert figures["activation_items"] == 0, "graphs are gone, and items are there"
    assert figures["activation_host_bytes"] > 0 and figures["activation_bytes"] > 0
    assert said(kept.model)["activation_host_bytes"] == 0


@pytest.mark.parametrize("step", ["one_batch", "accumulate", "evaluate_between", "two_losses", "two_backwards", "retained"])
@pytest.mark.parametrize("kind, unit", [("gpt", "block"), ("llama", "leaf")])
def test_steps_of_any_kind_have_the_same_bits(kind, unit, step):
    both = pair(make(kind, dropout=0.1), unit=unit, device_memory="512KiB")
    twins.run(both, getattr(steps, step), steps=3)
    assert_same_bits(both)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints_inside_have_the_same_bits(reentrant):
    both = pair(make("gpt", reentrant=reentrant, dropout=0.1))
    twins.run(both, steps.accumulate, steps=3)
    assert_same_bits(both)


@pytest.mark.parametrize("options", [{"tied": True}, {"tied": "shared"}, {"outer": True}], ids=str)
def test_parameters_used_outside_of_their_module_have_the_same_bits(options):
    both = pair(make("gpt", **options))
    twins.run(both, steps.one_batch, steps=3)
    assert_same_bits(both)


def test_compiled_blocks_have_the_same_bits():
    both = pair(make("gpt"))
    for twin in both:
        for block in twin.model.blocks:
            block.compile(backend="aot_eager")
    twins.run(both, steps.one_batch, steps=3)
    assert_same_bits(both)
    torch._dynamo.reset()


def test_bfloat16_has_the_same_bits():
    both = pair(make("llama").bfloat16())
    twins.run(both, steps.one_batch, steps=3)
    assert_same_bits(both)


class Alive(TorchDispatchMode):
    """Counts the bytes of the live storages that operators have made."""

    def __init__(self):
        super().__init__()
        self.storages = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in torch.utils._pytree.tree_leaves(result):
            if type(tensor) is torch.Tensor:
                storage = tensor.untyped_storage()
                self.storages[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        return result

    def bytes(self):
        return sum(nbytes for storage, nbytes in self.storages.values() if not storage.expired())


def gpt2():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        n_embd=64, n_layer=4, n_head=4, vocab_size=97, n_positions=64, resid_pdrop=0.1, embd_pdrop=0.1, attn_pdrop=0.1,
        bos_token_id=0, eos_token_id=0)).train()


def gpt2_step(twin, number):
    for micro in range(2):
        tokens = torch.randint(1, 97, (8, 64), generator=torch.Generator().manual_seed(10 * number + micro))
        with Alive() as alive:
            loss = twin.model(input_ids=tokens, labels=tokens).loss
            twin.alive_bytes = alive.bytes()
        twin.losses.append(loss.item())
        (loss / 2).backward()
    twins.finish(twin)


def test_gpt2_of_transformers_has_the_same_bits_and_keeps_a_fifth_of_its_activations(monkeypatch):
    monkeypatch.undo()  # back to the limit of 64 KiB
    both = pair(gpt2(), device_memory="2MiB")
    twins.run(both, gpt2_step, steps=3)
    assert_same_bits(both)
    kept, offloaded = (twin.alive_bytes for twin in both)
    assert kept > 8 << 20 and offloaded < 0.2 * kept, (kept, offloaded)


# --- tensors of any kind, and orders of any kind ---------------------------------------------------


@pytest.fixture
def keeper():
    model = make("gpt")
    model, optimizer = twins.prepared(model, twins.adamw(model.parameters()), activations="offload")
    yield model._geminid_keeper
    gc.collect()
    assert said(model)["activation_items"] == 0


@contextlib.contextmanager
def offloaded(keeper):
    keeper.activations.begin()
    try:
        yield
    finally:
        keeper.activations.end()


def items(keeper):
    return keeper.engine.statistics()["activation_items"]


def split(x):
    q, k, v = x.chunk(3, -1)
    return (q * k).sum() + (v * v).sum()


def attended(x):
    q, k, v = (t.view(8, 32, 4, 8).transpose(1, 2) for t in x.chunk(3, -1))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).pow(2).sum()


def sliced(x):
    return (x[::2, 3:7] * x[1::2, 3:7]).sum()


def little_of_much(x):
    large = torch.cat([x] * 8)
    return (large[3].sin() + large[4].T.cos().T).sum()


def expanded(x):
    return (x[:1].expand(64, 32, 96) * x[:1].expand(64, 32, 96)).sum()


def complex_numbers(x):
    z = torch.view_as_complex(x.reshape(8, 32, 48, 2).contiguous())
    return torch.view_as_real(z * z.conj()).sum() + (z.imag * z.imag).sum()


def masked_and_gathered(x):
    order = torch.arange(31, -1, -1).expand(8, 96, 32).transpose(1, 2)
    return torch.where(x > 0, x * x, x.exp()).gather(1, order).pow(3).sum()


def half(x):
    y = x.bfloat16()
    return (y @ y.transpose(1, 2)).float().pow(2).sum()


SHAPES = [split, attended, sliced, little_of_much, expanded, complex_numbers, masked_and_gathered, half]


def gradient_of(function, leaf, times=1):
    loss = function(leaf * 1.5)
    for number in range(times):
        leaf.grad = None
        loss.backward(retain_graph=number + 1 < times)
    return leaf.grad


@pytest.mark.parametrize("function", SHAPES, ids=lambda function: function.__name__)
def test_tensors_of_any_shape_come_back_as_they_were(keeper, function):
    leaf = torch.randn(8, 32, 96, generator=torch.Generator().manual_seed(0), requires_grad=True)
    expected = gradient_of(function, leaf)
    before = keeper.engine.statistics()["activation_host_bytes"]
    for times in (1, 3):
        with offloaded(keeper):
            assert torch.equal(gradient_of(function, leaf, times), expected)
    assert keeper.engine.statistics()["activation_host_bytes"] >= before > -1


def test_views_of_one_tensor_are_saved_once_and_share_what_comes_back(keeper):
    leaf = torch.randn(8, 32, 96, requires_grad=True)
    with offloaded(keeper):
        x = leaf * 2  # saves no tensor
        loss = sum((part * part).sum() for part in x.chunk(3, -1))
    assert items(keeper) == 1
    saved = loss.grad_fn.next_functions[1][0].next_functions[0][0]
    assert saved._saved_self.data_ptr() != 0
    loss.backward()
    assert items(keeper) == 0


def test_saved_tensor_that_is_asked_for_twice_is_the_same_twice(keeper):
    leaf = torch.randn(64, 64, requires_grad=True)
    with offloaded(keeper):
        y = (leaf * 2).sin()
    first, second = y.grad_fn._saved_self, y.grad_fn._saved_self
    assert torch.equal(first, leaf * 2) and torch.equal(second, first)
    del y


def test_nodes_in_any_order_get_what_they_saved(keeper):
    leaf = torch.randn(64, 64, requires_grad=True)
    with offloaded(keeper):
        outputs = [(leaf * number).sin() for number in range(1, 20)]
    order = torch.randperm(19, generator=torch.Generator().manual_seed(3)).tolist()
    for index in order:
        gradient, = torch.autograd.grad(outputs[index].sum(), leaf)
        assert torch.equal(gradient, (leaf.detach() * (index + 1)).cos() * (index + 1))
        outputs[index] = None


def test_tensor_that_is_changed_between_two_savings_comes_back_as_each(keeper):
    leaf = torch.randn(64, 64, requires_grad=True)
    with offloaded(keeper):
        x = leaf * 1
        first = x.detach().requires_grad_().sin()
        kept = x.detach().clone()
        with torch.no_grad():
            x.add_(1)
        second = x.detach().requires_grad_().sin()
    assert torch.equal(first.grad_fn._saved_self, kept)
    assert torch.equal(second.grad_fn._saved_self, kept + 1)
    del first, second


def test_new_tensor_at_an_old_address_is_not_taken_for_the_old_one(keeper):
    leaf = torch.randn(64, 64, requires_grad=True)
    outputs = []
    for number in range(1, 12):
        with offloaded(keeper):
            outputs.append((leaf * number).sin())  # sin's saved tensor is freed, and the next one reuses its memory
    for number, output in enumerate(outputs, 1):
        assert torch.equal(output.grad_fn._saved_self, leaf * number)


def test_graph_without_a_backward_is_forgotten_with_its_items(keeper):
    with offloaded(keeper):
        y = torch.randn(64, 64, requires_grad=True).mul(2).sin().cos()
    assert items(keeper) > 0
    del y
    assert items(keeper) == 0


def test_output_that_its_own_node_saves_does_not_keep_its_graph(keeper):
    with offloaded(keeper):
        y = torch.randn(64, 64, requires_grad=True).mul(2).sin()[:8, :8].contiguous().exp()  # small, so not offloaded
    assert items(keeper) > 0
    del y
    assert items(keeper) == 0


def test_small_tensor_that_is_changed_before_the_backward_is_refused_as_by_torch(keeper):
    with offloaded(keeper):
        x = torch.randn(8, requires_grad=True)
        y = x.sigmoid()
        loss = y.sum()
    with torch.no_grad():
        y.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_small_tensors_and_tensors_of_classes_of_their_own_stay(keeper):
    class Own(torch.Tensor):
        pass

    with offloaded(keeper):
        small = torch.randn(8, requires_grad=True).mul(2).sin()
        own = torch.randn(64, 64).as_subclass(Own).requires_grad_().mul(2).sin()
    assert items(keeper) == 0
    small.sum().backward()
    own.sum().backward()


# --- a model's calls ----------------------------------------------------------------------------------


def test_no_weight_is_offloaded(monkeypatch):
    for kind in ("gpt", "llama"):
        model = make(kind)
        model, optimizer = twins.prepared(model, twins.adamw(model.parameters()), activations="offload")
        saved, engine = [], model._geminid_keeper.engine
        save = engine.save_activation
        monkeypatch.setattr(engine, "save_activation", lambda address, *rest: (saved.append(address), save(address, *rest))[1])
        model(*batch(0)).backward()
        with torch._C.DisableTorchFunctionSubclass():
            weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
        assert len(saved) > 10 and not weights & set(saved)


def test_loss_outside_of_the_model_is_offloaded_where_the_script_says_so():
    both = pair(make("gpt"))
    saved = []
    for twin in both:
        tokens, labels = batch(0)
        around = geminid.torch.offload_activations(twin.model) if twin is both[1] else contextlib.nullcontext()
        with around:
            logits = twin.model(tokens)
            saved.append(said(twin.model)["activation_items"])
            loss = loss_of(logits, labels)
        saved.append(said(twin.model)["activation_items"])
        twin.losses.append(loss.item())
        loss.backward()
        twins.finish(twin)
        del logits, loss
    assert saved[3] > saved[2] > 0 == saved[0]
    assert_same_bits(both)
    with pytest.raises(InvalidArgument, match='prepare.*activations="offload"'):
        geminid.torch.offload_activations(both[0].model)


def test_evaluation_offloads_nothing():
    model = make("gpt")
    model, optimizer = twins.prepared(model, twins.adamw(model.parameters()), activations="offload")
    with torch.no_grad():
        model(*batch(0))
        model.generate(batch(0)[0], 3)
    assert said(model)["activation_host_bytes"] == 0


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_forward_that_raises_leaves_neither_items_nor_hooks(error):
    def raising(*_):
        raise error

    both = pair(make("gpt"))
    for twin in both:
        hook = twin.model.blocks[2].register_forward_pre_hook(raising)
        with pytest.raises(error):
            twin.model(*batch(0))
        hook.remove()
    twins.run(both, steps.one_batch, steps=2)
    assert_same_bits(both)
    y = torch.randn(64, 64, requires_grad=True).mul(2).sin()
    assert said(both[1].model)["activation_items"] == 0, "hooks are in force outside of the model"
    del y


def test_host_memory_of_activations_is_in_the_ledger():
    model = make("gpt")
    model, optimizer = twins.prepared(model, twins.adamw(model.parameters()), activations="offload")
    before = said(model)["host_bytes"]
    loss = model(*batch(0))
    during = said(model)
    assert during["activation_items"] > 0
    assert during["host_bytes"] == before + during["activation_host_bytes"] > before
    loss.backward()


def test_what_cannot_be_is_refused_with_what_to_do():
    model = make("gpt")
    optimizer = twins.adamw(model.parameters())
    with pytest.raises(InvalidArgument, match="activations is 'recompute'; it must be 'keep' or 'offload'"):
        twins.prepared(model, optimizer, activations="recompute")
    with pytest.raises(ResourceExhausted, match="activations on their way to host memory take 16 KiB"):
        twins.prepared(model, optimizer, device_memory="64KiB", activations="offload")
