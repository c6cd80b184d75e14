"""Tensors that the forward pass saves for the backward pass, in the engine's host memory until autograd needs them.

Autograd asks for saved tensors in an order of its own, several times where a graph is retained, and never where no backward
pass comes. So each saved tensor holds its item of the engine's store, and drops it when autograd drops the tensor.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from geminid.engine import Engine
from geminid.errors import InvalidArgument
from geminid.torch.placing import Place
from geminid.torch.readings import keeper_of

PLACES = 4  # of the engine's memory, through which tensors pass
_SHARE = 16  # of that memory, one part is for the places
_LARGEST_PLACE, _PAGE = 16 << 20, 4096
SMALLEST = 64 << 10  # bytes: smaller ones would take longer to ask for than to copy
_WIDEST = 4  # times a tensor's bytes: of a larger storage only the tensor's own bytes are offloaded

_DISABLED = torch._C.DisableTorchFunctionSubclass
_PLAIN = (torch.Tensor, torch.nn.Parameter)


def place_bytes(arena_bytes: int) -> int:
    """Of each place."""
    return max(_PAGE, min(_LARGEST_PLACE, arena_bytes // (_SHARE * PLACES)) // _PAGE * _PAGE)


def least_memory(needed: int) -> int:
    """Of the engine's memory, so that `needed` bytes are left beside the places, which grow with it."""
    return min(-(-needed * _SHARE // (_SHARE - 1)) + PLACES * _PAGE, needed + PLACES * _LARGEST_PLACE)


class _Saved:
    """Bytes of one storage. Tensors that share them share this."""

    __slots__ = ("engine", "item", "nbytes", "version", "source", "back", "stream", "process", "__weakref__")

    def __init__(self, engine: Engine, item: int, nbytes: int, version: int, source: StorageWeakRef) -> None:
        self.engine, self.item, self.nbytes, self.version = engine, item, nbytes, version
        self.source = source  # no other storage has its address while this is there
        self.back: StorageWeakRef | None = None  # the storage that it was loaded to last, and on which stream
        self.stream = 0
        self.process = os.getpid()

    def __del__(self) -> None:
        try:
            if os.getpid() == self.process:  # a forked child's copy of the store is nobody's
                self.engine.drop_activation(self.item)
        except Exception:  # at the end of the interpreter
            pass


class _Kept:
    """A tensor that stays where it is. Without its graph: an output that its own node saves would keep that node for ever.
    With its version, which autograd itself looks at only where there are no hooks."""

    __slots__ = ("tensor", "version")

    def __init__(self, tensor: torch.Tensor) -> None:
        with _DISABLED():
            self.tensor = tensor if tensor.is_leaf else tensor.detach()
            self.version: int | None = None if tensor.is_inference() else tensor._version

    def get(self) -> torch.Tensor:
        with _DISABLED():
            if self.version is not None and self.tensor._version != self.version:
                raise RuntimeError("one of the variables needed for gradient computation has been modified by an inplace "
                                   f"operation: a tensor of shape {tuple(self.tensor.shape)} is at version "
                                   f"{self.tensor._version}, and was saved at version {self.version}")
        return self.tensor


class _Packed:
    """What autograd keeps in place of a tensor that is offloaded."""

    __slots__ = ("saved", "dtype", "offset", "shape", "strides")

    def __init__(self, saved: _Saved, dtype: torch.dtype, offset: int, shape: Sequence[int], strides: Sequence[int]) -> None:
        self.saved, self.dtype, self.offset, self.shape, self.strides = saved, dtype, offset, shape, strides


class SavedTensors:
    """Between ``begin`` and ``end`` what autograd saves is offloaded. These tensors stay where they are: parameters,
    buffers and their views, small tensors, those of other devices, and those of classes of their own."""

    def __init__(self, engine: Engine, place: Place, model: torch.nn.Module) -> None:
        self._engine, self._place = engine, place
        with _DISABLED():
            self._staying = {tensor.untyped_storage()._cdata for tensor in (*model.parameters(), *model.buffers())
                             if isinstance(tensor, torch.nn.Parameter) or type(tensor) in _PLAIN}
        self._known: weakref.WeakValueDictionary[tuple[int, int, int, int], _Saved] = weakref.WeakValueDictionary()
        self._hooks = self.hooks()
        self._begun = False

    def hooks(self) -> torch.autograd.graph.saved_tensors_hooks:
        """For a block of a script; may be in force beside those of ``begin``."""
        return torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack)

    def begin(self) -> None:
        """On this thread, until ``end``."""
        if not self._begun:
            self._hooks.__enter__()
            self._begun = True

    def end(self) -> None:
        """What is saved stays so. Does nothing where it has not begun."""
        if self._begun:
            self._begun = False
            self._hooks.__exit__()

    def _pack(self, tensor: torch.Tensor) -> _Kept | _Packed:
        if type(tensor) is not torch.Tensor or tensor.device != self._place.device or tensor.layout is not torch.strided:
            return _Kept(tensor)
        if tensor.is_quantized or tensor.is_conj() or tensor.is_neg():
            return _Kept(tensor)
        storage = tensor.untyped_storage()
        if storage._cdata in self._staying:
            return _Kept(tensor)
        first, nbytes = _part_of(tensor, storage.nbytes())
        if nbytes < SMALLEST:
            return _Kept(tensor)
        key = storage._cdata, storage.data_ptr(), first, nbytes
        saved = self._known.get(key)
        if saved is None or saved.version != tensor._version:
            saved = self._known[key] = self._save(tensor, storage, first, nbytes)
        return _Packed(saved, tensor.dtype, int(tensor.storage_offset()) - first // tensor.element_size(), tensor.shape,
                       tensor.stride())

    def _save(self, tensor: torch.Tensor, storage: torch.UntypedStorage, first: int, nbytes: int) -> _Saved:
        item = self._engine.save_activation(storage.data_ptr() + first, nbytes, self._place.stream())
        self._place.queued(tensor)
        return _Saved(self._engine, item, nbytes, tensor._version,
                      StorageWeakRef(storage))  # type: ignore[no-untyped-call]

    def _unpack(self, packed: _Kept | _Packed) -> torch.Tensor:
        if isinstance(packed, _Kept):
            return packed.get()
        storage: Any = self._load(packed.saved)
        with torch.no_grad():
            made = torch.empty(0, dtype=packed.dtype, device=self._place.device)
            return made.set_(storage, packed.offset, packed.shape, packed.strides)

    def _load(self, saved: _Saved) -> torch.UntypedStorage:
        stream = self._place.stream()
        if saved.back is not None and saved.stream == stream:
            storage = torch.UntypedStorage._new_with_weak_ptr(saved.back.cdata)
            if storage is not None:  # another tensor of it is in use
                return storage
        buffer = torch.empty(saved.nbytes, dtype=torch.uint8, device=self._place.device)
        self._engine.load_activation(saved.item, buffer.data_ptr(), saved.nbytes, stream)
        self._place.queued(buffer)
        storage = buffer.untyped_storage()
        saved.back, saved.stream = StorageWeakRef(storage), stream  # type: ignore[no-untyped-call]
        return storage


def offload_activations(model: torch.nn.Module) -> contextlib.AbstractContextManager[None]:
    """What autograd saves within the block is offloaded too, as for a loss that is computed outside of the model:

        with geminid.torch.offload_activations(model):
            loss = F.cross_entropy(model(tokens), labels)
        loss.backward()

    Raises InvalidArgument for a model that was not prepared with activations="offload". Does nothing with
    GEMINID_DISABLE=1.
    """
    if os.environ.get("GEMINID_DISABLE") == "1":
        return contextlib.nullcontext()
    saved: SavedTensors | None = keeper_of(model).activations
    if saved is None:
        raise InvalidArgument(f"this {type(model).__name__} keeps its activations on the device; write "
                              'geminid.torch.prepare(..., activations="offload")')
    return saved.hooks()


def _part_of(tensor: torch.Tensor, nbytes: int) -> tuple[int, int]:
    """(first, bytes) of the storage that are offloaded; no bytes: none."""
    own = tensor.numel() * tensor.element_size()
    if nbytes <= _WIDEST * own:
        return 0, nbytes
    return (int(tensor.storage_offset()) * tensor.element_size(), own) if tensor.is_contiguous() else (0, 0)
