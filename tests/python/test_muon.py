"""Muon of torch and of geminid.torch: as torch's to the rounding of bf16, and AdamW for what is no matrix."""

import copy

import pytest
import torch

import geminid.torch
from geminid.errors import InvalidArgument, Refused

STEPS = 4


class Net(torch.nn.Module):
    """A wide, a tall and a square matrix, and vectors."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.wide = torch.nn.Linear(48, 24)
        self.tall = torch.nn.Linear(24, 40)
        self.square = torch.nn.Linear(40, 40)

    def forward(self, x):
        return self.square(torch.tanh(self.tall(torch.tanh(self.wide(x)))))

    def matrices(self):
        return [p for p in self.parameters() if p.ndim == 2]

    def others(self):
        return [p for p in self.parameters() if p.ndim != 2]


def train(model, optimizers, steps=STEPS):
    random = torch.Generator().manual_seed(1)
    for _ in range(steps):
        x = torch.randn(8, 48, generator=random)
        model(x).square().mean().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    return {name: value.double() for name, value in model.state_dict().items()}


def pair_of_torch(model, **options):
    """What torch's users write: two optimizers."""
    return [torch.optim.Muon(model.matrices(), lr=0.02, **options),
            torch.optim.AdamW(model.others(), lr=0.02, betas=(0.9, 0.95), weight_decay=0.1)]


def assert_trained_alike(made, expected, begin):
    """Fifteen products of bf16 matrices a step are rounded in another order."""
    for name, value in expected.items():
        way = (value - begin[name].double()).norm()
        assert (made[name] - value).norm() <= 0.03 * way, name


@pytest.mark.parametrize("ours,theirs", [({}, {"adjust_lr_fn": "match_rms_adamw"}), ({"rate": "original"}, {}),
                                         ({"nesterov": False}, {"nesterov": False, "adjust_lr_fn": "match_rms_adamw"})])
def test_one_optimizer_trains_as_torchs_two(ours, theirs):
    model = Net()
    begin = copy.deepcopy(model.state_dict())
    twin = copy.deepcopy(model)
    expected = train(twin, pair_of_torch(twin, **theirs))
    muon = geminid.torch.Muon([{"params": model.matrices()}, {"params": model.others(), "orthogonal": False}], lr=0.02,
                              **ours)
    model, optimizer = geminid.torch.prepare(model, muon, device_memory="4MiB")
    assert_trained_alike(train(model, [optimizer]), expected, begin)


class Bare(Net):
    """Matrices alone, which torch's Muon has all of."""

    def __init__(self):
        super().__init__()
        for layer in (self.wide, self.tall, self.square):
            layer.bias = None


def test_torchs_own_is_recognised_and_its_state_goes_both_ways():
    model = Bare()
    begin = copy.deepcopy(model.state_dict())
    twin = copy.deepcopy(model)
    theirs = torch.optim.Muon(twin.parameters(), lr=0.02)
    expected = train(twin, [theirs])
    model, optimizer = geminid.torch.prepare(model, torch.optim.Muon(model.parameters(), lr=0.02), device_memory="4MiB")
    assert_trained_alike(train(model, [optimizer]), expected, begin)
    saved = optimizer.state_dict()
    assert set(saved["state"][0]) == {"momentum_buffer"}
    for number, entry in saved["state"].items():
        torch.testing.assert_close(entry["momentum_buffer"], theirs.state_dict()["state"][number]["momentum_buffer"],
                                   rtol=0.05, atol=1e-4)
    theirs.load_state_dict(saved)
    optimizer.load_state_dict(theirs.state_dict())
    again = optimizer.state_dict()
    for number, entry in saved["state"].items():
        assert torch.equal(entry["momentum_buffer"], again["state"][number]["momentum_buffer"])


@pytest.mark.parametrize("options,words", [({"ns_steps": 6}, "ns_steps=6.*leave it at 5"),
                                           ({"adjust_lr_fn": "spectral_unclamped"}, "adjust_lr_fn='spectral_unclamped'")])
def test_what_the_engine_has_not_is_refused_by_name(options, words):
    model = Bare()
    with pytest.raises(Refused, match=words):
        geminid.torch.prepare(model, torch.optim.Muon(model.parameters(), **options), device_memory="4MiB")


def test_vector_that_is_to_be_orthogonal_is_refused_by_name():
    model = Net()
    with pytest.raises(InvalidArgument, match="'wide.bias' has fewer than two dimensions.*AdamW"):
        geminid.torch.prepare(model, geminid.torch.Muon(model.parameters()), device_memory="4MiB")


def test_group_that_becomes_the_other_kind_is_refused_by_name():
    model = Net()
    muon = geminid.torch.Muon([{"params": model.matrices()}, {"params": model.others(), "orthogonal": False}])
    model, optimizer = geminid.torch.prepare(model, muon, device_memory="4MiB")
    saved = optimizer.state_dict()
    saved["param_groups"][0]["orthogonal"] = False
    with pytest.raises(Refused, match="'wide.weight' was prepared with orthogonal=True"):
        optimizer.load_state_dict(saved)
    optimizer.param_groups[1]["orthogonal"] = True
    model(torch.ones(1, 48)).sum().backward()
    with pytest.raises(Refused, match="'wide.bias' was prepared with orthogonal=False"):
        optimizer.step()
