"""The state of a group of ranks in memory that outlives its processes, until another group has committed its own step.

Each daemon's image has the state of that daemon's ranks: pieces of tensors, whose positions do not depend on the number of
ranks. A record, written last, marks the image as complete.
"""

from __future__ import annotations

import bisect
import ctypes
import json
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from geminid.engine import BFLOAT16, EXP_AVG, EXP_AVG_SQ, FLOAT16, FLOAT32, INT8, UINT8, VALUE, Engine
from geminid.errors import DataLoss
from geminid.session import Session
from geminid.torch.elastic import Image, common
from geminid.torch.holding import Slots, marked
from geminid.torch.parameter import Record
from geminid.torch.tensors import address_of

_RECORD_BYTES = 64 << 10
_RECORD, _STATE = "ranks before", "state of ranks before"  # the names of the held memory
_LINE = 64
_PIECE_ELEMENTS = 1 << 20
BLOCK_BYTES = 4 << 20  # the size of one broadcast; a multiple of every element size
_TYPES = {FLOAT32: torch.float32, BFLOAT16: torch.bfloat16, FLOAT16: torch.float16, INT8: torch.int8, UINT8: torch.uint8}


def run_of_image(run: str) -> str:
    """Returns the run name of the run's image. No other run has this name."""
    return marked(run)


