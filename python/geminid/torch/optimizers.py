"""Translates torch's optimizers to the engine's. An unsupported optimizer or option is refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from geminid.engine import EXP_AVG, EXP_AVG_SQ, Optimizer
from geminid.errors import Refused
from geminid.torch import optim


@dataclass(frozen=True)
class Kind:
    """The engine's name for an optimizer of torch, its options by torch's name for them, and its state."""
    name: str
    options: dict[str, str | tuple[str, ...]]  # the engine's option by torch's name
    per_step: tuple[str, ...]  # torch's options that may change from step to step, in addition to lr and weight_decay
    state: dict[str, int]  # the engine's kind of state by torch's name
    counts: bool = True  # "step" is part of a parameter's state
    elementwise: bool = True  # False: it also has numbers of whole tensors, which torch's state lacks
    choices: dict[str, tuple[str, dict[Any, int]]] = field(default_factory=dict)  # the engine's number for torch's value
    only: dict[str, Any] = field(default_factory=dict)  # options for which the engine has only this value


def _same(*names: str) -> dict[str, str | tuple[str, ...]]:
    return {name: name for name in names}


_BETAS: dict[str, str | tuple[str, ...]] = {"betas": ("beta1", "beta2"), "eps": "epsilon", "weight_decay": "weight_decay"}
_MOMENTS = {"exp_avg": EXP_AVG, "exp_avg_sq": EXP_AVG_SQ}
KNOWN: dict[type[torch.optim.Optimizer], Kind] = {
    torch.optim.AdamW: Kind("adamw", _BETAS, ("betas", "eps"), _MOMENTS),
    torch.optim.Adam: Kind("adam", _BETAS, ("betas", "eps"), _MOMENTS),
    torch.optim.SGD: Kind("sgd", {"momentum": "momentum", "dampening": "dampening", "nesterov": "nesterov",
                                  "weight_decay": "weight_decay"}, (), {"momentum_buffer": EXP_AVG}, counts=False),
    torch.optim.Adagrad: Kind("adagrad", {"lr_decay": "rate_decay", "eps": "epsilon", "weight_decay": "weight_decay"},
                              ("eps",), {"sum": EXP_AVG}),
    optim.Lion: Kind("lion", {"betas": ("beta1", "beta2"), "weight_decay": "weight_decay"}, ("betas",),
                     {"exp_avg": EXP_AVG}),
    optim.Lamb: Kind("lamb", {**_BETAS, **_same("max_grad_norm", "bias_correction", "grad_averaging", "always_adapt",
                                                "decoupled")}, ("betas", "eps"), _MOMENTS, elementwise=False),
    optim.Lars: Kind("lars", {"eps": "epsilon", **_same("momentum", "weight_decay", "trust_coefficient", "trust_limit")},
                     ("eps",), {"momentum_buffer": EXP_AVG}, elementwise=False),
    optim.Adafactor: Kind("adafactor", {"eps": ("epsilon1", "epsilon2"),
                                        **_same("clip_threshold", "decay_exponent", "beta1", "weight_decay",
                                                "relative_step", "warmup_init", "scale_parameter")},
                          (), {"exp_avg": EXP_AVG}, elementwise=False),
    optim.Muon: Kind("muon", {"betas": ("beta1", "beta2"), "eps": "epsilon", **_same("momentum", "nesterov", "weight_decay")},
                     (), _MOMENTS, choices={"rate": ("muon_rate", {"as_adamw": 0, "original": 1})}),
    optim.Came: Kind("came", {"betas": ("beta1", "beta2", "beta3"), "eps": ("epsilon1", "epsilon2"),
                              **_same("clip_threshold", "weight_decay")}, (), {"exp_avg": EXP_AVG}, elementwise=False),
}
if hasattr(torch.optim, "Muon"):  # torch 2.9 or newer
    KNOWN[torch.optim.Muon] = Kind(
        "muon", _same("momentum", "nesterov", "weight_decay"), (), {"momentum_buffer": EXP_AVG}, counts=False,
        choices={"adjust_lr_fn": ("muon_rate", {None: 1, "original": 1, "match_rms_adamw": 0})},
        only={"ns_coefficients": (3.4445, -4.775, 2.0315), "ns_steps": 5, "eps": 1e-7})
_MUST_BE_UNSET = ("amsgrad", "maximize", "differentiable", "decoupled_weight_decay", "initial_accumulator_value")


def name_of(optimizer: torch.optim.Optimizer) -> str:
    return f"{type(optimizer).__module__}.{type(optimizer).__qualname__}"


def _names(of_torch: bool) -> str:
    return ", ".join(sorted(known.__name__ for known in KNOWN if (known.__module__ != optim.__name__) == of_torch))


def _options(kind: Kind, group: Mapping[str, Any]) -> dict[str, float]:
    made: dict[str, float] = {}
    for theirs, ours in kind.options.items():
        pairs = zip(ours, group[theirs]) if isinstance(ours, tuple) else [(ours, group[theirs])]
        made.update((name, int(value) if isinstance(value, bool) else float(value)) for name, value in pairs)
    made.update((ours, numbers[group[theirs]]) for theirs, (ours, numbers) in kind.choices.items())
    return made


def is_orthogonal(optimizer: torch.optim.Optimizer, group: Mapping[str, Any]) -> bool:
    """Returns whether Muon makes the updates of this group orthogonal. torch.optim.Muon does so for all groups."""
    kind = KNOWN.get(type(optimizer))
    return kind is not None and kind.name == "muon" and bool(group.get("orthogonal", True))


def check_orthogonal(kind: Kind, group: Mapping[str, Any]) -> None:
    """Refuses a group of Muon whose `orthogonal` changed after prepare: its parameters have other state."""
    wanted = kind.name == "muon" and bool(group.get("orthogonal", True))
    for parameter in group["params"]:
        if hasattr(parameter, "_geminid") and parameter._geminid.orthogonal != wanted:
            raise Refused(f"'{parameter._geminid.name}' was prepared with orthogonal={not wanted}, and its group has "
                          f"orthogonal={wanted} now; this cannot change after geminid.torch.prepare")


def check_unset(kind: Kind, group: Mapping[str, Any], name: str) -> None:
    """Refuses options that the engine has not. name: the optimizer's, for people."""
    for option in _MUST_BE_UNSET:
        if option == "decoupled_weight_decay" and kind.name == "adamw":
            continue  # it is how AdamW says what it is
        if group.get(option):
            instead = "use torch.optim.AdamW" if option == "decoupled_weight_decay" else f"leave {option} out"
            raise Refused(f"{name} with {option}={group[option]!r} is unsupported by the engine; {instead}")


