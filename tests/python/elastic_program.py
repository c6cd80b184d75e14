"""Ranks of a run whose number of ranks changes. `rank_of` is one rank in its own process. `train` is a script as users
write it."""

import atexit
import faulthandler
import os
import pathlib
import signal
from dataclasses import dataclass

import torch

import geminid.torch
import twins
from geminid.session import Ranks
from geminid.torch.image import ImageMemory
from models import LENGTH, VOCABULARY, make
from torch.utils.data import DataLoader, TensorDataset

STEPS, BATCH = 8, 12  # BATCH: samples of all ranks together


class Counter:
    """An object of the script with state."""

    def __init__(self):
        self.steps = 0

    def state_dict(self):
        return {"steps": self.steps}

    def load_state_dict(self, state):
        self.steps = state["steps"]


def share(step, rank, world):
    tokens = torch.randint(0, VOCABULARY, (BATCH, LENGTH + 1), generator=torch.Generator().manual_seed(100 + step))
    return tokens[rank::world]


def parts(ranks, optimizer="adamw", **options):
    torch.manual_seed(7)
    model = make("gpt", layers=1)
    made = {"adamw": lambda: torch.optim.AdamW(model.parameters(), lr=1e-3),
            "sgd": lambda: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)}[optimizer]()
    model, made = twins.prepared(model, made, device_memory="1MiB", ranks=ranks, **options)
    return model, made, torch.optim.lr_scheduler.ExponentialLR(made, 0.9)


def train(ranks, at, resume=True, load=None, save=None, **options):
    """Trains, and calls at(event, step) at each event. load, save: (folder, steps) of a checkpoint."""
    model, optimizer, scheduler = parts(ranks, resume=resume, **options)
    counter, losses, first = Counter(), {}, 0
    run = geminid.torch.resume(model, scheduler, counter)
    if load is not None and not run.resumed:
        folder, first = load
        geminid.torch.load(model, folder, scheduler)
    for step in run.range(first, STEPS) if first else run.range(STEPS):
        tokens = share(step, ranks.rank, ranks.world_size)
        at("begun", step)
        loss = model(tokens[:, :-1], tokens[:, 1:])
        losses[step] = run.same(loss.item())
        loss.backward()
        at("backward", step)
        optimizer.step()
        at("stepped", step)
        scheduler.step()
        optimizer.zero_grad()
        counter.steps += 1
        at("done", step)
        if save is not None and step + 1 == save[1]:
            geminid.torch.save(model, save[0], scheduler)
            break
    return {"losses": losses, "state": model.state_dict(), "rate": scheduler.get_last_lr(), "steps": counter.steps,
            "resumed": run.resumed, "before": run.ranks_before, "step": run.step}


def passes(ranks, at, epochs=2, samples=24, batch=2):
    """Records which samples are seen after which step, in two passes over a loader. Losses do not matter here."""
    model, optimizer, _ = parts(ranks, resume=True)
    seen = []
    tokens = torch.randint(0, VOCABULARY, (samples, LENGTH + 1), generator=torch.Generator().manual_seed(5))
    data = TensorDataset(torch.arange(samples), tokens)
    sampler = torch.utils.data.DistributedSampler(data, ranks.world_size, ranks.rank, shuffle=True, seed=3)
    run = geminid.torch.resume(model)
    for epoch in run.range(epochs):
        sampler.set_epoch(epoch)
        for number, (which, batch_tokens) in run.enumerate(DataLoader(data, batch_size=batch, sampler=sampler)):
            model(batch_tokens[:, :-1], batch_tokens[:, 1:]).backward()
            if not run.replays:
                seen += [(epoch, int(each)) for each in which]
            optimizer.step()
            optimizer.zero_grad()
            at("done", (epoch, number))
    return {"seen": seen, "before": run.ranks_before, "batches": run.batches_before, "resumed": run.resumed}


def rank_of(environment, folder, rank, world, work, death, options):
    """Runs a rank. death: (event, step, rank) at which that process kills itself. The others are killed when it is gone."""
    os.environ.update(environment, RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank),
                      LOCAL_WORLD_SIZE=str(world))
    folder = pathlib.Path(folder)
    os.dup2(os.open(folder / f"said{rank}", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    faulthandler.enable()
    torch.set_num_threads(1)

    def at(event, step):
        if death is not None and (event, step, rank) == tuple(death):
            os.kill(os.getpid(), signal.SIGKILL)

    complete = ImageMemory.complete

    def completed(memory, image):
        at("collected", 0)
        complete(memory, image)
        at("recorded", 0)

    ImageMemory.complete = completed
    torch.save(work(Ranks(), at, **options), folder / f"made{rank}.pt")
    atexit._run_exitfuncs()  # as at the end of a program


@dataclass
class Spot:
    """A rank's place, for a session."""
    rank: int
    world_size: int
    local_rank: int = 0
    local_world_size: int = 1
