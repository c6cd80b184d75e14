"""Refuses a step of a model that was given trainable parameters after geminid.torch.prepare, such as a new adapter: the engine
does not have them, so they would keep their first values."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import torch
from torch.nn.modules import module as torch_module

from geminid.errors import Refused
from geminid.torch import compiling


class _Registrations:
    """Counts the parameters and modules that any module of this process was given."""

    count = 0
    _installed = False

    @classmethod
    def install(cls) -> None:
        if not cls._installed:
            cls._installed = True
            torch_module.register_module_parameter_registration_hook(cls._note)
            torch_module.register_module_module_registration_hook(cls._note)

    @classmethod
    def _note(cls, *_: Any) -> None:
        cls.count += 1


def _has_optimizer(parameter: torch.nn.Parameter) -> bool:
    """Returns whether an optimizer of torch trains it, as a script may do with a part of its own. Slow."""
    optimizers = [one for one in gc.get_objects() if issubclass(type(one), torch.optim.Optimizer)]
    return any(parameter is other for one in optimizers for group in one.param_groups for other in group["params"])


class Additions:
    """The parameters that a prepared model was given after prepare."""

    def __init__(self, model: torch.nn.Module) -> None:
        _Registrations.install()
        self._model = weakref.ref(model)
        self._find()
        self._known = {id(parameter) for _, parameter in self._added}  # torch's own from the beginning, such as quantised ones

    def _find(self) -> None:
        model = self._model()
        self._seen = _Registrations.count
        self._added = [] if model is None else [(name, parameter) for name, parameter in model.named_parameters()
                                                if parameter.numel() and not hasattr(parameter, "_geminid")]

    def check(self) -> None:
        """Call it before each step. It looks through the model only after some module was given a parameter or a module."""
        if self._seen != _Registrations.count:
            self._find()
        for name, parameter in self._added:
            if not parameter.requires_grad or id(parameter) in self._known:
                continue
            if not _has_optimizer(parameter):
                self._seen = -1  # the script may take it out of the model again
                name = compiling.name_of(name)
                raise Refused(f"'{name}' was added to the model after geminid.torch.prepare and requires a gradient, and no optimizer "
                              "has it: it would keep its values. Add adapters and layers before prepare, and give the optimizer "
                              "their parameters; PEFT's model.set_adapter may choose among them later. Or write "
                              f"model.get_parameter('{name}').requires_grad_(False)")
            self._known.add(id(parameter))
