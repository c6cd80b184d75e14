"""Adapters on a frozen base model whose weights have fewer bits: LoRA as users write it."""

import pytest
import torch

import twins

WIDTH = 64
FROZEN = {torch.float16: lambda values: values.half(), torch.int8: lambda values: (values * 40).round().clamp(-128, 127).to(torch.int8),
          torch.uint8: lambda values: (values * 40 + 128).round().clamp(0, 255).to(torch.uint8)}


class Quantised(torch.nn.Parameter):
    """A parameter class like those of libraries with quantised layers."""


class Adapted(torch.nn.Module):
    def __init__(self, dtype, kind):
        super().__init__()
        self.base = kind(FROZEN[dtype](torch.randn(WIDTH, WIDTH)), requires_grad=False)
        self.zero = 128.0 if dtype is torch.uint8 else 0.0
        self.down, self.up = torch.nn.Linear(WIDTH, 4, bias=False), torch.nn.Linear(4, WIDTH, bias=False)

    def forward(self, x):
        scale = 1.0 if self.base.dtype is torch.float16 else 1 / 40
        weight = (self.base.float() - self.zero) * (scale / WIDTH ** 0.5)
        return torch.relu(x @ weight.t() + self.up(self.down(x)))


class Model(torch.nn.Module):
    def __init__(self, dtype, kind=torch.nn.Parameter):
        super().__init__()
        self.layers = torch.nn.ModuleList(Adapted(dtype, kind) for _ in range(6))
        self.head = torch.nn.Linear(WIDTH, 1)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return (self.head(x).double() - 1).pow(2).mean()


def trained(parameters):
    return twins.adamw([p for p in parameters if p.requires_grad])


def step(twin, _number):
    loss = twin.model(torch.randn(4, WIDTH))
    twin.losses.append(loss.item())
    loss.backward()
    twins.finish(twin)


@pytest.mark.parametrize("dtype", FROZEN)
@pytest.mark.parametrize("unit", ["block", "leaf"])
def test_adapters_on_a_base_of_fewer_bits_train_as_beside_torchs(dtype, unit):
    torch.manual_seed(0)
    both = twins.pair(Model(dtype), trained, device_memory="256KiB", unit=unit)
    ours = both[1].model
    bases = [layer.base.detach().clone() for layer in both[0].model.layers]
    assert all(hasattr(layer.base, "_geminid") for layer in ours.layers)
    twins.run(both, step, steps=4)
    twins.assert_same(both)
    state = ours.state_dict()
    for number, base in enumerate(bases):
        kept = state[f"layers.{number}.base"]
        assert kept.dtype == dtype and torch.equal(kept, base)


def test_a_base_of_a_class_of_its_own_stays_torchs():
    torch.manual_seed(0)
    both = twins.pair(Model(torch.int8, Quantised), trained, device_memory="256KiB")
    assert not any(hasattr(layer.base, "_geminid") for layer in both[1].model.layers)
    twins.run(both, step, steps=2)
    twins.assert_same(both)
