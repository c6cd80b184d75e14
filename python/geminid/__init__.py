"""Geminid: one memory for GPU, host and disk.

``geminid.torch.prepare`` trains a PyTorch model whose state does not fit the device.
``geminid.session`` and ``geminid.engine`` are the layers below ``geminid.torch``.
"""

from __future__ import annotations

from geminid import errors
from geminid._library import LIB as _LIB

__all__ = ["errors", "version"]


def version() -> str:
    """Returns the library's version, such as "0.1.0". Raises errors.LibraryNotFound if the library is missing."""
    return str(_LIB.dll.geminid_version().decode())
