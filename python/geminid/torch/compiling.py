"""torch.compile of units: the hooks stay outside of the compiled graph. Inside, parameters are plain."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any

import torch

from geminid.errors import Refused
from geminid.torch.parameter import ManagedParameter

_PREFIX = "_orig_mod."  # torch.compile(module) is a module around it, and its names have this part


def name_of(name: str) -> str:
    """Returns the name that a parameter has without torch.compile."""
    return name.replace(_PREFIX, "")


def check_names(_module: torch.nn.Module, keys: Any) -> None:
    """A hook after load_state_dict. Raises Refused for the names of a compiled model in a plain one, or the other way round."""
    missing = {name_of(name): name for name in keys.missing_keys}
    for name in keys.unexpected_keys:
        wanted = missing.get(name_of(name))
        if wanted is not None and wanted != name:
            raise Refused(f"the state has '{name}', and the model has '{wanted}': one of them was compiled by torch.compile(module) and "
                          "the other was not. Change the names of the state, or compile by module.compile(), which keeps names")


class _Compiled:
    """A compiled forward of a unit. The unit's parameters are on the device while it runs. They are passed as plain
    parameters: the compiler would trace each use of a ManagedParameter."""

    def __init__(self, forward: Any, parameters: Sequence[torch.nn.Parameter]) -> None:
        self._forward, self._parameters = forward, parameters

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            for parameter in self._parameters:
                parameter.__class__ = torch.nn.Parameter
            return self._forward(*args, **kwargs)
        finally:
            for parameter in self._parameters:
                parameter.__class__ = ManagedParameter


def install(units: Sequence[Any]) -> None:
    """Makes ``module.compile()`` of a unit compile its forward without the hooks around it. The hooks gather parameters and
    cannot be compiled; inside the graph they would split each call into several graphs. A forward that is compiled already,
    such as that of torch.compile's result, does not change."""
    for unit in units:
        if hasattr(unit.module.forward, "_torchdynamo_orig_callable"):
            unit.module.forward = _Compiled(unit.module.forward, tuple(unit.parameters))

        def compile_(self: torch.nn.Module, *args: Any, _parameters: Any = tuple(unit.parameters), **kwargs: Any) -> None:
            self.forward = _Compiled(torch.compile(self.forward, *args, **kwargs), _parameters)

        unit.module.compile = types.MethodType(compile_, unit.module)