def _check_values(optimizer: torch.optim.Optimizer, kind: Kind, group: Mapping[str, Any]) -> None:
    """Refuses values that the engine does not support."""
    for theirs, (_, numbers) in kind.choices.items():
        if group[theirs] not in numbers:
            raise Refused(f"{name_of(optimizer)} with {theirs}={group[theirs]!r} is unsupported by the engine; "
                          f"use one of {', '.join(repr(word) for word in numbers)}")
    for theirs, value in kind.only.items():
        if group[theirs] != value:
            raise Refused(f"{name_of(optimizer)} with {theirs}={group[theirs]!r} is unsupported by the engine; leave it at {value!r}")


def fixed_options(kind: Kind, group: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options that all groups must have in common in every step."""
    return {name: group[name] for name in (*kind.options, *kind.choices, *kind.only)
            if name not in kind.per_step and name != "weight_decay"}


def step_input(kind: Kind, group: Mapping[str, Any]) -> dict[str, float]:
    """Returns the fields of a group that geminid.engine.Engine.step takes."""
    options = _options(kind, group)
    per_step = {"learning_rate": float(group["lr"]), "weight_decay": options["weight_decay"]}
    for theirs in kind.per_step:
        ours = kind.options[theirs]
        for name in ours if isinstance(ours, tuple) else (ours,):
            per_step[name] = options[name]
    return per_step


def translate(optimizer: torch.optim.Optimizer) -> tuple[Optimizer, Kind]:
    """Returns the engine's optimizer and its Kind."""
    kind = KNOWN.get(type(optimizer))
    inner = getattr(optimizer, "optimizer", None)  # set by Accelerate, Lightning and DeepSpeed, which wrap an optimizer
    if kind is None and isinstance(inner, torch.optim.Optimizer):
        raise Refused(f"{name_of(optimizer)} is around {name_of(inner)}. Give geminid.torch.prepare the inner one, and its "
                      "result to the library that wraps it: for Accelerate, call accelerator.prepare after "
                      "geminid.torch.prepare")
    if kind is None:
        raise Refused(f"{name_of(optimizer)} is not an optimizer that the engine supports; use one of torch.optim's "
                      f"{_names(of_torch=True)}, or one of geminid.torch's {_names(of_torch=False)}")
    for group in optimizer.param_groups:
        check_unset(kind, group, name_of(optimizer))
        _check_values(optimizer, kind, group)
    fixed = [fixed_options(kind, group) for group in optimizer.param_groups]
    if any(options != fixed[0] for options in fixed):
        raise Refused(f"groups of {name_of(optimizer)} differ in what the engine has once for all of them: {fixed}")
    return Optimizer(kind.name, _options(kind, optimizer.param_groups[0])), kind
