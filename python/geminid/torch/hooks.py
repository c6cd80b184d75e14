"""What runs before and after each call of a module that is a unit, and of the model as a whole."""

import torch

from geminid.torch.keeper import Call, in_backward
from geminid.torch.tensors import tensors_in


def _begin_at(tensor, call):
    """When the tensor's gradient is there, what it was the input of ends, and then the call begins: in the
    other order two units would be on the device."""
    ending = tensor._geminid_ending = getattr(tensor, "_geminid_ending", None) or []

    def hook(gradient):
        for end in ending:
            end(gradient)
        call.before_backward(gradient)

    tensor.register_hook(hook)


def _when_reached(tensor, end):
    ending = getattr(tensor, "_geminid_ending", None)
    if ending is None:
        tensor.register_hook(end)
    else:
        ending.append(end)


def _before_unit(keeper, unit):
    def hook(_module, args, kwargs):
        call = Call(keeper, unit) if torch.is_grad_enabled() else None
        unit.stack.append((keeper.hold(unit.ids, unit.records), call))
        if call is not None:
            for tensor in tensors_in((args, kwargs) if kwargs else args):
                if tensor.requires_grad and not tensor.is_leaf:
                    _when_reached(tensor, call.after_backward)
    return hook


def _after_unit(keeper, unit):
    def hook(_module, _args, _kwargs, result):
        if not unit.stack:
            return  # its begin had failed
        held, call = unit.stack.pop()
        if call is not None:
            for tensor in tensors_in(result):
                if tensor.requires_grad:
                    _begin_at(tensor, call)
        keeper.release(held)
    return hook


def _before_model(keeper):
    def hook(_module, _args):
        if not in_backward():
            keeper.recover()
            if torch.is_grad_enabled():
                keeper.begin_micro_batch()
        keeper.depth += 1
    return hook


def _after_model(keeper):
    def hook(_module, _args, result):
        keeper.depth = max(0, keeper.depth - 1)
        wants_backward = torch.is_grad_enabled()
        if not keeper.depth and not wants_backward:
            keeper.release_outside()
        keeper.begin_backward_at(result)
    return hook


def attach(model, keeper):
    """An exception in a forward, which is how checkpoints stop early, runs the hooks after it too."""
    for unit in keeper.units:
        unit.module.register_forward_pre_hook(_before_unit(keeper, unit), with_kwargs=True)
        unit.module.register_forward_hook(_after_unit(keeper, unit), with_kwargs=True, always_call=True)
    model.register_forward_pre_hook(_before_model(keeper), prepend=True)
    model.register_forward_hook(_after_model(keeper), always_call=True)
