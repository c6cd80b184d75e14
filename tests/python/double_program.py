"""A script under geminid-with-double: the engine is on a GPU that is not there, torch computes on the host, and weights and
gradients travel between the two as they do on a GPU. Prints what each scenario found, as JSON."""

import ctypes
import json
import os
import sys

import torch

import models
import steps
import twins
from geminid.torch import placing

torch.set_num_threads(1)
DEVICE_MEMORY = "2MiB"  # a GPU's least
STEPS = 3
LAYERS = 12  # of whose weights and gradients a third has room there


class OnDouble(placing.InTorch):
    """Torch's memory is the host's here, and has no order with the GPU's stream but this wait."""

    def __init__(self):
        super().__init__(torch.device("cpu"))
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

    def wait_for_gradients(self, engine):
        """The host's memory is taken back at once, a GPU's in the order of the stream."""
        add = engine.add_gradient

        def add_and_wait(*arguments):
            add(*arguments)
            self.wait()

        engine.add_gradient = add_and_wait

    def stream(self):
        return 0


def place_of(session):
    assert session.describe()["device"]["kind"] == "cuda", session.describe()
    return OnDouble()


def scenario(name, unit):
    torch.manual_seed(0)
    pair = twins.pair(models.make("gpt", layers=LAYERS), device_memory=DEVICE_MEMORY, unit=unit)
    plain, ours = pair
    keeper = ours.model._geminid_keeper
    keeper.place.wait_for_gradients(keeper.engine)
    twins.run(pair, getattr(steps, name), steps=STEPS)
    with torch._C.DisableTorchFunctionSubclass():
        bytes_left = sum(p.untyped_storage().nbytes() for p in ours.model.parameters())
    moved_bytes = twins.moved_bytes(ours)
    keeper.engine.close()
    return {"loss": twins.difference(ours.losses, plain.losses), "norm": twins.difference(ours.norms, plain.norms),
            "bytes_left_in_torch": bytes_left, "moved_bytes": moved_bytes,
            "weight_bytes": sum(p.numel() * p.element_size() for p in plain.model.parameters())}


def main():
    placing.place_of = place_of
    placing.daemon_flags = lambda: ("--device", "cuda")
    found = {}
    for name in sys.argv[1:]:
        step, _, unit = name.partition(":")
        found[name] = scenario(step, unit or "block")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
