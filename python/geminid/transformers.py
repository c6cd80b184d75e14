"""Hugging Face's Trainer on the engine, with the same arguments plus the device memory that it may use."""

import os

import torch
import transformers
from transformers.trainer import OPTIMIZER_NAME, SCHEDULER_NAME

import geminid.torch
from geminid import _releases
from geminid.errors import Refused

#: Releases of transformers.
OLDEST_TRIED, NEWEST_TRIED = "4.57", "5.24"


class PreparedAdamW:
    """A prepared AdamW for the Trainer of transformers itself, on one rank:

        Trainer(model, args, optimizer_cls_and_kwargs=(PreparedAdamW, {"device_memory": "20GiB", "lr": 2e-5}))

    The Trainer's arguments do not reach it: lr, betas, eps and weight_decay are those of torch.optim.AdamW. Biases and
    the weights of norms do not decay, as with the Trainer's own optimizer. Releases of transformers before 5 do not pass
    the model to an optimizer. With them, add "model": model to the dictionary.
    """

    def __new__(cls, given=None, /, **options):
        if given is None:  # transformers 5 and newer, which then call the object
            return super().__new__(cls)
        if not isinstance(given, torch.nn.Module):
            raise Refused(f"transformers {transformers.__version__} gives an optimizer the parameters without their model; "
                          'add the model, as in optimizer_cls_and_kwargs=(PreparedAdamW, {"model": model, ...})')
        return cls()(given, **options)

    def __call__(self, model, /, *, device_memory, unit=None, activations="keep", weight_decay=0.0, **options):
        options.pop("model", None)
        decaying = set(transformers.Trainer.get_decay_parameter_names(None, model))  # the method does not use self
        groups = [{"params": [p for name, p in model.named_parameters() if p.requires_grad and (name in decaying) == decays],
                   "weight_decay": weight_decay if decays else 0.0} for decays in (True, False)]
        optimizer = torch.optim.AdamW(groups, **options)
        return geminid.torch.prepare(model, optimizer, device_memory=device_memory, unit=unit, activations=activations)[1]


def _is_prepared(model):
    return any(hasattr(p, "_geminid") for p in model.parameters())


class Trainer(transformers.Trainer):
    """transformers.Trainer whose train() prepares model and optimizer with geminid.torch.prepare. It runs on one rank,
    or on several ranks that torchrun starts.

    device_memory, unit, activations: as of geminid.torch.prepare. All other arguments are those of
        transformers.Trainer.

    A trainer derived from transformers.Trainer gets the same if it inherits from both, this one first:

        class SummaryTrainer(geminid.transformers.Trainer, transformers.Seq2SeqTrainer): pass

    Raises Refused for a prepared model and for a transformers older than 4.57. Also refuses FSDP, DeepSpeed and
    torch.nn.DataParallel, because they shard or copy the model that the engine shards.
    """

    def __init__(self, *args, device_memory, unit=None, activations="keep", **kwargs):
        _releases.check("transformers", OLDEST_TRIED, NEWEST_TRIED)
        self._options = {"device_memory": device_memory, "unit": unit, "activations": activations}
        super().__init__(*args, **kwargs)
        for asked, name in ((self.is_fsdp_enabled, "args.fsdp"), (self.is_deepspeed_enabled, "args.deepspeed"),
                            (self.args.n_gpu > 1, "torch.nn.DataParallel over several GPUs in one process")):
            if asked:
                raise Refused(f"geminid.transformers.Trainer shards the model itself; leave out {name}, and start a rank "
                              "for each GPU by torchrun")
        if _is_prepared(self.model):
            raise Refused("geminid.transformers.Trainer prepares the model when train() begins, and this one is prepared "
                          "already: delete the line with geminid.torch.prepare")
        self._accelerators_prepare_model = self.accelerator.prepare_model
        self.accelerator.prepare_model = self._prepare_model

    def _prepare_model(self, model, device_placement=None, evaluation_mode=False):
        """Adds only autocast to a prepared model: it is on its device, and the engine sums its gradients."""
        if _is_prepared(model):
            device_placement, evaluation_mode = False, True
        return self._accelerators_prepare_model(model, device_placement=device_placement, evaluation_mode=evaluation_mode)

    def _move_model_to_device(self, model, device):
        """Does nothing: prepare moves the model, and the whole model is never on the device."""

    def create_optimizer(self, model=None):
        model = self.model if model is None else model
        if not _is_prepared(model):
            super().create_optimizer()
            _, optimizer = geminid.torch.prepare(model, self.optimizer, **self._options)
            # With device_placement Accelerate would read and write the whole state once.
            self.optimizer = self.accelerator.prepare(optimizer, device_placement=[False])
        return self.optimizer

    def save_model(self, output_dir=None, _internal_call=False):
        values = self.model.state_dict()  # on all ranks
        if self.args.should_save:
            self._save(output_dir or self.args.output_dir, state_dict=values)
        if self.args.push_to_hub and not _internal_call:
            self.push_to_hub(commit_message="Model save", revision=self.args.hub_revision)

    def _load_optimizer_and_scheduler(self, checkpoint):
        """Loads through host memory: with several ranks transformers would put the state of all ranks on each device."""
        files = [os.path.join(checkpoint, name) for name in (OPTIMIZER_NAME, SCHEDULER_NAME)] if checkpoint else []
        if files and all(map(os.path.isfile, files)):
            state, schedule = (torch.load(file, map_location="cpu", weights_only=True, mmap=True) for file in files)
            self.optimizer.load_state_dict(state)
            self.lr_scheduler.load_state_dict(schedule)

    def _save_optimizer_and_scheduler(self, output_dir):
        state = self.optimizer.state_dict()  # on all ranks
        if self.args.should_save:
            torch.save(state, os.path.join(output_dir, OPTIMIZER_NAME))
            torch.save(self.lr_scheduler.state_dict(), os.path.join(output_dir, SCHEDULER_NAME))
