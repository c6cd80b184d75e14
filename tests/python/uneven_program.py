"""uneven_program.py FOLDER: one rank under torchrun. Its batches have other lengths and sizes than those of other ranks, and
in the last step it has no batch."""

import pathlib
import sys

import torch

import twins
from geminid.session import Ranks
from models import LENGTH, batch, make

STEPS = 5


def loss_of(model, number, rank, world_size):
    """Returns the loss of a rank in a step. A rank without a batch computes with any batch, and its loss counts 0."""
    size, length = 1 + (rank + number) % 3, LENGTH - 2 * ((2 * rank + number) % 4)
    is_absent = number == STEPS - 1 and rank == world_size - 1
    tokens, labels = (tensor[:, :length] for tensor in batch(100 * number + rank, size))
    return model(tokens, labels) * (0.0 if is_absent else 1.0)


def main():
    torch.set_num_threads(1)
    ranks = Ranks()
    model = make("llama", reentrant=False)
    twin = twins.Twin(*twins.prepared(model, twins.adamw(model.parameters()), device_memory="448KiB", ranks=ranks))
    for number in range(STEPS):
        loss = loss_of(twin.model, number, ranks.rank, ranks.world_size)
        twin.losses.append(loss.item())
        loss.backward()
        twins.finish(twin)
    torch.save({"losses": twin.losses, "norms": twin.norms}, pathlib.Path(sys.argv[1]) / f"rank{ranks.rank}.pt")


if __name__ == "__main__":
    main()
