"""Offloads tensors that the forward pass saves to the engine's host memory until the backward pass needs them.

Autograd reads saved tensors in an order of its own. It reads them several times if a graph is retained, and never if no
backward pass follows. So each saved tensor owns an item of the engine's store and frees it when autograd drops the tensor.
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

PLACES = 4  # places in the engine's memory; each transfer passes through one
_SHARE = 16  # the places take one part in so many of the engine's memory
_LARGEST_PLACE, _PAGE = 16 << 20, 4096
SMALLEST = 64 << 10  # bytes; for a smaller tensor the call takes longer than the copy
_WIDEST = 4  # a storage larger than so many times the tensor: only the tensor's bytes are offloaded

_DISABLED = torch._C.DisableTorchFunctionSubclass
_PLAIN = (torch.Tensor, torch.nn.Parameter)


def place_bytes(arena_bytes: int) -> int:
    """Returns the bytes of each place."""
    return max(_PAGE, min(_LARGEST_PLACE, arena_bytes // (_SHARE * PLACES)) // _PAGE * _PAGE)


def least_memory(needed: int) -> int:
    """Returns the engine memory that leaves `needed` bytes beside the places. The places grow with this memory."""
    return min(-(-needed * _SHARE // (_SHARE - 1)) + PLACES * _PAGE, needed + PLACES * _LARGEST_PLACE)


class _Saved:
    """Offloaded bytes of one storage. Tensors that share these bytes share this object."""

    __slots__ = ("engine", "item", "nbytes", "version", "source", "back", "stream", "process", "__weakref__")

    def __init__(self, engine: Engine, item: int, nbytes: int, version: int, source: StorageWeakRef) -> None:
        self.engine, self.item, self.nbytes, self.version = engine, item, nbytes, version
        self.source = source  # this reference keeps other storages from its address
        self.back: StorageWeakRef | None = None  # the storage of the last load, and its stream
        self.stream = 0
        self.process = os.getpid()

    def __del__(self) -> None:
        try:
            if os.getpid() == self.process:  # a forked child does not own the store
                self.engine.drop_activation(self.item)
        except Exception:  # at the end of the interpreter
            pass


class _Kept:
    """A tensor that stays on the device. It is stored without its graph: an output that its own node saves would keep that
    node alive for ever. Its version is stored, too: autograd checks versions only without hooks."""

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
    """The object that autograd stores in place of an offloaded tensor."""

    __slots__ = ("saved", "dtype", "offset", "shape", "strides")

    def __init__(self, saved: _Saved, dtype: torch.dtype, offset: int, shape: Sequence[int], strides: Sequence[int]) -> None:
        self.saved, self.dtype, self.offset, self.shape, self.strides = saved, dtype, offset, shape, strides


class SavedTensors:
    """Offloads the tensors that autograd saves between ``begin`` and ``end``. Not offloaded: parameters, buffers and their
    views, small tensors, tensors of other devices, and tensors of subclasses."""

    def __init__(self, engine: Engine, place: Place, model: torch.nn.Module) -> None:
        self._engine, self._place = engine, place
        with _DISABLED():
            self._staying = {tensor.untyped_storage()._cdata for tensor in (*model.parameters(), *model.buffers())
                             if isinstance(tensor, torch.nn.Parameter) or type(tensor) in _PLAIN}
        self._known: weakref.WeakValueDictionary[tuple[int, int, int, int], _Saved] = weakref.WeakValueDictionary()
        self._hooks = self.hooks()
        self._begun = False

    def hooks(self) -> torch.autograd.graph.saved_tensors_hooks:
        """Returns hooks for a block of a script. They may be active together with those of ``begin``."""
        return torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack)

    def begin(self) -> None:
        """Activates the hooks on this thread until ``end``."""
        if not self._begun:
            self._hooks.__enter__()
            self._begun = True

    def end(self) -> None:
        """Deactivates the hooks; saved tensors stay offloaded. Does nothing before ``begin``."""
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
            if storage is not None:  # another tensor uses this storage
                return storage
        buffer = torch.empty(saved.nbytes, dtype=torch.uint8, device=self._place.device)
        self._engine.load_activation(saved.item, buffer.data_ptr(), saved.nbytes, stream)
        self._place.queued(buffer)
        storage = buffer.untyped_storage()
        saved.back, saved.stream = StorageWeakRef(storage), stream  # type: ignore[no-untyped-call]
        return storage


def offload_activations(model: torch.nn.Module) -> contextlib.AbstractContextManager[None]:
    """Offloads the tensors that autograd saves within the block, too, such as those of a loss outside of the model:

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
    """Returns (first, bytes): the range of the storage to offload. 0 bytes: nothing."""
    own = tensor.numel() * tensor.element_size()
    if nbytes <= _WIDEST * own:
        return 0, nbytes
    return (int(tensor.storage_offset()) * tensor.element_size(), own) if tensor.is_contiguous() else (0, 0)
