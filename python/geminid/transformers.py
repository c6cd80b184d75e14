"""Hugging Face's Trainer on the engine: the same arguments, and how much memory of the device it may use."""

import os

import torch
import transformers
from transformers.trainer import OPTIMIZER_NAME, SCHEDULER_NAME

import geminid.torch
from geminid.errors import Refused


class PreparedAdamW:
    """A prepared AdamW for the Trainer of transformers itself, on one rank:

        Trainer(model, args, optimizer_cls_and_kwargs=(PreparedAdamW, {"device_memory": "20GiB", "lr": 2e-5}))

    The Trainer's arguments do not reach it: lr, betas, eps and weight_decay are those of torch.optim.AdamW. Biases and
    the weights of norms do not decay, as with the Trainer's own optimizer.
    """

    def __call__(self, model, *, device_memory, unit=None, weight_decay=0.0, **options):
        decaying = set(transformers.Trainer.get_decay_parameter_names(None, model))  # it asks no trainer
        groups = [{"params": [p for name, p in model.named_parameters() if p.requires_grad and (name in decaying) == decays],
                   "weight_decay": weight_decay if decays else 0.0} for decays in (True, False)]
        optimizer = torch.optim.AdamW(groups, **options)
        return geminid.torch.prepare(model, optimizer, device_memory=device_memory, unit=unit)[1]


class Trainer(transformers.Trainer):
    """transformers.Trainer whose model and optimizer geminid.torch.prepare prepares when train() begins, on one rank
    or several, which torchrun starts.

    device_memory, unit: those of geminid.torch.prepare. All other arguments are those of transformers.Trainer.

    Raises Refused for FSDP, DeepSpeed and torch.nn.DataParallel, which shard or copy what the engine shards.
    """

    def __init__(self, *args, device_memory, unit=None, **kwargs):
        self._device_memory, self._unit = device_memory, unit
        super().__init__(*args, **kwargs)
        for asked, name in ((self.is_fsdp_enabled, "args.fsdp"), (self.is_deepspeed_enabled, "args.deepspeed"),
                            (self.args.n_gpu > 1, "torch.nn.DataParallel over several GPUs in one process")):
            if asked:
                raise Refused(f"geminid.transformers.Trainer shards the model itself; leave out {name}, and start a rank "
                              "for each GPU by torchrun")
        # So that nothing is put around the model, and that all ranks take part in reading it.
        self.is_distributed_loading_by_transformers = True

    def create_optimizer(self, model=None):
        model = self.model if model is None else model
        if not hasattr(model, "_geminid_keeper"):
            super().create_optimizer(model)
            _, optimizer = geminid.torch.prepare(model, self.optimizer, device_memory=self._device_memory, unit=self._unit)
            # With placement its whole state would be read and written once.
            self.optimizer = self.accelerator.prepare(optimizer, device_placement=[False])
        return self.optimizer

    def _sync_replicated_trainable_parameters(self, model):
        """The engine has done it."""

    def _save_optimizer_and_scheduler(self, output_dir):
        state = self.optimizer.state_dict()  # by all ranks
        if self.args.should_save:
            torch.save(state, os.path.join(output_dir, OPTIMIZER_NAME))
            torch.save(self.lr_scheduler.state_dict(), os.path.join(output_dir, SCHEDULER_NAME))
