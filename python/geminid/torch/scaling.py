"""Makes torch.amp.GradScaler work with gradients that the engine has."""

from __future__ import annotations

from typing import Any

import torch

from geminid.torch.optimizer import Optimizer

_ORIGINAL = torch.amp.GradScaler._unscale_grads_


def _unscale_grads_(self: Any, optimizer: torch.optim.Optimizer, inv_scale: torch.Tensor, found_inf: torch.Tensor,
                    allow_fp16: bool) -> dict[torch.device, torch.Tensor]:
    if isinstance(optimizer, Optimizer):
        return optimizer._unscale(inv_scale, found_inf)
    return _ORIGINAL(self, optimizer, inv_scale, found_inf, allow_fp16)


def install() -> None:
    """Replaces the method of the class, which all scalers use, also those made before."""
    setattr(torch.amp.GradScaler, "_unscale_grads_", _unscale_grads_)
