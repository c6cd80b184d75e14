"""The engine: a thin object over the functions of geminid/c_api.h. That header describes each call."""

from __future__ import annotations

import ctypes
import json
import math
import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypedDict

from geminid import _structs
from geminid._dlpack import Exported
from geminid._library import LIB
from geminid.errors import FailedPrecondition, InvalidArgument
from geminid.session import Ranks, Session

FORWARD, BACKWARD, EVALUATE = 0, 1, 2
BFLOAT16, FLOAT32, FLOAT16, INT8, UINT8 = 1, 2, 3, 4, 5  # the last three are for frozen parameters
_STATE_TYPES = {"fp32": FLOAT32, "bf16": BFLOAT16}
_STATE_PLACES = {"auto": 0, "host": 1, "device": 2, "streamed": 4, "disk": 5}
VALUE, EXP_AVG, EXP_AVG_SQ = 0, 1, 2
NOT_FINITE_SKIP, NOT_FINITE_WRITE, NOT_FINITE_FAIL = 0, 1, 2
OPTIMIZERS = ("adamw", "adam", "lamb", "lars", "sgd", "adagrad", "lion", "adafactor", "came", "muon")


# Optimizers whose tensor_state holds only the number of updates of each parameter.
_COUNTING = ("adamw", "adam", "sgd", "adagrad", "lion", "muon")
# Optimizers that need sums over whole tensors. These sums must be finite.
_SUMMING = ("lamb", "lars", "adafactor", "came")


@dataclass
class Parameter:
    """A tensor that the engine stores: the fields of geminid_parameter."""
    name: str
    shape: tuple[int, ...]
    data_type: int = FLOAT32
    trainable: bool = True
    unit: int = -1
    group: int = 0
    orthogonal: bool = False


@dataclass
class Optimizer:
    """An optimizer of OPTIMIZERS, with the options that differ from the defaults."""
    kind: str
    options: dict[str, float] = field(default_factory=dict)


Folders = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def _each(folders: Folders) -> Sequence[str | os.PathLike[str]]:
    return [folders] if isinstance(folders, (str, os.PathLike)) else folders


class Options(TypedDict, total=False):
    """Options of an engine beside its parameters and its optimizer. ``Engine`` describes each."""
    chunk_elements: int
    accumulate: int
    update_threads: int
    timeout_seconds: float
    not_finite: int | None
    state_dtype: str
    optimizer_state: str
    state_disk: Folders | None
    state_disk_limit_bytes: int
    state_disk_endurance_bytes: int


class _Here(threading.local):
    """Memory for the results of one thread's calls."""

    def __init__(self) -> None:
        self.error = LIB.error()
        self.operation = ctypes.c_uint64()
        self.at_operation = ctypes.byref(self.operation)


def _free(handle: ctypes.c_void_p) -> None:
    LIB.dll.geminid_engine_free(ctypes.byref(handle))


def _optimizer(chosen: Optimizer) -> Any:
    optimizer = LIB.filled(_structs.Optimizer, OPTIMIZERS.index(chosen.kind))
    for name, value in chosen.options.items():
        setattr(optimizer, name, value)
    return optimizer


def _parameters(parameters: Sequence[Parameter]) -> tuple[Any, list[Any]]:
    array, shapes = (_structs.Parameter * len(parameters))(), []
    for made, given in zip(array, parameters):
        ctypes.memmove(ctypes.byref(made), ctypes.byref(LIB.filled(_structs.Parameter)), ctypes.sizeof(made))
        shapes.append((ctypes.c_int64 * len(given.shape))(*given.shape))
        made.name, made.shape, made.dimensions = given.name.encode("utf-8"), shapes[-1], len(given.shape)
        made.data_type, made.trainable, made.unit, made.group = (
            given.data_type, given.trainable, given.unit, given.group)
        made.separate_gradient, made.update_without_gradient = True, False
        made.orthogonal = given.orthogonal
    return array, shapes


# All engines of this process.
_LIVE: weakref.WeakSet[Engine] = weakref.WeakSet()


def newest_checkpoint(folder: str | os.PathLike[str]) -> str:
    """Returns the folder of the checkpoint that ``Engine.load`` takes from `folder`. Raises NotFound if there is none."""
    return LIB.text("newest_checkpoint", str(folder).encode("utf-8"))


