"""Optimizers of torch as the engine has them; what it has not is refused by name."""

import torch

from geminid.engine import EXP_AVG, EXP_AVG_SQ, Optimizer
from geminid.errors import Refused


def _adam(group):
    return {"beta1": group["betas"][0], "beta2": group["betas"][1], "epsilon": group["eps"],
            "weight_decay": group["weight_decay"]}


def _sgd(group):
    return {"momentum": group["momentum"], "dampening": group["dampening"], "nesterov": int(group["nesterov"]),
            "weight_decay": group["weight_decay"]}


def _adagrad(group):
    return {"rate_decay": group["lr_decay"], "epsilon": group["eps"], "weight_decay": group["weight_decay"]}


#: By torch's class: the engine's name, its options, and the names of its state by kind.
KNOWN = {
    torch.optim.AdamW: ("adamw", _adam, {"exp_avg": EXP_AVG, "exp_avg_sq": EXP_AVG_SQ}),
    torch.optim.Adam: ("adam", _adam, {"exp_avg": EXP_AVG, "exp_avg_sq": EXP_AVG_SQ}),
    torch.optim.SGD: ("sgd", _sgd, {"momentum_buffer": EXP_AVG}),
    torch.optim.Adagrad: ("adagrad", _adagrad, {"sum": EXP_AVG_SQ}),
}
_MUST_BE_UNSET = ("amsgrad", "maximize", "differentiable", "decoupled_weight_decay", "initial_accumulator_value")


def name_of(optimizer):
    return f"{type(optimizer).__module__}.{type(optimizer).__qualname__}"


def options_of(kind, group):
    """What may not change after prepare: all but the rate and the decay of a group."""
    options = dict(kind[1](group))
    options.pop("weight_decay")
    return options


def translate(optimizer):
    """The engine's optimizer, and the entry of KNOWN."""
    kind = KNOWN.get(type(optimizer))
    if kind is None:
        known = ", ".join(sorted(known.__name__ for known in KNOWN))
        raise Refused(f"{name_of(optimizer)} is not an optimizer that the engine has; use one of torch.optim's {known}")
    for group in optimizer.param_groups:
        for option in _MUST_BE_UNSET:
            if option == "decoupled_weight_decay" and kind[0] == "adamw":
                continue  # it is how AdamW says what it is
            if group.get(option):
                raise Refused(f"{name_of(optimizer)} with {option}={group[option]!r} is not something that the engine "
                              f"has; leave {option} out")
    all_options = [options_of(kind, group) for group in optimizer.param_groups]
    if any(options != all_options[0] for options in all_options):
        raise Refused(f"groups of {name_of(optimizer)} differ in more than lr and weight_decay: {all_options}; the "
                      "engine has one set of these for all groups")
    first = optimizer.param_groups[0]
    return Optimizer(kind[0], dict(kind[1](first))), kind
