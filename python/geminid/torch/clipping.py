"""Makes torch.nn.utils.clip_grad_norm_ clip gradients that the engine has."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import torch

from geminid.errors import Refused
from geminid.torch.keeper import Keeper

_ORIGINAL = torch.nn.utils.clip_grad_norm_


def clip_grad_norm_(parameters: torch.Tensor | Iterable[torch.Tensor], max_norm: float, norm_type: float = 2.0,
                    error_if_nonfinite: bool = False, foreach: bool | None = None) -> torch.Tensor:
    given = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
    keepers = {p._geminid.keeper for p in given if hasattr(p, "_geminid")}
    if not keepers:
        return _ORIGINAL(given, max_norm, norm_type, error_if_nonfinite, foreach)
    if len(keepers) > 1 or float(norm_type) != 2.0:
        raise Refused("gradients of a prepared model are clipped by the 2-norm of all of its parameters; call "
                      "clip_grad_norm_(model.parameters(), max_norm) for each model")
    if not float(max_norm) >= 0:
        raise Refused(f"max_norm is {max_norm}, and gradients of a prepared model cannot be clipped to it; give 0 or more")
    keeper: Keeper
    keeper, = keepers
    numbers = {p._geminid.id for p in given if hasattr(p, "_geminid")}
    left_out = [record.name for record in keeper.records if record.has_gradient and record.id not in numbers]
    strangers = [p._geminid.name for p in given if hasattr(p, "_geminid") and not p._geminid.trained and p.grad is not None]
    if strangers:
        raise Refused(f"'{strangers[0]}' has a gradient, and the optimizer that geminid.torch.prepare was given did not have it: "
                      "the engine's norm would leave it out. Call requires_grad_(False) on it and drop its gradient, or give "
                      "clip_grad_norm_ the parameters of the optimizer alone")
    if left_out or any(not hasattr(p, "_geminid") and p.numel() and p.grad is not None for p in given):
        raise Refused("gradients of a prepared model are clipped together; clip_grad_norm_ was given "
                      + (f"all but {left_out[:3]}" if left_out else "others, too"))
    optimizer = keeper.optimizer()
    if optimizer is None:
        raise Refused("the optimizer that geminid.torch.prepare returned is gone, and nobody could step; keep it as long as the "
                      "model is trained")
    norm = optimizer.clip_grad_norm_(max_norm)
    passed_before = keeper.run is not None and keeper.run.replays
    if error_if_nonfinite and not passed_before and not torch.isfinite(norm):
        raise RuntimeError("The total norm of order 2.0 for gradients from `parameters` is non-finite, so it cannot be "
                           "clipped.")
    return norm


def install() -> None:
    """Replaces the function in every module, including modules that imported the function by name before."""
    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get("clip_grad_norm_") is _ORIGINAL:
            setattr(module, "clip_grad_norm_", clip_grad_norm_)
