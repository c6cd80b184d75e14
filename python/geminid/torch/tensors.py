"""Finds tensors in the arguments and results of modules."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Returns all tensors in tuples, lists, mappings and dataclasses, at any depth."""
    found: list[torch.Tensor] = []
    _collect(value, found)
    return found


def _collect(value: Any, found: list[torch.Tensor]) -> None:
    if isinstance(value, torch.Tensor):
        found.append(value)
    elif isinstance(value, (tuple, list)):
        for item in value:
            _collect(item, found)
    elif value is None or isinstance(value, (str, int, float)):
        return  # before the slower checks
    elif isinstance(value, Mapping):
        for item in value.values():
            _collect(item, found)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            _collect(getattr(value, field.name), found)


def managed_in(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[Any]:
    """Yields each managed parameter in the arguments of a function of torch, direct or in a list."""
    for value in (*args, *kwargs.values()):
        if hasattr(value, "_geminid"):
            yield value
        elif isinstance(value, (tuple, list)):
            for item in value:
                if hasattr(item, "_geminid"):
                    yield item


def address_of(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr() + int(tensor.storage_offset()) * tensor.element_size()
