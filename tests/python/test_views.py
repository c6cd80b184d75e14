"""Scripts access the memory of parameters through `.data`, `.detach()` and views, and change it."""

import copy
import io

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import geminid.torch
import twins
from geminid import errors
from models import batch, make
from steps import one_batch


def refused(words):
    return pytest.raises(errors.Refused, match=words)


@pytest.mark.parametrize("read", [lambda w: w.data, lambda w: w.detach(), lambda w: torch.detach(w), lambda w: w.data.clamp_(-1, 1),
                                  lambda w: w.detach().norm(), lambda w: nn.init.normal_(w.data), lambda w: w.data.clone()])
def test_memory_between_steps_is_refused_with_gradients_too(both, read):
    with refused(r"(data|detach) reads 'head.weight'.*geminid.torch.full.*state_dict\(\).*parameter.clone\(\).detach\(\)"):
        read(both[1].model.head.weight)


class Reader(nn.Module):
    """A module whose forward accesses its weight and another module's weight."""

    def __init__(self, act, width=16):
        super().__init__()
        self.act = act
        self.own, self.other = nn.Linear(width, width), nn.Linear(width, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(2))

    def forward(self, x):
        x = self.own(x)
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.act(x, self.other.weight) + self.other(x)


def reader(act):
    torch.manual_seed(0)
    return twins.pair(Reader(act), device_memory="256KiB", unit="leaf")


def reader_step(twin, number):
    loss = twin.model(torch.randn(4, 16)).double().pow(2).mean()
    twin.losses.append(loss.item())
    loss.backward()
    twins.finish(twin)


def under_no_grad(change):
    def act(x, weight):
        with torch.no_grad():
            change(weight)
        return x
    return act


WRITES = {
    "data": lambda w: w.data.mul_(0.9).add_(1.0), "detach": lambda w: w.detach().clamp_(-1, 1),
    "row": lambda w: w.data.__setitem__(0, 1.0), "view": lambda w: w.view(-1).mul_(2), "row of a view": lambda w: w[0].zero_(),
    "transposed": lambda w: w.T.mul_(2), "parts": lambda w: w.chunk(2)[1].zero_(), "init": lambda w: nn.init.normal_(w.data),
    "several": lambda w: torch._foreach_mul_([w], 0.9), "several views": lambda w: torch._foreach_mul_([w.data], 0.9),
    "out": lambda w: torch.add(w, 1, out=w.data), "operator": lambda w: w.data.__imul__(2)}


@pytest.mark.parametrize("write", WRITES)
def test_write_in_a_forward_is_refused_before_it(write):
    plain, ours = reader(lambda x, weight: x)
    before = ours.model.state_dict()
    ours.model.act = under_no_grad(WRITES[write])
    with refused("would change 'other.weight'.*without the engine.*geminid.torch.full"):
        ours.model(torch.randn(4, 16))
    ours.model.act = plain.model.act
    assert all(torch.equal(value, before[name]) for name, value in ours.model.state_dict().items())
    twins.run((plain, ours), reader_step, steps=2)
    twins.assert_same((plain, ours))


def test_arrays_of_numpy_in_a_forward_are_copies_that_cannot_be_written():
    arrays = []
    _, ours = reader(under_no_grad(lambda w: arrays.extend([w.detach().numpy(), w.data[0].numpy()])))
    ours.model(torch.randn(4, 16))
    value = ours.model.state_dict()["other.weight"].numpy()
    assert (arrays[0] == value).all() and (arrays[1] == value[0]).all()
    with pytest.raises(ValueError, match="read-only"):
        arrays[0][0] = 1


READS = {
    "detach": lambda x, w: x @ w.detach().t(), "data": lambda x, w: F.linear(x, w.data), "norm": lambda x, w: x / w.detach().norm(),
    "parts": lambda x, w: x * w.data.chunk(2)[1].sum(), "row": lambda x, w: x + w.data[3], "iterated": lambda x, w: x * sum(r.sum() for r in w),
    "copied": lambda x, w: x @ copy.deepcopy(w.data), "straight through": lambda x, w: x @ (w.detach().round() + w - w.detach()),
    "leaf": lambda x, w: x @ w.detach().requires_grad_(), "standard": lambda x, w: x * w.data.float().contiguous().std()}


@pytest.mark.parametrize("name", READS)
def test_reads_in_a_forward_are_those_of_torch(name):
    both = reader(READS[name])
    twins.run(both, reader_step, steps=4)
    twins.assert_same(both, loss=2e-6, norm=2e-6)  # the losses are small means of squares


def test_view_that_is_kept_is_refused_when_its_weights_are_not_there():
    kept = []
    _, ours = reader(under_no_grad(lambda w: kept.append(w.detach())))
    reader_step(ours, 0)
    ours.model.act = lambda x, weight: x
    for number in range(2):
        reader_step(ours, number)
    with torch.no_grad(), refused("norm reads 'other.weight', which is not on the device now"):
        kept[0].norm()
    with geminid.torch.full(ours.model):
        assert ours.model.other.weight.data.mul_(1.0) is not None


def test_more_weights_than_there_is_room_for_are_refused_with_what_reads_them():
    model = make("gpt")
    model, _ = twins.prepared(model, twins.adamw(model.parameters()), device_memory="384KiB")
    with pytest.raises(errors.ResourceExhausted, match=r"outside of its module.*others do.*state_dict\(\).*geminid.torch.full"):
        [parameter.std() for parameter in model.parameters()]


