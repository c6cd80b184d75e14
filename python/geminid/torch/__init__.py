"""Training of PyTorch models whose state does not fit the device.

    import geminid.torch
    model, optimizer = geminid.torch.prepare(model, torch.optim.AdamW(groups, lr=2e-5), device_memory="20GiB")
    for batch in loader:
        model(**batch).loss.backward()
        optimizer.step(); optimizer.zero_grad()

The results are those of the loop without ``prepare``, up to the last bits of fp32.
"""

from geminid.errors import Refused
from geminid.torch.explain import explain
from geminid.torch.optim import Adafactor, Came, Lamb, Lars, Lion
from geminid.torch.prepare import prepare
from geminid.torch.resume import Run, resume
from geminid.torch.state import full

__all__ = ["Adafactor", "Came", "Lamb", "Lars", "Lion", "Refused", "Run", "explain", "full", "load", "prepare",
           "resume", "save"]


def save(model, folder, *, keep=2, data_position=0):
    """Saves a checkpoint of all ranks, weights and optimizer, in `folder`; its own folder. It is safetensors,
    which geminid-train reads too."""
    model._geminid_keeper.between_steps()
    return model._geminid_keeper.engine.save(folder, keep, data_position)


def load(model, folder):
    """The newest checkpoint in `folder`, right after prepare. Returns its data_position."""
    keeper = model._geminid_keeper
    keeper.check_loading()
    position = keeper.engine.load(folder)
    keeper.loaded()
    return position
