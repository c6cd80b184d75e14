"""This process's connection to the daemon, and its place among the ranks of a job."""

from __future__ import annotations

import ctypes
import json
import os
import sys
import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Protocol

from geminid import _library, _structs
from geminid._library import LIB


class Placed(Protocol):
    """The fields of a rank that a session needs. ``Ranks.place`` returns them."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int


def _encoded(text: object) -> bytes | None:
    return None if text is None else str(text).encode("utf-8")


def _free(name: str, handle: ctypes.c_void_p) -> None:
    LIB.function(name)(ctypes.byref(handle))


def _free_session(handle: ctypes.c_void_p, is_kept: bool) -> None:
    """Ends a session. After a failure the daemon retains its memory, so that the run's next process can resume."""
    if is_kept and LIB.failed:
        LIB.dll.geminid_session_leave(handle, None)
    _free("session_free", handle)


_KEPT: weakref.WeakSet[Session] = weakref.WeakSet()  # sessions with keep_on_death


def _leave_at_exceptions() -> None:
    """Marks the process as failed when an exception ends the program. An interrupt by the user is no failure."""
    hook = sys.excepthook
    if getattr(hook, "_of_geminid", False):
        return

    def excepthook(kind: type[BaseException], value: BaseException, traceback: TracebackType | None) -> None:
        if not issubclass(kind, KeyboardInterrupt):
            for session in _KEPT:  # before engines end: their end would free the retained memory
                if session.close.alive:
                    session.leave()
        hook(kind, value, traceback)

    setattr(excepthook, "_of_geminid", True)
    sys.excepthook = excepthook


class Session:
    """Memory of a device that the daemon lends. ``close`` or the end of the program gives it back.

    With ``keep_on_death`` and a ``run`` the daemon retains this memory when the process dies, fails with an exception or
    is killed. The next process of the same job, run and rank gets the memory.

    device_memory_bytes: bytes of the device for this rank.
    place: this rank's place among the ranks of the job, as ``Ranks.place``. None: the only rank.
    socket: the daemon's socket. None: $GEMINID_SOCKET, else the usual path. If no daemon runs, the session starts one.
    job, run: names in the daemon's lists. A run's memory can outlive its process (keep_on_death).
    device: the device's number. -1: the daemon chooses.
    private_daemon: the session starts its own daemon, which ends with it. daemon_program is the program for it.
    daemon_flags: flags of a daemon that this session starts, such as ("--device", "cuda").
    timeout_seconds: the longest wait for each answer of the daemon.

    Raises Unavailable if no daemon answers, NotFound if there is no daemon to start, ResourceExhausted if the
    memory does not suffice, and FailedPrecondition if the daemon has another version.
    """

    close: weakref.finalize[..., Session]

    def __init__(self, device_memory_bytes: int, *, place: Placed | None = None,
                 socket: str | os.PathLike[str] | None = None, job: str | None = None, run: str | None = None,
                 device: int = -1, keep_on_death: bool = False, private_daemon: bool = False,
                 daemon_flags: Sequence[str] = (), daemon_program: str | os.PathLike[str] | None = None,
                 timeout_seconds: float = 60.0) -> None:
        options = LIB.filled(_structs.SessionOptions)
        options.socket, options.job, options.run = _encoded(socket), _encoded(job), _encoded(run)
        options.client_name = b"pytorch"
        if place is not None:
            options.rank, options.world_size = place.rank, place.world_size
            options.local_rank, options.local_world_size = place.local_rank, place.local_world_size
        options.device, options.keep_on_death = device, keep_on_death
        options.device_memory_bytes = device_memory_bytes
        options.private_daemon = private_daemon
        options.daemon_program = _encoded(daemon_program or _library.daemon_program())
        flags = (ctypes.c_char_p * len(daemon_flags))(*map(_encoded, daemon_flags))
        options.daemon_flags, options.daemon_flag_count = flags, len(daemon_flags)
        options.timeout_seconds = timeout_seconds
        self.handle = ctypes.c_void_p()
        LIB.call("session_connect", ctypes.byref(options), ctypes.byref(self.handle))
        self.run = run
        if keep_on_death:
            _KEPT.add(self)
            _leave_at_exceptions()
        self.close = weakref.finalize(self, _free_session, self.handle, keep_on_death)

    def describe(self) -> dict[str, Any]:
        """Returns the session's socket, number, arena and device as a dictionary."""
        return dict(json.loads(LIB.text("session_describe", self.handle)))

    def hold(self, name: str, nbytes: int) -> tuple[int, bool]:
        """Allocates host memory until the session ends and returns (address, found). found: the memory has the contents that
        the previous process of this session left there. Call it before an engine is made."""
        address, found = ctypes.c_void_p(), ctypes.c_int()
        LIB.call("session_hold", self.handle, name.encode("utf-8"), nbytes, ctypes.byref(address), ctypes.byref(found))
        return int(address.value or 0), bool(found.value)

    def leave(self) -> None:
        """Lets the daemon treat the session's end like a death of this process (keep_on_death)."""
        LIB.call("session_leave", self.handle)


