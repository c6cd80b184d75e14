"""What cannot be right is refused before anything is touched, in one message that says what to do."""

import types

import torch

from geminid.errors import Refused


def check_model(model, optimizer, managed_types):
    """Before prepare changes anything."""
    optimized = {p for group in optimizer.param_groups for p in group["params"]}
    names = {p: name for name, p in model.named_parameters()}
    for parameter, name in names.items():
        if hasattr(parameter, "_geminid"):
            raise Refused(f"'{name}' is prepared already: a parameter has one engine and one optimizer")
        if parameter.requires_grad and parameter not in optimized:
            raise Refused(f"'{name}' requires a gradient, and the optimizer does not have it; give it to the optimizer, or "
                          f"write model.get_parameter('{name}').requires_grad_(False)")
        if parameter in optimized and parameter.dtype not in managed_types:
            raise Refused(f"'{name}' is {parameter.dtype}, which the engine does not train; write model.to(torch.bfloat16) "
                          "or model.float() before prepare. Autocast works with either")
    for parameter in optimized - set(names):
        raise Refused(f"the optimizer has a parameter of shape {tuple(parameter.shape)} that is not in the model; make the "
                      "optimizer of model.parameters()")


def _probe(fn, dtypes):
    """Whether what `_apply` would do to tensors changes nothing."""
    for dtype in dtypes:
        tensor = torch.empty(0, dtype=dtype)
        result = fn(tensor)
        if result.dtype != dtype or result.device != tensor.device:
            return False
    return True


def _apply(self, fn, recurse=True):
    dtypes = {p.dtype for p in self.parameters() if hasattr(p, "_geminid")}
    if _probe(fn, dtypes):
        return self
    raise Refused("the engine keeps this model's parameters: .to(), .half(), .cuda() and the like cannot change them. "
                  "Call them before geminid.torch.prepare")


def _deepcopy(self, memo):
    raise Refused("a prepared model cannot be copied: the engine keeps its parameters. Copy it before "
                  "geminid.torch.prepare, or load model.state_dict() into another one")


def guard(model):
    for module in model.modules():
        if any(hasattr(p, "_geminid") for p in module.parameters()):
            module._apply = types.MethodType(_apply, module)
            module.__deepcopy__ = types.MethodType(_deepcopy, module)
