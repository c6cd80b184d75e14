"""Wrappers of torch that shard a model or add up its gradients, around a model for which the engine does that."""

from __future__ import annotations

import functools
import importlib
import sys
import types
from collections.abc import Callable
from typing import Any

import torch

from geminid.errors import Refused


def _modules(given: Any) -> list[torch.nn.Module]:
    several = given if isinstance(given, (list, tuple)) else (given,)
    return [module for module in several if isinstance(module, torch.nn.Module)]


#: Who puts a wrapper around a model without a line of the script's that names it, and what to write instead.
_INSTEAD = {
    "transformers": "use geminid.transformers.Trainer in place of transformers.Trainer, and delete the line with "
                    "geminid.torch.prepare",
    "lightning": "write Trainer(strategy=geminid.lightning.GeminidStrategy(device_memory=...)), and delete the line with "
                 "geminid.torch.prepare",
    "accelerate": "write model = accelerator.prepare_model(model, device_placement=False, evaluation_mode=True), and give "
                  "accelerator.prepare the others alone",
    "ray": "delete the line with ray.train.torch.prepare_model, and train the model that geminid.torch.prepare returned",
}


def _caller() -> str | None:
    """The package of _INSTEAD in which the call began that led here: the outermost of them."""
    found: str | None = None
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        package = frame.f_globals.get("__name__", "").partition(".")[0]
        found = package if package in _INSTEAD else found
        frame = frame.f_back
    return found


def _check(given: Any, wrapper: str) -> None:
    for module in _modules(given):
        for parameter in module.parameters():
            if hasattr(parameter, "_geminid"):
                instead = _INSTEAD.get(_caller() or "", f"delete the line with {wrapper}, and train the model that "
                                                        "geminid.torch.prepare returned")
                raise Refused(
                    f"{wrapper} was given a {type(module).__name__} with '{parameter._geminid.name}', a parameter of a "
                    f"prepared model. The engine shards the parameters over the ranks and adds up their gradients itself: "
                    f"{instead}")


#: Classes of modules around a model, by name: their packages may not be there.
_AROUND = {"DistributedDataParallel", "DataParallel", "FullyShardedDataParallel", "DeepSpeedEngine", "GeminiDDP"}


def check_unwrapped(model: torch.nn.Module) -> None:
    """Before prepare: a model that something else shards or copies is refused."""
    for name, module in model.named_modules():
        wrapper = next((base.__name__ for base in type(module).__mro__ if base.__name__ in _AROUND), None)
        if wrapper is not None:
            where = f"'{name}' of the model" if name else "the model"
            raise Refused(f"{where} is wrapped by {wrapper}, and the engine shards the parameters and adds up their gradients "
                          f"itself: delete the line with {wrapper}, and call geminid.torch.prepare with the module that it "
                          "was given, and an optimizer of that module's parameters")


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
