"""Optimizers that torch does not have: their first steps in closed form, and their refusals."""

import math

import pytest
import torch

import geminid.torch
from geminid.errors import FailedPrecondition, InvalidArgument, Refused

RATE = 0.25


class Pull(torch.nn.Module):
    """A matrix whose gradient the test chooses."""

    def __init__(self, weight):
        super().__init__()
        self.matrix = torch.nn.Linear(4, 4, bias=False)
        with torch.no_grad():
            self.matrix.weight.copy_(weight)

    def forward(self, gradient):
        # Row i of the product with the identity matrix is column i of the weight.
        return (self.matrix(torch.eye(4)) * gradient.t()).sum()


def stepped(make, weight, gradient):
    model = Pull(weight)
    model, optimizer = geminid.torch.prepare(model, make(model.parameters()), device_memory="1MiB")
    model(gradient).backward()
    optimizer.step()
    return model.state_dict()["matrix.weight"].double()


@pytest.fixture
def weight():
    return torch.arange(1.0, 17.0).reshape(4, 4) / 4


@pytest.fixture
def gradient():
    """Returns a gradient of one magnitude and both signs, so that factored moments are exact."""
    return 0.5 * torch.tensor([[1.0, -1, 1, 1], [-1, -1, 1, -1], [1, 1, 1, -1], [-1, 1, -1, 1]])


def assert_near(actual, expected):
    assert torch.allclose(actual, expected.double(), rtol=1e-5, atol=1e-6), (actual, expected)


def test_lion_moves_by_the_sign_and_the_decay(weight, gradient):
    made = stepped(lambda p: geminid.torch.Lion(p, lr=RATE, weight_decay=0.5), weight, gradient)
    assert_near(made, weight - RATE * (gradient.sign() + 0.5 * weight))


def test_lamb_moves_by_the_ratio_of_norms(weight, gradient):
    made = stepped(lambda p: geminid.torch.Lamb(p, lr=RATE, weight_decay=0.0, eps=1e-12, max_grad_norm=0.0), weight, gradient)
    update = gradient.sign().double()  # Adam's first update
    # LAMB does not adapt a tensor without decay.
    assert_near(made, weight - RATE * update)
    made = stepped(lambda p: geminid.torch.Lamb(p, lr=RATE, weight_decay=0.0, eps=1e-12, max_grad_norm=0.0,
                                                always_adapt=True), weight, gradient)
    assert_near(made, weight - RATE * weight.double().norm() / update.norm() * update)


def test_lars_moves_by_its_trust(weight, gradient):
    made = stepped(lambda p: geminid.torch.Lars(p, lr=RATE, trust_coefficient=0.5, momentum=0.9), weight, gradient)
    trust = 0.5 * weight.double().norm() / gradient.double().norm()
    assert_near(made, weight - RATE * trust * gradient.double())


def test_adafactor_with_its_own_rate_moves_by_the_sign(weight, gradient):
    made = stepped(lambda p: geminid.torch.Adafactor(p, lr=RATE, relative_step=False, scale_parameter=False), weight,
                   gradient)
    assert_near(made, weight - RATE * gradient.sign())


def test_adafactor_with_a_relative_step_moves_by_the_size_of_the_weights(weight, gradient):
    made = stepped(geminid.torch.Adafactor, weight, gradient)
    size = float(weight.double().square().mean().sqrt())
    assert_near(made, weight - 1e-2 * size * gradient.sign())


def test_came_moves_by_momentum_over_confidence(weight, gradient):
    made = stepped(lambda p: geminid.torch.Came(p, lr=RATE, betas=(0.5, 0.75, 0.9375)), weight, gradient)
    # The clipped update is the sign. Its momentum is half of it, and differs from it by as much as the residual.
    assert_near(made, weight - RATE * 0.5 / (0.5 * math.sqrt(1 - 0.9375)) * gradient.sign())


def test_unprepared_it_does_not_step():
    optimizer = geminid.torch.Lion([torch.nn.Parameter(torch.ones(2))])
    with pytest.raises(Refused, match="prepare returns"):
        optimizer.step()


OUT_OF_RANGE = {
    "beta1 is 1; with lion it must be from 0 to below 1": lambda p: geminid.torch.Lion(p, betas=(1.0, 0.9)),
    "weight_decay is -0.5; with came it must be 0 or more": lambda p: geminid.torch.Came(p, weight_decay=-0.5),
    "epsilon is nan; with lamb it must be above 0": lambda p: geminid.torch.Lamb(p, eps=math.nan),
}


@pytest.mark.parametrize("words", OUT_OF_RANGE)
def test_hyperparameter_out_of_its_range_is_named_with_its_value(weight, words):
    model = Pull(weight)
    with pytest.raises(InvalidArgument, match=words):
        geminid.torch.prepare(model, OUT_OF_RANGE[words](model.parameters()), device_memory="1MiB")


def test_learning_rate_that_is_no_number_is_named_with_its_group(weight, gradient):
    model = Pull(weight)
    model, optimizer = geminid.torch.prepare(model, geminid.torch.Lion(model.parameters(), lr=math.nan), device_memory="1MiB")
    model(gradient).backward()
    with pytest.raises(InvalidArgument, match="group 0: learning_rate is nan; it must be from 0 to"):
        optimizer.step()


def test_state_of_whole_tensors_is_refused_by_name(weight, gradient):
    model = Pull(weight)
    model, optimizer = geminid.torch.prepare(model, geminid.torch.Came(model.parameters()), device_memory="1MiB")
    with pytest.raises(Refused, match="came keeps of whole tensors"):
        optimizer.state_dict()


def test_gradient_that_is_not_finite_fails_where_it_cannot_be_written(weight, gradient):
    model = Pull(weight)
    model, optimizer = geminid.torch.prepare(model, geminid.torch.Lamb(model.parameters()), device_memory="1MiB")
    model(gradient * math.nan).backward()
    with pytest.raises(FailedPrecondition, match="not finite.*'matrix.weight'") as failed:
        optimizer.step()
    assert not failed.value.is_final
    optimizer.zero_grad()
    assert_near(model.state_dict()["matrix.weight"].double(), weight)


@pytest.mark.parametrize("make", [geminid.torch.Lion, geminid.torch.Lamb, geminid.torch.Lars, geminid.torch.Adafactor,
                                  geminid.torch.Came])
def test_weights_and_state_go_through_a_checkpoint(make, weight, gradient, tmp_path):
    def trained(steps, model, optimizer):
        for _ in range(steps):
            model(gradient).backward()
            optimizer.step()
            optimizer.zero_grad()

    model = Pull(weight)
    model, optimizer = geminid.torch.prepare(model, make(model.parameters()), device_memory="1MiB")
    trained(2, model, optimizer)
    geminid.torch.save(model, str(tmp_path / "run"))
    trained(1, model, optimizer)
    other = Pull(torch.zeros(4, 4))
    other, of_other = geminid.torch.prepare(other, make(other.parameters()), device_memory="1MiB")
    geminid.torch.load(other, str(tmp_path / "run"))
    trained(1, other, of_other)
    assert torch.equal(other.state_dict()["matrix.weight"], model.state_dict()["matrix.weight"])
