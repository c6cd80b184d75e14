"""Geminid: one memory for GPU, host and disk.

``geminid.torch.prepare`` trains a model of PyTorch whose state does not fit the device;
``geminid.session`` and ``geminid.engine`` are what it stands on.
"""

from __future__ import annotations

from geminid import errors
from geminid._library import LIB as _LIB

__all__ = ["errors", "version"]


def version() -> str:
    """Of the library: "0.1.0". Raises errors.LibraryNotFound where there is none."""
    return str(_LIB.dll.geminid_version().decode())
