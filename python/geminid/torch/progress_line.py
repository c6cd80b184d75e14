"""A line that shows the progress of training, in terminals, notebooks and logs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import Any, TextIO, TypeVar

import torch

from geminid.torch.readings import bytes_text, find_keeper
from geminid.torch.tensors import tensors_in

T = TypeVar("T")

_LIVE_SECONDS, _LOG_SECONDS = 0.5, 30.0


def _in_notebook() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


def count_tokens(batch: Any) -> int:
    """Returns the number of elements of a batch's "input_ids", else of its first tensor."""
    if isinstance(batch, dict) and isinstance(batch.get("input_ids"), torch.Tensor):
        return int(batch["input_ids"].numel())
    return next((int(tensor.numel()) for tensor in tensors_in(batch)), 0)


def count_samples(batch: Any) -> int:
    """Returns the first size of a batch's first tensor."""
    return next((int(tensor.shape[0]) if tensor.dim() else 1 for tensor in tensors_in(batch)), 0)


COUNTERS: dict[str, Callable[[Any], int]] = {"tokens": count_tokens, "samples": count_samples}


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def _number(value: float) -> str:
    for scale, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= scale:
            return f"{value / scale:.3g}{letter}"
    return f"{value:.3g}"


class ProgressLine:
    """The progress line. Call ``update`` after each batch and ``close`` at the end. ``progress`` does both.

    total: the number of batches. None: unknown, and the line shows no time left.
    unit: the unit that ``update`` counts, such as "tokens".
    file: None: sys.stderr. A terminal and a notebook show one line that changes; any other file gets a line every
        30 seconds.
    """

    def __init__(self, model: torch.nn.Module, total: int | None = None, *, unit: str = "samples",
                 file: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._keeper, self._total, self._unit = find_keeper(model), total, unit
        self._file = sys.stderr if file is None else file
        self._live = bool(getattr(self._file, "isatty", lambda: False)()) or (file is None and _in_notebook())
        self._clock = clock
        self._began = self._shown = clock()
        self._batches, self._units, self._width = 0, 0, 0
        self._stalls = self._stall_seconds()

    def _statistics(self) -> dict[str, Any] | None:
        return None if self._keeper is None else self._keeper.engine.statistics()

    def _stall_seconds(self) -> float:
        said = self._statistics()
        return 0.0 if said is None else float(said["stall_seconds"])

    def update(self, count: int = 0) -> None:
        """Counts one more batch with `count` units."""
        self._batches += 1
        self._units += count
        if self._clock() - self._shown >= (_LIVE_SECONDS if self._live else _LOG_SECONDS):
            self._show()

    def line(self) -> str:
        """Returns the text of the line as of now."""
        seconds = max(self._clock() - self._began, 1e-9)
        parts = [f"{self._batches}/{self._total}" if self._total is not None else str(self._batches)]
        said = self._statistics()
        if said is not None:
            used = said["model_bytes"] + said["workspace_bytes"]
            parts.append(f"device {bytes_text(used)} of {bytes_text(said['arena_bytes'])}")
            parts.append(f"host {bytes_text(said['host_bytes'])}")
            stalled = min(1.0, (float(said["stall_seconds"]) - self._stalls) / seconds)
            parts.append(f"stalls {100 * stalled:.1f} %")
        if self._units:
            parts.append(f"{_number(self._units / seconds)} {self._unit}/s")
        if self._total is not None and 0 < self._batches < self._total:
            parts.append(f"{_duration(seconds / self._batches * (self._total - self._batches))} left")
        else:
            parts.append(_duration(seconds))
        return " | ".join(parts)

    def _show(self) -> None:
        self._shown = self._clock()
        line = self.line()
        if self._live:
            self._file.write("\r" + line.ljust(self._width))
            self._width = len(line)
        else:
            self._file.write(line + "\n")
        self._file.flush()

    def close(self) -> None:
        """Writes the last line, which stays visible."""
        self._show()
        if self._live:
            self._file.write("\n")
            self._file.flush()


def progress(batches: Iterable[T], model: torch.nn.Module, *, total: int | None = None,
             unit: str = "samples", count: Callable[[T], int] | None = None, file: TextIO | None = None) -> Iterator[T]:
    """Yields the batches and shows a line of progress: memory of device and host, stalls, speed and the time left.

    total: the number of batches. None: ``len(batches)`` if defined.
    unit: "samples" (the first size of a batch's first tensor) or "tokens" (the elements of "input_ids" or of the first
        tensor). Any other unit needs ``count``.
    count: returns the number of units of a batch.
    file: None: sys.stderr.

        for batch in geminid.torch.progress(loader, model, unit="tokens"):
            ...

    With GEMINID_DISABLE=1 the line shows no memory and no stalls. Call it only on the first rank, and only if the line
    shall be written.
    """
    counted = count or COUNTERS.get(unit)
    if counted is None:
        raise ValueError(f"unit is {unit!r}; write one of {sorted(COUNTERS)}, or give count")
    if total is None:
        total = len(batches) if isinstance(batches, Sized) else None
    return _shown(batches, ProgressLine(model, total, unit=unit, file=file), counted)


def _shown(batches: Iterable[T], line: ProgressLine, count: Callable[[T], int]) -> Iterator[T]:
    try:
        for batch in batches:
            yield batch
            line.update(count(batch))
    finally:
        line.close()
