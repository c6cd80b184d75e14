"""What a run whose number of ranks has changed goes on from: decisions alone, which every rank makes alike of what all
daemons have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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


# What a daemon has of one rank: its step, whether it is where the same rank is now, and the number of the daemon.
_Candidate = tuple[int, bool, int]


def _candidates(world: int, places: Sequence[int], found: Sequence[Found]) -> dict[int, list[_Candidate]]:
    """By rank of such a group."""
    candidates: dict[int, list[_Candidate]] = {}
    for daemon, has in enumerate(found):
        for left in has.left:
            if left.world == world and 0 <= left.rank < world:
                is_here = world == len(places) and places[left.rank] == daemon
                candidates.setdefault(left.rank, []).append((left.step, is_here, daemon))
    return candidates


def _of_one_step(candidates: Mapping[int, Sequence[_Candidate]]) -> tuple[int, list[_Candidate]] | None:
    """(step, owner of each rank) of ranks that were in one group: none of them is more than a step ahead of another. The
    newest such. A rank whose step is unknown, 0, fits any; one that fits for sure is preferred, within that step."""
    steps = sorted({step for of_rank in candidates.values() for step, _, _ in of_rank}, reverse=True)
    newest: tuple[int, list[_Candidate]] | None = None
    for base in steps:
        if newest is not None and base < newest[0] - 1:
            break
        fitting = [[each for each in candidates[rank] if each[0] in (0, base, base + 1)] for rank in sorted(candidates)]
        if all(fitting):
            owners = [max(of_rank) for of_rank in fitting]
            if all(step for step, _, _ in owners):
                return base, owners
            newest = newest or (base, owners)
    return newest


def choose(places: Sequence[int], found: Sequence[Found]) -> Choice:
    """places: the daemon of each rank of this group. A group of which every rank has left its state is gone on from; of
    several, the one that has come farthest."""
    worlds = sorted({left.world for has in found for left in has.left})
    best: tuple[tuple[int, bool], Choice] | None = None
    missing = ""
    for world in worlds:
        candidates = _candidates(world, places, found)
        absent = [rank for rank in range(world) if rank not in candidates]
        whole = None if absent else _of_one_step(candidates)
        if whole is None:
            missing = missing or _missing(world, absent)
            continue
        step, owners = whole
        daemons = tuple(daemon for _, _, daemon in owners)
        choice = Choice(daemons, daemons == tuple(places))
        if best is None or (step, choice.claims) > best[0]:
            best = (step, choice.claims), choice
    return Choice(missing=missing) if best is None else best[1]


def _missing(world: int, absent: Sequence[int]) -> str:
    if not absent:
        return f"what {world} ranks have left is not of one step"
    if len(absent) == 1:
        return f"rank {absent[0]} of {world} has left nothing"
    return f"{len(absent)} of {world} ranks have left nothing"


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
