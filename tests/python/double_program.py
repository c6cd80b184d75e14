"""A script under geminid-with-double: the engine uses a simulated GPU, and torch computes on the host. Weights and
gradients move between the two as on a GPU. Prints the findings of each scenario as JSON."""

import ctypes
import io
import json
import os
import sys

import torch

import geminid.torch
import models
import steps
import twins
from geminid.torch import activations, placing

torch.set_num_threads(1)
DEVICE_MEMORY = "2MiB"  # the least that a GPU session may have
STEPS = 3
LAYERS = 12  # DEVICE_MEMORY has room for a third of their weights and gradients


class WeightsOnly:
    """Replaces torch's allocator: a GPU of 1 GiB on which torch has only the weights in use."""

    def __init__(self):
        self.now, self.peak, self.set = 0, 0, 1.0

    def total_bytes(self):
        return 1 << 30

    def fraction(self):
        return self.set

    def limit(self, fraction):
        self.set = fraction

    def peak_bytes(self):
        return self.peak

    def reset_peak(self):
        self.peak = self.now

    def have(self, count):
        self.now, self.peak = count, max(self.peak, count)


class OnDouble(placing.InTorch):
    """Here torch's memory is host memory. Only this wait orders it with the GPU's stream."""

    def __init__(self):
        super().__init__(torch.device("cpu"))
        self.allocator = WeightsOnly()
        self._driver = ctypes.CDLL(os.environ["GEMINID_LIBCUDA"])
        self._context = ctypes.c_void_p()
        assert self._call("cuDevicePrimaryCtxRetain", ctypes.pointer(self._context), ctypes.c_int(0)) == 0

    def _call(self, name, *arguments):
        found = ctypes.c_void_p()
        self._driver.cuGetProcAddress_v2(name.encode(), ctypes.byref(found), 12080, ctypes.c_uint64(0), None)
        return ctypes.CFUNCTYPE(ctypes.c_int, *map(type, arguments))(found.value)(*arguments)

    def wait(self):
        assert self._call("cuCtxSetCurrent", self._context) == 0 and self._call("cuCtxSynchronize") == 0

    def bring(self, engine, pass_, ids, records):
        held = super().bring(engine, pass_, ids, records)
        self.wait()
        return held

    def _room(self, record):
        address = super()._room(record)
        self._count()
        return address

    def drop(self, engine, operation, records):
        super().drop(engine, operation, records)
        self._count()

    def _count(self):
        self.allocator.have(sum(storage.nbytes() for storage, _ in self._storages.values()))

    def wait_for_gradients(self, engine):
        """Waits, because torch reuses host memory at once; it reuses GPU memory in the stream's order."""
        add = engine.add_gradient

        def add_and_wait(*arguments):
            add(*arguments)
            self.wait()

        engine.add_gradient = add_and_wait

    def stream(self):
        return 0

    def queued(self, tensor):
        """Replaces record_stream, because torch reuses host memory at once and reads it without a stream."""
        self.wait()


def place_of(session):
    assert session.describe()["device"]["kind"] == "cuda", session.describe()
    return OnDouble()


def scenario(name, unit, how):
    torch.manual_seed(0)
    pair = twins.pair(models.make("gpt", layers=LAYERS), device_memory=DEVICE_MEMORY, unit=unit, activations=how)
    plain, ours = pair
    keeper = ours.model._geminid_keeper
    keeper.place.wait_for_gradients(keeper.engine)
    twins.run(pair, getattr(steps, name), steps=STEPS)
    with torch._C.DisableTorchFunctionSubclass():
        bytes_left = sum(p.untyped_storage().nbytes() for p in ours.model.parameters())
    moved_bytes = twins.moved_bytes(ours)
    explained = geminid.torch.explain(ours.model, file=io.StringIO())
    block_bytes = {name: sum(p.numel() * p.element_size() for p in block.parameters())
                   for name, block in plain.model.named_children() for name, block in
                   ([(f"blocks.{i}", one) for i, one in enumerate(block)] if name == "blocks" else [(name, block)])}
    said = keeper.engine.statistics()
    keeper.engine.close()
    return {"loss": twins.difference(ours.losses, plain.losses), "norm": twins.difference(ours.norms, plain.norms),
            "bytes_left_in_torch": bytes_left, "moved_bytes": moved_bytes, "torch_memory": explained.torch_memory,
            "table": explained.table, "unit_bytes": block_bytes, "fraction": keeper.place.allocator.set,
            "activation_bytes": said["activation_bytes"], "activation_items": said["activation_items"],
            "weight_bytes": sum(p.numel() * p.element_size() for p in plain.model.parameters())}


def main():
    activations.SMALLEST = 512  # bytes; so small because the models are small
    placing.place_of = place_of
    placing.daemon_flags = lambda: ("--device", "cuda")
    found = {}
    for name in sys.argv[1:]:
        step, unit, how = (*name.split(":"), "keep")[:3]
        found[name] = scenario(step, unit, how)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
