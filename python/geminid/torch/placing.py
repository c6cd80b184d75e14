"""Places a parameter's values while the model uses them, on the device that torch computes on.

On the host device the values are in the engine's memory, at an address that never changes. A GPU's memory is mapped in
whole slabs. So each gather copies the values into torch's memory, and frees that memory after the use.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import torch

from geminid.engine import Engine
from geminid.errors import Refused
from geminid.session import Session
from geminid.torch import weights
from geminid.torch.parameter import Record
from geminid.torch.torch_memory import Allocator, CudaAllocator


class Place(Protocol):
    """The interface of InArena and InTorch."""

    device: torch.device
    stable_addresses: bool
    allocator: Allocator | None  # torch's allocator of the device, if torch has one

    def view(self, engine: Engine, record: Record, parameter: torch.Tensor) -> torch.Tensor:
        """Returns a tensor like the parameter. The tensor has the values while the parameter is held."""

    def bring(self, engine: Engine, pass_: int, ids: Any, records: Sequence[Record]) -> int | None:
        """Gathers the values. Returns the operation that holds them in the engine's memory, or None."""

    def drop(self, engine: Engine, operation: int | None, records: Sequence[Record]) -> None:
        """Ends the use that ``bring`` began. No other user holds a record whose ``held`` is 0."""

    def drop_all(self, engine: Engine, records: Iterable[Record]) -> None:
        """Ends all uses, whichever caller began them."""

    def stream(self) -> int:
        """Returns the stream on which torch computes in this thread."""

    def queued(self, tensor: torch.Tensor) -> None:
        """Call it when the engine has queued a copy of the tensor on that stream: keeps its memory until the copy ends."""


class InArena:
    """The place on the host device."""

    device = torch.device("cpu")
    stable_addresses = True
    allocator: Allocator | None = None

    def view(self, engine: Engine, record: Record, parameter: torch.Tensor) -> torch.Tensor:
        memory = (ctypes.c_char * (parameter.numel() * parameter.element_size())).from_address(
            engine.stable_address(record.id))
        return torch.frombuffer(memory, dtype=parameter.dtype).view(parameter.shape)

    def bring(self, engine: Engine, pass_: int, ids: Any, records: Sequence[Record]) -> int | None:
        return engine.use(pass_, ids, len(records))

    def drop(self, engine: Engine, operation: int | None, records: Sequence[Record]) -> None:
        assert operation is not None
        engine.finish(operation)

    def drop_all(self, engine: Engine, records: Iterable[Record]) -> None:
        engine.finish_all()

    def stream(self) -> int:
        return 0

    def queued(self, tensor: torch.Tensor) -> None:
        pass  # the copy has ended


class InTorch:
    """The place on a GPU. The operation ends with the copy, so the engine can prefetch while torch computes."""

    stable_addresses = False

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.allocator: Allocator | None = CudaAllocator(device)
        self._storages: dict[int, tuple[torch.UntypedStorage, int]] = {}  # (storage, its bytes) by the record's number

    def view(self, engine: Engine, record: Record, parameter: torch.Tensor) -> torch.Tensor:
        made = torch.empty(parameter.shape, dtype=parameter.dtype, device=self.device)
        self._storages[record.id] = made.untyped_storage(), made.numel() * made.element_size()
        made.untyped_storage().resize_(0)
        return made

    def bring(self, engine: Engine, pass_: int, ids: Any, records: Sequence[Record]) -> int | None:
        stream = self.stream()
        operation = engine.use(pass_, ids, len(records), stream)
        try:
            absent = [record for record in records if not record.held]
            addresses = [self._room(record) for record in absent]
            engine.copy_weights(operation, [record.id for record in absent], addresses)
        finally:
            engine.finish(operation, stream)
        return None

    def _room(self, record: Record) -> int:
        storage, nbytes = self._storages[record.id]
        storage.resize_(nbytes)
        return storage.data_ptr()

    def drop(self, engine: Engine, operation: int | None, records: Iterable[Record]) -> None:
        for record in records:
            if not record.held:
                self._storages[record.id][0].resize_(0)

    def drop_all(self, engine: Engine, records: Iterable[Record]) -> None:
        engine.finish_all()
        self.drop(engine, None, records)

    def stream(self) -> int:
        return int(torch.cuda.current_stream(self.device).cuda_stream)

    def queued(self, tensor: torch.Tensor) -> None:
        # By default the allocator waits only for the stream on which the tensor was made.
        tensor.record_stream(torch.cuda.current_stream(self.device))


def daemon_flags() -> tuple[str, ...]:
    """Returns the flags of a daemon that this process starts: it uses the GPUs if torch sees any."""
    return ("--device", "cuda") if torch.cuda.is_available() else ()


def _torch_device(described: dict[str, Any]) -> torch.device:
    if described["kind"] == "host":
        return torch.device("cpu")
    uuid = described["uuid"].removeprefix("GPU-")
    seen = [str(torch.cuda.get_device_properties(index).uuid) for index in range(torch.cuda.device_count())]
    if uuid in seen:
        return torch.device("cuda", seen.index(uuid))
    raise Refused(f"the daemon has given {described['name']}, {described['uuid']}, and torch {torch.__version__} sees "
                  + (f"only {', '.join(seen)}. CUDA_VISIBLE_DEVICES must name it" if seen else
                     "no GPU. Install a torch with CUDA; see `python -m geminid doctor`"))


def place_of(session: Session) -> Place:
    """Returns the place of a session's parameters."""
    device = _torch_device(session.describe()["device"])
    return InArena() if device.type == "cpu" else InTorch(device)


def check_device(model: torch.nn.Module, place: Place) -> None:
    """Refuses a model on another GPU than the engine's. A model on the host is accepted and moved."""
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.device.type not in ("cpu", "meta") and tensor.device != place.device:
            raise Refused(f"'{name}' is on {tensor.device}, and the daemon has given {place.device}; leave the model on the "
                          f"host, or write model.to('{place.device}') before prepare. GEMINID_DEVICE chooses another device")


def move_rest(model: torch.nn.Module, place: Place) -> None:
    """Moves buffers, and parameters that the engine does not store, to the device that torch computes on."""
    moved: dict[torch.Tensor, torch.Tensor] = {}  # modules that share a buffer share it afterwards
    for module in model.modules():
        for name, buffer in module._buffers.items():
            if buffer is not None and buffer.device != place.device:
                if buffer not in moved:
                    moved[buffer] = buffer.to(place.device)
                module._buffers[name] = moved[buffer]
    for parameter in model.parameters():
        if not hasattr(parameter, "_geminid") and parameter.device != place.device:
            weights.take_the_place_of(parameter, parameter.detach().to(place.device))
