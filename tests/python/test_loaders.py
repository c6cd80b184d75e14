"""A DataLoader with workers that are forked after a prepared model was made, or spawned."""

import multiprocessing

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import twins
from models import batch, make


class Batches(Dataset):
    """The batches of models.py, by number."""

    def __len__(self):
        return 6

    def __getitem__(self, number):
        tokens, labels = batch(number)
        return torch.cat([tokens, labels[:, -1:]], 1)


def losses(twin, loader):
    for row in loader:
        tokens = row[0]
        loss = twin.model(tokens[:, :-1], tokens[:, 1:])
        twin.losses.append(loss.item())
        loss.backward()
        twins.finish(twin)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_a_loader_change_nothing(method):
    """Two epochs: the workers of the first end while the second trains."""
    both = twins.pair(make("gpt"), device_memory=twins.SMALL["gpt", "block"])
    for twin in both:
        loader = DataLoader(Batches(), num_workers=2, multiprocessing_context=method)
        for _ in range(2):
            losses(twin, loader)
    twins.assert_same(both)
    with twins.nothing_open(both[1]):
        pass


def _read(model, queue):
    try:
        with torch.no_grad():
            model(*batch(0))
        queue.put("computed")
    except Exception as problem:
        queue.put(f"{type(problem).__name__}: {problem}")


def test_forked_child_that_uses_the_model_is_told():
    """A forked child has no engine. It gets a Python error and ends, and training continues."""
    both = twins.pair(make("gpt"))
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=_read, args=(both[1].model, queue))
    child.start()
    child.join(60)
    assert child.exitcode == 0, child.exitcode
    said = queue.get()
    assert "fork" in said, said
    for twin in both:
        loss = twin.model(*batch(1))
        twin.losses.append(loss.item())
        loss.backward()
        twins.finish(twin)
    twins.assert_same(both)
