"""resumed_program.py FOLDER EVENT:EPOCH:NUMBER:RANK...: one rank under torchrun that kills itself at its events, at each
event once. `train` is a script as users write it. Tests call it, too."""

import os
import pathlib
import signal
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import geminid.torch
import twins
from geminid.session import Ranks
from models import LENGTH, VOCABULARY, WIDTH, loss_of, make

EPOCHS, SAMPLES, BATCH = 2, 24, 4
STEPS = EPOCHS * SAMPLES // BATCH // 2  # a step has two batches


class Noisy(nn.Module):
    """A model with buffers that training changes. It draws random numbers."""

    def __init__(self, layers=2):
        super().__init__()
        self.inner = make("gpt", layers=layers)
        self.norm = nn.BatchNorm1d(WIDTH)

    def forward(self, tokens, labels):
        hidden = nn.functional.dropout(self.inner.hidden(tokens), 0.1, self.training)
        hidden = self.norm(hidden.transpose(1, 2)).transpose(1, 2)
        return loss_of(self.inner.head(hidden), labels)


class Best:
    """An object of the script with state."""

    def __init__(self):
        self.loss = float("inf")

    def state_dict(self):
        return {"loss": self.loss}

    def load_state_dict(self, state):
        self.loss = state["loss"]


def loader(generator=None):
    tokens = torch.randint(0, VOCABULARY, (SAMPLES, LENGTH + 1), generator=torch.Generator().manual_seed(5))
    return DataLoader(TensorDataset(tokens), batch_size=BATCH, shuffle=True, generator=generator)


def prepared(model, optimizer, **options):
    return twins.prepared(model, optimizer, device_memory="448KiB", **options)


def train(at, rank=0, **options):
    """Trains, and calls at(event, epoch, number) at each event. Returns the results of training."""
    torch.manual_seed(7 + rank)
    model = Noisy()
    model, optimizer = prepared(model, torch.optim.AdamW(model.parameters(), lr=1e-3), **options)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=2e-3, total_steps=STEPS + 1)
    scaler, best, losses = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2), Best(), {}
    run = geminid.torch.resume(model, scheduler, scaler, best)
    for epoch in run.range(EPOCHS):
        for number, (tokens,) in run.enumerate(loader()):
            loss = model(tokens[:, :-1], tokens[:, 1:])
            at("forward", epoch, number)
            losses[epoch, number] = value = run.same(loss.item())
            scaler.scale(loss / 2).backward()
            at("backward", epoch, number)
            if number % 2 == 0:
                continue
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            at("clipped", epoch, number)
            scaler.step(optimizer)
            at("stepped", epoch, number)
            scaler.update()
            optimizer.zero_grad()
            best.loss = min(best.loss, value)
            at("noted", epoch, number)
            scheduler.step()
            at("done", epoch, number)
        at("epoch", epoch, None)
    return {"losses": losses, "state": model.state_dict(), "rate": scheduler.get_last_lr(), "best": best.loss,
            "scale": scaler.state_dict(), "resumed": run.resumed, "step": run.step, "random": torch.get_rng_state()}


def main():
    torch.set_num_threads(1)
    folder, ranks = pathlib.Path(sys.argv[1]), Ranks()

    def at(event, epoch, number):
        name = f"{event}:{epoch}:{number}:{ranks.rank}"
        if name in sys.argv[2:] and not (folder / name).exists():
            (folder / name).touch()
            os.kill(os.getpid(), signal.SIGKILL)

    made = train(at, ranks.rank, ranks=ranks, resume=True)
    torch.save(made, folder / f"rank{ranks.rank}.pt")


if __name__ == "__main__":
    main()
