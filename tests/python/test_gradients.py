"""Actions of scripts on gradients in addition to backward, step and zero_grad. Each gives the result of plain torch, or
is refused before a weight has changed."""

import pytest
import torch

import twins
from geminid import errors
from models import batch, make
from steps import forward, one_batch


def refused(words):
    return pytest.raises(errors.Refused, match=words)


# --- gradients that are dropped ----------------------------------------------------------------------


class Outer(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model


def set_each_to_none(twin):
    for parameter in twin.model.parameters():
        parameter.grad = None


def delete_each(twin):
    for parameter in twin.model.parameters():
        del parameter.grad


def parts(twin):
    for part in twin.model.children():
        part.zero_grad()


#: Ways to drop all gradients. Each equals the optimizer's zero_grad().
DROPS = {"grad = None": set_each_to_none, "del grad": delete_each, "zero_grad of each part": parts,
         "zero_grad of a module around": lambda twin: Outer(twin.model).zero_grad(),
         "zero_grad of the first optimizer": lambda twin: twin.first.zero_grad()}


@pytest.mark.parametrize("drop", DROPS)
def test_gradients_that_are_all_dropped_are_dropped_in_the_engine(drop):
    def step(twin, number):
        forward(twin, 50 + number).backward()
        DROPS[drop](twin)
        assert all(parameter.grad is None for parameter in twin.model.parameters())
        twins.clip(twin)  # without gradients the norm is 0
        twin.optimizer.step()  # changes no weight
        forward(twin, number).backward()
        twins.finish(twin)

    firsts = []

    def first_optimizer(parameters):
        firsts.append(twins.adamw(parameters))
        return firsts[-1]

    both = twins.pair(make("gpt"), first_optimizer, device_memory="448KiB")
    for twin, first in zip(both, firsts):
        twin.first = first
    twins.run(both, step, steps=4)
    for twin in both:
        twin.norms = [norm for norm in twin.norms if norm]
    assert len(both[1].norms) == 4
    twins.assert_same(both)


def test_batch_whose_gradient_is_not_finite_is_dropped():
    def step(twin, number):
        (forward(twin, number) * (float("nan") if number == 1 else 1.0)).backward()
        if number == 1:
            set_each_to_none(twin)
        twin.optimizer.step()
        twin.optimizer.zero_grad()

    both = twins.pair(make("gpt"))
    twins.run(both, step, steps=4)
    twins.assert_same(both)


@pytest.mark.parametrize("drop", ["zero_grad", "grad = None"])
def test_gradients_of_before_are_dropped_between_a_forward_and_its_backward(drop):
    """A weight is used outside of its module. The backward pass needs that weight again."""
    def step(twin, number):
        forward(twin, 50 + number).backward()
        loss = forward(twin, number)
        twin.model.zero_grad() if drop == "zero_grad" else set_each_to_none(twin)
        loss.backward()
        twins.finish(twin)

    both = twins.pair(make("gpt", tied=True), device_memory="448KiB", unit="leaf")
    twins.run(both, step, steps=4)
    twins.assert_same(both)


def step_of_a_scaler(twin):
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(torch.ones(()))
    scaler.step(twin.optimizer)


@pytest.mark.parametrize("use", [lambda twin: twin.optimizer.step(), twins.clip, step_of_a_scaler],
                         ids=["step", "clip", "scaler"])
@pytest.mark.parametrize("part", [lambda model: model.head, lambda model: model.blocks[0]], ids=["head", "block"])
def test_step_without_gradients_of_a_part_is_refused_before_anything_changes(both, part, use):
    twin = both[1]
    before = twin.model.state_dict()
    twin.model(*batch(7)).backward()
    part(twin.model).zero_grad()
    assert all(parameter.grad is None for parameter in part(twin.model).parameters())
    assert twin.model.norm.weight.grad is not None
    with refused(r"dropped the gradient of '(head|blocks.0).*optimizer.zero_grad\(\).*requires_grad_\(False\)"):
        use(twin)
    twin.optimizer.zero_grad()
    assert all(torch.equal(value, before[name]) for name, value in twin.model.state_dict().items())


def test_part_that_is_frozen_for_a_step_is_left_out_as_without_its_gradient():
    """The replacement that the refusal suggests, as used by DINO, whose first epochs leave out the last layer."""
    def step(twin, number):
        left_out, plain = number < 2, twin is both[0]
        if left_out and not plain:
            twin.model.head.requires_grad_(False)
        forward(twin, number).backward()
        if left_out and plain:
            twin.model.head.weight.grad = None
        twin.model.head.requires_grad_(True)
        twins.finish(twin)

    both = twins.pair(make("gpt"), device_memory="448KiB")
    twins.run(both, step)
    twins.assert_same(both)


# --- gradients after a step ---------------------------------------------------------------------------


@pytest.mark.parametrize("use", [lambda twin: one_batch(twin, 7), lambda twin: twin.optimizer.step(), twins.clip, step_of_a_scaler],
                         ids=["backward and step", "step", "clip", "scaler"])
def test_gradients_used_by_a_step_are_refused_to_the_next_before_anything_changes(both, use):
    for twin in both:
        forward(twin, 7).backward()
        twin.optimizer.step()
    ours = both[1]
    before = ours.model.state_dict()
    with refused(r"optimizer.step\(\) has used the gradients.*optimizer.zero_grad\(\) between optimizer.step\(\) and the next"):
        use(ours)
    assert all(torch.equal(value, before[name]) for name, value in ours.model.state_dict().items())
    ours.losses = both[0].losses[:]
    for twin in both:
        twin.optimizer.zero_grad()


def zero_first(twin, number):
    twin.optimizer.zero_grad()
    forward(twin, number).backward()
    twins.clip(twin)
    twin.optimizer.step()


def zero_between(twin, number):
    """Calls zero_grad where Lightning's closure calls it."""
    loss = forward(twin, number)
    twin.optimizer.zero_grad()
    loss.backward()
    twin.optimizer.step()


def zero_by_hand(twin, number):
    forward(twin, number).backward()
    twin.optimizer.step()
    set_each_to_none(twin)


def zero_after_a_further_backward(twin, number):
    """A critic gets gradients in the generator's step, and drops them before its own step."""
    twin.model.zero_grad()
    forward(twin, number).backward()
    twin.optimizer.step()
    forward(twin, 50 + number).backward()


@pytest.mark.parametrize("step", [zero_first, zero_between, zero_by_hand, zero_after_a_further_backward],
                         ids=lambda step: step.__name__)
def test_zero_grad_may_come_anywhere_between_step_and_the_next_use(step):
    both = twins.pair(make("gpt", tied=True), device_memory="448KiB")
    twins.run(both, step, steps=4)
    twins.assert_same(both)


def test_gradients_are_there_from_backward_to_zero_grad():
    both = twins.pair(make("gpt"))
    for twin in both:
        there = [twin.model.head.weight.grad is not None]
        for action in (lambda: forward(twin, 0).backward(), twin.optimizer.step, twin.optimizer.zero_grad):
            action()
            there.append(twin.model.head.weight.grad is not None)
        assert there == [False, True, True, False]
        forward(twin, 0).backward()
        twin.optimizer.zero_grad(set_to_none=False)
        assert twin.model.head.weight.grad is not None
        twin.optimizer.zero_grad()
        assert twin.model.head.weight.grad is None


# --- gradients of zeros ------------------------------------------------------------------------------

ZEROED = {"adamw": twins.adamw, "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.01)}


def zeroed_step(twin, number, zero_grad):
    if number == 2:
        twin.optimizer.step()  # momentum alone moves the weights
        zero_grad(twin)
    twin.model.order = [[0, 1], [0, 2], [1, 2]][number % 3]  # block 2 has no gradient in the first step, not even zeros
    forward(twin, number).backward()
    twins.clip(twin)
    twin.optimizer.step()
    zero_grad(twin)


@pytest.mark.parametrize("of", ["optimizer", "model"])
@pytest.mark.parametrize("name", ZEROED)
def test_gradients_of_zeros_decay_moments_and_move_weights_as_in_torch(name, of):
    both = twins.pair(make("gpt"), ZEROED[name], device_memory="448KiB")
    twins.run(both, lambda twin, number: zeroed_step(twin, number, lambda twin: getattr(twin, of).zero_grad(set_to_none=False)))
    twins.assert_same(both, norm=1e-6)
    if name == "momentum":  # AdamW moves a weight by the sign of its gradient, even if the gradient is only rounding
        for theirs, mine in zip(*(twin.model.state_dict().values() for twin in both), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)


def test_gradients_of_zeros_end_with_the_next_zero_grad_of_none():
    both = twins.pair(make("gpt"), device_memory="448KiB")
    for number in range(6):
        for twin in both:
            zeroed_step(twin, number, lambda twin: twin.optimizer.zero_grad(set_to_none=number % 2 == 1))
    twins.assert_same(both)


def test_scaled_steps_with_gradients_of_zeros_are_those_of_torch():
    both = twins.pair(make("gpt"), device_memory="448KiB")
    scalers = [torch.amp.GradScaler("cpu", init_scale=256.0) for _ in both]
    for number in range(5):
        for twin, scaler in zip(both, scalers):
            twin.model.order = [[0, 1, 2], [0, 2], [1, 2]][number % 3]
            scaler.scale(forward(twin, number)).backward()
            scaler.unscale_(twin.optimizer)
            twins.clip(twin)
            scaler.step(twin.optimizer)
            scaler.update()
            twin.optimizer.zero_grad(set_to_none=False)
    twins.assert_same(both)


# --- clipping ----------------------------------------------------------------------------------------

CLIPPED = {"to log the norm": (0.01, float("inf")), "twice": (0.1, 0.01), "loosely after": (0.01, 0.1), "three times": (0.5, 0.2, 0.1),
           "to nothing": (0.0,), "to nothing, then": (0.0, 1.0)}


@pytest.mark.parametrize("scaled", [None, "unscaled", "between"])
@pytest.mark.parametrize("limits", CLIPPED)
def test_gradients_are_clipped_as_often_as_in_torch(limits, scaled):
    both = twins.pair(make("gpt"), ZEROED["momentum"], device_memory="448KiB")
    scalers = [torch.amp.GradScaler("cpu", init_scale=256.0, enabled=scaled is not None) for _ in both]
    for number in range(3):
        for twin, scaler in zip(both, scalers):
            scaler.scale(forward(twin, number)).backward()
            if scaled == "between":
                twins.clip(twin, 100.0)
            scaler.unscale_(twin.optimizer)
            for limit in CLIPPED[limits]:
                twins.clip(twin, limit)
            scaler.step(twin.optimizer)
            scaler.update()
            twin.optimizer.zero_grad()
    twins.assert_same(both, norm=2e-6)
    assert min(both[1].norms) < 0.2 or limits == "to nothing"


def test_gradient_of_a_parameter_that_the_optimizer_has_not_is_refused_to_the_norm_and_dropped_with_the_others():
    model = make("gpt")
    model.head.requires_grad_(False)
    both = twins.pair(model, lambda parameters: twins.adamw([p for p in parameters if p.requires_grad]))
    plain, ours = both
    for twin in both:
        twin.model.head.requires_grad_(True)
        forward(twin, 0).backward()
    torch.testing.assert_close(ours.model.head.weight.grad, plain.model.head.weight.grad)
    with refused(r"'head.weight' has a gradient, and the optimizer.*requires_grad_\(False\)"):
        torch.nn.utils.clip_grad_norm_(ours.model.parameters(), 1.0)
    for twin in both:
        trained = [p for group in twin.optimizer.param_groups for p in group["params"]]
        twin.norms.append(float(torch.nn.utils.clip_grad_norm_(trained, 1.0)))
        twin.optimizer.step()
        twin.model.zero_grad()
        assert twin.model.head.weight.grad is None
        forward(twin, 1).backward()
        twin.model.zero_grad(set_to_none=False)
        assert not twin.model.head.weight.grad.any()
    twins.assert_same(both)


@pytest.mark.parametrize("limit", [-1.0, float("nan")])
def test_limits_that_are_none_are_refused(both, limit):
    both[1].model(*batch(7)).backward()
    with refused(r"max_norm is (-1.0|nan).*give 0 or more"):
        torch.nn.utils.clip_grad_norm_(both[1].model.parameters(), limit)
    both[1].optimizer.zero_grad()
