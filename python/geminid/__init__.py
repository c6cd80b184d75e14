"""Geminid: one memory for GPU, host and disk.

``geminid.torch.prepare`` trains a model of PyTorch whose state does not fit the device;
``geminid.session`` and ``geminid.engine`` are what it stands on.
"""

from geminid import errors
from geminid._library import LIB as _LIB

__all__ = ["errors", "version"]


def version():
    """Of the library: "0.1.0"."""
    return _LIB.dll.geminid_version().decode()
