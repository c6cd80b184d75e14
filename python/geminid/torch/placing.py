"""Where a parameter's values are while something of the model uses it, and the device that torch computes on.

On the host device they are in the engine's own memory, at an address that never changes. A GPU's memory is mapped in whole
slabs, so there each gather copies what it brings into memory of torch's, and gives that back afterwards.
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
    """One of the two."""

    device: torch.device
    stable_addresses: bool
    allocator: Allocator | None  # torch's, where it has one of its own for the device

    def view(self, engine: Engine, record: Record, parameter: torch.Tensor) -> torch.Tensor:
        """A tensor like the parameter whose values are there while the parameter is held."""

    def bring(self, engine: Engine, pass_: int, ids: Any, records: Sequence[Record]) -> int | None:
        """Brings them; returns the operation that holds them in the engine's memory, if one does."""

    def drop(self, engine: Engine, operation: int | None, records: Sequence[Record]) -> None:
        """Ends what ``bring`` began. Records whose ``held`` is 0 are used by nobody else."""

    def drop_all(self, engine: Engine, records: Iterable[Record]) -> None:
        """Nothing is held any more, whoever began it."""

    def stream(self) -> int:
        """On which torch computes now, in this thread."""

    def queued(self, tensor: torch.Tensor) -> None:
        """The engine's copy from or to the tensor is queued on that stream: its memory is not reused before."""


class InArena:
    """The host device."""

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
        pass  # it is done


class InTorch:
    """A GPU. The operation ends with the copy, so the engine's memory has room for what comes next while torch computes."""

    stable_addresses = False

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.allocator: Allocator | None = CudaAllocator(device)
        self._storages: dict[int, tuple[torch.UntypedStorage, int]] = {}  # and its bytes, by the record's number

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
        # The allocator waits for no other stream than the one on which the tensor was made.
        tensor.record_stream(torch.cuda.current_stream(self.device))


def daemon_flags() -> tuple[str, ...]:
    """Of a daemon that this process starts: it has the GPUs, where torch sees any."""
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
    """Where a session's parameters will be."""
    device = _torch_device(session.describe()["device"])
    return InArena() if device.type == "cpu" else InTorch(device)


def check_device(model: torch.nn.Module, place: Place) -> None:
    """A model may be on the host, from where it is moved; on another GPU than the engine's it was put by mistake."""
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.device.type not in ("cpu", "meta") and tensor.device != place.device:
            raise Refused(f"'{name}' is on {tensor.device}, and the daemon has given {place.device}; leave the model on the "
                          f"host, or write model.to('{place.device}') before prepare. GEMINID_DEVICE chooses another device")


def move_rest(model: torch.nn.Module, place: Place) -> None:
    """Buffers, and parameters that the engine does not keep, to where torch computes."""
    moved: dict[torch.Tensor, torch.Tensor] = {}  # what modules share they share afterwards
    for module in model.modules():
        for name, buffer in module._buffers.items():
            if buffer is not None and buffer.device != place.device:
                if buffer not in moved:
                    moved[buffer] = buffer.to(place.device)
                module._buffers[name] = moved[buffer]
    for parameter in model.parameters():
        if not hasattr(parameter, "_geminid") and parameter.device != place.device:
            weights.take_the_place_of(parameter, parameter.detach().to(place.device))
