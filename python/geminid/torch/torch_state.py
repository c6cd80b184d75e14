"""The state of a script that a checkpoint has beside the engine's: the groups' settings, the buffers, and objects such as
schedulers. It is the file torch.pt in the checkpoint's folder, which ``torch.load`` reads, too."""

from __future__ import annotations

import collections
import io
import os
import pathlib
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from geminid.errors import DataLoss, Refused
from geminid.torch.compiling import name_of
from geminid.torch.optimizers import fixed_options
from geminid.torch.resume import Stateful, persistent_buffers

FILE = "torch.pt"
_VERSION = 1
_DICTIONARIES = (dict, collections.OrderedDict)


def _buffers(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name_of(name.lstrip(".")): buffer for name, buffer in persistent_buffers(model)}


def _members(group: Mapping[str, Any]) -> list[str]:
    """Returns the names of a group's parameters."""
    return [getattr(getattr(parameter, "_geminid", None), "name", "") for parameter in group["params"]]


def _why_unreadable(part: Any) -> str:
    """Returns why ``torch.load`` cannot read a part without running code of the file. Empty: it can."""
    data = io.BytesIO()
    try:
        torch.save(part, data)
        data.seek(0)
        torch.load(data, weights_only=True)
    except Exception as problem:
        return str(problem).strip().partition("\n")[0] or type(problem).__name__
    return ""


def _plain(value: Any) -> Any:
    """Returns the value with Python's numbers in place of NumPy's, which ``torch.load`` does not read. A rate that a
    script computes by NumPy is one."""
    if isinstance(value, dict):
        return type(value)((key, _plain(item)) for key, item in value.items()) if type(value) in _DICTIONARIES else value
    if type(value) in (list, tuple):
        return type(value)(_plain(item) for item in value)
    is_number = type(value).__module__ == "numpy" and getattr(value, "shape", None) == ()
    return value.item() if is_number else value


