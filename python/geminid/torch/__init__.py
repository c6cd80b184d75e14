"""Training of PyTorch models whose state does not fit the device.

    import geminid.torch
    model, optimizer = geminid.torch.prepare(model, torch.optim.AdamW(groups, lr=2e-5), device_memory="20GiB")
    for batch in loader:
        model(**batch).loss.backward()
        optimizer.step(); optimizer.zero_grad()

The results equal those of the loop without ``prepare``, up to the last bits of fp32.
"""

from __future__ import annotations

import os
import warnings

import torch as _torch

from geminid.errors import Refused
from geminid.torch.activations import offload_activations
from geminid.torch.explain import Explanation, explain
from geminid.torch.optim import Adafactor, Came, Lamb, Lars, Lion, Muon
from geminid.torch.prepare import prepare
from geminid.torch.progress_line import ProgressLine, progress
from geminid.torch.resume import Run, persistent_buffers as _persistent_buffers, resume
from geminid.torch.state import full
from geminid.torch.readings import keeper_of, log, statistics
from geminid.torch.weights import empty_weights

__all__ = ["Adafactor", "Came", "Explanation", "Lamb", "Lars", "Lion", "Muon", "ProgressLine", "Refused", "Run", "empty_weights",
           "explain", "full", "load", "log", "offload_activations", "prepare", "progress", "resume", "save", "statistics"]


def save(model: _torch.nn.Module, folder: str | os.PathLike[str], *, keep: int = 2, data_position: int = 0,
         healthy: bool = True) -> str:
    """Saves a checkpoint of all ranks, weights and optimizer, and returns its own folder in `folder`. The format is
    safetensors, which geminid-train reads, too. All ranks must call it, between steps. Learning rates, schedulers and
    buffers are not in it: save those by torch.save. It warns if the model has buffers that a state_dict has.

    keep: the number of newest checkpoints that stay in `folder`. The newest healthy one always stays. 0: all.
    data_position: any number. ``load`` returns it.
    healthy: False if the last loss or gradient norm was not finite.
    """
    keeper = keeper_of(model)
    keeper.check_closed("geminid.torch.save")
    keeper.at_rest("geminid.torch.save")
    for name, _ in _persistent_buffers(model):
        warnings.warn(f"geminid.torch.save leaves out the model's buffers, such as '{name.lstrip('.')}'; save them beside it by "
                      "torch.save(dict(model.named_buffers()), FILE)", stacklevel=2)
        break
    return str(keeper.engine.save(folder, keep, data_position, healthy))


def load(model: _torch.nn.Module, folder: str | os.PathLike[str]) -> int:
    """Loads the newest checkpoint in `folder`, or `folder` itself, and returns its data_position. All ranks must call it
    right after prepare. Their number may differ from the number that saved. Learning rates and buffers stay what they are.
    Raises NotFound if there is no checkpoint, and InvalidArgument if its parameters have other names or shapes."""
    keeper = keeper_of(model)
    keeper.check_closed("geminid.torch.load")
    keeper.check_loading()
    position = int(keeper.engine.load(folder))
    keeper.loaded()
    return position
