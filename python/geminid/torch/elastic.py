"""What a run whose number of ranks has changed goes on from: decisions alone, which every rank makes alike of what all
daemons have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Left:
    """A rank that a process was, and whose state the daemon has. It has committed `step`, or the step after it."""
    world: int
    rank: int
    step: int = 0
    device: int = -1
    device_bytes: int = 0


@dataclass(frozen=True)
class Image:
    """What one daemon has of the state that a group of ranks has collected of the group before: that of `ranks`."""
    generation: int
    world: int
    ranks: tuple[int, ...]
    step: int


@dataclass(frozen=True)
class Found:
    """What one daemon has of the run."""
    left: tuple[Left, ...] = ()
    image: Image | None = None


@dataclass(frozen=True)
class Choice:
    """owners: which daemon has each rank of the group that is gone on from; empty: no group is whole. claims: each rank of
    this group finds the state of the same rank on its own daemon. missing: in words, what a group lacks that left
    something."""
    owners: tuple[int, ...] = ()
    claims: bool = False
    missing: str = ""

    @property
    def world(self) -> int:
        """The number of ranks of that group; 0: there is none."""
        return len(self.owners)


def _owners(world: int, places: Sequence[int], found: Sequence[Found]) -> dict[int, tuple[int, bool, int]]:
    """By rank of such a group: its step, whether it is where the same rank is now, and its daemon."""
    owners: dict[int, tuple[int, bool, int]] = {}
    for daemon, has in enumerate(found):
        for left in has.left:
            if left.world == world and 0 <= left.rank < world:
                is_here = world == len(places) and places[left.rank] == daemon
                owners[left.rank] = max(owners.get(left.rank, (-1, False, -1)), (left.step, is_here, daemon))
    return owners


def choose(places: Sequence[int], found: Sequence[Found]) -> Choice:
    """places: the daemon of each rank of this group. A group of which every rank has left its state is gone on from; of
    several, the one that has come farthest."""
    worlds = sorted({left.world for has in found for left in has.left})
    best: tuple[tuple[int, bool], Choice] | None = None
    missing = ""
    for world in worlds:
        owners = _owners(world, places, found)
        absent = [rank for rank in range(world) if rank not in owners]
        if absent:
            missing = missing or (f"rank {absent[0]} of {world} has left nothing" if len(absent) == 1 else
                                  f"{len(absent)} of {world} ranks have left nothing")
            continue
        step = min(owners[rank][0] for rank in range(world))
        daemons = tuple(owners[rank][2] for rank in range(world))
        choice = Choice(daemons, daemons == tuple(places))
        if best is None or (step, choice.claims) > best[0]:
            best = (step, choice.claims), choice
    return Choice(missing=missing) if best is None else best[1]


def whole_image(found: Sequence[Found]) -> Image | None:
    """The newest of which all is there."""
    images = [has.image for has in found if has.image is not None]
    whole = [image for image in images if
             {rank for other in images if other.generation == image.generation for rank in other.ranks} >=
             set(range(image.world))]
    return max(whole, key=lambda image: image.step, default=None)


def common(first: int, count: int, ranges: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """(offset, elements) of what `count` elements from `first` on have in common with each of the ranges."""
    for offset, elements in ranges:
        begin, end = max(first, offset), min(first + count, offset + elements)
        if begin < end:
            yield begin, end - begin


@dataclass(frozen=True)
class InPass:
    """Where ranks go on in a pass over their loaders. consumed: batches that each of them drops, or has replayed. replayed:
    the number of the batch with which the committed step is entered again. repeated: batches of the ranks before
    that come again, because they cannot be shared out."""
    consumed: int
    replayed: int
    repeated: int


def place_in_pass(batch: int, every: int, before: int, now: int, length: int | None) -> InPass:
    """Of a pass in which each of `before` ranks has committed a step with its batch number `batch`, and made a step every
    `every` batches; `now` ranks share out what is left. length: batches of the pass for each of them."""
    every = max(1, every)
    done = before * (batch + 1)
    consumed = done // now
    if (batch + 1) % every == 0:
        consumed -= consumed % every
    replayed, repeated = max(consumed, every) - 1, done - consumed * now
    if length is not None:
        consumed, replayed = min(consumed, length), max(0, min(replayed, length - 1))
    return InPass(consumed, replayed, repeated)