def test_state_dict_after_a_forward_without_room_has_the_values():
    plain, ours = twins.pair(make("gpt"), device_memory="384KiB")
    weights = plain.model.state_dict()
    with pytest.raises(errors.ResourceExhausted, match="outside of its module"):
        sum(parameter.sum() for parameter in ours.model.parameters())
    assert all(torch.equal(value, weights[name]) for name, value in ours.model.state_dict().items())
    twins.run((plain, ours), one_batch, steps=2)
    twins.assert_same((plain, ours))


class OwnLinear(torch.autograd.Function):
    """A linear layer that reads its weight in its backward."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.weight = weight
        ctx.save_for_backward(x)
        return x @ weight.t()

    @staticmethod
    def backward(ctx, gradient):
        x, = ctx.saved_tensors
        return gradient @ ctx.weight, gradient.t() @ x


class ByFunction(Reader):
    """A model whose last layer is a function that is given its weight; no call of a module brings that weight."""

    def forward(self, x):
        return self.act(self.layers[0](self.own(x)), self.other.weight)


def test_weight_of_a_function_is_there_in_its_backward_after_an_evaluation():
    def step(twin, number):
        loss = twin.model(torch.randn(4, 16)).double().pow(2).mean()
        with torch.no_grad():
            twin.losses.append(twin.model(torch.randn(4, 16)).double().pow(2).mean().item())
        loss.backward()
        twins.finish(twin)

    torch.manual_seed(0)
    both = twins.pair(ByFunction(OwnLinear.apply), device_memory="256KiB", unit="leaf")
    twins.run(both, step, steps=3)
    twins.assert_same(both, loss=2e-6, norm=2e-6)  # the losses are small means of squares
    with twins.nothing_open(both[1]):
        pass


@pytest.mark.parametrize("layer", ["own", "layers.0", "other"])
def test_weights_are_read_by_hooks_of_the_backward(layer):
    def step(twin, number):
        reader_step(twin, number)
        twin.losses += [norm.item() for norm in norms[-3:]]

    norms = []
    both = reader(lambda x, weight: x)
    for twin in both:
        twin.model.get_submodule(layer).register_full_backward_hook(lambda *_, model=twin.model: norms.extend(
            part.weight.double().norm() for part in (model.own, model.layers[1], model.other)))
    twins.run(both, step, steps=3)
    assert len(norms) == 2 * 3 * 3
    twins.assert_same(both, loss=2e-6, norm=2e-6)  # the losses are small means of squares
    with twins.nothing_open(both[1]):
        pass


def test_weight_of_a_function_outside_of_the_model_is_refused_with_where_to_call_it():
    _, ours = reader(lambda x, weight: x)
    with refused(r"t reads 'other.weight'.*in a torch.autograd.Function, read it within a call of the model"):
        OwnLinear.apply(ours.model(torch.randn(4, 16)), ours.model.other.weight)


class Methods(nn.Module):
    """A model that calls methods of its blocks, and never a block."""

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(64, 64) * 0.1)

        def mix(self, x):
            return torch.tanh(x @ self.weight)

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(self.Block() for _ in range(16))

    def forward(self, x):
        for block in self.blocks:
            x = block.mix(x)
        return x


def test_blocks_whose_methods_are_called_and_have_no_room_are_told_of_smaller_units():
    model = Methods()
    model, _ = twins.prepared(model, twins.adamw(model.parameters()), device_memory="128KiB")
    with pytest.raises(errors.ResourceExhausted, match="'blocks.*give device_memory more, or prepare with unit='leaf'"):
        model(torch.randn(4, 64))


def test_views_with_a_graph_are_copied_as_those_of_torch():
    copied = []

    def act(x, weight):
        view = weight.t()
        with pytest.raises(RuntimeError, match="deepcopy"):
            copy.deepcopy(view)
        copied.append((nn.Parameter(view.detach().clone()), view.grad_fn, view.detach()[0].clone()))
        return x @ view

    both = reader(act)
    twins.run(both, reader_step, steps=1)
    (plain, theirs, row), (ours, mine, same) = copied
    assert type(ours) is nn.Parameter and type(mine) is type(theirs)
    assert torch.equal(plain, ours) and torch.equal(row, same)
    twins.assert_same(both, loss=2e-6, norm=2e-6)


def test_embedding_function_that_would_change_its_weight_is_refused():
    _, ours = reader(lambda x, w: F.embedding(torch.tensor([1, 2, 3, 0]), w, max_norm=1.0))
    with refused("embedding would change 'other.weight'"):
        ours.model(torch.randn(4, 16))


def test_traces_are_refused(both):
    with refused("torch.jit.trace.*another copy of the model"):
        torch.jit.trace(both[1].model, batch(0), check_trace=False)


@pytest.mark.parametrize("part", ["", "blocks", "blocks.1", "blocks.1.norm1"])
def test_scripts_are_refused(both, part):
    with refused("torch.jit.script.*another copy of the model"):
        torch.jit.script(both[1].model.get_submodule(part))


def test_views_are_saved_as_tensors():
    saved = io.BytesIO()
    _, ours = reader(under_no_grad(lambda w: torch.save(w.data, saved)))
    ours.model(torch.randn(4, 16))
    saved.seek(0)
    assert torch.equal(torch.load(saved), ours.model.state_dict()["other.weight"])