def _in_child(*_: Any, **__: Any) -> NoReturn:
    raise FailedPrecondition("this process was forked from the engine's process and lacks the engine's threads: use the model in "
                             "the parent alone, or start processes by spawn, each with its own model")


def _after_fork() -> None:
    """Disables all engines in a forked child. The parent's threads do not exist there, so a wait for one never ends."""
    for engine in _LIVE:
        for name in vars(Engine):
            if not name.startswith("_") and callable(getattr(Engine, name)):
                setattr(engine, name, _in_child)


os.register_at_fork(after_in_child=_after_fork)


class Engine:
    """The state of parameters, sharded over the ranks. The engine keeps its session and ranks alive. ``close`` ends it.

    chunk_elements: elements of a chunk, the unit of transfer. 0: the engine chooses the size with the least padding.
    accumulate: the most micro-batches of a step. 2 stands for any number above 1.
    update_threads: threads of the optimizer.
    timeout_seconds: a wait for another rank or the daemon fails after this time.
    resume: continue with the memory that the daemon retained of a dead rank with the same number (keep_on_death).
    not_finite: for gradients that are not finite, NOT_FINITE_SKIP, _WRITE or _FAIL. None: written as torch does, but an
        optimizer that cannot do so fails.
    state_dtype: "fp32", or "bf16" for optimizer state in half the bytes. Each step rounds bf16 state up or down at random,
        so that the mean is exact. All ranks, and all processes of a run that resumes, need the same type.
    optimizer_state: where the optimizer state lies and is updated. "host", "device", "streamed" (on the host, copied to the
        device and back for each update), "disk" (state_disk), or "auto". "auto" places as much on the device as helps; with
        state_disk it places on disk what does not fit host memory. The bits are the same everywhere.
    state_disk: a folder, or a folder on each of several disks, for state that does not fit host memory. With
        optimizer_state="disk" all state is there. The CPU updates it. docs/disk.md has the costs. The bits are the same.
    state_disk_limit_bytes: the most bytes of this rank's files. 0: the free space of the disks.
    state_disk_endurance_bytes: the most bytes that this rank may write to the disks. 0: no limit.
    stable_addresses: each parameter has one address (``stable_address``). Only on the host device.

    Calls raise errors of geminid.errors. After an error with ``is_final`` every later call raises an error, too.
    """

    close: weakref.finalize[..., Engine]

    def __init__(self, session: Session, ranks: Ranks, parameters: Sequence[Parameter], optimizer: Optimizer, *,
                 chunk_elements: int = 0, accumulate: int = 2, update_threads: int = 1, timeout_seconds: float = 300.0,
                 resume: bool = False, not_finite: int | None = None, stable_addresses: bool = True,
                 state_dtype: str = "fp32", optimizer_state: str = "auto", state_disk: Folders | None = None,
                 state_disk_limit_bytes: int = 0, state_disk_endurance_bytes: int = 0) -> None:
        if state_dtype not in _STATE_TYPES:
            raise InvalidArgument(f"state_dtype is {state_dtype!r}; it must be 'fp32' or 'bf16'")
        if optimizer_state not in _STATE_PLACES:
            raise InvalidArgument(f"optimizer_state is {optimizer_state!r}; it must be 'auto', 'host', 'device', 'streamed' or "
                                  "'disk'")
        if state_disk is not None and optimizer_state not in ("auto", "disk"):
            raise InvalidArgument(f"optimizer_state is {optimizer_state!r}, and state_disk puts the state on disk: give one of the two")
        if state_disk is None and optimizer_state == "disk":
            raise InvalidArgument("optimizer_state is 'disk', and there are no folders for it: name them with state_disk")
        if not_finite is None:
            not_finite = NOT_FINITE_FAIL if optimizer.kind in _SUMMING else NOT_FINITE_WRITE
        options = LIB.filled(_structs.EngineOptions)
        chosen = _optimizer(optimizer)
        options.optimizer = ctypes.pointer(chosen)
        options.data_type, options.gradient_scale = FLOAT32, 1
        options.accumulate, options.stable_addresses, options.clip_norm = accumulate, stable_addresses, 0.0
        options.chunk_elements, options.update_threads = chunk_elements, update_threads
        options.state_type = _STATE_TYPES[state_dtype]
        options.state_placement = _STATE_PLACES[optimizer_state]
        if state_disk is not None:
            folders = [os.fsencode(folder) for folder in _each(state_disk)]
            options.state_disk_folders, options.state_disk_folder_count = (ctypes.c_char_p * len(folders))(*folders), len(folders)
        options.state_disk_limit_bytes, options.state_disk_endurance_bytes = state_disk_limit_bytes, state_disk_endurance_bytes
        options.timeout_seconds, options.resume, options.not_finite = timeout_seconds, resume, not_finite
        array, _shapes = _parameters(parameters)
        self.handle = ctypes.c_void_p()
        LIB.call("engine_create", session.handle, ranks.handle, array, len(array), ctypes.byref(options),
                 ctypes.byref(self.handle))
        self.close = weakref.finalize(self, _free, self.handle)
        self.parameters, self.kind = parameters, optimizer.kind
        self.committed = self.resumed() or 0  # steps; known also while a step runs
        self._here, self._handle = _Here(), self.handle.value
        _LIVE.add(self)
        self._use = LIB.function("engine_use")
        self._finish = LIB.function("engine_finish")
        self._add = LIB.function("engine_add_gradient")

    def initialize(self, fill: Callable[[int, int, int, int], None]) -> None:
        """Calls ``fill(parameter, first, address, count)`` for each range that this rank stores. ``fill`` writes fp32
        values to the address. This method raises any exception of ``fill`` again."""
        raised: list[BaseException] = []

        def called(_context: Any, parameter: int, first: int, values: Any, count: int) -> int:
            try:
                fill(parameter, first, ctypes.addressof(values.contents), count)
                return 0
            except BaseException as problem:  # an exception must not pass through C
                raised.append(problem)
                return 1

        try:
            LIB.call("engine_initialize", self.handle, _structs.FILL(called), None)
        except Exception:
            if raised:
                raise raised[0] from None
            raise

    def stable_address(self, parameter: int) -> int:
        """Returns the parameter's address, valid while an operation holds it. At other times an access ends the process."""
        address = ctypes.c_void_p()
        LIB.call("engine_stable_address", self.handle, parameter, ctypes.byref(address))
        return int(address.value or 0)

    def use(self, pass_: int, ids: Any, count: int, stream: int = 0) -> int:
        """Begins an operation and returns its number. ids: an array of c_uint32. stream: a CUstream; 0: the default stream."""
        here = self._here
        code = self._use(self._handle, pass_, ids, count, stream, here.at_operation, here.error)
        if code:
            LIB.raise_error(code)
        return here.operation.value

    def copy_weights(self, operation: int, parameters: Sequence[int], addresses: Sequence[int]) -> None:
        """Copies weights of an open operation, each to its address, in the operation's stream order."""
        count = len(parameters)
        LIB.call("engine_copy_weights", self.handle, operation, (ctypes.c_uint32 * count)(*parameters),
                 (ctypes.c_void_p * count)(*addresses), count)

    def finish(self, operation: int, stream: int = 0) -> None:
        """Ends an operation: its parameters may be evicted once the stream has done all work queued on it."""
        code = self._finish(self._handle, operation, stream, self._here.error)
        if code:
            LIB.raise_error(code)

    def weight(self, operation: int, parameter: int) -> Exported:
        """Returns a parameter of an open operation for ``numpy.from_dlpack`` and similar functions: read-only, without a
        copy. ``finish`` is refused while an array made of the parameter exists."""
        return Exported(self.handle, operation, parameter)

    def device_bytes(self, ids: Sequence[int], gradients: Sequence[int]) -> int:
        """Returns the device memory of an operation with these parameters and of gradients for some of them."""
        found = ctypes.c_uint64()
        LIB.call("engine_device_bytes", self.handle, (ctypes.c_uint32 * len(ids))(*ids), len(ids),
                 (ctypes.c_uint32 * len(gradients))(*gradients), len(gradients), ctypes.byref(found))
        return int(found.value)

    def finish_all(self) -> None:
        """Ends all open operations, whichever caller began them."""
        LIB.call("engine_finish_all", self.handle, 0)

    def begin_micro_batch(self) -> None:
        """Begins a micro-batch and ends the previous one. No operation may be open."""
        LIB.call("engine_begin_micro_batch", self.handle)

    def cancel_micro_batch(self) -> None:
        """Drops the gradients of the step so far. All ranks must call it."""
        LIB.call("engine_cancel_micro_batch", self.handle)

    def add_gradient(self, parameter: int, address: int, nbytes: int, data_type: int, stream: int = 0) -> None:
        """Adds a whole gradient, row-major. It is copied before this returns; on a GPU, in the stream's order."""
        code = self._add(self._handle, parameter, address, nbytes, data_type, stream, self._here.error)
        if code:
            LIB.raise_error(code)

    def make_activation_store(self, place_bytes: int, places: int) -> None:
        """Allocates host memory for saved activations, and `places` of device memory that every transfer passes through.
        All ranks must call it, at most once, before the first micro-batch."""
        options = LIB.filled(_structs.ActivationStoreOptions)
        options.place_bytes, options.places = place_bytes, places
        LIB.call("engine_make_activation_store", self.handle, ctypes.byref(options))

    def save_activation(self, address: int, nbytes: int, stream: int = 0) -> int:
        """Copies bytes of the device to host memory in the stream's order, and returns the item's number. The caller may write
        or free the memory at the address in the stream's order."""
        item = ctypes.c_uint64()
        LIB.call("engine_save_activation", self.handle, address, nbytes, stream, ctypes.byref(item))
        return int(item.value)

    def load_activation(self, item: int, address: int, nbytes: int, stream: int = 0) -> None:
        """Copies the item's bytes to the device in the stream's order. Items may be loaded in any order and any number of
        times."""
        LIB.call("engine_load_activation", self.handle, item, address, nbytes, stream)

    def drop_activation(self, item: int) -> None:
        """Frees an item. Never waits. Does nothing if the engine has ended."""
        LIB.function("engine_drop_activation")(self.handle, item, None)

    def gradient_norm(self) -> float:
        """Returns the norm of the step's gradients before clipping, and ends its last micro-batch. All ranks must call it."""
        norm = ctypes.c_double()
        LIB.call("engine_gradient_norm", self.handle, ctypes.byref(norm))
        return float(norm.value)

    def step(self, groups: Sequence[Mapping[str, float]], clip_norm: float | None = None, gradient_scale: float = 1.0,
             data_position: int = 0) -> Any:
        """Commits a step and returns a geminid_step_result. groups: a dictionary with the fields of geminid_group for each
        group. gradient_scale: the factor that the gradients were multiplied by."""
        input_ = LIB.filled(_structs.StepInput)
        array = (_structs.Group * len(groups))()
        for made, given in zip(array, groups):
            ctypes.memmove(ctypes.byref(made), ctypes.byref(LIB.filled(_structs.Group)), ctypes.sizeof(made))
            for name, value in given.items():
                setattr(made, name, value)
        input_.groups, input_.group_count = array, len(groups)
        input_.clip_norm = math.nan if clip_norm is None else clip_norm
        input_.gradient_scale, input_.data_position = gradient_scale, data_position
        result = LIB.filled(_structs.StepResult)
        try:
            LIB.call("engine_step", self.handle, ctypes.byref(input_), ctypes.byref(result))
        finally:  # Python raises KeyboardInterrupt as the call returns
            self.committed = int(result.step) or self.committed
        return result

    def shard(self, parameter: int) -> list[tuple[int, int]]:
        """Returns the ranges of the parameter that this rank stores, as (offset, elements)."""
        count = ctypes.c_size_t()
        LIB.call("engine_shard", self.handle, parameter, None, 0, ctypes.byref(count))
        ranges = (_structs.Range * count.value)()
        LIB.call("engine_shard", self.handle, parameter, ranges, count.value, ctypes.byref(count))
        return [(found.offset, found.elements) for found in ranges]

    def has_state(self, parameter: int, kind: int) -> bool:
        """Returns whether the optimizer stores an array of this kind for the parameter: EXP_AVG, EXP_AVG_SQ."""
        has = ctypes.c_int()
        LIB.call("engine_has_state", self.handle, parameter, kind, ctypes.byref(has))
        return bool(has.value)

    def read_shard(self, parameter: int, kind: int, offset: int, address: int, count: int) -> None:
        """Copies fp32 values of a range that this rank stores to the address."""
        LIB.call("engine_read_shard", self.handle, parameter, kind, offset, address, count)

    def write_shard(self, parameter: int, kind: int, offset: int, address: int, count: int) -> None:
        """Copies fp32 values from the address to a range that this rank stores."""
        LIB.call("engine_write_shard", self.handle, parameter, kind, offset, address, count)

    def progress(self) -> tuple[int, int, bytes]:
        """Returns the committed steps, the steps among them that changed weights, and the optimizer's tensor_state as bytes."""
        progress = LIB.filled(_structs.Progress)
        LIB.call("engine_get_progress", self.handle, ctypes.byref(progress))
        state = ctypes.create_string_buffer(progress.tensor_state_bytes)
        progress.tensor_state, progress.tensor_state_capacity = ctypes.addressof(state), len(state)
        LIB.call("engine_get_progress", self.handle, ctypes.byref(progress))
        return progress.step, progress.updates, state.raw

    def updates(self) -> tuple[int, list[int]]:
        """Returns the steps that changed weights, and the number of updates of each parameter. The list is empty if the
        optimizer does not count them for each parameter."""
        _, updates, state = self.progress()
        count = len(self.parameters)
        if self.kind not in _COUNTING or len(state) != 8 * count:
            return updates, []
        return updates, list((ctypes.c_uint64 * count).from_buffer_copy(state))

    def restore(self, step: int, updates: int, counts: Sequence[int] | bytes = ()) -> None:
        """Restores the numbers that ``progress`` or ``updates`` returned. Before the first step."""
        progress = LIB.filled(_structs.Progress)
        progress.step, progress.updates = step, updates
        state: Any = (ctypes.c_uint64 * len(counts))(*counts) if not isinstance(counts, bytes) else (
            ctypes.c_char * len(counts)).from_buffer_copy(counts)
        progress.tensor_state, progress.tensor_state_bytes = ctypes.addressof(state), ctypes.sizeof(state)
        LIB.call("engine_restore", self.handle, ctypes.byref(progress))
        self.committed = step

    def resumed(self) -> int | None:
        """Returns the last step of the process whose state this engine took over. None: the engine starts anew."""
        resumed = LIB.filled(_structs.Resumed)
        LIB.call("engine_resumed", self.handle, ctypes.byref(resumed))
        return int(resumed.step) if resumed.resumed else None

    def save(self, folder: str | os.PathLike[str], keep: int = 2, data_position: int = 0, healthy: bool = True,
             files: Mapping[str, bytes] | None = None) -> str:
        """Saves a checkpoint and returns its folder. geminid-train reads it, too. ``healthy``: False if the last loss or
        gradient norm was not finite; the newest healthy checkpoint in the folder is never removed. ``files``: small files that
        rank 0 writes beside the weights, by name."""
        options = LIB.filled(_structs.SaveOptions)
        options.keep, options.data_position, options.health = keep, data_position, 0 if healthy else 1
        names, contents = [name.encode("utf-8") for name in files or ()], list((files or {}).values())
        options.file_names = (ctypes.c_char_p * len(names))(*names)
        options.file_contents = (ctypes.c_char_p * len(names))(*contents)
        options.file_bytes = (ctypes.c_size_t * len(names))(*map(len, contents))
        options.file_count = len(names)
        return LIB.text("engine_save_with", self.handle, str(folder).encode("utf-8"), ctypes.byref(options))

    def load(self, folder: str | os.PathLike[str]) -> int:
        """Loads a checkpoint and returns the data position that was saved with it."""
        position = ctypes.c_uint64()
        LIB.call("engine_load", self.handle, str(folder).encode("utf-8"), ctypes.byref(position))
        self.committed = self.progress()[0]
        return int(position.value)

    def statistics(self) -> dict[str, Any]:
        """Returns memory, transfers, stalls and the outcome of plans as a dictionary. Never waits."""
        return dict(json.loads(LIB.text("engine_statistics", self.handle)))

    def plan(self) -> dict[str, Any] | None:
        """Returns the plan that training follows, moment by moment; None before the first. Waits for other threads' calls."""
        found: dict[str, Any] | None = json.loads(LIB.text("engine_plan", self.handle))
        return found
