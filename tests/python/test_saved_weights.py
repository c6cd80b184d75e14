"""A backward pass that enters a block at another tensor than its result gets the block's weights, as in plain PyTorch."""

import pytest
import torch
from torch import nn

import geminid.torch
import twins
from geminid import errors

WIDTH, LAYERS = 64, 6


class Holder:
    """A user's class, which Geminid does not search for tensors."""

    def __init__(self, value):
        self.value = value


class Expert(nn.Module):
    """An expert that uses only views of its weight."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2, WIDTH, WIDTH) * 0.1)

    def forward(self, x):
        return torch.tanh(x @ self.weight[0].t()) @ self.weight.transpose(1, 2)[1]


class Block(nn.Module):
    def __init__(self, way):
        super().__init__()
        self.way, self.first, self.second = way, nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.expert, self.gate, self.aux = Expert(), nn.Linear(WIDTH, 4), None
        self.scores = nn.Parameter(torch.randn(4, 4))

    def forward(self, x):
        x = x + self.second(torch.tanh(self.first(x)))
        x = x + self.expert(x)
        # As in a mixture of experts: the last computed tensor is not returned.
        self.aux = (torch.tanh(self.gate(x)) @ self.scores.t()).pow(2).mean()
        return Holder(x) if self.way == "object" else x


class Model(nn.Module):
    def __init__(self, way):
        super().__init__()
        self.blocks = nn.ModuleList(Block(way) for _ in range(LAYERS))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
            x = x.value if isinstance(x, Holder) else x
        return x


def loss_of(model, way, x):
    if not way.startswith("feature"):
        result = model(x).double().pow(2).mean()
        return result + 0.1 * sum(block.aux.double() for block in model.blocks) if way == "auxiliary" else result
    features = []
    block = model.blocks[LAYERS // 2]
    module = {"feature": block.first, "feature of views": block.expert}[way]
    hook = module.register_forward_hook(lambda _module, _args, result: features.append(result))
    model(x)
    hook.remove()
    return features[0].double().pow(2).mean()


def sgd(parameters):
    """Returns SGD. In AdamW's first steps the last bits of a gradient near 0 would decide the sign of an update."""
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def step_of(way):
    def step(twin, number):
        loss = loss_of(twin.model, way, torch.randn(3, WIDTH, generator=torch.Generator().manual_seed(number)))
        twin.losses.append(loss.item())
        loss.backward()
        twin.optimizer.step()
        twin.optimizer.zero_grad()
    return step


@pytest.mark.parametrize("activations", ["keep", "offload"])
@pytest.mark.parametrize("way", ["auxiliary", "object", "feature", "feature of views"])
def test_backward_that_enters_a_block_inside_is_right(way, activations):
    torch.manual_seed(0)
    both = twins.pair(Model(way), sgd, device_memory="512KiB", activations=activations)
    twins.run(both, step_of(way))
    twins.assert_same(both)
    twins.assert_moved(both[1], steps=1)
    with twins.nothing_open(both[1]):
        pass


@pytest.mark.parametrize("way", ["auxiliary", "feature of views"])
def test_backward_inside_modules_that_are_units_is_right(way):
    torch.manual_seed(0)
    both = twins.pair(Model(way), sgd, device_memory="320KiB", unit="leaf")
    twins.run(both, step_of(way))
    twins.assert_same(both)


def test_weights_of_a_frozen_block_are_there_for_gradients_of_its_input():
    torch.manual_seed(0)
    model = Model("feature of views")
    for parameter in model.blocks[LAYERS // 2].parameters():
        parameter.requires_grad_(False)
    both = twins.pair(model, lambda p: sgd([q for q in p if q.requires_grad]), device_memory="512KiB")
    twins.run(both, step_of("feature of views"))
    twins.assert_same(both)


def test_view_of_a_weight_cannot_be_changed_behind_the_engine():
    torch.manual_seed(0)
    model = Model("auxiliary")
    model, _ = twins.prepared(model, twins.adamw(model.parameters()))
    view = model.blocks[0].scores.t()
    with torch.no_grad(), pytest.raises(errors.Refused, match="'blocks.0.scores'.*without the engine"):
        view.zero_()
    with geminid.torch.full(model), torch.no_grad():
        model.blocks[0].scores.t().zero_()
    assert not model.state_dict()["blocks.0.scores"].any()
