"""The engine: a thin object over the functions of geminid/c_api.h, which say what each call does."""

import ctypes
import json
import math
import threading
import weakref
from dataclasses import dataclass, field

from geminid import _structs
from geminid._library import LIB

FORWARD, BACKWARD, EVALUATE = 0, 1, 2
BFLOAT16, FLOAT32 = 1, 2
VALUE, EXP_AVG, EXP_AVG_SQ = 0, 1, 2
NOT_FINITE_SKIP, NOT_FINITE_WRITE, NOT_FINITE_FAIL = 0, 1, 2
OPTIMIZERS = ("adamw", "adam", "lamb", "lars", "sgd", "adagrad", "lion", "adafactor", "came")


# Whose tensor_state is the number of updates of each parameter, and nothing else.
_COUNTING = ("adamw", "adam", "sgd", "adagrad", "lion")
# Who needs sums over whole tensors, which must be finite.
_SUMMING = ("lamb", "lars", "adafactor", "came")


@dataclass
class Parameter:
    """A tensor that the engine keeps: the fields of geminid_parameter."""
    name: str
    shape: tuple
    data_type: int = FLOAT32
    trainable: bool = True
    unit: int = -1
    group: int = 0


@dataclass
class Optimizer:
    """One of OPTIMIZERS, and those of its options that are not the defaults."""
    kind: str
    options: dict = field(default_factory=dict)


class _Here(threading.local):
    """Where the calls of one thread have their results."""

    def __init__(self):
        self.error = LIB.error()
        self.operation = ctypes.c_uint64()
        self.at_operation = ctypes.byref(self.operation)


def _free(handle):
    LIB.dll.geminid_engine_free(ctypes.byref(handle))


def _optimizer(chosen):
    optimizer = LIB.filled(_structs.Optimizer, OPTIMIZERS.index(chosen.kind))
    for name, value in chosen.options.items():
        setattr(optimizer, name, value)
    return optimizer


def _parameters(parameters):
    array, shapes = (_structs.Parameter * len(parameters))(), []
    for made, given in zip(array, parameters):
        ctypes.memmove(ctypes.byref(made), ctypes.byref(LIB.filled(_structs.Parameter)), ctypes.sizeof(made))
        shapes.append((ctypes.c_int64 * len(given.shape))(*given.shape))
        made.name, made.shape, made.dimensions = given.name.encode("utf-8"), shapes[-1], len(given.shape)
        made.data_type, made.trainable, made.unit, made.group = (
            given.data_type, given.trainable, given.unit, given.group)
        made.separate_gradient, made.update_without_gradient = True, False
    return array, shapes


