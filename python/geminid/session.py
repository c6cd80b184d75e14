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
    """What a session must know of a rank: ``Ranks.place`` says it."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int


def _encoded(text: object) -> bytes | None:
    return None if text is None else str(text).encode("utf-8")


def _free(name: str, handle: ctypes.c_void_p) -> None:
    LIB.function(name)(ctypes.byref(handle))


def _free_session(handle: ctypes.c_void_p, is_kept: bool) -> None:
    """After a failure the next process of the run may go on from what the daemon keeps."""
    if is_kept and LIB.failed:
        LIB.dll.geminid_session_leave(handle, None)
    _free("session_free", handle)


_KEPT: weakref.WeakSet[Session] = weakref.WeakSet()  # sessions with keep_on_death


def _leave_at_exceptions() -> None:
    """A program that ends with an exception has failed; one that was interrupted by its user has not."""
    hook = sys.excepthook
    if getattr(hook, "_of_geminid", False):
        return

    def excepthook(kind: type[BaseException], value: BaseException, traceback: TracebackType | None) -> None:
        if not issubclass(kind, KeyboardInterrupt):
            for session in _KEPT:  # before engines end, which would free what is kept
                if session.close.alive:
                    session.leave()
        hook(kind, value, traceback)

    setattr(excepthook, "_of_geminid", True)
    sys.excepthook = excepthook


class Session:
    """Memory of a device, from the daemon. ``close`` or the end of the program gives it back.

    With ``keep_on_death`` and a ``run`` the daemon keeps it when the process dies, fails with an exception or is
    killed, for the next process of the same job, run and rank.

    device_memory_bytes: of the device, for this rank.
    place: among the ranks of the job, as ``Ranks.place``; None: alone.
    socket: the daemon's; None: $GEMINID_SOCKET, else the usual one; where no daemon runs, one is started.
    job, run: names for the daemon's lists; a run's memory can outlive its process (keep_on_death).
    device: its number; -1: the daemon chooses.
    private_daemon: a daemon of this session's own, which ends with it; daemon_program is for it.
    daemon_flags: of a daemon that is started for this session, such as ("--device", "cuda").
    timeout_seconds: of each answer of the daemon.

    Raises Unavailable where no daemon answers, NotFound where there is none to start, ResourceExhausted where the
    memory is not there, FailedPrecondition for a daemon of another version.
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
        """Its socket, number, arena and device, as a dictionary."""
        return dict(json.loads(LIB.text("session_describe", self.handle)))

    def hold(self, name: str, nbytes: int) -> tuple[int, bool]:
        """(address, found): host memory until the session ends; found: with what the process held there whose
        session this was. Before an engine is made."""
        address, found = ctypes.c_void_p(), ctypes.c_int()
        LIB.call("session_hold", self.handle, name.encode("utf-8"), nbytes, ctypes.byref(address), ctypes.byref(found))
        return int(address.value or 0), bool(found.value)

    def leave(self) -> None:
        """Its end will be as if this process had died (keep_on_death)."""
        LIB.call("session_leave", self.handle)


class Ranks:
    """The ranks of a job, as torchrun or another launcher has set them in the environment, or one.

    timeout_seconds: of what ranks wait for each other; None: the library's.
    connect_timeout_seconds: likewise, for all of them to come.
    given: fields of geminid_ranks_options, which then count in place of the environment: rank, world_size, local_rank,
        local_world_size, master_address, master_port, job.

    Waits until all ranks have come. Raises InvalidArgument for an environment that cannot be right, and
    DeadlineExceeded where a rank does not come.
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
        """The number of this one, from 0."""
        return int(self.place.rank)

    @property
    def world_size(self) -> int:
        """How many there are."""
        return int(self.place.world_size)

    def sum(self, address: int, count: int) -> None:
        """Adds up `count` fp64 numbers at the address over the ranks. All of them must call it."""
        LIB.call("ranks_sum", self.handle, address, count)

    def broadcast(self, address: int, nbytes: int, source: int) -> None:
        """The bytes of the rank `source` at the address are those of all ranks. All of them must call it."""
        LIB.call("ranks_broadcast", self.handle, address, nbytes, source)

    def gather(self, data: bytes) -> list[bytes]:
        """The data of each rank, by its number. All of them must call it."""
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
    """Which ranks of a run the daemon at the socket has of this user: dictionaries with rank, world_size, step,
    device, device_bytes, host_bytes, pid, and is_left, which says that the process has died and its memory waits for the
    next one. Raises DeadlineExceeded where no daemon answers."""
    found = ctypes.c_void_p()
    LIB.call("run_ranks", str(socket).encode("utf-8"), _encoded(job), run.encode("utf-8"), timeout_seconds,
             ctypes.byref(found))
    try:
        return list(json.loads(ctypes.string_at(found.value or 0)))
    finally:
        LIB.dll.geminid_free(found)
