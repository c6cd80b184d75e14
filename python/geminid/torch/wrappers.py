"""Refuses torch's wrappers that shard a model or sum its gradients, because the engine does both."""

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


#: Packages that wrap a model without a line of the script that names the wrapper, and what to write instead.
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
    """Returns the outermost package of _INSTEAD on the call stack, or None."""
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


#: Classes of wrappers, by name: their packages may not be installed.
_AROUND = {"DistributedDataParallel", "DataParallel", "FullyShardedDataParallel", "DeepSpeedEngine", "GeminiDDP"}


def check_unwrapped(model: torch.nn.Module) -> None:
    """Call it before prepare. Refuses a model that a wrapper shards or copies."""
    for name, module in model.named_modules():
        wrapper = next((base.__name__ for base in type(module).__mro__ if base.__name__ in _AROUND), None)
        if wrapper is not None:
            where = f"'{name}' of the model" if name else "the model"
            raise Refused(f"{where} is wrapped by {wrapper}, and the engine shards the parameters and adds up their gradients "
                          f"itself: delete the line with {wrapper}, and call geminid.torch.prepare with the module that it "
                          "was given, and an optimizer of that module's parameters")


def _guarded(call: Callable[..., Any], wrapper: str, position: int) -> Callable[..., Any]:
    """Returns `call` with a check of the module, its argument number `position`."""

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
    """Replaces the function in every module, including modules that imported the function by name before."""
    if hasattr(wrapper, "_geminid_guard"):
        return
    name = wrapper.__name__
    guarded: Any = _guarded(wrapper, name, position=0)
    guarded._geminid_guard = True
    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get(name) is wrapper:
            setattr(module, name, guarded)


def install() -> None:
    """Makes the wrappers check their arguments. Call it before a model is prepared."""
    if not torch.distributed.is_available():
        return
    fsdp: Any = importlib.import_module("torch.distributed.fsdp")  # imported late, because the import is slow
    _guard_class(torch.nn.parallel.DistributedDataParallel)
    _guard_class(fsdp.FullyShardedDataParallel)
    if hasattr(fsdp, "fully_shard"):  # torch 2.6 or newer
        _guard_function(fsdp.fully_shard)
