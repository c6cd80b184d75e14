"""torch.amp.GradScaler for gradients that the engine has."""

import torch

from geminid.torch.optimizer import Optimizer

_ORIGINAL = torch.amp.GradScaler._unscale_grads_


def _unscale_grads_(self, optimizer, inv_scale, found_inf, allow_fp16):
    if isinstance(optimizer, Optimizer):
        return optimizer._unscale(inv_scale, found_inf)
    return _ORIGINAL(self, optimizer, inv_scale, found_inf, allow_fp16)


def install():
    """Scalers ask their class; those that were made before, too."""
    torch.amp.GradScaler._unscale_grads_ = _unscale_grads_
