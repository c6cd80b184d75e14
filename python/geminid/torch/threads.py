"""Admits one thread at a time to a prepared model: a second thread would end operations of the first."""

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
    """Records the last thread in the model. Only this thread enters without a check of the other threads."""

    def __init__(self, modules: Sequence[torch.nn.Module]) -> None:
        self.thread: int | None = None
        self._modules = {id(module) for module in modules}  # modules whose calls the hooks see
        self._lock = threading.Lock()
        self._outside: set[int] = set()  # refused threads

    def add(self, module: torch.nn.Module) -> None:
        self._modules.add(id(module))

    def enter(self, in_backward: bool) -> None:
        """Raises Refused if another thread is in the model."""
        me = threading.get_ident()
        if self.thread == me:
            if self._outside:
                self._outside.discard(me)
            return
        self._outside.add(me)  # until the check below has passed
        with self._lock:
            self.check_alone(in_backward)
            before, self.thread = self.thread, me
            try:
                self.check_alone(in_backward)  # again: from now on no thread enters without the lock
            except Refused:
                self.thread = before
                raise
        self._outside.discard(me)

    def refuse_me(self) -> None:
        """Refuses this thread's entry although it has the turn: the hooks after the call then do nothing."""
        self._outside.add(threading.get_ident())

    def is_mine(self) -> bool:
        """Returns whether this thread was admitted. Hooks after a call ask: they also run if the hook before it refused."""
        return not self._outside or threading.get_ident() not in self._outside

    def check_alone(self, in_backward: bool) -> None:
        """Raises Refused if another thread is in the model. in_backward: a backward pass of the model runs."""
        me = threading.get_ident()
        for number, frame in sys._current_frames().items():
            if number != me and number not in self._outside:
                self._check(number, frame, in_backward)

    def check_caller(self) -> None:
        """Checks the caller of a backward pass, which a thread of PyTorch may run: the caller must be in no forward pass."""
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
