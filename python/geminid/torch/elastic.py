"""Decides what a run continues from when its number of ranks has changed. This module only decides. Every rank decides
alike from the same input: the state that all daemons have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Left:
    """A rank whose process ended and whose state the daemon retains. It has committed `step`, or the step after it."""
    world: int
    rank: int
    step: int = 0
    device: int = -1
    device_bytes: int = 0


@dataclass(frozen=True)
class Image:
    """One daemon's image: the state of the previous group's `ranks`, which a later group has collected."""
    generation: int
    world: int
    ranks: tuple[int, ...]
    step: int


@dataclass(frozen=True)
class Found:
    """The state of the run that one daemon has."""
    left: tuple[Left, ...] = ()
    image: Image | None = None


@dataclass(frozen=True)
class Choice:
    """owners: the daemon of each rank of the group to continue from. Empty: no group is complete. claims: each rank of this
    group finds the state of the same rank on its own daemon. missing: in words, what an incomplete group
    lacks."""
    owners: tuple[int, ...] = ()
    claims: bool = False
    missing: str = ""

    @property
    def world(self) -> int:
        """The number of ranks of the group to continue from. 0: there is no such group."""
        return len(self.owners)


# The state of one rank on a daemon: its step, whether the same rank runs there now, and the daemon's number.
_Candidate = tuple[int, bool, int]


def _candidates(world: int, places: Sequence[int], found: Sequence[Found]) -> dict[int, list[_Candidate]]:
    """Returns the candidates of each rank of a previous group of `world` ranks."""
    candidates: dict[int, list[_Candidate]] = {}
    for daemon, has in enumerate(found):
        for left in has.left:
            if left.world == world and 0 <= left.rank < world:
                is_here = world == len(places) and places[left.rank] == daemon
                candidates.setdefault(left.rank, []).append((left.step, is_here, daemon))
    return candidates


def _of_one_step(candidates: Mapping[int, Sequence[_Candidate]]) -> tuple[int, list[_Candidate]] | None:
    """Returns (step, owner of each rank) of the newest consistent group: no rank is more than one step ahead of another.
    A rank with unknown step (0) fits any group. For the newest step a rank with a known step is preferred."""
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
    """Chooses the group to continue from: a group of which every rank has left its state. Of several groups it takes the one
    with the latest step. places: the daemon of each rank of this group."""
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
        return f"what {world} ranks have left in memory is of different steps"
    if len(absent) == 1:
        return f"rank {absent[0]} of {world} has left no state"
    return f"{len(absent)} of {world} ranks have left no state"


def whole_image(found: Sequence[Found]) -> Image | None:
    """Returns the newest image of which all parts exist."""
    images = [has.image for has in found if has.image is not None]
    whole = [image for image in images if
             {rank for other in images if other.generation == image.generation for rank in other.ranks} >=
             set(range(image.world))]
    return max(whole, key=lambda image: image.step, default=None)


def common(first: int, count: int, ranges: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yields (offset, elements) of the overlap of `count` elements from `first` on with each of the ranges."""
    for offset, elements in ranges:
        begin, end = max(first, offset), min(first + count, offset + elements)
        if begin < end:
            yield begin, end - begin


@dataclass(frozen=True)
class InPass:
    """The position in a pass over the loaders from which ranks continue. consumed: batches that each rank drops or replays.
    replayed: the number of the batch with which a rank repeats the committed step. repeated: batches that the previous
    ranks trained and that are trained again, because they do not divide evenly."""
    consumed: int
    replayed: int
    repeated: int


def place_in_pass(batch: int, every: int, before: int, now: int, length: int | None) -> InPass:
    """Returns the position from which `now` ranks divide the rest of a pass. Before, each of `before` ranks made a step every
    `every` batches and committed one with its batch `batch`. length: batches of the pass for each of the `now` ranks."""
    every = max(1, every)
    done = before * (batch + 1)
    consumed = done // now
    if (batch + 1) % every == 0:
        consumed -= consumed % every
    replayed, repeated = max(consumed, every) - 1, done - consumed * now
    if length is not None:
        consumed, replayed = min(consumed, length), max(0, min(replayed, length - 1))
    return InPass(consumed, replayed, repeated)
