"""Units, which are gathered together: the repeated blocks of a model, else the modules with parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from geminid.torch.keeper import Call, Held
    from geminid.torch.parameter import Record


@dataclass
class Unit:
    """A module and the parameters that are on the device during its call."""
    module: torch.nn.Module
    name: str
    parameters: list[torch.nn.Parameter]
    stack: list[tuple[Held, Call | None]] = field(default_factory=list)  # the calls whose forward runs
    ids: Any = None  # an array of c_uint32
    records: tuple[Record, ...] = ()


def _is_repeated(module: torch.nn.Module) -> bool:
    children = list(module.children())
    return (isinstance(module, (torch.nn.ModuleList, torch.nn.Sequential)) and len(children) > 1
            and len({type(child) for child in children}) == 1
            and all(any(True for _ in child.parameters()) for child in children))


def _blocks(module: torch.nn.Module, prefix: str) -> Iterator[tuple[str, torch.nn.Module]]:
    """Yields the outermost repeated modules, with their names."""
    for name, child in module.named_children():
        path = f"{prefix}{name}"
        if _is_repeated(module):
            yield path, child
        else:
            yield from _blocks(child, path + ".")


def choose_units(model: torch.nn.Module, managed: Callable[[torch.nn.Parameter], bool], granularity: str) -> list[Unit]:
    """Returns units that contain every managed parameter. managed: whether a parameter is managed. granularity:
    "block", or "leaf" for the modules that have parameters of their own."""
    units: list[Unit] = []
    inside: set[torch.nn.Module] = set()
    if granularity == "block":
        for name, block in _blocks(model, ""):
            parameters = [p for p in block.parameters() if managed(p)]
            if parameters:
                units.append(Unit(block, name, parameters))
                inside.update(block.modules())
    for name, module in model.named_modules():
        own = [p for p in module.parameters(recurse=False) if managed(p)]
        if own and module not in inside:
            units.append(Unit(module, name, own))
    return units
