"""Optimizers that the engine has and torch has not, by what they are made with. They only say what
``prepare`` shall train with: it returns the one that steps. Their formulas are in geminid/optimizer.h."""

import torch

from geminid.errors import Refused


class _OfTheEngine(torch.optim.Optimizer):
    def step(self, closure=None):
        raise Refused(f"geminid.torch.{type(self).__name__} steps in the engine alone: use the optimizer that "
                      "geminid.torch.prepare returns")


class Lion(_OfTheEngine):
    """The sign of a momentum (arXiv 2302.06675)."""

    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})


class Lamb(_OfTheEngine):
    """Adam's update scaled per tensor (arXiv 1904.00962). max_grad_norm: of all gradients, after clipping;
    0: no limit."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01, max_grad_norm=1.0,
                 bias_correction=True, grad_averaging=True, always_adapt=False, decoupled=True):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
                                  "max_grad_norm": max_grad_norm, "bias_correction": bias_correction,
                                  "grad_averaging": grad_averaging, "always_adapt": always_adapt,
                                  "decoupled": decoupled})


class Lars(_OfTheEngine):
    """Momentum scaled per tensor (arXiv 1708.03888)."""

    def __init__(self, params, lr=0.1, momentum=0.9, weight_decay=0.0, trust_coefficient=0.001, trust_limit=50.0,
                 eps=0.0):
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay,
                                  "trust_coefficient": trust_coefficient, "trust_limit": trust_limit, "eps": eps})


class Adafactor(_OfTheEngine):
    """Second moments by row and column (arXiv 1804.04235), with the options of the paper's authors and of
    Hugging Face: torch.optim.Adafactor computes something else."""

    def __init__(self, params, lr=1.0, eps=(1e-30, 1e-3), clip_threshold=1.0, decay_exponent=0.8, beta1=0.0,
                 weight_decay=0.0, relative_step=True, warmup_init=False, scale_parameter=True):
        super().__init__(params, {"lr": lr, "eps": eps, "clip_threshold": clip_threshold,
                                  "decay_exponent": decay_exponent, "beta1": beta1, "weight_decay": weight_decay,
                                  "relative_step": relative_step, "warmup_init": warmup_init,
                                  "scale_parameter": scale_parameter})


class Came(_OfTheEngine):
    """Adafactor with momentum and a confidence in it (arXiv 2307.02047)."""

    def __init__(self, params, lr=2e-4, betas=(0.9, 0.999, 0.9999), eps=(1e-30, 1e-16), clip_threshold=1.0,
                 weight_decay=0.0):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "clip_threshold": clip_threshold,
                                  "weight_decay": weight_decay})
