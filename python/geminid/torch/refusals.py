"""Refuses invalid use before anything has changed. One message says what to do."""

from __future__ import annotations

import ctypes
import types
import weakref
import zlib
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any, NoReturn

import torch

from geminid.errors import Refused
from geminid.session import Ranks
from geminid.torch.parameter import Record


def _check_modules(model: torch.nn.Module, optimized: Container[torch.Tensor]) -> None:
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule) and any(True for _ in module.parameters()):
            raise Refused(f"'{name or type(model).__name__}' is a program of torch.jit, which reads weights without the engine. "
                          "Leave torch.jit.script and torch.jit.trace out; torch.compile works")
        if isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag)) and module.max_norm is not None:
            raise Refused(f"'{name}' is {type(module).__name__} with max_norm={module.max_norm}, which changes its weight in each forward pass without the engine. Write max_norm=None, and scale rows that are too long after "
                          "optimizer.step(), in `with geminid.torch.full(module):`")
        if isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag)) and module.sparse and module.weight in optimized:
            raise Refused(f"'{name}' is {type(module).__name__} with sparse=True, and the engine takes no sparse gradients. Write "
                          "sparse=False")


def check_unprepared(model: torch.nn.Module) -> None:
    """Call it before the checks of the optimizer: that may be one that prepare returned."""
    for name, parameter in model.named_parameters():
        if hasattr(parameter, "_geminid"):
            raise Refused(f"'{name}' is prepared already: a parameter has one engine and one optimizer")
        if isinstance(parameter, torch.nn.parameter.UninitializedParameter):
            raise Refused(f"'{name}' has no shape yet, as a lazy module's before its first forward pass: run the model on one "
                          "batch, and make the optimizer, before geminid.torch.prepare")


def _address(tensor: torch.Tensor) -> int:
    """0 where it has no memory of its own that could be shared."""
    try:
        return tensor.data_ptr() if tensor.layout is torch.strided and not tensor.is_meta and tensor.numel() else 0
    except (NotImplementedError, RuntimeError):  # a class that keeps its values elsewhere
        return 0


def _spans(model: torch.nn.Module) -> list[tuple[int, int, str, torch.Tensor]]:
    """(first byte, behind the last, name, tensor) of all tensors of a model that have memory."""
    found: list[tuple[str, torch.Tensor]] = [*model.named_parameters(), *model.named_buffers()]
    for prefix, module in model.named_modules():
        for name, value in vars(module).items():
            if isinstance(value, torch.Tensor) and f"{name}_orig" not in module._parameters:  # of spectral_norm, made anew in each call
                found.append((f"{prefix}.{name}" if prefix else name, value))
    spans = []
    for name, tensor in found:
        begin = _address(tensor)
        if begin:
            last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
            spans.append((begin, begin + (last + 1) * tensor.element_size(), name, tensor))
    return sorted(spans, key=lambda span: span[0])


