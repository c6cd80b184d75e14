"""lightning_program.py FOLDER: one rank of two fits under torchrun, on its half of each batch. The second fit continues
where the first ended."""

import os
import pathlib
import sys

import torch

import geminid.lightning
import test_lightning
from models import batch

WORLD = int(os.environ["WORLD_SIZE"])
RANK = int(os.environ["RANK"])


class Halves(test_lightning.Batches):
    def __getitem__(self, number):
        return [tensor.chunk(WORLD)[RANK] for tensor in batch(number, size=4)]


def fit(folder, epochs, **more):
    module = test_lightning.Module()
    strategy = geminid.lightning.GeminidStrategy(device_memory="1536KiB", unit="block",
                                                 process_group_backend="gloo")
    trainer = test_lightning.trainer(folder, strategy, devices=WORLD, max_epochs=epochs)
    loader = torch.utils.data.DataLoader(Halves(), batch_size=None)
    trainer.fit(module, loader, loader, **more)
    return trainer, module


def main():
    torch.set_num_threads(1)
    folder = pathlib.Path(sys.argv[1])
    trainer, first = fit(folder, 1)
    trainer.save_checkpoint(folder / "first.ckpt")
    _, second = fit(folder, 2, ckpt_path=folder / "first.ckpt")
    torch.save(first.losses + second.losses, folder / f"rank{RANK}.pt")


if __name__ == "__main__":
    main()
