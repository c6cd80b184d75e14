"""The limit of torch's allocator on a GPU and its peak in each unit, with a fake allocator."""

import gc
import types

import pytest
import torch

import models
import twins
from geminid.errors import InvalidArgument
from geminid.torch import torch_memory
from geminid.torch.units import Unit

MIB = 1 << 20
TOTAL = 1024 * MIB


class FakeAllocator:
    """An allocator whose bytes the test sets."""

    def __init__(self, total=TOTAL):
        self.total, self.now, self.peak, self.set = total, 0, 0, 1.0

    def total_bytes(self):
        return self.total

    def fraction(self):
        return self.set

    def limit(self, fraction):
        self.set = fraction

    def peak_bytes(self):
        return self.peak

    def reset_peak(self):
        self.peak = self.now

    def have(self, count):
        self.now = count
        self.peak = max(self.peak, count)


class FakeSession:
    def __init__(self, arena, uuid="GPU-1"):
        self.arena, self.uuid, self.close = arena, uuid, types.SimpleNamespace(alive=True)

    def describe(self):
        return {"arena_bytes": self.arena, "device": {"uuid": self.uuid}}


@pytest.fixture(autouse=True)
def no_other_sessions():
    yield
    gc.collect()
    torch_memory._ARENAS.clear()
    torch_memory._DEFAULTS.clear()


def apply_limit(allocator, session, asked_bytes):
    memory = torch_memory.limit_of(allocator, session, asked_bytes)
    memory.apply()
    return memory


def unit(name):
    return Unit(torch.nn.Identity(), name, [])


def test_without_a_word_torch_gets_what_the_arena_leaves():
    allocator = FakeAllocator()
    memory = apply_limit(allocator, FakeSession(256 * MIB), None)
    assert allocator.set == 0.75 and memory.limit_bytes == 768 * MIB


def test_asked_bytes_are_the_limit():
    allocator = FakeAllocator()
    memory = apply_limit(allocator, FakeSession(256 * MIB), 128 * MIB)
    assert allocator.set == 0.125 and memory.limit_bytes == 128 * MIB


def test_arenas_of_other_sessions_on_the_gpu_count_until_they_end():
    allocator, other = FakeAllocator(), FakeSession(512 * MIB)
    elsewhere = FakeSession(512 * MIB, "GPU-2")
    apply_limit(FakeAllocator(), elsewhere, None)
    apply_limit(allocator, other, None)
    mine = FakeSession(256 * MIB)
    apply_limit(allocator, mine, None)
    assert allocator.set == 0.25
    other.close.alive = False
    apply_limit(allocator, mine, None)
    assert allocator.set == 0.75  # a fraction set by default may be raised


def test_limit_holds_only_when_the_engine_has_the_weights():
    allocator = FakeAllocator()
    memory = torch_memory.limit_of(allocator, FakeSession(256 * MIB), 128 * MIB)
    assert allocator.set == 1.0
    memory.apply()
    assert allocator.set == 0.125


def test_lower_limit_of_the_callers_own_stays():
    allocator = FakeAllocator()
    allocator.limit(0.5)
    assert apply_limit(allocator, FakeSession(256 * MIB), None).limit_bytes == 512 * MIB
    assert allocator.set == 0.5


def test_more_than_the_arena_leaves_is_refused_with_the_most_that_would_do():
    allocator = FakeAllocator()
    with pytest.raises(InvalidArgument, match="torch_memory is 800 MiB; the device has 1 GiB, of which device_memory takes 256 MiB. "
                                              "Lower torch_memory to at most 768 MiB"):
        apply_limit(allocator, FakeSession(256 * MIB), 800 * MIB)
    assert allocator.set == 1.0


def test_limit_on_the_host_device_is_refused():
    with pytest.raises(InvalidArgument, match="torch_memory is 1 MiB; the daemon has given the host device"):
        torch_memory.limit_of(None, FakeSession(MIB), MIB)
    assert torch_memory.limit_of(None, FakeSession(MIB), None) is None


def test_prepare_says_how_torch_memory_is_written():
    with pytest.raises(InvalidArgument, match="torch_memory is 'much'; write bytes"):
        twins.pair(models.make("gpt"), torch_memory="much")


def test_peaks_of_each_unit_and_pass_are_apart():
    allocator, first, second = FakeAllocator(), unit("first"), unit("second")
    peaks = torch_memory.UnitPeaks(allocator)
    for one, most in ((first, 50), (second, 30)):
        peaks.begin(one, "forward")
        allocator.have(most)
        allocator.have(10)
        peaks.end(one, "forward")
    allocator.have(1000)  # outside of every unit
    allocator.have(10)
    peaks.begin(second, "backward")
    allocator.have(70)
    peaks.end(second, "backward")
    assert [peaks.of(one, pass_) for one in (first, second) for pass_ in ("forward", "backward")] == [50, None, 30, 70]


def test_unit_within_another_counts_for_both():
    allocator, outer, inner = FakeAllocator(), unit("outer"), unit("inner")
    peaks = torch_memory.UnitPeaks(allocator)
    peaks.begin(outer, "forward")
    allocator.have(90)
    allocator.have(20)
    peaks.begin(inner, "forward")
    allocator.have(60)
    allocator.have(20)
    peaks.end(inner, "forward")
    allocator.have(40)
    peaks.end(outer, "forward")
    assert (peaks.of(outer, "forward"), peaks.of(inner, "forward")) == (90, 60)


def test_units_may_end_in_the_order_in_which_they_began():
    allocator, first, second = FakeAllocator(), unit("first"), unit("second")
    peaks = torch_memory.UnitPeaks(allocator)
    peaks.begin(first, "backward")
    peaks.begin(second, "backward")
    allocator.have(50)
    peaks.end(first, "backward")
    allocator.have(80)
    peaks.end(second, "backward")
    assert (peaks.of(first, "backward"), peaks.of(second, "backward")) == (50, 80)


def test_steps_after_the_second_leave_torchs_own_peak_alone():
    allocator, one = FakeAllocator(), unit("one")
    peaks = torch_memory.UnitPeaks(allocator)
    for most in (30, 40, 50):
        peaks.begin(one, "forward")
        allocator.have(most)
        allocator.have(10)
        peaks.end(one, "forward")
        peaks.end_step()
    assert peaks.of(one, "forward") == 40 and allocator.peak == 50
