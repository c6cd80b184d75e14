"""One thread at a time is in a prepared model: another one would end what the first one holds."""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Sequence
from typing import Any

import torch

from geminid.errors import Refused

_CALL: types.CodeType = torch.nn.Module.__call__.__code__
_RUN_BACKWARD = getattr(getattr(torch.autograd.graph, "_engine_run_backward", None), "__code__", None)


class Turn:
    """Which thread was in the model last. It alone enters without looking at other threads."""

    def __init__(self, modules: Sequence[torch.nn.Module]) -> None:
        self.thread: int | None = None
        self._modules = {id(module) for module in modules}  # whose calls the hooks see
        self._lock = threading.Lock()
        self._outside: set[int] = set()  # threads that were refused

    def add(self, module: torch.nn.Module) -> None:
        self._modules.add(id(module))

    def enter(self, in_backward: bool) -> None:
        """Raises Refused where another thread is in the model."""
        me = threading.get_ident()
        if self.thread == me:
            if self._outside:
                self._outside.discard(me)
            return
        self._outside.add(me)  # until it is known
        with self._lock:
            self.check_alone(in_backward)
            before, self.thread = self.thread, me
            try:
                self.check_alone(in_backward)  # again: from here on nobody enters without the lock
            except Refused:
                self.thread = before
                raise
        self._outside.discard(me)

    def refuse_me(self) -> None:
        """This thread enters nothing although its turn it is: hooks after what it called do nothing."""
        self._outside.add(threading.get_ident())

    def is_mine(self) -> bool:
        """For hooks after a call, which also run where the hook before it has refused the call."""
        return not self._outside or threading.get_ident() not in self._outside

    def check_alone(self, in_backward: bool) -> None:
        """in_backward: whether backward passes of the model have begun and not ended."""
        me = threading.get_ident()
        for number, frame in sys._current_frames().items():
            if number != me and number not in self._outside:
                self._check(number, frame, in_backward)

    def check_caller(self) -> None:
        """For a backward pass, which a thread of PyTorch's may run: its caller is in no forward pass."""
        if self.thread is not None and self.thread != threading.get_ident():
            frame = sys._current_frames().get(self.thread)
            if frame is not None and self._doing(frame) == "a forward pass":
                self._check(self.thread, frame, False)

    def _check(self, number: int, frame: Any, in_backward: bool) -> None:
        doing = self._doing(frame)
        if doing == "a forward pass" or (doing == "a backward pass" and in_backward):
            name = next((thread.name for thread in threading.enumerate() if thread.ident == number), str(number))
            raise Refused(f"thread '{name}' is in {doing} of this model, and thread '{threading.current_thread().name}' wants to "
                          "use it, too. One thread at a time uses a prepared model: share a lock among them, or give each a "
                          "model of its own, prepared by itself")

    def _doing(self, frame: Any) -> str | None:
        while frame is not None:
            if frame.f_code is _RUN_BACKWARD:
                return "a backward pass"
            if frame.f_code is _CALL and id(frame.f_locals.get("self")) in self._modules:
                return "a forward pass"
            frame = frame.f_back
        return None
