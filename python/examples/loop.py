"""A PyTorch loop with two lines of Geminid.

    python loop.py
    torchrun --nproc-per-node 2 loop.py

With GEMINID_DISABLE=1 these lines have no effect, and the loop prints the same losses.
"""

import os

import torch
from torch import nn

import geminid.torch

WIDTH, VOCABULARY, LENGTH = 64, 96, 16
RANK, WORLD_SIZE = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True,
                                                               norm_first=True) for _ in range(4))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        hidden = self.embedding(tokens)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(hidden)


def main():
    torch.manual_seed(0)  # the same model on all ranks
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    # The limit is a third of the bytes of weights, gradients and optimizer state.
    model, optimizer = geminid.torch.prepare(model, optimizer, device_memory="1MiB")

    for step in range(6):
        tokens = torch.randint(VOCABULARY, (8, LENGTH), generator=torch.Generator().manual_seed(step))
        own = tokens.chunk(WORLD_SIZE)[RANK]
        loss = nn.functional.cross_entropy(model(own).flatten(0, 1), own.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        print(f"loss {loss.item():.9g}")


if __name__ == "__main__":
    main()