def _settings(group: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a group's settings."""
    return {name: _plain(value) for name, value in group.items() if name not in ("params", "param_names")}


def _readable_settings(groups: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns the settings of each group, without those that ``torch.load`` would not read."""
    found = [_settings(group) for group in groups]
    if not _why_unreadable(found):
        return found
    for settings in found:
        for name, value in list(settings.items()):
            reason = _why_unreadable(value)
            if reason:
                warnings.warn(f"geminid.torch.save leaves out the setting '{name}' of a group of the optimizer ({reason}); save it in "
                              "a file of its own", stacklevel=4)
                del settings[name]
    return found


def _without_own(model: torch.nn.Module, objects: Sequence[Stateful]) -> list[Stateful]:
    """Leaves out the model and the optimizer, whose states the engine has."""
    return [each for each in objects if each is not model and not isinstance(each, torch.optim.Optimizer)]


def _type_names(objects: Sequence[Stateful]) -> list[str]:
    return [type(each).__name__ for each in objects]


def encoded(keeper: Any, model: torch.nn.Module, objects: Sequence[Stateful]) -> bytes:
    """Returns the contents of the file. Raises Refused for a state that ``torch.load`` would not read."""
    optimizer = keeper.optimizer()
    members = [] if optimizer is None else optimizer.param_groups
    groups = [{"parameters": _members(group), "settings": settings} for group, settings in zip(members, _readable_settings(members))]
    states = [(type(each).__name__, _plain(each.state_dict())) for each in _without_own(model, objects)]
    for name, state in states:
        reason = _why_unreadable(state)
        if reason:
            raise Refused(f"geminid.torch.save cannot save the state of the {name}: it may have tensors, numbers, strings, None, and "
                          f"lists, tuples and dictionaries of these ({reason}). Save it in a file of its own")
    buffers = {name: buffer.detach().clone() for name, buffer in _buffers(model).items()}
    data = io.BytesIO()
    torch.save({"version": _VERSION, "groups": groups, "buffers": buffers, "objects": states}, data)
    return data.getvalue()


class TorchState:
    """The file of a checkpoint, read and compared with the model, the optimizer and the objects. None of them has changed."""

    def __init__(self, checkpoint: str, keeper: Any, model: torch.nn.Module, objects: Sequence[Stateful]) -> None:
        self._path = os.path.join(checkpoint, FILE)
        self._model, self._objects, self._optimizer = model, _without_own(model, objects), keeper.optimizer()
        self._damage: Exception | None = None
        self._saved: dict[str, Any] | None = None
        self._groups: list[dict[str, Any]] = []
        try:
            self._saved = self._read()
        except Refused:
            raise
        except Exception as problem:  # the engine compares the checksums, and names the damage
            self._damage = problem
        if self._saved is not None:
            self._check_buffers(self._saved["buffers"])
            self._check_objects([name for name, _ in self._saved["objects"]])
            if self._optimizer is not None and self._saved["groups"]:
                self._groups = self._matched(self._saved["groups"])
        elif self._objects and self._damage is None:
            names = ", ".join(_type_names(self._objects))
            raise Refused(f"'{self._path}' does not exist, so the checkpoint has no state of {names}: geminid-train or an older "
                          "version saved it. Load it without these objects")

    def _read(self) -> dict[str, Any] | None:
        if not pathlib.Path(self._path).exists():
            return None
        saved = torch.load(self._path, map_location="cpu", weights_only=True)
        if saved["version"] != _VERSION:
            raise Refused(f"'{self._path}' has the version {saved['version']}, and this library reads {_VERSION}; load it with the "
                          "library that saved it")
        return dict(saved)

    def _check_buffers(self, saved: Mapping[str, torch.Tensor]) -> None:
        mine = _buffers(self._model)
        for name in [*mine, *saved]:
            if name not in saved or name not in mine:
                raise Refused(f"the buffer '{name}' is {'not in the checkpoint' if name in mine else 'not in the model'}; nothing was "
                              "loaded. Load the checkpoint into the model that was saved")
            if mine[name].shape != saved[name].shape:
                raise Refused(f"the buffer '{name}' has the shape {list(mine[name].shape)}, and {list(saved[name].shape)} in the "
                              "checkpoint; nothing was loaded. Load the checkpoint into the model that was saved")

    def _check_objects(self, saved: Sequence[str]) -> None:
        mine = _type_names(self._objects)
        if mine and mine != list(saved):
            raise Refused(f"geminid.torch.load was given {mine}, and the checkpoint has the states of {list(saved)}; nothing was loaded. "
                          "Give the objects that were given to geminid.torch.save, in the same order, or none")

    def _matched(self, saved: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Returns the saved settings of each group of the optimizer."""
        settings = {tuple(sorted(group["parameters"])): dict(group["settings"]) for group in saved}
        found = []
        for number, group in enumerate(self._optimizer.param_groups):
            mine = settings.get(tuple(sorted(_members(group))))
            if mine is None:
                raise Refused(f"group {number} of the optimizer, with '{_members(group)[0]}', has other parameters than each of the "
                              f"{len(saved)} groups in the checkpoint; nothing was loaded. Make the groups that were saved, or give geminid.torch.load "
                              "settings=False")
            fixed = fixed_options(self._optimizer._kind, {**group, **mine})
            if fixed != self._optimizer._fixed:
                raise Refused(f"the optimizer was prepared with {self._optimizer._fixed}, and the checkpoint has {fixed}; nothing was "
                              "loaded. Make the optimizer with the settings of the checkpoint, or give geminid.torch.load settings=False")
            found.append(mine)
        return found

    def put_in_place(self) -> None:
        """Call it when the engine has loaded the checkpoint, and so has found every byte to be as it was saved."""
        if self._damage is not None:
            raise DataLoss(f"'{self._path}' cannot be read, so learning rates and buffers stay what they are; the weights and the "
                           f"optimizer's state are loaded: {self._damage}") from self._damage
        if self._saved is None:
            warnings.warn(f"'{self._path}' does not exist: learning rates, other settings of the optimizer's groups, and buffers stay "
                          "what they are. geminid-train or an older version saved this checkpoint", stacklevel=3)
            return
        for group, settings in zip(self._optimizer.param_groups if self._groups else (), self._groups):
            for name, value in settings.items():
                if isinstance(group.get(name), torch.Tensor):
                    group[name].fill_(value)  # a scheduler may have this tensor
                else:
                    group[name] = value
        with torch.no_grad():
            for name, buffer in _buffers(self._model).items():
                buffer.copy_(self._saved["buffers"][name])
        for each, (_, state) in zip(self._objects, self._saved["objects"]):
            each.load_state_dict(state)