def _on_line(nbytes: int) -> int:
    return -(-nbytes // _LINE) * _LINE


@dataclass(frozen=True)
class Piece:
    """Elements of one array of a parameter, which one rank stored."""
    parameter: int
    kind: int
    offset: int
    elements: int
    data_type: int

    @property
    def dtype(self) -> torch.dtype:
        return _TYPES[self.data_type]

    @property
    def nbytes(self) -> int:
        return self.elements * self.dtype.itemsize


@dataclass
class Contents:
    """The header of one image. notes: of geminid.torch.resume, by rank. terms: of the script (holding.terms_of)."""
    pieces: list[Piece] = field(default_factory=list)
    step: int = 0
    updates: int = 0
    tensor_state: bytes = b""
    notes: dict[int, bytes] = field(default_factory=dict)
    terms: dict[str, Any] = field(default_factory=dict)

    def places(self) -> list[int]:
        """Returns the offset of each piece, and the end of the last."""
        places = [0]
        for piece in self.pieces:
            places.append(places[-1] + _on_line(piece.nbytes))
        return places


def pieces_of(engine: Engine, records: Sequence[Record], state_type: int) -> list[Piece]:
    """Returns the pieces that an engine's rank stores. Optimizer state is of `state_type`; trained values are fp32 masters."""
    pieces = []
    for record in records:
        for kind in (VALUE, EXP_AVG, EXP_AVG_SQ):
            if kind != VALUE and not engine.has_state(record.id, kind):
                continue
            of_value = FLOAT32 if record.trained else record.data_type
            data_type = of_value if kind == VALUE else state_type
            pieces += [Piece(record.id, kind, offset, elements, data_type) for offset, elements in engine.shard(record.id)]
    return pieces


def _bytes_at(address: int, nbytes: int) -> torch.Tensor:
    return torch.frombuffer((ctypes.c_char * nbytes).from_address(address), dtype=torch.uint8)


def read_pieces(engine: Engine, pieces: Sequence[Piece], address: int) -> None:
    """Copies an engine's pieces to the address, one after the other."""
    values = torch.empty(_PIECE_ELEMENTS)
    for piece in pieces:
        size = piece.dtype.itemsize
        for at in range(0, piece.elements, _PIECE_ELEMENTS):
            count = min(_PIECE_ELEMENTS, piece.elements - at)
            engine.read_shard(piece.parameter, piece.kind, piece.offset + at, address_of(values), count)
            _bytes_at(address + at * size, count * size).view(piece.dtype).copy_(values[:count])
        address += _on_line(piece.nbytes)


class Writer:
    """Takes blocks of images and writes the elements of its rank's shards to the engine."""

    def __init__(self, engine: Engine, contents: Contents) -> None:
        self._engine, self._pieces, self._places = engine, contents.pieces, contents.places()
        self._shards: dict[int, list[tuple[int, int]]] = {}

    def write(self, begin: int, block: torch.Tensor) -> None:
        """Writes one block. block: bytes of the image's pieces from `begin` on."""
        end = begin + block.numel()
        first = bisect.bisect_right(self._places, begin) - 1
        for piece, place in zip(self._pieces[first:], self._places[first:-1]):
            if place >= end:
                break
            size = piece.dtype.itemsize
            low = max(0, (begin - place) // size)
            high = min(piece.elements, (end - place) // size)
            for offset, elements in self._mine(piece, low, high):
                at = place + (offset - piece.offset) * size - begin
                values = block[at:at + elements * size].view(piece.dtype).to(torch.float32).contiguous()
                self._engine.write_shard(piece.parameter, piece.kind, offset, address_of(values), elements)

    def _mine(self, piece: Piece, low: int, high: int) -> Iterator[tuple[int, int]]:
        if high <= low:
            return iter(())
        if piece.parameter not in self._shards:
            self._shards[piece.parameter] = self._engine.shard(piece.parameter)
        return common(piece.offset + low, high - low, self._shards[piece.parameter])


class ImageMemory:
    """One daemon's image, in a separate session. The first rank on that daemon owns the session."""

    def __init__(self, connect: Callable[[], Session]) -> None:
        self._connect = connect
        self._begin()
        self.address = self.header_bytes = self.data_bytes = 0
        self.found: Image | None = None
        record = self._record.read(0)
        if record is None:
            self._begin_anew()  # drops the incomplete image of a process that died
            return
        said = json.loads(record)
        self.address, is_there = self._session.hold(_STATE, said["bytes"])
        if is_there:
            self.header_bytes, self.data_bytes = said["header_bytes"], said["data_bytes"]
            self.found = Image(said["generation"], said["world"], tuple(said["ranks"]), said["step"])

    def _begin(self) -> None:
        self._session = self._connect()
        address, _ = self._session.hold(_RECORD, _RECORD_BYTES)
        self._record = Slots(address, _RECORD_BYTES, 1)

    def _begin_anew(self) -> None:
        self._session.close()
        self._begin()
        self.found = None

    def make(self, contents: Contents) -> int:
        """Allocates memory for other contents, writes their header, and returns the address of their pieces."""
        if self.address:
            self._begin_anew()
        header = pickle.dumps(contents)
        self.header_bytes, self.data_bytes = len(header), contents.places()[-1]
        self.address, _ = self._session.hold(_STATE, max(1, _on_line(self.header_bytes) + self.data_bytes))
        ctypes.memmove(self.address, header, len(header))
        return self.data_address

    @property
    def data_address(self) -> int:
        return self.address + _on_line(self.header_bytes)

    def complete(self, image: Image) -> None:
        """Marks the image as complete with one store."""
        self._record.write(0, json.dumps({
            "generation": image.generation, "world": image.world, "ranks": image.ranks, "step": image.step,
            "bytes": max(1, _on_line(self.header_bytes) + self.data_bytes), "header_bytes": self.header_bytes,
            "data_bytes": self.data_bytes}).encode())
        self.found = image

    def header(self) -> bytes:
        return ctypes.string_at(self.address, self.header_bytes) if self.found else b""

    def block(self, begin: int, nbytes: int) -> torch.Tensor:
        return _bytes_at(self.data_address + begin, nbytes)

    def leave(self) -> None:
        """Lets the daemon retain the image for the next process, even if this process continues."""
        if self._session.close.alive:
            self._session.leave()
            self._session.close()

    def close(self) -> None:
        """Frees the memory."""
        self._session.close()


def contents_in(header: bytes) -> Contents:
    made = pickle.loads(header)
    if not isinstance(made, Contents):
        raise DataLoss("the memory that the ranks before left does not hold their state; free it with `geminictl end JOB`")
    return made


def merged(parts: Sequence[Contents]) -> Contents:
    """Returns the merged headers of all images, without pieces."""
    notes: dict[int, bytes] = {}
    for part in parts:
        notes.update(part.notes)
    return Contents([], parts[0].step, parts[0].updates, parts[0].tensor_state, notes)
