"""Tensors in what modules are given and return."""

import dataclasses
from collections.abc import Mapping

import torch


def tensors_in(value):
    """A list of each tensor in tuples, lists, mappings and dataclasses, at any depth."""
    found = []
    _collect(value, found)
    return found


def _collect(value, found):
    if isinstance(value, torch.Tensor):
        found.append(value)
    elif isinstance(value, (tuple, list)):
        for item in value:
            _collect(item, found)
    elif value is None or isinstance(value, (str, int, float)):
        return  # before the slower questions
    elif isinstance(value, Mapping):
        for item in value.values():
            _collect(item, found)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            _collect(getattr(value, field.name), found)


def managed_in(args, kwargs):
    """Each managed parameter that a function of torch is given, itself or in a list."""
    for value in (*args, *kwargs.values()):
        if hasattr(value, "_geminid"):
            yield value
        elif isinstance(value, (tuple, list)):
            for item in value:
                if hasattr(item, "_geminid"):
                    yield item


def address_of(tensor):
    return tensor.untyped_storage().data_ptr() + tensor.storage_offset() * tensor.element_size()
