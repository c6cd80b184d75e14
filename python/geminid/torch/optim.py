"""Optimizers of the engine that torch does not have. Each only stores the settings that ``prepare`` trains with.
The optimizer that ``prepare`` returns makes the steps. The formulas are in geminid/optimizer.h."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import torch

from geminid.errors import Refused


#: Parameters, or groups of parameters, as torch.optim's optimizers take them.
Parameters = Iterable[Any]


class _OfTheEngine(torch.optim.Optimizer):
    def step(self, closure: Callable[[], Any] | None = None) -> NoReturn:
        raise Refused(f"geminid.torch.{type(self).__name__} steps in the engine alone: use the optimizer that "
                      "geminid.torch.prepare returns")


class Lion(_OfTheEngine):
    """The sign of a momentum (arXiv 2302.06675)."""

    def __init__(self, params: Parameters, lr: float = 1e-4, betas: tuple[float, float] = (0.9, 0.99),
                 weight_decay: float = 0.0) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})


class Lamb(_OfTheEngine):
    """Adam's update scaled per tensor (arXiv 1904.00962). max_grad_norm: the limit for the norm of all gradients, applied
    after clipping. 0: no limit."""

    def __init__(self, params: Parameters, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-6,
                 weight_decay: float = 0.01, max_grad_norm: float = 1.0, bias_correction: bool = True,
                 grad_averaging: bool = True, always_adapt: bool = False, decoupled: bool = True) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
                                  "max_grad_norm": max_grad_norm, "bias_correction": bias_correction,
                                  "grad_averaging": grad_averaging, "always_adapt": always_adapt,
                                  "decoupled": decoupled})


class Lars(_OfTheEngine):
    """Momentum scaled per tensor (arXiv 1708.03888)."""

    def __init__(self, params: Parameters, lr: float = 0.1, momentum: float = 0.9, weight_decay: float = 0.0,
                 trust_coefficient: float = 0.001, trust_limit: float = 50.0, eps: float = 0.0) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay,
                                  "trust_coefficient": trust_coefficient, "trust_limit": trust_limit, "eps": eps})


class Adafactor(_OfTheEngine):
    """Second moments by row and column (arXiv 1804.04235), with the options of the paper's authors and of
    Hugging Face. torch.optim.Adafactor computes another formula."""

    def __init__(self, params: Parameters, lr: float = 1.0, eps: tuple[float, float] = (1e-30, 1e-3),
                 clip_threshold: float = 1.0, decay_exponent: float = 0.8, beta1: float = 0.0, weight_decay: float = 0.0,
                 relative_step: bool = True, warmup_init: bool = False, scale_parameter: bool = True) -> None:
        super().__init__(params, {"lr": lr, "eps": eps, "clip_threshold": clip_threshold,
                                  "decay_exponent": decay_exponent, "beta1": beta1, "weight_decay": weight_decay,
                                  "relative_step": relative_step, "warmup_init": warmup_init,
                                  "scale_parameter": scale_parameter})


class Came(_OfTheEngine):
    """Adafactor with momentum and a confidence in it (arXiv 2307.02047)."""

    def __init__(self, params: Parameters, lr: float = 2e-4, betas: tuple[float, float, float] = (0.9, 0.999, 0.9999),
                 eps: tuple[float, float] = (1e-30, 1e-16), clip_threshold: float = 1.0,
                 weight_decay: float = 0.0) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "clip_threshold": clip_threshold,
                                  "weight_decay": weight_decay})


class Muon(_OfTheEngine):
    """An orthogonal momentum for matrices (Jordan et al. 2024; arXiv 2502.16982). All other parameters use AdamW with betas
    and eps: embeddings, the output layer, norms and biases. A matrix is the last two dimensions. A convolution's kernels
    would be many small matrices: give convolutions to AdamW. The groups tell which parameters are matrices::
        Muon([{"params": matrices_of_layers}, {"params": others, "orthogonal": False}])

    rate: "as_adamw" multiplies the learning rate of an r x c matrix by 0.2 sqrt(max(r, c)), so that one learning rate
    serves both; "original" by sqrt(max(1, r / c)).
    """

    def __init__(self, params: Parameters, lr: float = 1e-3, momentum: float = 0.95, nesterov: bool = True,
                 weight_decay: float = 0.1, betas: tuple[float, float] = (0.9, 0.95), eps: float = 1e-8,
                 rate: str = "as_adamw", orthogonal: bool = True) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "nesterov": nesterov, "weight_decay": weight_decay,
                                  "betas": betas, "eps": eps, "rate": rate, "orthogonal": orthogonal})
