"""Muon of torch and of geminid.torch: as close to float64 as torch's Muon, and AdamW for parameters that are no matrix."""

import copy

import pytest
import torch

import geminid.torch
from geminid.errors import InvalidArgument, Refused

STEPS = 4


class Net(torch.nn.Module):
    """A model with a wide, a tall and a square matrix, and vectors."""

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
        # Gradients of full rank: a singular value of 0 would be only rounding, and Muon would bring it near 1.
        x = torch.randn(256, 48, generator=random).to(next(model.parameters()).dtype)
        model(x).square().mean().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    return {name: value.double() for name, value in model.state_dict().items()}


def pair_of_torch(model, **options):
    """Returns what users of torch write: two optimizers."""
    return [torch.optim.Muon(model.matrices(), lr=0.02, **options),
            torch.optim.AdamW(model.others(), lr=0.02, betas=(0.9, 0.95), weight_decay=0.1)]


class Exact(torch.optim.Optimizer):
    """Computes the formulas in the type of the parameters."""

    def __init__(self, params, scale, nesterov=True):
        super().__init__(params, {})
        self._scale, self._nesterov = scale, nesterov

    @torch.no_grad()
    def step(self):
        for parameter in self.param_groups[0]["params"]:
            momentum = self.state[parameter].setdefault("momentum", torch.zeros_like(parameter))
            momentum.lerp_(parameter.grad, 0.05)
            update = parameter.grad.lerp(momentum, 0.95) if self._nesterov else momentum
            tall = update.shape[0] > update.shape[1]
            x = update.T if tall else update
            x = x / x.norm()
            for _ in range(5):
                gram = x @ x.T
                x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
            parameter.mul_(1 - 0.02 * 0.1).sub_(0.02 * self._scale(*parameter.shape) * (x.T if tall else x))


def as_adamw(rows, columns):
    return 0.2 * max(rows, columns) ** 0.5


def original(rows, columns):
    return max(1.0, rows / columns) ** 0.5


def assert_as_near_to_float64(made, theirs, exact, begin):
    """Rounding to bf16 changes an update with small singular values: torch's as much as the engine's."""
    for name, value in exact.items():
        way = (value - begin[name].double()).norm()
        assert (made[name] - value).norm() <= 2 * (theirs[name] - value).norm() + 0.01 * way, name


@pytest.mark.parametrize("ours,theirs,scale", [
    ({}, {"adjust_lr_fn": "match_rms_adamw"}, as_adamw), ({"rate": "original"}, {}, original),
    ({"nesterov": False}, {"nesterov": False, "adjust_lr_fn": "match_rms_adamw"}, as_adamw)])
def test_one_optimizer_trains_as_torchs_two(ours, theirs, scale):
    model = Net()
    begin = copy.deepcopy(model.state_dict())
    twin, exact = copy.deepcopy(model), copy.deepcopy(model).double()
    expected = train(twin, pair_of_torch(twin, **theirs))
    others = torch.optim.AdamW(exact.others(), lr=0.02, betas=(0.9, 0.95), weight_decay=0.1)
    formulas = train(exact, [Exact(exact.matrices(), scale, ours.get("nesterov", True)), others])
    muon = geminid.torch.Muon([{"params": model.matrices()}, {"params": model.others(), "orthogonal": False}], lr=0.02,
                              **ours)
    model, optimizer = geminid.torch.prepare(model, muon, device_memory="4MiB")
    assert_as_near_to_float64(train(model, [optimizer]), expected, formulas, begin)


class Bare(Net):
    """A model with matrices only, so that torch's Muon takes all parameters."""

    def __init__(self):
        super().__init__()
        for layer in (self.wide, self.tall, self.square):
            layer.bias = None


def test_torchs_own_is_recognised_and_its_state_goes_both_ways():
    model = Bare()
    begin = copy.deepcopy(model.state_dict())
    twin, exact = copy.deepcopy(model), copy.deepcopy(model).double()
    theirs = torch.optim.Muon(twin.parameters(), lr=0.02)
    expected = train(twin, [theirs])
    formulas = train(exact, [Exact(exact.parameters(), original)])
    model, optimizer = geminid.torch.prepare(model, torch.optim.Muon(model.parameters(), lr=0.02), device_memory="4MiB")
    assert_as_near_to_float64(train(model, [optimizer]), expected, formulas, begin)
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
