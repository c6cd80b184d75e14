"""A checkpoint manager for torchtitan: checkpoints of a prepared model and its optimizer, for any number of ranks.

    from torchtitan_checkpoints import GeminidCheckpointManager
    config.checkpoint = GeminidCheckpointManager.Config(enable=True, folder="checkpoint", interval=500)

torchtitan's trainer shards models by FSDP. With Geminid the engine does so: `parallelize_fn` must return the model unchanged,
and `geminid.torch.prepare` comes after the optimizers. Run as a program, this module calls the manager as the trainer does,
with a model that it makes: steps, a save, and the later steps once more from the checkpoint.

    pip install --no-deps torchtitan torch_checkpointing tyro docstring_parser
    python torchtitan_checkpoints.py
"""

import os
import pathlib
import tempfile
from dataclasses import dataclass

import torch
from loop import LENGTH, VOCABULARY, Model
from torch import nn
from torchtitan.components.checkpointer.base import DATALOADER, LR_SCHEDULER, BaseCheckpointManager

import geminid.torch

_RANK = int(os.environ.get("RANK", 0))


class GeminidCheckpointManager(BaseCheckpointManager):
    """Saves the model and its optimizer as checkpoints of Geminid, and the trainer's other state beside them, by rank.

    Geminid itself deletes all but the newest keep_latest_k. Options for other formats (initial_load_in_hf, last_save_in_hf)
    are unsupported: geminid.torch.prepare(weights=FOLDER) reads files of Hugging Face.
    """

    @dataclass(kw_only=True, slots=True)
    class Config(BaseCheckpointManager.Config):
        pass

    def __init__(self, config, *, dataloader, model_parts, optimizers, lr_schedulers, states, sd_adapter, base_folder=""):
        self.enable, self.save_future = config.enable, None
        if not self.enable:
            return
        self._config = config
        self._model, = model_parts
        self._folder = pathlib.Path(base_folder) / config.folder
        rest = {**states, DATALOADER: dataloader, LR_SCHEDULER: lr_schedulers}
        self._rest = {name: state for name, state in rest.items() if state is not None}

    def _beside(self, step):
        return self._folder / f"beside-{step}-{_RANK}.pt"

    def _save(self, curr_step, last_step=False):
        if self._config.load_only or not (last_step or curr_step % self._config.interval == 0):
            return False
        self._folder.mkdir(parents=True, exist_ok=True)
        torch.save({name: state.state_dict() for name, state in self._rest.items()}, self._beside(curr_step))
        # The model is saved last, when the files beside it are complete.
        geminid.torch.save(self._model, self._folder, keep=self._config.keep_latest_k, data_position=curr_step)
        return True

    def _load(self, step=-1):
        if not list(self._folder.glob("beside-*")):
            return False
        saved = geminid.torch.load(self._model, self._folder)  # the newest complete checkpoint
        beside = torch.load(self._beside(saved), weights_only=False)
        for name, state in self._rest.items():
            if name not in self._config.exclude_from_loading:
                state.load_state_dict(beside[name])
        return True

    def _maybe_wait_for_staging(self):
        """Does nothing: Geminid has written the checkpoint when save returns."""

    def _wait_for_saving(self):
        """Does nothing, like _maybe_wait_for_staging."""

    def _close(self):
        """Does nothing: no file is open."""


class Trainer:
    """The part of torchtitan's trainer that a manager uses."""

    def __init__(self, folder):
        torch.manual_seed(0)
        model = Model()
        self.step = 0
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        self.model, self.optimizer = geminid.torch.prepare(model, optimizer, device_memory="1MiB")
        self.scheduler = torch.optim.lr_scheduler.LinearLR(self.optimizer, 1.0, 0.1, 8)
        self.checkpointer = GeminidCheckpointManager.Config(enable=True, interval=3).build(
            dataloader=None, model_parts=[self.model], optimizers=self.optimizer, lr_schedulers=self.scheduler,
            states={"train_state": self}, sd_adapter=None, base_folder=folder)

    def state_dict(self):
        return {"step": self.step}

    def load_state_dict(self, state):
        self.step = state["step"]

    def train(self, steps):
        losses = []
        self.checkpointer.load()
        while self.step < steps:
            tokens = torch.randint(VOCABULARY, (8, LENGTH), generator=torch.Generator().manual_seed(self.step))
            loss = nn.functional.cross_entropy(self.model(tokens).flatten(0, 1), tokens.flatten())
            loss.backward()
            self.optimizer.step()
            self.scheduler.step()
            self.optimizer.zero_grad()
            self.step += 1
            self.checkpointer.save(self.step)
            losses.append(loss.item())
            print(f"loss {losses[-1]:.9g}")
        return losses


def main():
    with tempfile.TemporaryDirectory() as folder:
        whole = Trainer(folder).train(5)
        assert Trainer(folder).train(5) == whole[3:]  # continues after the save of step 3


if __name__ == "__main__":
    main()
