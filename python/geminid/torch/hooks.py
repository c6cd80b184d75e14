"""The hooks before and after each call of a unit's module, and of the whole model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch

from geminid.errors import Refused
from geminid.torch.keeper import Call, Keeper, in_backward
from geminid.torch.tensors import tensors_in
from geminid.torch.torch_memory import FORWARD
from geminid.torch.units import Unit

Hook = Callable[..., None]


def _begin_at(tensor: Any, call: Call) -> None:
    """When the tensor's gradient is complete, the call that used the tensor as input ends. Then this call begins. In the
    other order two units would be on the device."""
    ending = tensor._geminid_ending = getattr(tensor, "_geminid_ending", None) or []

    def hook(gradient: torch.Tensor) -> None:
        for end in ending:
            end(gradient)
        call.before_backward(gradient)

    tensor.register_hook(hook)


def _when_reached(tensor: Any, end: Callable[[torch.Tensor], None]) -> None:
    ending = getattr(tensor, "_geminid_ending", None)
    if ending is None:
        tensor.register_hook(end)
    else:
        ending.append(end)


def _before_unit(keeper: Keeper, unit: Unit) -> Hook:
    def hook(_module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        if torch._C._get_tracing_state() is not None:
            raise Refused("torch.jit.trace and what exports by it make a program that reads weights without the engine. Trace "
                          "another copy of the model that has loaded model.state_dict()")
        keeper.enter(is_model=False)
        call = Call(keeper, unit) if torch.is_grad_enabled() else None
        if keeper.torch_memory is not None:
            keeper.torch_memory.peaks.begin(unit, FORWARD)
        unit.stack.append((keeper.hold(unit.ids, unit.records), call))
        if call is not None:
            keeper.open_calls.append(call)
            for tensor in tensors_in((args, kwargs) if kwargs else args):
                if tensor.requires_grad and not tensor.is_leaf:
                    _when_reached(tensor, call.after_backward)
    return hook


def _after_unit(keeper: Keeper, unit: Unit) -> Hook:
    def hook(_module: torch.nn.Module, _args: Any, _kwargs: Any, result: Any) -> None:
        if not unit.stack or not keeper.turn.is_mine():
            return  # the hook before the call has failed
        held, call = unit.stack.pop()
        if keeper.torch_memory is not None:
            keeper.torch_memory.peaks.end(unit, FORWARD)
        if call is not None:
            keeper.open_calls.pop()
            for tensor in tensors_in(result):
                if tensor.requires_grad and not tensor.is_leaf:  # a hook on a leaf stays, and a parameter's users bring it
                    _begin_at(tensor, call)
        keeper.release(held)
    return hook


def _before_model(keeper: Keeper) -> Hook:
    def hook(_module: torch.nn.Module, _args: Any) -> None:
        keeper.enter(is_model=True)
        if not in_backward():
            if torch.is_grad_enabled():
                keeper.begin_micro_batch()
                if keeper.activations is not None and not keeper.depth:
                    keeper.activations.begin()
        keeper.depth += 1
    return hook


def _after_model(keeper: Keeper) -> Hook:
    def hook(_module: torch.nn.Module, _args: Any, result: Any) -> None:
        if not keeper.turn.is_mine():
            return
        keeper.depth = max(0, keeper.depth - 1)
        if keeper.activations is not None and not keeper.depth:
            keeper.activations.end()
        wants_backward = torch.is_grad_enabled()
        if not keeper.depth and not wants_backward:
            keeper.release_outside()
        keeper.begin_backward_at(result)
    return hook


def _outside_of_graphs(hook: Hook) -> Hook:
    """Makes torch.compile break its graph at the hook. With fullgraph=True torch.compile reports the reason."""
    disable: Any = torch.compiler.disable
    outside = disable(hook)
    outside._torchdynamo_disable_msg = (
        "geminid.torch gathers weights here, which cannot be in a graph: call block.compile() after "
        "geminid.torch.prepare(..., unit='block'), or leave out fullgraph=True, or strict=True of torch.export")
    return cast(Hook, outside)


def attach(model: torch.nn.Module, keeper: Keeper) -> None:
    """Attaches the hooks. The hooks after a forward also run after an exception, such as the early stop of a checkpoint."""
    for unit in keeper.units:
        unit.module.register_forward_pre_hook(_outside_of_graphs(_before_unit(keeper, unit)), with_kwargs=True)
        unit.module.register_forward_hook(_outside_of_graphs(_after_unit(keeper, unit)), with_kwargs=True, always_call=True)
    keeper.turn.add(model)
    model.register_forward_pre_hook(_outside_of_graphs(_before_model(keeper)), prepend=True)
    model.register_forward_hook(_outside_of_graphs(_after_model(keeper)), always_call=True)
