"""Data in the daemon's memory, beside the weights, for the process that takes over from this one."""

from __future__ import annotations

import ctypes
import json
import os
import struct
import warnings
import zlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from geminid import _structs
from geminid.engine import Engine, Optimizer
from geminid.errors import InvalidArgument, Refused, ResourceExhausted
from geminid.session import Session
from geminid.torch.parameter import Record

if TYPE_CHECKING:
    from geminid.torch.handover import Handover

_HEADER = struct.Struct("<QQI4x")  # number, bytes, checksum
_TERMS_BYTES = 256 << 10
NOTE_BYTES = 1 << 20  # in addition to the buffers
RUN_NAME_MAX = 63
# Options that change neither the results nor the layout of the retained memory.
_FREE_OPTIONS = {"update_threads", "timeout_seconds", "state_disk_limit_bytes", "state_disk_endurance_bytes"}


class Slots:
    """Numbered notes in memory. The last `count` of them are readable. A note that a death interrupted is not."""

    def __init__(self, address: int, nbytes: int, count: int) -> None:
        self._address, self._each, self._count = address, nbytes // count, count

    def _place(self, number: int) -> int:
        return self._address + number % self._count * self._each

    def write(self, number: int, data: bytes) -> None:
        place = self._place(number)
        if len(data) + _HEADER.size > self._each:
            raise ResourceExhausted(
                f"the objects given to geminid.torch.resume have {len(data)} bytes of state, and there is room for "
                f"{self._each - _HEADER.size}; give prepare(..., held_bytes={2 * len(data)})")
        ctypes.memmove(place + _HEADER.size, data, len(data))
        ctypes.memmove(place, _HEADER.pack(number, len(data), zlib.crc32(data)), _HEADER.size)

    def read(self, number: int) -> bytes | None:
        """Returns a note, or None if it is absent or incomplete."""
        place = self._place(number)
        found, size, checksum = _HEADER.unpack(ctypes.string_at(place, _HEADER.size))
        if found != number or not 0 < size <= self._each - _HEADER.size:
            return None
        data = ctypes.string_at(place + _HEADER.size, size)
        return data if zlib.crc32(data) == checksum else None


def run_name(resume: bool | str) -> tuple[str | None, bool]:
    """Returns the name of the run to resume, and whether the daemon retains this process's memory after its death."""
    if isinstance(resume, str):
        if not 0 < len(resume) <= RUN_NAME_MAX:
            raise InvalidArgument(f"resume={resume!r} is the name of a run: 1 to {RUN_NAME_MAX} characters")
        return resume, True
    most = int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", 0))
    if not resume or not most:
        return None, False
    given = [os.environ.get(name, "") for name in ("GEMINID_JOB_ID", "TORCHELASTIC_RUN_ID")]
    name = ".".join(part for part in given if part not in ("", "none"))
    if not name:  # torchrun without an id sets "none". The port may change with the first rank's host.
        port = os.environ.get("MASTER_PORT", "")
        name = f"{given[1] or 'run'}:{port}"
    return (name if len(name) <= RUN_NAME_MAX else marked(name)), starts_before() < most


def marked(name: str) -> str:
    """Returns another name derived from this one. It is at most as long as a run's name may be."""
    mark = f"+{zlib.crc32(name.encode()):08x}"
    return name[:RUN_NAME_MAX - len(mark)] + mark


