"""Lightning's Trainer on the engine: Trainer(strategy=GeminidStrategy(device_memory="20GiB"))."""

import sys

import torch
from lightning.pytorch import callbacks
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.trainer.states import TrainerFn, TrainerStatus

import geminid.torch
from geminid import _releases
from geminid.errors import Refused
from geminid.session import Ranks

OLDEST_TRIED, NEWEST_TRIED = "2.6", "2.6"

_AVERAGES = ("reads all weights at once, which the device has no room for; leave it out, and average in a callback of your "
             "own, in `with geminid.torch.full(module):`")
_FITS_AGAIN = ("fits the module more than once; run it before, with a Trainer without GeminidStrategy, and give its result to "
               "the module")
_PRUNES = ("gives the module new parameters at the end of an epoch, which the engine would not have; prune the module before "
           "trainer.fit, by torch.nn.utils.prune")
_UNSUPPORTED = {"StochasticWeightAveraging": _AVERAGES, "WeightAveraging": _AVERAGES, "LearningRateFinder": _FITS_AGAIN,
                "BatchSizeFinder": _FITS_AGAIN, "ModelPruning": _PRUNES}


def _check_callbacks(trainer):
    for name, why in _UNSUPPORTED.items():
        kind = getattr(callbacks, name, None)  # some releases lack some of them
        if kind is not None and any(isinstance(callback, kind) for callback in trainer.callbacks):
            raise Refused(f"lightning.pytorch.callbacks.{name} {why}")


class GeminidStrategy(DDPStrategy):
    """Starts ranks and spreads batches over them as Lightning's "ddp" does. The engine stores the model's
    parameters and sums the gradients.

    device_memory, unit, activations: as of geminid.torch.prepare, which fit() calls at its begin. Validation, testing and
        prediction without a fit() do not change the model.
    options: options of DDPStrategy, such as timeout, except those of torch's DistributedDataParallel.

    Raises Refused for manual optimization (several optimizers need it), for a model that was fitted or prepared
    already, for callbacks that average weights, prune them or fit more than once, and if a second Trainer gets
    the strategy of a first.
    """

    strategy_name = "geminid"

    def __init__(self, *, device_memory, unit=None, activations="keep", **options):
        _releases.check("lightning", OLDEST_TRIED, NEWEST_TRIED)
        self._options = {"device_memory": device_memory, "unit": unit, "activations": activations}
        super().__init__(**options)

    @property
    def _accelerator(self):
        # A second Trainer reads this property and would report that the accelerator was given twice.
        if self._chosen is not None and sys._getframe(1).f_code.co_name == "_check_config_and_set_final_flags":
            raise Refused("this GeminidStrategy belongs to another Trainer already; make one for each: "
                          "Trainer(strategy=GeminidStrategy(device_memory=...))")
        return self._chosen

    @_accelerator.setter
    def _accelerator(self, chosen):
        self._chosen = chosen

    def _setup_model(self, model):
        return model

    def setup_optimizers(self, trainer):
        if trainer.state.fn != TrainerFn.FITTING:
            return
        module = self.lightning_module
        _check_callbacks(trainer)
        if hasattr(module, "_geminid_keeper"):
            raise Refused("this model has been fitted with a GeminidStrategy already; for another fit() make a new model "
                          "and give the checkpoint of the first as trainer.fit(model, ckpt_path=...)")
        if any(hasattr(p, "_geminid") for p in module.parameters()):
            raise Refused("GeminidStrategy prepares the module when fit() begins, and a part of this one is prepared already: "
                          "delete the line with geminid.torch.prepare")
        if not module.automatic_optimization:
            raise Refused("GeminidStrategy needs automatic_optimization: manual optimization may step at times that the "
                          "engine's plan does not have. Train such a model by a loop of your own and geminid.torch.prepare")
        super().setup_optimizers(trainer)
        for tensor in (*module.parameters(), *module.buffers()):  # all ranks get the first rank's values, as with "ddp"
            torch.distributed.broadcast(tensor.detach(), 0)
        _, optimizer = geminid.torch.prepare(module, self.optimizers[0], **self._options, ranks=self._ranks())
        self.optimizers = [optimizer]
        # Lightning broadcasts all other parameters and buffers to all ranks when it validates.
        module._ddp_params_and_buffers_to_ignore = [name for name, _ in module.named_parameters()]

    def optimizer_state(self, optimizer):
        if self.lightning_module.trainer.state.status == TrainerStatus.INTERRUPTED:
            for each in self.optimizers:
                each._keeper.cancel()  # gradients of a step that nobody will make: what is saved is after the last one
        return super().optimizer_state(optimizer)

    def teardown(self):
        # The engine's state stays where it is. An exception may have left gradients, with which it cannot be read.
        optimizers, self._optimizers = self._optimizers, []
        try:
            super().teardown()
        finally:
            self._optimizers = optimizers

    def _ranks(self):
        """Connects the ranks with the numbers that Lightning gave them: Lightning sets only some environment variables."""
        environment = self.cluster_environment
        return Ranks(rank=self.global_rank, world_size=self.world_size, local_rank=self.local_rank,
                     local_world_size=self.num_processes, master_address=environment.main_address,
                     master_port=environment.main_port)

    def training_step(self, *args, **kwargs):
        # Through the module's call: its hooks tell the engine where a micro-batch begins and ends.
        with self.precision_plugin.train_step_context():
            return self._forward_redirection(self.model, self.lightning_module, "training_step", *args, **kwargs)
