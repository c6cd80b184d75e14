"""An Accelerate loop with the model and optimizer that prepare returned."""

import pathlib
import subprocess
import sys

import pytest
import torch
import twins
from models import batch, make

accelerate = pytest.importorskip("accelerate")

PATIENCE_SECONDS = 300
STEPS = 6  # even, because both models share the accelerator, and the accelerator counts micro-batches


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


def test_two_ranks_of_torchrun_train_as_one(tmp_path):
    model = make("gpt")
    expected = twins.Twin(model, twins.adamw(model.parameters()))
    for number in range(4):
        loss = expected.model(*batch(number, size=4))
        expected.losses.append(loss.item())
        loss.backward()
        twins.finish(expected)
    program = pathlib.Path(__file__).parent / "accelerate_program.py"
    subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(program),
                    str(tmp_path)], check=True, timeout=PATIENCE_SECONDS)
    ranks = [torch.load(tmp_path / f"rank{rank}.pt") for rank in range(2)]
    twins.assert_close([sum(losses) / 2 for losses in zip(*(rank[0] for rank in ranks))], expected.losses, twins.LOSS, "losses")
    for _, norms in ranks:
        twins.assert_close(norms, expected.norms, twins.NORM, "norms")
    assert (tmp_path / "state/model.safetensors").exists()