class Ranks:
    """The ranks of a job, as torchrun or another launcher sets them in the environment. Without a launcher: one rank.

    timeout_seconds: the longest wait of one rank for another. None: the library's default.
    connect_timeout_seconds: the longest wait until all ranks have connected. None: the library's default.
    given: fields of geminid_ranks_options, which replace those of the environment: rank, world_size, local_rank,
        local_world_size, master_address, master_port, job.

    Waits until all ranks have connected. Raises InvalidArgument for an invalid environment, and DeadlineExceeded if
    a rank does not connect in time.
    """

    close: weakref.finalize[..., Ranks]

    def __init__(self, *, timeout_seconds: float | None = None, connect_timeout_seconds: float | None = None,
                 **given: int | str) -> None:
        options = LIB.filled(_structs.RanksOptions)
        options.from_environment = not given
        for name, value in given.items():
            setattr(options, name, _encoded(value) if isinstance(value, str) else value)
        if timeout_seconds is not None:
            options.timeout_seconds = timeout_seconds
        if connect_timeout_seconds is not None:
            options.connect_timeout_seconds = connect_timeout_seconds
        self.handle = ctypes.c_void_p()
        LIB.call("ranks_connect", ctypes.byref(options), ctypes.byref(self.handle))
        self.close = weakref.finalize(self, _free, "ranks_free", self.handle)
        self.place: Placed = LIB.filled(_structs.Place)
        LIB.call("ranks_place", self.handle, ctypes.byref(self.place))

    @property
    def rank(self) -> int:
        """The number of this rank, from 0."""
        return int(self.place.rank)

    @property
    def world_size(self) -> int:
        """The number of ranks."""
        return int(self.place.world_size)

    def sum(self, address: int, count: int) -> None:
        """Replaces `count` fp64 numbers at the address by their sums over the ranks. All ranks must call it."""
        LIB.call("ranks_sum", self.handle, address, count)

    def broadcast(self, address: int, nbytes: int, source: int) -> None:
        """Copies the bytes at the address of the rank `source` to the address of every rank. All ranks must call it."""
        LIB.call("ranks_broadcast", self.handle, address, nbytes, source)

    def gather(self, data: bytes) -> list[bytes]:
        """Returns the data of each rank, by rank number. All ranks must call it."""
        sizes = (ctypes.c_double * self.world_size)()
        sizes[self.rank] = len(data)
        self.sum(ctypes.addressof(sizes), len(sizes))
        gathered = []
        for rank, size in enumerate(sizes):
            memory = (ctypes.c_char * int(size))()
            if rank == self.rank:
                ctypes.memmove(memory, data, len(data))
            self.broadcast(ctypes.addressof(memory), len(memory), rank)
            gathered.append(bytes(memory))
        return gathered


def run_ranks(socket: str, run: str, *, job: str | None = None, timeout_seconds: float = 60.0) -> list[dict[str, Any]]:
    """Returns the ranks of a run that the daemon at the socket has of this user. Each is a dictionary with rank,
    world_size, step, device, device_bytes, host_bytes, pid and is_left. is_left: the process has died and the daemon
    retains its memory for the next one. Raises DeadlineExceeded if no daemon answers."""
    found = ctypes.c_void_p()
    LIB.call("run_ranks", str(socket).encode("utf-8"), _encoded(job), run.encode("utf-8"), timeout_seconds,
             ctypes.byref(found))
    try:
        return list(json.loads(ctypes.string_at(found.value or 0)))
    finally:
        LIB.dll.geminid_free(found)
