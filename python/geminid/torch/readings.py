"""The statistics of a prepared model's engine, as a dictionary, for TensorBoard, and for the progress line."""

from __future__ import annotations

import os
import time
import weakref
from typing import Any, Protocol

import torch

from geminid.errors import InvalidArgument

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


class ScalarWriter(Protocol):
    """torch.utils.tensorboard.SummaryWriter, or another class with its add_scalar."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int | None = None) -> object: ...


def bytes_text(count: float) -> str:
    """Returns a text such as "1.5 MiB"."""
    for unit in _UNITS[:-1]:
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} {_UNITS[-1]}"


def find_keeper(model: torch.nn.Module) -> Any | None:
    """Returns the keeper of a prepared model, of a part of one, or of a module around one. None: nothing is prepared."""
    keeper = getattr(model, "_geminid_keeper", None)
    if keeper is not None:
        return keeper
    return next((p._geminid.keeper for p in model.parameters() if hasattr(p, "_geminid")), None)


def keeper_of(model: torch.nn.Module) -> Any:
    """As find_keeper, but raises InvalidArgument if nothing is prepared."""
    keeper = find_keeper(model)
    if keeper is None and os.environ.get("GEMINID_DISABLE") == "1":
        raise InvalidArgument(f"GEMINID_DISABLE=1 leaves this {type(model).__name__} to PyTorch, so it has no engine: save it by "
                              "torch.save(model.state_dict(), FILE), or unset GEMINID_DISABLE")
    if keeper is None:
        raise InvalidArgument(f"this {type(model).__name__} is not prepared: call geminid.torch.prepare first")
    return keeper


def statistics(model: torch.nn.Module) -> dict[str, Any]:
    """Returns the engine's memory, transfers and stalls since it was made, in bytes and seconds.

    Never waits, even if another thread is in a step. With GEMINID_DISABLE=1 the dictionary is empty.
    """
    keeper = find_keeper(model)
    return {} if keeper is None else dict(keeper.engine.statistics())


def scalars_of(said: dict[str, Any]) -> dict[str, float]:
    """Returns the numbers to plot, by tag."""
    return {
        "memory/device_bytes": float(said["model_bytes"] + said["workspace_bytes"]),
        "memory/device_peak_bytes": float(said["peak_total_bytes"]),
        "memory/host_bytes": float(said["host_bytes"]),
        "transfers/to_device_bytes": float(said["host_to_device_bytes"]),
        "transfers/to_host_bytes": float(said["device_to_host_bytes"]),
        "stalls/seconds": float(said["stall_seconds"]),
        **{f"stalls/{cause}_seconds": float(seconds) for cause, seconds in said["stall_seconds_by_cause"].items()},
        "plan/plans_made": float(said["plan"]["plans_made"]),
    }


# By engine: the time of the last log, and the stall seconds at that time.
_LOGGED: weakref.WeakKeyDictionary[Any, tuple[float, float]] = weakref.WeakKeyDictionary()


def log(model: torch.nn.Module, writer: ScalarWriter, step: int | None = None) -> None:
    """Writes the model's memory, transfers and stalls as scalars with the prefix "geminid/".

    writer: torch.utils.tensorboard.SummaryWriter, or an object with its ``add_scalar(tag, value, step)``.
    step: the step on the curves. None: the number of steps that the engine has committed.

    From the second call on, "geminid/stalls/share" is the stalled share of the time since the last call: the time spent
    waiting for memory and transfers. Does nothing with GEMINID_DISABLE=1.
    """
    keeper = find_keeper(model)
    if keeper is None:
        return
    engine, now = keeper.engine, time.monotonic()
    said = engine.statistics()
    scalars = scalars_of(said)
    before = _LOGGED.get(engine)
    if before is not None and now > before[0]:
        scalars["stalls/share"] = min(1.0, (said["stall_seconds"] - before[1]) / (now - before[0]))
    _LOGGED[engine] = (now, said["stall_seconds"])
    number = engine.committed if step is None else step
    for tag, value in scalars.items():
        writer.add_scalar(f"geminid/{tag}", value, number)
