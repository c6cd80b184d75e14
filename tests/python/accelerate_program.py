"""accelerate_program.py FOLDER: one rank of an Accelerate loop around a prepared model. It writes its losses and norms."""

import pathlib
import sys

import accelerate
import torch
import twins
from models import batch, make

STEPS = 4


def main():
    torch.set_num_threads(1)
    folder = pathlib.Path(sys.argv[1])
    accelerator = accelerate.Accelerator(cpu=True)
    model = make("gpt")
    twin = twins.Twin(*twins.prepared(model, twins.adamw(model.parameters()), device_memory="448KiB"))
    twin.model = accelerator.prepare_model(twin.model, device_placement=False, evaluation_mode=True)
    twin.optimizer = accelerator.prepare(twin.optimizer)
    for number in range(STEPS):
        tokens, labels = (part.chunk(2)[accelerator.process_index] for part in batch(number, size=4))
        loss = twin.model(tokens, labels)
        twin.losses.append(loss.item())
        accelerator.backward(loss)
        twin.norms.append(float(accelerator.clip_grad_norm_(twin.model.parameters(), 1.0)))
        twin.optimizer.step()
        twin.optimizer.zero_grad()
    accelerator.save_state(str(folder / "state"))
    torch.save((twin.losses, twin.norms), folder / f"rank{accelerator.process_index}.pt")


if __name__ == "__main__":
    main()
