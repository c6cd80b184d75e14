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

import torch as _torch

from geminid.engine import newest_checkpoint as _newest_checkpoint
from geminid.errors import GeminidError, Refused
from geminid.torch import torch_state as _torch_state
from geminid.torch.activations import offload_activations
from geminid.torch.explain import Explanation, explain
from geminid.torch.keeper import add_advice as _add_advice
from geminid.torch.optim import Adafactor, Came, Lamb, Lars, Lion, Muon
from geminid.torch.prepare import prepare
from geminid.torch.progress_line import ProgressLine, progress
from geminid.torch.resume import Run, Stateful, resume
from geminid.torch.state import full
from geminid.torch.readings import keeper_of, log, statistics
from geminid.torch.weights import empty_weights

__all__ = ["Adafactor", "Came", "Explanation", "Lamb", "Lars", "Lion", "Muon", "ProgressLine", "Refused", "Run", "empty_weights",
           "explain", "full", "load", "log", "offload_activations", "prepare", "progress", "resume", "save", "statistics"]


def save(model: _torch.nn.Module, folder: str | os.PathLike[str], *objects: Stateful, keep: int = 2, data_position: int = 0,
         healthy: bool = True) -> str:
    """Saves a checkpoint of all ranks and returns its own folder in `folder`. It has the weights, the optimizer's state, the
    settings of its groups, such as learning rates, and the buffers that a state_dict has. All ranks must call it, between
    steps. The format is safetensors, which geminid-train reads, too. Settings, buffers and objects are those of rank 0.

        geminid.torch.save(model, "run", scheduler)
        geminid.torch.load(model, "run", scheduler)  # in a new process

    objects: objects with state_dict and load_state_dict, such as schedulers and scalers. Their states may have tensors,
        numbers, strings, None, and lists, tuples and dictionaries of these.
    keep: the number of newest checkpoints that stay in `folder`. The newest healthy one always stays. 0: all.
    data_position: any number. ``load`` returns it.
    healthy: False if the last loss or gradient norm was not finite.
    """
    keeper = keeper_of(model)
    keeper.check_closed("geminid.torch.save")
    keeper.at_rest("geminid.torch.save")
    files = {_torch_state.FILE: _torch_state.encoded(keeper, model, objects)}
    try:
        return str(keeper.engine.save(folder, keep, data_position, healthy, files))
    except GeminidError as problem:
        _add_advice(problem, "called geminid.torch.save")
        raise


def load(model: _torch.nn.Module, folder: str | os.PathLike[str], *objects: Stateful, settings: bool = True) -> int:
    """Loads the newest checkpoint in `folder`, or `folder` itself, and returns its data_position. All ranks must call it
    right after prepare. Their number may differ from the number that saved.

    objects: those that were given to ``save``, in the same order; none: their states are not loaded. A scheduler must be
        made before.

    settings: False loads the weights and the optimizer's state alone: into other groups, say, or with another momentum.

    Raises NotFound if there is no checkpoint, and FailedPrecondition or Refused if its parameters, buffers, groups or
    objects are others; nothing has changed then. After DataLoss some values are the checkpoint's: load another one. Warns if the checkpoint has weights and the optimizer's state alone, as
    those of geminid-train; learning rates and buffers then stay what they are."""
    keeper = keeper_of(model)
    keeper.check_closed("geminid.torch.load")
    keeper.check_loading()
    try:
        checkpoint = _newest_checkpoint(folder)
    except GeminidError:
        keeper.engine.load(folder)  # raises on all ranks, also if this rank alone does not see the folder
        raise
    if objects and not settings:
        raise Refused("geminid.torch.load was given objects and settings=False, which loads none; leave out one of the two")
    rest = _torch_state.TorchState(checkpoint, keeper, model, objects) if settings else None
    position = int(keeper.engine.load(checkpoint))
    keeper.loaded()
    if rest is not None:
        rest.put_in_place()
    return position