def starts_before() -> int:
    """Returns how often torchrun has started the ranks before this start."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))


def warn_of_own_daemon(session: Session) -> None:
    if session.describe()["owns_daemon"]:
        warnings.warn("resume=...: the daemon that keeps this process's memory is the process's own and ends with it, so "
                      "nothing will be left to go on from. Start `geminid` and set GEMINID_SOCKET", stacklevel=3)


def warn_of_no_restarts(resume: bool | str) -> None:
    """Warns, on the first rank, that the daemon retains nothing because torchrun does not restart ranks."""
    is_first = os.environ.get("RANK") == "0" and "TORCHELASTIC_RUN_ID" in os.environ
    if resume is True and is_first and not int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", 0)):
        warnings.warn("resume=True: torchrun has --max-restarts 0, so nothing is left for ranks that it starts again when their "
                      "number changes. Give torchrun --max-restarts, or resume=\"a name of the run\"", stacklevel=3)


def _code(record: Record, shape: Iterable[int]) -> str:
    return f"{zlib.crc32(repr((record.name, tuple(shape), record.data_type, record.trained, record.group, record.orthogonal)).encode()):08x}"


def terms_of(records: Mapping[torch.nn.Parameter, Record], optimizer: Optimizer,
             engine_options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the terms: the settings that the process that takes over must have in common with this one."""
    codes = [_code(record, parameter.shape) for parameter, record in records.items()]
    return {"optimizer": optimizer.kind,
            "options of the optimizer": {name: value for name, value in optimizer.options.items()
                                         if name in _fixed(optimizer.kind)},
            "options of the engine": {name: str(value) for name, value in sorted(engine_options.items())
                                      if name not in _FREE_OPTIONS},
            "number of parameters": len(codes),
            "all parameters": zlib.crc32("".join(codes).encode()),
            "parameters": codes}


def _fixed(kind: str) -> set[str]:
    """Returns the options that the state depends on, or that a step cannot change."""
    per_step = {"weight_decay", "beta1", "beta2", "epsilon"} if kind in ("adamw", "adam", "lion", "lamb", "lars") else {
        "weight_decay", "epsilon"}
    return {field[0] for field in _structs.Optimizer._fields_} - per_step


class Holding:
    """The held memory of one session. Make it before the session's engine."""

    notes: Slots
    mine: dict[str, Any]
    handed: Handover | None = None  # from another number of ranks; with world 0 their state is incomplete

    def __init__(self, session: Session) -> None:
        address, self.found = session.hold("torch terms", _TERMS_BYTES)
        self._terms = Slots(address, _TERMS_BYTES, 1)
        self._session = session

    def make_notes(self, nbytes: int) -> None:
        """Allocates two notes of `nbytes` each."""
        address, _ = self._session.hold("torch notes", 2 * nbytes)
        self.notes = Slots(address, 2 * nbytes, 2)
        self._note_bytes = nbytes

    def take(self, handed: Handover | None, engine: Engine) -> None:
        """Stores the handover. If the engine resumed from its own rank's state, the handover is not needed and is closed."""
        if handed is not None and engine.resumed() is not None:
            handed.close()
        else:
            self.handed = handed

    def left(self) -> dict[str, Any] | None:
        """Returns the terms of the previous process. None: it left nothing."""
        data = self._terms.read(0) if self.found else None
        return None if data is None else json.loads(data)

    def agree(self, terms: dict[str, Any]) -> None:
        terms = {**terms, "bytes of a note": self._note_bytes}
        data = json.dumps(terms).encode()
        if len(data) + _HEADER.size > _TERMS_BYTES:
            data = json.dumps({**terms, "parameters": []}).encode()
        self._terms.write(0, data)


def check(left: Mapping[str, Any], mine: Mapping[str, Any], records: Mapping[torch.nn.Parameter, Record]) -> None:
    """Raises Refused that names the setting in which the previous process differs."""
    for name, value in mine.items():
        if name == "parameters" or left.get(name) == value:
            continue
        what = f"{name} {value!r}, and the process whose weights are kept in memory had {left.get(name)!r}"
        if name == "all parameters":
            what = _which_parameter(left, mine, records)
        if name == "options of the engine" and left.get(name, {}).get("state_disk") != value.get("state_disk"):
            what += " (ranks with a state_disk each cannot go on as another number of ranks: give all of them the same folders)"
        raise Refused(f"this process cannot go on from the state of its run in memory: it has {what}. Start the script that was "
                      "there before, or give the run another name (`resume=\"NAME\"`, or torchrun's --rdzv-id), or free "
                      "what is kept with `geminictl end JOB`")


def _which_parameter(left: Mapping[str, Any], mine: Mapping[str, Any],
                     records: Mapping[torch.nn.Parameter, Record]) -> str:
    for record, code, before in zip(records.values(), mine["parameters"], left.get("parameters", [])):
        if code != before:
            return (f"'{record.name}' as parameter {record.id}, and the process whose weights are kept in memory had "
                    "another name, shape, type or group there")
    return "other parameters than the process whose weights are kept in memory"
