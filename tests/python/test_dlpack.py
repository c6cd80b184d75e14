"""Weights of open operations in NumPy and torch, by DLPack and without a copy."""

import ctypes
import gc

import numpy
import pytest
import torch

from geminid import engine as engine_
from geminid import errors
from geminid.session import Ranks, Session

FLAGS = ["--host-memory", "64MiB", "--device-memory", "64MiB"]
SHAPE = (8, 6)


def _fill(number, first, address, count):
    values = (ctypes.c_float * count).from_address(address)
    values[:] = [100 * number + first + i for i in range(count)]


def expected(number):
    return 100 * number + numpy.arange(SHAPE[0] * SHAPE[1], dtype=numpy.float32).reshape(SHAPE)


@pytest.fixture
def engine():
    ranks = Ranks()
    session = Session(1 << 20, place=ranks.place, private_daemon=True, daemon_flags=FLAGS)
    made = engine_.Engine(session, ranks, [engine_.Parameter("a", SHAPE), engine_.Parameter("b", SHAPE)],
                          engine_.Optimizer("adamw"))
    made.initialize(_fill)
    return made


def use(engine, number):
    return engine.use(engine_.EVALUATE, (ctypes.c_uint32 * 1)(number), 1)


@pytest.mark.parametrize("read", [numpy.from_dlpack, torch.from_dlpack], ids=["numpy", "torch"])
def test_weight_is_read_without_a_copy(engine, read):
    operation = use(engine, 1)
    weight = read(engine.weight(operation, 1))
    assert numpy.array_equal(numpy.asarray(weight), expected(1)) and weight.shape == SHAPE
    address = weight.data_ptr() if read is torch.from_dlpack else weight.ctypes.data
    assert address == engine.stable_address(1)
    with pytest.raises(errors.FailedPrecondition, match=r"has 1 exported tensor\(s\); call their deleters"):
        engine.finish(operation)
    del weight
    gc.collect()
    engine.finish(operation)


def test_weight_cannot_be_written_by_numpy(engine):
    weight = numpy.from_dlpack(engine.weight(use(engine, 0), 0))
    with pytest.raises(ValueError, match="read-only"):
        weight[0, 0] = 1


def test_tensor_outlives_the_engine(engine):
    weight = torch.from_dlpack(engine.weight(use(engine, 0), 0))
    engine.close()
    assert numpy.array_equal(weight.numpy(), expected(0))


def test_capsule_that_nobody_reads_gives_the_operation_back(engine):
    operation = use(engine, 0)
    capsule = engine.weight(operation, 0).__dlpack__(max_version=(1, 0))
    with pytest.raises(errors.FailedPrecondition, match="exported"):
        engine.finish(operation)
    del capsule
    engine.finish(operation)


def test_readers_that_ask_for_something_else_are_told(engine):
    exported = engine.weight(use(engine, 0), 0)
    with pytest.raises(BufferError, match="DLPack 1.0"):
        exported.__dlpack__()
    with pytest.raises(BufferError, match="copy the result of from_dlpack"):
        exported.__dlpack__(max_version=(1, 0), copy=True)
    with pytest.raises(errors.InvalidArgument, match="has no weight of parameter 1"):
        engine.weight(exported._of[1], 1).__dlpack__(max_version=(1, 0))
