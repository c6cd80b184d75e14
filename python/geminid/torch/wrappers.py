"""Wrappers of torch that shard a model or add up its gradients, around a model for which the engine does that."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from typing import Any

import torch

from geminid.errors import Refused


def _modules(given: Any) -> list[torch.nn.Module]:
    several = given if isinstance(given, (list, tuple)) else (given,)
    return [module for module in several if isinstance(module, torch.nn.Module)]


def _check(given: Any, wrapper: str) -> None:
    for module in _modules(given):
        for parameter in module.parameters():
            if hasattr(parameter, "_geminid"):
                raise Refused(
                    f"{wrapper} was given a {type(module).__name__} with '{parameter._geminid.name}', a parameter of a "
                    f"prepared model. The engine shards the parameters over the ranks and adds up their gradients itself: "
                    f"delete the line with {wrapper}, and train the model that geminid.torch.prepare returned")


def _guarded(call: Callable[..., Any], wrapper: str, position: int) -> Callable[..., Any]:
    """`call`, which takes the module as its argument number `position`."""

    @functools.wraps(call)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        _check(args[position] if len(args) > position else kwargs.get("module"), wrapper)
        return call(*args, **kwargs)

    return guarded


def _guard_class(wrapper: Any) -> None:
    if not hasattr(wrapper.__init__, "_geminid_guard"):
        wrapper.__init__ = _guarded(wrapper.__init__, wrapper.__name__, position=1)
        wrapper.__init__._geminid_guard = True


def _guard_function(wrapper: Any) -> None:
    """Also where somebody imported the function by name before."""
    if hasattr(wrapper, "_geminid_guard"):
        return
    name = wrapper.__name__
    guarded: Any = _guarded(wrapper, name, position=0)
    guarded._geminid_guard = True
    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get(name) is wrapper:
            setattr(module, name, guarded)


def install() -> None:
    """Before a model is prepared: from then on the wrappers look at what they are given."""
    if not torch.distributed.is_available():
        return
    fsdp: Any = importlib.import_module("torch.distributed.fsdp")  # not before: it is a lot
    _guard_class(torch.nn.parallel.DistributedDataParallel)
    _guard_class(fsdp.FullyShardedDataParallel)
    if hasattr(fsdp, "fully_shard"):  # from torch 2.6 on
        _guard_function(fsdp.fully_shard)
