"""Torch's own GPU memory beside the engine's: the limit of its allocator, and its peak in each unit of the model."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, Protocol

import torch

from geminid.errors import InvalidArgument
from geminid.session import Session
from geminid.torch.readings import bytes_text
from geminid.torch.units import Unit

_MEASURED_STEPS = 2  # later steps repeat these; after them the caller may use torch's peak counter again
FORWARD, BACKWARD = "forward", "backward"


class Allocator(Protocol):
    """Torch's allocator of one device."""

    def total_bytes(self) -> int:
        """Returns the bytes of the device."""

    def fraction(self) -> float:
        """Returns the fraction of the device that this process's torch may take."""

    def limit(self, fraction: float) -> None:
        """Sets this fraction."""

    def peak_bytes(self) -> int:
        """Returns the peak of the bytes in tensors since reset_peak."""

    def reset_peak(self) -> None:
        """Resets the peak to the bytes that tensors have now."""


class CudaAllocator:
    """Torch's caching allocator for CUDA."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def total_bytes(self) -> int:
        return int(torch.cuda.get_device_properties(self._device).total_memory)

    def fraction(self) -> float:
        known = getattr(torch.cuda, "get_per_process_memory_fraction", None)  # older releases lack it
        return 1.0 if known is None else float(known(self._device))

    def limit(self, fraction: float) -> None:
        torch.cuda.set_per_process_memory_fraction(fraction, self._device)

    def peak_bytes(self) -> int:
        return int(torch.cuda.max_memory_allocated(self._device))

    def reset_peak(self) -> None:
        torch.cuda.reset_peak_memory_stats(self._device)


class UnitPeaks:
    """Measures torch's peak in each unit's forward and backward, in the first steps. Units may be nested."""

    def __init__(self, allocator: Allocator) -> None:
        self._allocator = allocator
        self._open: list[tuple[int, str]] = []  # (id() of a unit, pass)
        self._steps = 0
        self._peaks: dict[tuple[int, str], int] = {}

    def begin(self, unit: Unit, pass_: str) -> None:
        """Call it before the unit's weights are gathered."""
        if self._steps < _MEASURED_STEPS:
            self._count()
            self._open.append((id(unit), pass_))

    def end(self, unit: Unit, pass_: str) -> None:
        """Units may end in another order than they began."""
        if (id(unit), pass_) in self._open:
            self._count()
            self._open.remove((id(unit), pass_))

    def _count(self) -> None:
        peak = self._allocator.peak_bytes() if self._open else 0
        for key in self._open:
            self._peaks[key] = max(self._peaks.get(key, 0), peak)
        self._allocator.reset_peak()

    def forget_open(self) -> None:
        """Forgets the open units after an exception."""
        self._open.clear()

    def end_step(self) -> None:
        self._open.clear()
        self._steps += 1

    def of(self, unit: Unit, pass_: str) -> int | None:
        return self._peaks.get((id(unit), pass_))


class TorchMemory:
    """The limit and the peaks of one prepared model."""

    def __init__(self, allocator: Allocator, fraction: float) -> None:
        self._allocator, self._fraction = allocator, fraction
        self.limit_bytes, self.peaks = int(fraction * allocator.total_bytes()), UnitPeaks(allocator)

    def apply(self) -> None:
        """Sets the limit. Call it when the engine has the weights: before that all of them may be in torch's GPU memory."""
        self._allocator.limit(self._fraction)

    def described(self, units: Sequence[Unit]) -> dict[str, Any]:
        """Returns limit_bytes, and name, forward_peak_bytes and backward_peak_bytes of each unit; None if not measured."""
        return {"limit_bytes": self.limit_bytes,
                "units": [{"name": unit.name, "forward_peak_bytes": self.peaks.of(unit, FORWARD),
                           "backward_peak_bytes": self.peaks.of(unit, BACKWARD)} for unit in units]}


_ARENAS: weakref.WeakKeyDictionary[Session, int] = weakref.WeakKeyDictionary()  # the bytes of each session on a GPU
_DEFAULTS: set[float] = set()  # fractions that this module set by default


def _taken_bytes(session: Session) -> int:
    """Returns the bytes of the device that this process's sessions have, this one included."""
    _ARENAS[session] = int(session.describe()["arena_bytes"])
    uuid = session.describe()["device"]["uuid"]
    return sum(taken for other, taken in _ARENAS.items()
               if other.close.alive and other.describe()["device"].get("uuid") == uuid)


def limit_of(allocator: Allocator | None, session: Session, asked_bytes: int | None) -> TorchMemory | None:
    """Returns the limit of torch's allocator: `asked_bytes`. None: the device's memory without the engine's, or less
    if the caller has set less. Returns None on the host device, where torch has no such allocator."""
    if allocator is None:
        if asked_bytes is not None:
            raise InvalidArgument(f"torch_memory is {bytes_text(asked_bytes)}; the daemon has given the host device, where "
                                  "PyTorch's memory has no limit. Leave torch_memory out")
        return None
    total = allocator.total_bytes()
    taken = _taken_bytes(session)
    room = total - taken
    if asked_bytes is not None and not 0 < asked_bytes <= room:
        raise InvalidArgument(f"torch_memory is {bytes_text(asked_bytes)}; the device has {bytes_text(total)}, of which "
                              f"device_memory takes {bytes_text(taken)}. Lower torch_memory to at most {bytes_text(max(room, 0))}, or "
                              "lower device_memory")
    if asked_bytes is not None:
        fraction = asked_bytes / total
    else:
        fraction, before = max(room, 0) / total, allocator.fraction()
        if before not in _DEFAULTS:
            fraction = min(fraction, before)
        _DEFAULTS.add(fraction)
    return TorchMemory(allocator, fraction)
