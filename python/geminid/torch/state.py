"""state_dict and load_state_dict of a prepared model, parameter by parameter, and `full`."""

from __future__ import annotations

import contextlib
import types
import weakref
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, TypeVar

import torch

from geminid.engine import VALUE
from geminid.errors import Refused
from geminid.torch.optimizer_state import write_kind

_DISABLED = torch._C.DisableTorchFunctionSubclass
M = TypeVar("M", bound=torch.nn.Module)


def _copy(parameter: torch.Tensor) -> torch.Tensor:
    return parameter.data.clone(memory_format=torch.contiguous_format)


def read(parameter: Any) -> torch.Tensor:
    """Returns a copy of the parameter's values, as an operator sees them."""
    keeper, record = parameter._geminid.keeper, parameter._geminid
    with torch.no_grad(), _DISABLED():
        if record.held or record.opened:
            return _copy(parameter)
        held = keeper.hold_to_read(record)
        try:
            return _copy(parameter)
        finally:
            keeper.release(held)


def write(parameter: Any, values: torch.Tensor) -> None:
    write_kind(parameter._geminid.keeper, parameter._geminid, VALUE, values)


def _managed(module: torch.nn.Module) -> dict[str, Any]:
    return {name: p for name, p in module._parameters.items() if hasattr(p, "_geminid")}


@contextlib.contextmanager
def _in_place_of(module: torch.nn.Module, made: Mapping[str, Any]) -> Iterator[None]:
    """Replaces the module's parameters by other tensors within the block."""
    kept = module._parameters
    module._parameters = {name: made.get(name, p) for name, p in kept.items()}
    try:
        yield
    finally:
        module._parameters = kept


# By id() of a state_dict() in progress: the name under which it already has each parameter.
_NAMES: dict[int, MutableMapping[Any, str]] = {}


def _names_in(destination: Any) -> MutableMapping[Any, str]:
    """Returns the names in a state_dict(), so that tied parameters share memory as in torch's state_dict()."""
    number = id(destination)
    if number not in _NAMES:
        try:
            weakref.finalize(destination, _NAMES.pop, number, None)
        except TypeError:  # a plain dict
            return {}
        _NAMES[number] = weakref.WeakKeyDictionary()  # a state_dict must not keep a model alive
    return _NAMES[number]


def _save(self: torch.nn.Module, destination: Any, prefix: str, keep_vars: bool) -> None:
    if keep_vars:
        raise Refused("state_dict(keep_vars=True) would hand out parameters that are not on the device; leave it out. For "
                      "torch.onnx.export, which calls it, make another copy of the model that has loaded model.state_dict()")
    names = _names_in(destination)
    made: dict[str, torch.Tensor] = {}
    for name, p in _managed(self).items():
        known = names.setdefault(p._geminid, prefix + name)
        made[name] = destination[known] if known in destination else read(p).cpu()  # all of them may not fit on the device
    with _in_place_of(self, made):
        type(self)._save_to_state_dict(self, destination, prefix, keep_vars)


def _load(self: torch.nn.Module, state_dict: Mapping[str, Any], prefix: str, local_metadata: Mapping[str, Any],
          *rest: Any) -> None:
    if local_metadata.get("assign_to_params_buffers"):
        raise Refused("load_state_dict(assign=True) would replace parameters that the engine keeps; leave it out")
    managed = _managed(self)
    made = {name: torch.nn.Parameter(torch.empty(p.shape, dtype=p.dtype), requires_grad=False)
            for name, p in managed.items() if prefix + name in state_dict}
    for name in made:  # _load_from_state_dict below compares the sizes
        managed[name]._geminid.keeper.at_rest("load_state_dict()")
    errors = rest[-1]
    before = len(errors)
    with _in_place_of(self, {**{name: torch.nn.Parameter(torch.empty(p.shape, dtype=p.dtype), requires_grad=False)
                                for name, p in managed.items()}, **made}):
        type(self)._load_from_state_dict(self, state_dict, prefix, local_metadata, *rest)
    if len(errors) == before:
        for name, values in made.items():
            if managed[name]._geminid.opened:
                with torch.no_grad(), _DISABLED():
                    managed[name].copy_(values)
            else:
                write(managed[name], values)


def serve(model: torch.nn.Module) -> None:
    """Makes state_dict() and load_state_dict() of every module with managed parameters use the engine."""
    module: Any
    for module in model.modules():
        if _managed(module):
            module._save_to_state_dict = types.MethodType(_save, module)
            module._load_from_state_dict = types.MethodType(_load, module)


@contextlib.contextmanager
def full(module: M) -> Iterator[M]:
    """Makes the parameters of a module plain host memory within the block, between steps. The block can read, tie, merge or
    change them in place; each keeps its shape. After the block the engine has the changed values.

    All ranks must enter it with the same module. At the end it raises Refused if a parameter has another shape
    or type, or the module has new parameters. That parameter then has its old values, and the others keep their changes.
    Between the backward passes of a step the block may only read values. If it changed one, the end raises Refused,
    and the old values are back.

        with geminid.torch.full(model.lm_head):
            model.lm_head.weight.mul_(0.5)
    """
    parameters: list[Any] = [p for p in dict.fromkeys(module.parameters()) if hasattr(p, "_geminid")]
    keepers = {p._geminid.keeper for p in parameters}
    for keeper in keepers:
        if keeper.has_gradient:
            keeper.between_steps()  # reading is allowed
        else:
            keeper.at_rest("geminid.torch.full")
        keeper.full_blocks += 1
    opened: list[tuple[Any, torch.Tensor]] = []
    try:
        with _DISABLED():
            for p in parameters:
                if not p._geminid.opened:
                    values, view = read(p), p.data
                    p._geminid.opened = True
                    opened.append((p, view))
                    p.data = values
        yield module
    except BaseException:
        _close(opened)
        raise
    finally:
        for keeper in keepers:
            keeper.full_blocks -= 1
    refused = _close(opened)
    if refused:
        raise Refused(refused[0])
    strangers = [name for name, p in module.named_parameters()
                 if p.requires_grad and p.numel() and not hasattr(p, "_geminid")] if parameters else []
    if strangers:
        raise Refused(f"'{strangers[0]}' is new, and the engine and the optimizer do not have it: it would not be trained. "
                      "Resize and change the model before geminid.torch.prepare")


def _close(opened: list[tuple[Any, torch.Tensor]]) -> list[str]:
    """Returns the reason, in words, for each parameter whose new value is refused."""
    changed: list[tuple[Any, torch.Tensor]] = []
    refused: list[str] = []
    with torch.no_grad(), _DISABLED():
        for p, view in opened:
            values = p.data
            p.data = view
            p._geminid.opened = False
            if values.shape != view.shape or values.dtype != view.dtype:
                refused.append(f"'{p._geminid.name}' was {tuple(view.shape)}, {view.dtype}, and is {tuple(values.shape)}, "
                               f"{values.dtype} now: the engine keeps parameters as they were in prepare. Resize and convert "
                               "the model before geminid.torch.prepare; it has its old values again")
                continue
            if torch.equal(read(p), values):
                continue
            if p._geminid.keeper.has_gradient:
                refused.append(f"'{p._geminid.name}' was changed in geminid.torch.full, which works only between steps, and the engine "
                               "has gradients of a step that is not done: it has its old values again. Call optimizer.step() or "
                               "optimizer.zero_grad() first")
            else:
                changed.append((p, values))
        for keeper in {p._geminid.keeper for p, _ in changed}:
            keeper.at_rest("geminid.torch.full")  # a forward pass of the block may have begun a step
        for p, values in changed:
            write(p, values)
    return refused
