"""An Accelerate loop on one rank: first Geminid's prepare, then Accelerate's.

    python accelerate_loop.py
"""

import accelerate
import torch
from loop import LENGTH, VOCABULARY, Model
from torch import nn

import geminid.torch


def main():
    torch.manual_seed(0)
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(VOCABULARY, (24, LENGTH), generator=torch.Generator().manual_seed(0))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(tokens), batch_size=4)

    model, optimizer = geminid.torch.prepare(model, optimizer, device_memory="1MiB")
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch, in loader:
        with accelerator.accumulate(model):
            loss = nn.functional.cross_entropy(model(batch).flatten(0, 1), batch.flatten())
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        print(f"loss {loss.item():.9g}")


if __name__ == "__main__":
    main()
