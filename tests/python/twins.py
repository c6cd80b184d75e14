"""Trains two copies of a model through the same steps: one with plain torch, and a prepared one."""

import contextlib
import copy

import torch

import geminid.torch
from differences import difference

#: Device memory by kind of model and unit. It is so small that every step loads and evicts chunks.
SMALL = {("gpt", "block"): "384KiB", ("llama", "block"): "320KiB", ("gpt", "leaf"): "256KiB",
         ("llama", "leaf"): "256KiB"}
AMPLE = "8MiB"
CHUNK_ELEMENTS = 16384  # the number of elements of the largest tensor

# Relative, for fp32. A loss may be two last places off, of which each is up to 2**-23 of it: processors add up in other orders.
LOSS, NORM = 2 * 2**-23, 4e-7


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-4, weight_decay=0.1)


def prepared(model, optimizer, device_memory=AMPLE, unit="block", **options):
    return geminid.torch.prepare(model, optimizer, device_memory=device_memory, unit=unit,
                                 chunk_elements=CHUNK_ELEMENTS, **options)


class Twin:
    """A model, its optimizer, and the losses and norms of its steps."""

    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer
        self.losses, self.norms = [], []


def pair(model, make_optimizer=adamw, **options):
    """Returns (plain, prepared): two models that are equal at the start."""
    other = copy.deepcopy(model)
    return (Twin(model, make_optimizer([p for p in model.parameters()])),
            Twin(*prepared(other, make_optimizer([p for p in other.parameters()]), **options)))


def run(twins, step, steps=6):
    """Runs steps on all twins. step(twin, number) does one step and records its losses and norms in the twin."""
    for number in range(steps):
        for twin in twins:
            torch.manual_seed(number)
            step(twin, number)


def clip(twin, max_norm=1.0):
    twin.norms.append(float(torch.nn.utils.clip_grad_norm_(twin.model.parameters(), max_norm)))


def finish(twin, max_norm=1.0):
    clip(twin, max_norm)
    twin.optimizer.step()
    twin.optimizer.zero_grad()


def assert_close(actual, expected, tolerance, what):
    assert len(actual) == len(expected) > 0, what
    worst = difference(actual, expected)
    assert worst <= tolerance, f"{what}: {worst:.2e} apart, at most {tolerance:.0e}: {actual} {expected}"


def assert_same(twins, loss=LOSS, norm=NORM):
    plain, ours = twins
    assert_close(ours.losses, plain.losses, loss, "losses")
    if plain.norms:
        assert_close(ours.norms, plain.norms, norm, "norms")


def moved_bytes(twin):
    return twin.model._geminid_keeper.engine.statistics()["host_to_device_bytes"]


def assert_moved(twin, steps=6):
    """Asserts that the steps loaded more bytes than the weights once in each step."""
    weights = sum(p.numel() * p.element_size() for p in twin.model.parameters())
    assert moved_bytes(twin) > 1.5 * steps * weights, (moved_bytes(twin), weights)


@contextlib.contextmanager
def nothing_open(twin):
    """Asserts after the block that no operation of the model is open."""
    yield
    keeper = twin.model._geminid_keeper
    assert not keeper.tasks and not keeper.outside and keeper.depth == 0
    assert all(record.held == 0 for record in keeper.records)
