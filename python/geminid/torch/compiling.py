"""torch.compile of what a prepared model gathers: the hooks stay outside of the compiled graph, and inside parameters are plain."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any

import torch

from geminid.torch.parameter import ManagedParameter


class _Compiled:
    """A compiled forward of a unit, whose parameters are on the device while it runs. As ManagedParameter the
    compiler would look into each use of them."""

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
    """``module.compile()`` of a unit compiles its forward without the hooks around it: they gather its parameters, which is
    nothing that can be compiled, and with them inside each call would be several graphs. A forward that is compiled
    already, as that of what torch.compile returns, stays so."""
    for unit in units:
        if hasattr(unit.module.forward, "_torchdynamo_orig_callable"):
            unit.module.forward = _Compiled(unit.module.forward, tuple(unit.parameters))

        def compile_(self: torch.nn.Module, *args: Any, _parameters: Any = tuple(unit.parameters), **kwargs: Any) -> None:
            self.forward = _Compiled(torch.compile(self.forward, *args, **kwargs), _parameters)

        unit.module.compile = types.MethodType(compile_, unit.module)