class Engine:
    """State of parameters over the ranks. Keeps what it was made with alive."""

    def __init__(self, session, ranks, parameters, optimizer, *, chunk_elements=0, accumulate=2,
                 update_threads=1, timeout_seconds=300.0, resume=False, not_finite=None):
        """not_finite: None writes such a gradient as torch does, or fails where the optimizer cannot."""
        if not_finite is None:
            not_finite = NOT_FINITE_FAIL if optimizer.kind in _SUMMING else NOT_FINITE_WRITE
        options = LIB.filled(_structs.EngineOptions)
        chosen = _optimizer(optimizer)
        options.optimizer = ctypes.pointer(chosen)
        options.data_type, options.gradient_scale = FLOAT32, 1
        options.accumulate, options.stable_addresses, options.clip_norm = accumulate, True, 0.0
        options.chunk_elements, options.update_threads = chunk_elements, update_threads
        options.timeout_seconds, options.resume, options.not_finite = timeout_seconds, resume, not_finite
        array, _shapes = _parameters(parameters)
        self.handle = ctypes.c_void_p()
        LIB.call("engine_create", session.handle, ranks.handle, array, len(array), ctypes.byref(options),
                 ctypes.byref(self.handle))
        self.close = weakref.finalize(self, _free, self.handle)
        self.parameters, self.kind = parameters, optimizer.kind
        self._here, self._handle = _Here(), self.handle.value
        self._use = LIB.function("engine_use")
        self._finish = LIB.function("engine_finish")
        self._add = LIB.function("engine_add_gradient")

    def initialize(self, fill):
        """Calls ``fill(parameter, first, address, count)`` for what this rank keeps; it writes fp32
        values to the address. What it raises is raised again."""
        raised = []

        def called(_context, parameter, first, values, count):
            try:
                fill(parameter, first, ctypes.addressof(values.contents), count)
                return 0
            except BaseException as problem:  # must not pass through C
                raised.append(problem)
                return 1

        try:
            LIB.call("engine_initialize", self.handle, _structs.FILL(called), None)
        except Exception:
            if raised:
                raise raised[0] from None
            raise

    def stable_address(self, parameter):
        address = ctypes.c_void_p()
        LIB.call("engine_stable_address", self.handle, parameter, ctypes.byref(address))
        return address.value

    def use(self, pass_, ids, count):
        """The number of a new operation; ``ids`` is an array of c_uint32."""
        here = self._here
        code = self._use(self._handle, pass_, ids, count, 0, here.at_operation, here.error)
        if code:
            LIB.raise_error(code)
        return here.operation.value

    def finish(self, operation):
        code = self._finish(self._handle, operation, 0, self._here.error)
        if code:
            LIB.raise_error(code)

    def device_bytes(self, ids, gradients):
        """The device memory of an operation with these parameters, and of gradients of some beside it."""
        found = ctypes.c_uint64()
        LIB.call("engine_device_bytes", self.handle, (ctypes.c_uint32 * len(ids))(*ids), len(ids),
                 (ctypes.c_uint32 * len(gradients))(*gradients), len(gradients), ctypes.byref(found))
        return found.value

    def finish_all(self):
        LIB.call("engine_finish_all", self.handle, 0)

    def begin_micro_batch(self):
        LIB.call("engine_begin_micro_batch", self.handle)

    def cancel_micro_batch(self):
        LIB.call("engine_cancel_micro_batch", self.handle)

    def add_gradient(self, parameter, address, nbytes, data_type):
        code = self._add(self._handle, parameter, address, nbytes, data_type, 0, self._here.error)
        if code:
            LIB.raise_error(code)

    def gradient_norm(self):
        norm = ctypes.c_double()
        LIB.call("engine_gradient_norm", self.handle, ctypes.byref(norm))
        return norm.value

    def step(self, groups, clip_norm=None, gradient_scale=1.0, data_position=0):
        """``groups``: a dictionary with fields of geminid_group for each. gradient_scale: what the gradients were
        multiplied by. Returns a geminid_step_result."""
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
        LIB.call("engine_step", self.handle, ctypes.byref(input_), ctypes.byref(result))
        return result

    def shard(self, parameter):
        """The (offset, elements) of the parameter that this rank keeps."""
        count = ctypes.c_size_t()
        LIB.call("engine_shard", self.handle, parameter, None, 0, ctypes.byref(count))
        ranges = (_structs.Range * count.value)()
        LIB.call("engine_shard", self.handle, parameter, ranges, count.value, ctypes.byref(count))
        return [(found.offset, found.elements) for found in ranges]

    def has_state(self, parameter, kind):
        has = ctypes.c_int()
        LIB.call("engine_has_state", self.handle, parameter, kind, ctypes.byref(has))
        return bool(has.value)

    def read_shard(self, parameter, kind, offset, address, count):
        LIB.call("engine_read_shard", self.handle, parameter, kind, offset, address, count)

    def write_shard(self, parameter, kind, offset, address, count):
        LIB.call("engine_write_shard", self.handle, parameter, kind, offset, address, count)

    def progress(self):
        """The steps that are committed, those of them that changed weights, and bytes of the optimizer's."""
        progress = LIB.filled(_structs.Progress)
        LIB.call("engine_get_progress", self.handle, ctypes.byref(progress))
        state = ctypes.create_string_buffer(progress.tensor_state_bytes)
        progress.tensor_state, progress.tensor_state_capacity = ctypes.addressof(state), len(state)
        LIB.call("engine_get_progress", self.handle, ctypes.byref(progress))
        return progress.step, progress.updates, state.raw

    def updates(self):
        """The steps that changed weights, and how many of them each parameter has had: empty where the optimizer
        does not count them apart."""
        _, updates, state = self.progress()
        count = len(self.parameters)
        if self.kind not in _COUNTING or len(state) != 8 * count:
            return updates, []
        return updates, list((ctypes.c_uint64 * count).from_buffer_copy(state))

    def restore(self, step, updates, counts=()):
        progress = LIB.filled(_structs.Progress)
        progress.step, progress.updates = step, updates
        state = (ctypes.c_uint64 * len(counts))(*counts)
        progress.tensor_state, progress.tensor_state_bytes = ctypes.addressof(state), ctypes.sizeof(state)
        LIB.call("engine_restore", self.handle, ctypes.byref(progress))

    def resumed(self):
        """The last step of the process whose state this engine has taken over; None: it began anew."""
        resumed = LIB.filled(_structs.Resumed)
        LIB.call("engine_resumed", self.handle, ctypes.byref(resumed))
        return resumed.step if resumed.resumed else None

    def save(self, folder, keep=2, data_position=0):
        """The folder of the checkpoint, which geminid-train reads too."""
        path = ctypes.c_void_p()
        LIB.call("engine_save", self.handle, str(folder).encode("utf-8"), keep, data_position, ctypes.byref(path))
        try:
            return ctypes.string_at(path.value).decode("utf-8")
        finally:
            LIB.dll.geminid_free(path)

    def load(self, folder):
        """The data position that was saved with it."""
        position = ctypes.c_uint64()
        LIB.call("engine_load", self.handle, str(folder).encode("utf-8"), ctypes.byref(position))
        return position.value

    def statistics(self):
        """Memory, transfers, stalls and the plan, as a dictionary."""
        return json.loads(LIB.text("engine_statistics", self.handle))
