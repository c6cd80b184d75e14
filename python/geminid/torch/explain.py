"""Shows how a prepared model uses its memory, as a table and as a picture."""

from __future__ import annotations

import os
import pathlib
import sys
from dataclasses import dataclass
from typing import Any, TextIO

import torch

from geminid.torch.picture import plan_svg
from geminid.torch.readings import bytes_text, find_keeper, keeper_of

_MOST_ROWS = 40  # the most moments that the table shows


@dataclass(frozen=True, repr=False)
class Explanation:
    """The plan of a prepared model. ``str()`` returns the table. A notebook shows the picture."""
    table: str
    svg: str
    plan: dict[str, Any] | None  # the document of geminid_engine_plan in geminid/c_api.h
    # On a GPU: limit_bytes of torch's allocator, and units with name, forward_peak_bytes and backward_peak_bytes. The first two
    # steps measure the peaks. None on the host device.
    torch_memory: dict[str, Any] | None = None

    def __str__(self) -> str:
        return self.table

    def __repr__(self) -> str:
        """The text that a Python prompt shows."""
        moments = 0 if self.plan is None else len(self.plan["moments"])
        return f"<plan of {moments} moments; .save('plan.svg') writes its picture>"

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the picture as a stand-alone SVG."""
        pathlib.Path(path).write_text(self.svg, encoding="utf-8")


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    """Aligns columns: the first to the left, the others to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join([row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:]))]).rstrip()
            for row in rows]


def _summary(keeper: Any, said: dict[str, Any]) -> str:
    plan = said["plan"]
    rows = [
        ("parameters", f"{said['parameters']:,}"),
        ("units", f"{len(keeper.units)} ({keeper.granularity})"),
        ("model state of this rank", bytes_text(said["model_state_bytes"])),
        ("host memory", bytes_text(said["host_bytes"])),
        ("device memory", bytes_text(said["arena_bytes"])),
        ("most of it used", bytes_text(said["peak_total_bytes"])),
        ("loaded so far", bytes_text(said["host_to_device_bytes"])),
        ("evicted so far", bytes_text(said["device_to_host_bytes"])),
        ("planned per micro-batch", bytes_text(plan["planned_transfer_bytes"])),
        ("everything fits", "yes" if plan["everything_fits"] else "no"),
        ("plans made", str(plan["plans_made"])),
        ("stalls", f"{said['stall_seconds']:.3f} s"),
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in rows)


def _moments(plan: dict[str, Any]) -> str:
    """Returns a row for each moment of an iteration: chunks used, loads, evictions and waits."""
    chunks = plan["chunks"]
    rows: list[tuple[str, ...]] = [("moment: weights in use", "loads", "evicts", "compute", "waits")]
    for number, moment in enumerate(plan["moments"][:_MOST_ROWS]):
        names = ", ".join(dict.fromkeys(chunks[i]["name"].replace("'", "") for i in moment["uses"])) or "-"
        loads = sum(chunks[load["chunk"]]["device_bytes"] for load in moment["loads"])
        drops = sum(chunks[drop["chunk"]]["device_bytes"] for drop in moment["drops"])
        rows.append((f"{number}: {names if len(names) <= 60 else names[:57] + '...'}",
                     bytes_text(loads) if loads else "-", bytes_text(drops) if drops else "-",
                     f"{1e3 * moment['compute_seconds']:.3g} ms",
                     f"{1e3 * moment['stall_seconds']:.3g} ms" if moment["stall_seconds"] else "-"))
    left_out = len(plan["moments"]) - _MOST_ROWS
    return "\n".join(_aligned(rows) + ([f"... and {left_out} moments more, which the picture has"] if left_out > 0 else []))


def _torch_memory(said: dict[str, Any]) -> str:
    """Returns a row for each unit: the peak of torch's memory while the unit ran. It includes weights and activations."""
    rows: list[tuple[str, ...]] = [(f"torch's memory, at most {bytes_text(said['limit_bytes'])}: unit", "forward", "backward")]
    for unit in said["units"][:_MOST_ROWS]:
        peaks = (unit["forward_peak_bytes"], unit["backward_peak_bytes"])
        rows.append((unit["name"] or "(the model)", *("-" if peak is None else bytes_text(peak) for peak in peaks)))
    left_out = len(said["units"]) - _MOST_ROWS
    return "\n".join(_aligned(rows) + ([f"... and {left_out} units more, which `.torch_memory` has"] if left_out > 0 else []))


def explain(model: torch.nn.Module, *, file: TextIO | None = None) -> Explanation:
    """Prints the plan as a table: device memory, the bytes a step moves and the least it must move, and each moment.

    model: a prepared model, a part of one, or a module around one.
    file: sys.stdout where None.

    Returns the table, the picture (``.svg``, ``.save("plan.svg")``; a notebook shows it) and the plan as data. On a GPU it
    also returns ``.torch_memory``: the peak of torch's allocator in each unit, which the table shows, too. Before the first
    step, and with GEMINID_DISABLE=1, there is no plan and the table says so. Raises InvalidArgument for a model that is not
    prepared.
    """
    if os.environ.get("GEMINID_DISABLE") == "1" and find_keeper(model) is None:
        made = Explanation("not prepared: GEMINID_DISABLE=1", "", None)
    else:
        made = _explained(keeper_of(model))
    print(made.table, file=sys.stdout if file is None else file)
    return made


def _explained(keeper: Any) -> Explanation:
    said, plan = keeper.engine.statistics(), keeper.engine.plan()
    parts = [_summary(keeper, said)]
    if said["plan"]["explanation"]:
        parts.append(said["plan"]["explanation"].rstrip())
    if plan is None:
        parts.append("there is no plan yet: it is made after the first micro-batch that was trained"
                     if not said["plan"]["explanation"] else "")
    else:
        parts.append(_moments(plan))
    torch_memory = None if keeper.torch_memory is None else keeper.torch_memory.described(keeper.units)
    if torch_memory is not None:
        parts.append(_torch_memory(torch_memory))
    table = "\n\n".join(part for part in parts if part)
    return Explanation(table, plan_svg(plan, said["arena_bytes"]), plan, torch_memory)