def _overlap(one: torch.Tensor, other: torch.Tensor, begin: int, end: int) -> bool:
    """Whether two tensors in these bytes have an element in common: parts of columns have none."""
    size = one.element_size()
    if other.element_size() != size or (other.data_ptr() - one.data_ptr()) % size:
        return True
    taken = torch.zeros((end - begin) // size, dtype=torch.bool)
    taken.as_strided(one.shape, one.stride(), (one.data_ptr() - begin) // size).fill_(True)
    return bool(taken.as_strided(other.shape, other.stride(), (other.data_ptr() - begin) // size).any())


def _check_memory(model: torch.nn.Module, optimized: Container[torch.Tensor]) -> None:
    """The engine would move parameters apart that share memory and are not one object."""
    spans = _spans(model)
    for number, (begin, end, name, tensor) in enumerate(spans):
        for next_begin, next_end, other_name, other in spans[number + 1:]:
            if next_begin >= end:
                break
            if tensor is other or not (tensor in optimized or other in optimized):
                continue
            if _overlap(tensor, other, begin, max(end, next_end)):
                raise Refused(f"'{name}' and '{other_name}' share memory and are not one parameter: the engine would train one and "
                              "leave the other as it is. Tie modules by the parameter itself, as in head.weight = "
                              "embedding.weight, and give what is to keep its values a .clone()")


def check_model(model: torch.nn.Module, optimizer: torch.optim.Optimizer, managed_types: Container[torch.dtype]) -> None:
    """Checks model and optimizer before prepare changes anything."""
    optimized = {p for group in optimizer.param_groups for p in group["params"]}
    _check_modules(model, optimized)
    names = {p: name for name, p in model.named_parameters()}
    for parameter, name in names.items():
        if getattr(parameter, "device_mesh", None) is not None:
            raise Refused(f"'{name}' is a DTensor, which torch has sharded, and the engine shards parameters itself. Leave "
                          "parallelize_module and fully_shard out, and start a rank for each device by torchrun")
        if parameter.requires_grad and parameter not in optimized:
            raise Refused(f"'{name}' requires a gradient, and the optimizer does not have it; give it to the optimizer, or "
                          f"write model.get_parameter('{name}').requires_grad_(False)")
        if parameter in optimized and parameter.grad is not None:
            raise Refused(f"'{name}' has a gradient of a backward pass before prepare, which the engine would not have; call "
                          "optimizer.zero_grad() before geminid.torch.prepare")
        if parameter in optimized and parameter.dtype.is_complex:
            raise Refused(f"'{name}' is {parameter.dtype}, which the engine does not train; make it a parameter of real "
                          "numbers, torch.view_as_real(value), and use torch.view_as_complex of it in forward")
        if parameter in optimized and parameter.dtype not in managed_types:
            raise Refused(f"'{name}' is {parameter.dtype}, which the engine does not train; write model.to(torch.bfloat16) "
                          "or model.float() before prepare. Autocast works with either")
    for parameter in optimized - set(names):
        raise Refused(f"the optimizer has a parameter of shape {tuple(parameter.shape)} that is not in the model; make the "
                      "optimizer of model.parameters()")
    _check_memory(model, optimized)


_SAMPLED = 4096  # about so many elements of each parameter


def _checksum(parameter: torch.Tensor) -> int:
    """Returns a checksum of 16 bits over a sample of the values."""
    values = parameter.detach().reshape(-1)
    sample = values[::max(1, values.numel() // _SAMPLED)].to(device="cpu", dtype=torch.float32).contiguous()
    return zlib.crc32(ctypes.string_at(sample.data_ptr(), 4 * sample.numel())) & 0xFFFF


def check_ranks(records: Mapping[torch.nn.Parameter, Record], ranks: Ranks) -> None:
    """Refuses parameters whose values differ between ranks: the shards would form a mixture. All ranks decide alike."""
    if ranks.world_size == 1:
        return
    own = [0 if parameter.is_meta else _checksum(parameter) for parameter in records]
    sums = (ctypes.c_double * (2 * len(own)))(*own, *(value * value for value in own))
    ranks.sum(ctypes.addressof(sums), len(sums))
    for number, record in enumerate(records.values()):
        if sums[number] ** 2 != ranks.world_size * sums[number + len(own)]:
            raise Refused(f"'{record.name}' has not the same values on all ranks; call torch.manual_seed with one number "
                          "before the model is made, or load the same weights on all ranks")


def _probe(fn: Callable[[torch.Tensor], torch.Tensor], kinds: Iterable[tuple[torch.dtype, torch.device]]) -> bool:
    """Returns whether `fn` changes neither type nor device of such tensors."""
    for dtype, device in kinds:
        tensor = torch.empty(0, dtype=dtype, device=device)
        result = fn(tensor)
        if result.dtype != dtype or result.device != tensor.device:
            return False
    return True


def _apply(self: torch.nn.Module, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> torch.nn.Module:
    if _probe(fn, {(p.dtype, p.device) for p in self.parameters() if hasattr(p, "_geminid")}):
        return self
    raise Refused("the engine keeps this model's parameters: .to(), .half(), .cuda() and the like cannot change them. "
                  "Call them before geminid.torch.prepare")


def _deepcopy(self: torch.nn.Module, memo: Any) -> NoReturn:
    raise Refused("a prepared model cannot be copied: the engine keeps its parameters. Copy it before "
                  "geminid.torch.prepare, or load model.state_dict() into another one")


def _reduce(self: torch.nn.Module, protocol: Any) -> NoReturn:
    raise Refused("a prepared model cannot be pickled, as torch.save(model) does: the engine keeps its parameters. Save "
                  "model.state_dict()")


def _script(self: torch.nn.Module) -> NoReturn:
    """torch.jit.script calls it for each module, before it makes anything."""
    raise Refused("torch.jit.script makes a program that reads weights without the engine. Script another copy of the model "
                  "that has loaded model.state_dict()")


def _retired_step(self: torch.optim.Optimizer, *_: Any, **__: Any) -> NoReturn:
    raise Refused(f"this {type(self).__name__} was given to geminid.torch.prepare, and the engine has its parameters now; "
                  "step the optimizer that prepare returned: model, optimizer = geminid.torch.prepare(model, optimizer, ...)")


_retired_step._wrapped_by_lr_sched = True  # type: ignore[attr-defined]  # schedulers look for this attribute


def _handed_on(name: str, made: weakref.ref[Any]) -> Callable[..., Any]:
    """Returns a method for the optimizer given to prepare. It calls the method of the prepared optimizer."""

    def call(*args: Any, **kwargs: Any) -> Any:
        prepared = made()
        if prepared is None:
            raise Refused(f"the optimizer that geminid.torch.prepare returned is gone; keep it, and call its {name}")
        return getattr(prepared, name)(*args, **kwargs)

    return call


def retire(optimizer: Any, made: Any) -> None:
    """Retires the optimizer given to prepare. Its groups, schedulers and state still work. Its step() is refused: it would
    change nothing. Its zero_grad() calls the prepared optimizer's."""
    optimizer.step = types.MethodType(_retired_step, optimizer)
    for name in ("state_dict", "load_state_dict", "zero_grad"):
        setattr(optimizer, name, _handed_on(name, weakref.ref(made)))


def guard(model: torch.nn.Module) -> None:
    module: Any
    for module in model.modules():
        if any(hasattr(p, "_geminid") for p in module.parameters()):
            module._apply = types.MethodType(_apply, module)
            module.__reduce_ex__ = types.MethodType(_reduce, module)
            module.__deepcopy__ = types.MethodType(_deepcopy, module)
            module.__prepare_scriptable__ = types.MethodType(_script, module)
