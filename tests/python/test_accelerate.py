"""A loop of Accelerate, on one rank, with what prepare returned."""

import pytest
import torch
import twins
from models import batch, make

accelerate = pytest.importorskip("accelerate")

STEPS = 6  # even: both models share the accelerator, which counts micro-batches


def train(twin, accelerator, steps, first=0):
    for number in range(first, first + steps):
        with accelerator.accumulate(twin.model):
            loss = twin.model(*batch(number))
            twin.losses.append(loss.item())
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                twin.norms.append(float(accelerator.clip_grad_norm_(twin.model.parameters(), 1.0)))
            twin.optimizer.step()
            twin.optimizer.zero_grad()


def prepared_by(accelerator, twin):
    twin.model, twin.optimizer = accelerator.prepare(twin.model, twin.optimizer)
    return twin


@pytest.mark.parametrize("accumulated", [1, 2])
def test_loop_gives_the_losses_and_norms_of_plain_torch(accumulated):
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=accumulated)
    both = [prepared_by(accelerator, twin) for twin in twins.pair(make("gpt"), device_memory="448KiB")]
    for twin in both:
        train(twin, accelerator, STEPS)
    twins.assert_same(both)


def test_saved_state_is_gone_on_from(tmp_path):
    accelerator = accelerate.Accelerator(cpu=True)
    _, whole = twins.pair(make("gpt"), device_memory="448KiB")
    prepared_by(accelerator, whole)
    train(whole, accelerator, 2)
    accelerator.save_state(str(tmp_path))
    train(whole, accelerator, 3, first=2)
    accelerator.load_state(str(tmp_path))
    first_losses, whole.losses = whole.losses, []
    train(whole, accelerator, 3, first=2)
    assert whole.losses == first_losses[2:]
