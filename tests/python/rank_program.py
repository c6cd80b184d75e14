"""rank_program.py FOLDER [different | alone | saves]: one rank of a job. It trains on its half of each batch and writes its
findings. With `different` it begins with a value that the other ranks do not have. With `alone` rank 0 evaluates and the other
does not. With `saves` both save, and later rank 0 saves alone."""

import os
import sys
import time

import torch

import geminid.torch
import twins
from geminid import errors
from geminid.session import Ranks, Session
from models import batch, make
from steps import one_batch


def refused(model, session, ranks):
    with torch.no_grad():
        model.blocks[2].down.weight[0, 0] += ranks.rank
    try:
        twins.prepared(model, twins.adamw(model.parameters()), session=session, ranks=ranks)
    except errors.Refused as refusal:
        torch.save({"refusal": str(refusal)}, os.path.join(sys.argv[1], f"rank{ranks.rank}.pt"))


def alone(twin, ranks):
    one_batch(twin, 0)
    try:
        if ranks.rank == 0:
            with torch.no_grad():
                twin.model(*batch(1))
        one_batch(twin, 2)
    except errors.GeminidError as problem:
        torch.save({"error": str(problem)}, os.path.join(sys.argv[1], f"rank{ranks.rank}.pt"))


def saves_alone(twin, ranks):
    one_batch(twin, 0)
    geminid.torch.save(twin.model, os.path.join(sys.argv[1], "run"))
    began = time.monotonic()
    try:
        if ranks.rank == 0:
            geminid.torch.save(twin.model, os.path.join(sys.argv[1], "run"))
        one_batch(twin, 1)
    except errors.GeminidError as problem:
        torch.save({"error": str(problem), "seconds": time.monotonic() - began},
                   os.path.join(sys.argv[1], f"rank{ranks.rank}.pt"))


def main():
    torch.set_num_threads(1)
    ranks = Ranks()
    flags = ["--host-memory", "256MiB", "--device-memory", "64MiB"]
    session = Session(448 << 10, place=ranks.place, private_daemon=True, daemon_flags=flags)
    model = make("gpt", tied="shared", reentrant=False)
    if "different" in sys.argv:
        return refused(model, session, ranks)
    twin = twins.Twin(*twins.prepared(model, twins.adamw(model.parameters()), session=session, ranks=ranks))
    if "alone" in sys.argv:
        return alone(twin, ranks)
    if "saves" in sys.argv:
        return saves_alone(twin, ranks)
    for number in range(5):
        if number == 4:
            with geminid.torch.full(twin.model.norm), torch.no_grad():
                twin.model.norm.weight.mul_(2)  # so small that one rank stores all of it
        for micro in range(2):
            tokens, labels = (half.chunk(2)[ranks.rank] for half in batch(10 * number + micro, size=4))
            loss = twin.model(tokens, labels) / 2
            twin.losses.append(loss.item())
            loss.backward()
        twins.finish(twin)
    state = twin.model.state_dict()
    optimizer_state = twin.optimizer.state_dict()
    twin.optimizer.load_state_dict(optimizer_state)
    again = twin.optimizer.state_dict()
    torch.save({"losses": twin.losses, "norms": twin.norms, "state": state,
                "optimizer": optimizer_state, "again": again},
               os.path.join(sys.argv[1], f"rank{ranks.rank}.pt"))


if __name__ == "__main__":
    main()
