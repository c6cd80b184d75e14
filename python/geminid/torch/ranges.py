"""Shows the engine's calls as ranges in torch.profiler: "geminid.gather blocks.3" and the like."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_profiling = torch._C._autograd._profiler_enabled


def _ranged(call: Callable[..., Any], name: Callable[..., str]) -> Callable[..., Any]:
    """Returns the call inside a range while a profiler runs in this thread. name: makes the range's name of the arguments."""

    def ranged(*arguments: Any, **options: Any) -> Any:
        if not _profiling():
            return call(*arguments, **options)
        with torch.autograd.profiler.record_function(name(*arguments)):
            return call(*arguments, **options)

    return ranged


def install(keeper: Any) -> None:
    """Adds ranges to the engine of a prepared model. A gather range lasts from the call of a unit to its weights on the
    device. If the gather waits for a transfer, the range is as long as the stall. Threads of the engine run the
    transfers, and torch's profiler does not see these threads."""
    engine, records = keeper.engine, keeper.records
    units = {id(unit.ids): unit.name or "model" for unit in keeper.units}

    def gathered(_pass: int, ids: Any, *_: Any) -> str:
        return f"geminid.gather {units.get(id(ids)) or records[ids[0]].name}"

    engine.use = _ranged(engine.use, gathered)
    engine.finish = _ranged(engine.finish, lambda *_: "geminid.release")
    engine.add_gradient = _ranged(engine.add_gradient,
                                  lambda number, *_: f"geminid.add_gradient {records[number].name}")
    engine.gradient_norm = _ranged(engine.gradient_norm, lambda *_: "geminid.gradient_norm")
    engine.step = _ranged(engine.step, lambda *_: "geminid.step")
