"""Tensors in what modules are given and return."""

import dataclasses
from collections.abc import Mapping

import torch


def tensors_in(value):
    """Each tensor in tuples, lists, mappings and dataclasses, at any depth."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors_in(item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from tensors_in(getattr(value, field.name))


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
