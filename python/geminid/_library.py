"""Finds libgeminid_c and calls its functions."""

from __future__ import annotations

import ctypes
import os
import pathlib
import threading
from typing import Any

from geminid import _structs, errors

LIBRARY = "libgeminid_c.so.1"
_PACKAGE = pathlib.Path(__file__).parent
_P, _U32, _U64, _INT = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int32

# The argument types of each function, without the last argument, which is the geminid_error.
_ARGUMENTS = {
    "session_connect": (_P, _P), "session_describe": (_P, _P), "session_leave": (_P,),
    "session_hold": (_P, ctypes.c_char_p, _U64, _P, _P),
    "run_ranks": (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_double, _P),
    "ranks_connect": (_P, _P), "ranks_place": (_P, _P), "ranks_sum": (_P, _P, _U64),
    "ranks_broadcast": (_P, _P, _U64, _INT),
    "engine_create": (_P, _P, _P, _U64, _P, _P),
    "engine_initialize": (_P, _structs.FILL, _P), "engine_shard": (_P, _U32, _P, _U64, _P),
    "engine_has_state": (_P, _U32, _INT, _P), "engine_read_shard": (_P, _U32, _INT, _U64, _P, _U64),
    "engine_write_shard": (_P, _U32, _INT, _U64, _P, _U64),
    "engine_get_progress": (_P, _P), "engine_restore": (_P, _P), "engine_resumed": (_P, _P),
    "engine_save_with": (_P, ctypes.c_char_p, _P, _P), "engine_load": (_P, ctypes.c_char_p, _P),
    "newest_checkpoint": (ctypes.c_char_p, _P),
    "engine_device_bytes": (_P, _P, _U64, _P, _U64, _P),
    "engine_begin_micro_batch": (_P,), "engine_cancel_micro_batch": (_P,),
    "engine_use": (_P, _INT, _P, _U64, _U64, _P), "engine_finish": (_P, _U64, _U64),
    "engine_copy_weights": (_P, _U64, _P, _P, _U64), "engine_finish_all": (_P, _U64), "engine_stable_address": (_P, _U32, _P),
    "engine_add_gradient": (_P, _U32, _P, _U64, _INT, _U64), "engine_gradient_norm": (_P, _P),
    "engine_step": (_P, _P, _P),
    "engine_make_activation_store": (_P, _P), "engine_save_activation": (_P, _P, _U64, _U64, _P),
    "engine_load_activation": (_P, _U64, _P, _U64, _U64), "engine_drop_activation": (_P, _U64),
    "engine_statistics": (_P, _P), "engine_plan": (_P, _P), "engine_export_weight": (_P, _U64, _U32, _P)}


def _candidates() -> list[str]:
    chosen = os.environ.get("GEMINID_LIBRARY")
    if chosen:
        path = pathlib.Path(chosen)
        return [str(path / LIBRARY if path.is_dir() else path)]
    beside = _PACKAGE / "lib" / LIBRARY
    return [str(beside)] if beside.exists() else [LIBRARY]


def daemon_program() -> str | None:
    """Returns the daemon in the package. None if there is none or $GEMINID_DAEMON is set: then the library looks for it."""
    beside = _PACKAGE / "bin" / "geminid"
    return str(beside) if beside.exists() and not os.environ.get("GEMINID_DAEMON") else None


class _Library:
    """The library's functions. The first call loads the library."""

    def __init__(self) -> None:
        self._errors = threading.local()
        self._lock = threading.Lock()
        self._dll: ctypes.CDLL | None = None
        self.failed = False  # an engine or the program failed: the daemon retains its keep_on_death memory

    @property
    def dll(self) -> ctypes.CDLL:
        if self._dll is None:
            with self._lock:
                self._dll = self._dll or self._load()
        return self._dll

    @staticmethod
    def _load() -> ctypes.CDLL:
        problems = []
        for path in _candidates():
            try:
                dll = ctypes.CDLL(path)
            except OSError as problem:
                problems.append(str(problem))
                continue
            for name in ("error_message", "version"):
                getattr(dll, "geminid_" + name).restype = ctypes.c_char_p
            dll.geminid_error_new.restype = _P
            for name in ("error_message", "error_is_final", "error_free", "free", "session_free",
                         "ranks_free", "engine_free"):
                getattr(dll, "geminid_" + name).argtypes = (_P,)
            for name, arguments in _ARGUMENTS.items():
                getattr(dll, "geminid_" + name).argtypes = (*arguments, _P)
            return dll
        raise errors.LibraryNotFound(
            f"{LIBRARY} was not found: {'; '.join(problems)}. Install the geminid wheel, or set "
            "GEMINID_LIBRARY to the file or its folder.")

    def function(self, name: str) -> Any:
        return getattr(self.dll, "geminid_" + name)

    def error(self) -> int:
        """Returns this thread's geminid_error."""
        try:
            address: int = self._errors.address
        except AttributeError:
            address = self._errors.address = self.dll.geminid_error_new()
        return address

    def raise_error(self, code: int) -> None:
        error = self.error()
        message = self.dll.geminid_error_message(error).decode("utf-8", "replace")
        kind = errors.BY_CODE[code] if 0 < code < len(errors.BY_CODE) else None
        is_final = bool(self.dll.geminid_error_is_final(error))
        self.failed |= is_final
        raise (kind or errors.GeminidError)(message, is_final=is_final)

    def call(self, name: str, *arguments: Any) -> None:
        code = getattr(self.dll, "geminid_" + name)(*arguments, self.error())
        if code:
            self.raise_error(code)

    def filled(self, struct: Any, *more: int) -> Any:
        """Returns a struct that the library has filled with its defaults."""
        value = struct()
        init = getattr(self.dll, f"geminid_{_structs.INIT[struct]}_init")
        init.restype = None
        init(ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value)), *map(ctypes.c_int32, more))
        return value

    def text(self, name: str, *arguments: Any) -> str:
        """Returns the text that a function writes to a char**, its last argument before the error."""
        found = ctypes.c_void_p()
        self.call(name, *arguments, ctypes.byref(found))
        try:
            return ctypes.string_at(found.value or 0).decode("utf-8")
        finally:
            self.dll.geminid_free(found)


LIB = _Library()
