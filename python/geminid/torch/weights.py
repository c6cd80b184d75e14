"""Reads the values of parameters on the meta device from safetensors files when the engine asks for them. This
process's own memory never has a whole tensor."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pathlib
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from geminid.errors import DataLoss, InvalidArgument, NotFound, Refused
from geminid.torch.compiling import name_of
from geminid.torch.tensors import address_of

#: A folder of safetensors files, one such file, or tensors by name.
Source = str | os.PathLike[str] | Mapping[str, torch.Tensor]

_TYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16, "F64": torch.float64, "I8": torch.int8,
          "U8": torch.uint8}
_INDEX, _SINGLE = "model.safetensors.index.json", "model.safetensors"
_MOST_HEADER_BYTES = 100 << 20  # the limit of the safetensors library
_PIECE_ELEMENTS = 1 << 20


@dataclass(frozen=True)
class _Stored:
    """The position of a tensor in a file."""
    path: pathlib.Path
    dtype: torch.dtype
    shape: tuple[int, ...]
    offset: int

    def read(self, first: int, count: int) -> torch.Tensor:
        """Returns `count` elements from `first` on, in fp32."""
        size = torch.empty(0, dtype=self.dtype).element_size()
        with open(self.path, "rb", buffering=0) as file:
            file.seek(self.offset + first * size)
            data = bytearray(count * size)
            if file.readinto(data) != len(data):
                raise DataLoss(f"{self.path} ends too early; copy it again")
        return torch.frombuffer(data, dtype=self.dtype).float()


@dataclass(frozen=True)
class _Given:
    """A tensor in memory."""
    tensor: torch.Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape)

    def read(self, first: int, count: int) -> torch.Tensor:
        return self.tensor.detach().reshape(-1)[first:first + count].to(device="cpu", dtype=torch.float32)


#: The source of each parameter on the meta device.
Sources = Mapping[torch.nn.Parameter, _Stored | _Given]


def _header(path: pathlib.Path) -> tuple[dict[str, Any], int]:
    """Returns the file's header and the position of the first tensor byte."""
    with open(path, "rb") as file:
        size, = struct.unpack("<Q", file.read(8).ljust(8, b"\0"))
        if not 0 < size <= _MOST_HEADER_BYTES:
            raise DataLoss(f"{path} is not a file of safetensors: its header has {size} bytes")
        try:
            return dict(json.loads(file.read(size))), 8 + size
        except ValueError:
            raise DataLoss(f"{path} is not a file of safetensors: its header is not JSON") from None


def _files_of(path: pathlib.Path) -> list[pathlib.Path]:
    if path.is_file():
        return [path]
    if (path / _INDEX).exists():
        names = json.loads((path / _INDEX).read_text())["weight_map"].values()
        return [path / name for name in sorted(set(names))]
    if (path / _SINGLE).exists():
        return [path / _SINGLE]
    found = sorted(path.glob("*.safetensors"))
    if not found:
        raise NotFound(f"weights is {path}, and there is no file of safetensors; give the folder that save_pretrained wrote")
    return found


def _stored_in(path: pathlib.Path) -> dict[str, _Stored]:
    found = {}
    for file in _files_of(path):
        if not file.exists():
            raise NotFound(f"{file} does not exist, and {_INDEX} names it")
        header, begin = _header(file)
        for name, entry in header.items():
            if name != "__metadata__" and entry["dtype"] in _TYPES:
                found[name_of(name)] = _Stored(file, _TYPES[entry["dtype"]], tuple(entry["shape"]), begin + entry["data_offsets"][0])
    return found


def _names(model: torch.nn.Module) -> dict[torch.nn.Parameter, list[str]]:
    """Returns all names of each parameter: of a tied parameter's names, a file has one."""
    names: dict[torch.nn.Parameter, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(parameter, []).append(name_of(name))
    return names


def find(model: torch.nn.Module, source: Source | None) -> Sources:
    """Returns the source of each parameter on the meta device. Refuses invalid use before anything changes."""
    absent = {p: names for p, names in _names(model).items() if p.is_meta}
    for name, buffer in model.named_buffers():
        if buffer.is_meta:
            raise Refused(f"the buffer '{name}' is on the meta device, and files of weights do not have all buffers; make the "
                          "model in `with geminid.torch.empty_weights():`, which leaves buffers as they are")
    if absent and source is None:
        name = next(iter(absent.values()))[0]
        raise Refused(f"'{name}' is on the meta device; give prepare its values, as weights=FOLDER of files of safetensors, "
                      "or load them before")
    if not absent:
        if source is not None:
            raise InvalidArgument("weights are for parameters on the meta device, and this model has none there; make it in "
                                  "`with geminid.torch.empty_weights():`")
        return {}
    assert source is not None
    stored: Mapping[str, _Stored | _Given] = (
        {name_of(name): _Given(tensor) for name, tensor in source.items()} if isinstance(source, Mapping)
        else _stored_in(pathlib.Path(source)))
    return {p: _match(p, names, stored) for p, names in absent.items()}


def _match(parameter: torch.nn.Parameter, names: list[str], stored: Mapping[str, _Stored | _Given]) -> _Stored | _Given:
    name = next((name for name in names if name in stored), None)
    if name is None:
        some = ", ".join(sorted(stored)[:3])
        raise Refused(f"'{names[0]}' is on the meta device, and weights have no tensor of its name, but {some} and so on")
    if stored[name].shape != tuple(parameter.shape):
        raise Refused(f"'{name}' is {tuple(parameter.shape)} in the model and {stored[name].shape} in weights")
    return stored[name]


def copy(source: _Stored | _Given, first: int, address: int, count: int) -> None:
    """Copies fp32 values to an address, in pieces."""
    for begin in range(0, count, _PIECE_ELEMENTS):
        piece = min(_PIECE_ELEMENTS, count - begin)
        values = source.read(first + begin, piece).contiguous()
        ctypes.memmove(address + 4 * begin, address_of(values), 4 * piece)


def take_the_place_of(parameter: torch.nn.Parameter, values: torch.Tensor) -> None:
    """Gives a parameter values on another device. The parameter stays the same object for optimizers and other users."""
    swap: Any = torch.utils.swap_tensors
    swap(parameter, torch.nn.Parameter(values, requires_grad=parameter.requires_grad))


def materialize(parameter: torch.nn.Parameter, source: _Stored | _Given) -> None:
    """Reads the values of a parameter that the engine does not store into torch's memory."""
    values = torch.empty(parameter.shape, dtype=parameter.dtype)
    for begin in range(0, values.numel(), _PIECE_ELEMENTS):
        count = min(_PIECE_ELEMENTS, values.numel() - begin)
        values.view(-1)[begin:begin + count].copy_(source.read(begin, count))
    take_the_place_of(parameter, values)


@contextlib.contextmanager
def empty_weights() -> Iterator[None]:
    """Puts the parameters of modules that are made inside on the meta device, which takes no memory. Buffers are made as
    always. For ``prepare(model, optimizer, weights=FOLDER)``:

        with geminid.torch.empty_weights():
            model = transformers.AutoModelForCausalLM.from_config(config)
    """
    register = torch.nn.Module.register_parameter

    def on_meta(self: torch.nn.Module, name: str, param: torch.nn.Parameter | None) -> None:
        register(self, name, param)
        made = self._parameters[name]
        if made is not None and not made.is_meta:
            self._parameters[name] = torch.nn.Parameter(made.detach().to("meta"), requires_grad=made.requires_grad)

    torch.nn.Module.register_parameter = on_meta  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.nn.Module.register_parameter = register  # type: ignore[method-assign]
