"""torch.amp.GradScaler with a prepared model, compared with plain torch."""

import math

import pytest
import torch
import twins
from models import batch, make

INFINITE = 3  # the step whose gradient overflows


@pytest.fixture(params=[1.0, 65536.0, 1000.0], ids=lambda scale: f"scale {scale:g}")
def scalers(request):
    """Returns a scaler for each twin. A scale that is no power of two rounds gradients."""
    return [torch.amp.GradScaler("cpu", init_scale=request.param, growth_interval=2) for _ in range(2)]


def tolerance(scalers):
    exact = math.frexp(scalers[0].get_scale())[0] == 0.5
    return {} if exact else {"loss": 4e-7, "norm": 8e-7}


def scaled_step(twin, scaler, number, unscale=True):
    loss = twin.model(*batch(number))
    twin.losses.append(loss.item())
    scaled = scaler.scale(loss)
    (scaled * math.inf if number == INFINITE else scaled).backward()
    if unscale:
        scaler.unscale_(twin.optimizer)
    twins.clip(twin, max_norm=0.5)
    scaler.step(twin.optimizer)
    scaler.update()
    twin.optimizer.zero_grad()


def of_finite_steps(twin):
    twin.norms = [norm for norm in twin.norms if math.isfinite(norm)]


@pytest.mark.parametrize("unit", ["block", "leaf"])
@pytest.mark.parametrize("kind", ["gpt", "llama"])
def test_scaled_steps_are_those_of_torch(kind, unit, scalers):
    both = twins.pair(make(kind), device_memory=twins.SMALL[kind, unit], unit=unit)
    for number in range(6):
        for twin, scaler in zip(both, scalers):
            scaled_step(twin, scaler, number)
        assert scalers[0].state_dict() == scalers[1].state_dict()
    for twin in both:
        of_finite_steps(twin)
    twins.assert_same(both, **tolerance(scalers))
    assert len(both[1].norms) == 5
    twins.assert_moved(both[1])


def test_steps_without_unscale_are_those_of_torch(scalers):
    """The gradients are clipped while they are still scaled."""
    both = twins.pair(make("gpt"))
    for number in range(6):
        for twin, scaler in zip(both, scalers):
            scaled_step(twin, scaler, number, unscale=False)
        assert scalers[0].state_dict() == scalers[1].state_dict()
    for twin in both:
        of_finite_steps(twin)
    twins.assert_same(both, **tolerance(scalers))


def test_step_that_overflows_changes_nothing():
    model, optimizer = twins.prepared(model := make("gpt"), twins.adamw(model.parameters()))
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    before = model.state_dict()
    scaler.scale(model(*batch(0)) * math.inf).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    assert scaler.get_scale() == 512
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    state = optimizer.state_dict()["state"]  # state of zeros equals no state
    assert all(not value.any() for entry in state.values() for value in entry.values())


def test_accumulated_steps_are_those_of_torch():
    both = twins.pair(make("llama"), device_memory=twins.SMALL["llama", "block"])
    scalers = [torch.amp.GradScaler("cpu", init_scale=256.0) for _ in both]
    for number in range(4):
        for twin, scaler in zip(both, scalers):
            for micro in range(3 if number % 2 == 0 else 1):
                loss = twin.model(*batch(10 * number + micro))
                twin.losses.append(loss.item())
                scaler.scale(loss / 3).backward()
            scaler.unscale_(twin.optimizer)
            twins.clip(twin)
            scaler.step(twin.optimizer)
            scaler.update()
            twin.optimizer.zero_grad()
    twins.assert_same(both)


def test_autocast_to_fp16_is_that_of_torch():
    both = twins.pair(make("llama"), device_memory=twins.SMALL["llama", "block"])
    scalers = [torch.amp.GradScaler("cpu", init_scale=2.0 ** 14) for _ in both]
    for number in range(6):
        for twin, scaler in zip(both, scalers):
            with torch.autocast("cpu", torch.float16):
                loss = twin.model(*batch(number))
            twin.losses.append(loss.item())
            scaler.scale(loss).backward()
            scaler.unscale_(twin.optimizer)
            twins.clip(twin)
            scaler.step(twin.optimizer)
            scaler.update()
            twin.optimizer.zero_grad()
        assert scalers[0].state_dict() == scalers[1].state_dict()
    assert both[1].losses[0] == both[0].losses[0]
    # Weights that differ in the last bit of fp32 may round to different fp16 values.
    twins.assert_same(both, loss=1e-4, norm=1e-3)


def test_calls_in_the_wrong_order_are_told_as_torch_tells_them():
    model, optimizer = twins.prepared(model := make("gpt"), twins.adamw(model.parameters()))
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    scaler.scale(model(*batch(0))).backward()
    scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match="already been called"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    with pytest.raises(RuntimeError, match="already been called"):
        scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    with pytest.raises(AssertionError, match="No inf checks"):
        scaler.step(optimizer)


def test_scaler_that_is_disabled_steps():
    both = twins.pair(make("gpt"))
    for number in range(2):
        for twin in both:
            scaled_step(twin, torch.amp.GradScaler("cpu", enabled=False), number, unscale=True)
    twins.assert_same(both)


def test_one_scaler_for_a_prepared_and_a_plain_model():
    """The scaler has a separate state for each optimizer. An overflow of one does not skip a step of the other."""
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    plain = make("gpt", seed=1)
    plain_optimizer = twins.adamw(plain.parameters())
    model, optimizer = twins.prepared(model := make("gpt"), twins.adamw(model.parameters()))
    before = plain.head.weight.detach().clone(), model.state_dict()["head.weight"]
    scaler.scale(model(*batch(0)) * math.inf).backward()
    scaler.scale(plain(*batch(0))).backward()
    for each in (optimizer, plain_optimizer):
        scaler.step(each)
    scaler.update()
    optimizer.zero_grad()
    assert not torch.equal(plain.head.weight, before[0])
    assert torch.equal(model.state_dict()["head.weight"], before[1])
    assert scaler.get_scale() == 32


def test_scheduler_of_the_first_optimizer_sees_the_steps(recwarn):
    model = make("gpt")
    given = twins.adamw(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(given, 1)
    model, optimizer = twins.prepared(model, given)
    model(*batch(0)).backward()
    optimizer.step()
    scheduler.step()
    assert not [warning for warning in recwarn if "lr_scheduler.step()" in str(warning.message)]
