"""Exports tensors of open operations through DLPack: numpy.from_dlpack, torch.from_dlpack and similar functions."""

from __future__ import annotations

import ctypes
from typing import Any

from geminid._library import LIB

_NAME = b"dltensor_versioned"
_HOST = (1, 0)  # kDLCPU
_P = ctypes.c_void_p


class _Managed(ctypes.Structure):
    """The first fields of DLManagedTensorVersioned."""
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("manager_ctx", _P),
                ("deleter", ctypes.CFUNCTYPE(None, _P))]


def _function(name: str, result: Any, *arguments: Any) -> Any:
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_new = _function("PyCapsule_New", ctypes.py_object, _P, ctypes.c_char_p, _P)
# These two take the capsule by its address: Python is freeing it, so no reference may be taken.
_is_valid = _function("PyCapsule_IsValid", ctypes.c_int, _P, ctypes.c_char_p)
_pointer = _function("PyCapsule_GetPointer", _P, _P, ctypes.c_char_p)


def _free(capsule: int) -> None:
    """Frees a tensor that no reader took: a reader that takes the tensor renames the capsule."""
    if _is_valid(capsule, _NAME):
        address = _pointer(capsule, _NAME)
        _Managed.from_address(address).deleter(address)


_AT_END = ctypes.PYFUNCTYPE(None, _P)(_free)


class Exported:
    """A weight of an open operation. A reader shares the weight's memory without a copy, read-only, and the
    operation cannot finish while the reader exists."""

    def __init__(self, engine: ctypes.c_void_p, operation: int, parameter: int) -> None:
        self._of = engine, operation, parameter

    def __dlpack_device__(self) -> tuple[int, int]:
        return _HOST

    def __dlpack__(self, *, stream: Any = None, max_version: tuple[int, int] | None = None,
                   dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any:
        if max_version is None or max_version[0] < 1:
            raise BufferError("this tensor needs a reader of DLPack 1.0, such as NumPy 2.1; install a newer one, or read "
                              "from Engine.stable_address")
        if copy or dl_device not in (None, _HOST):
            raise BufferError("this tensor is shown in place, on the host device; copy the result of from_dlpack to another device")
        address = _P()
        LIB.call("engine_export_weight", *self._of, ctypes.byref(address))
        return _new(address, _NAME, ctypes.cast(_AT_END, _P))
