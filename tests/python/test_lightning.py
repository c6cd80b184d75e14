"""Lightning's Trainer with a GeminidStrategy, compared with the plain Trainer."""

import os
import pathlib
import subprocess
import sys

import pytest
import torch
import twins
from models import batch, make

lightning = pytest.importorskip("lightning.pytorch")

import geminid.lightning
from geminid import errors

DEVICE_MEMORY = "768KiB"
PATIENCE_SECONDS = 300


@pytest.fixture(autouse=True)
def nothing_left_of_its_ranks():
    """Removes the process group and environment variables that Lightning leaves. Other trainers would see ranks in them."""
    before = dict(os.environ)
    yield
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    os.environ.clear()
    os.environ.update(before)


class Batches(torch.utils.data.Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, number):
        return batch(number)


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = make("gpt", tied="shared")
        self.losses = []

    def training_step(self, given, number):
        loss = self.model(*given)
        self.losses.append(loss.item())
        self.log("train_loss", loss)
        return loss

    def validation_step(self, given, number):
        self.log("val_loss", self.model(*given))

    test_step = validation_step

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        return [optimizer], [{"scheduler": torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, 6), "interval": "step"}]


class Manual(Module):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False


def loader():
    return torch.utils.data.DataLoader(Batches(), batch_size=None)


def trainer(folder, strategy="ddp", **more):
    given = dict(accelerator="cpu", devices=1, max_epochs=2, logger=False, enable_progress_bar=False,
                 enable_model_summary=False, default_root_dir=str(folder), gradient_clip_val=1.0, num_sanity_val_steps=0,
                 log_every_n_steps=1, enable_checkpointing=False,
                 use_distributed_sampler=False)
    return lightning.Trainer(strategy=strategy, **{**given, **more})


def ours(folder, **more):
    return trainer(folder, geminid.lightning.GeminidStrategy(device_memory=DEVICE_MEMORY, unit="block"), **more)


@pytest.mark.parametrize("options", [{}, {"accumulate_grad_batches": 4}, {"gradient_clip_val": None}],
                         ids=["as it is", "accumulation with a short last step", "no clipping"])
def test_fit_gives_the_losses_of_the_plain_trainer(tmp_path, options):
    expected, actual = Module(), Module()
    trainer(tmp_path, **options).fit(expected, loader(), loader())
    fitted = ours(tmp_path, **options)
    fitted.fit(actual, loader(), loader())
    twins.assert_close(actual.losses, expected.losses, twins.LOSS, "losses")
    plain, = trainer(tmp_path).validate(expected, loader(), verbose=False)
    after, = fitted.validate(actual, loader(), verbose=False)
    assert after["val_loss"] == pytest.approx(plain["val_loss"], rel=1e-6)


def test_fit_that_is_resumed_goes_on_as_if_it_had_not_ended(tmp_path):
    whole, first, second = Module(), Module(), Module()
    ours(tmp_path, max_epochs=3).fit(whole, loader())
    begun = ours(tmp_path, max_epochs=1)
    begun.fit(first, loader())
    begun.save_checkpoint(tmp_path / "first.ckpt")
    ours(tmp_path, max_epochs=3).fit(second, loader(), ckpt_path=tmp_path / "first.ckpt")
    assert first.losses + second.losses == whole.losses


def test_checkpoint_is_one_of_the_plain_trainer(tmp_path):
    module, plain = Module(), Module()
    fitted = ours(tmp_path, max_epochs=1)
    fitted.fit(module, loader())
    fitted.save_checkpoint(tmp_path / "ours.ckpt")
    trainer(tmp_path, max_epochs=2).fit(plain, loader(), ckpt_path=tmp_path / "ours.ckpt")
    whole = Module()
    trainer(tmp_path, max_epochs=2).fit(whole, loader())
    twins.assert_close(plain.losses, whole.losses[6:], twins.LOSS, "losses")


def test_model_that_was_not_fitted_is_tested_as_it_is(tmp_path):
    tested, = ours(tmp_path).test(Module(), loader(), verbose=False)
    plain, = trainer(tmp_path).test(Module(), loader(), verbose=False)
    assert tested == plain


class Failing(Module):
    def training_step(self, given, number):
        if len(self.losses) == 5:  # within the second step
            raise ValueError("of the script's own")
        return super().training_step(given, number)


def test_exception_with_gradients_of_a_step_is_that_of_the_script_and_its_checkpoint_is_saved(tmp_path):
    saved = []
    for name, make in (("plain", trainer), ("ours", ours)):
        callback = lightning.callbacks.OnExceptionCheckpoint(str(tmp_path / name))
        with pytest.raises(ValueError, match="of the script's own"):
            make(tmp_path, accumulate_grad_batches=4, enable_checkpointing=True, callbacks=[callback]).fit(Failing(), loader())
        saved.append(torch.load(callback.ckpt_path, weights_only=False))
    plain, actual = (each["optimizer_states"][0]["state"] for each in saved)
    for number, entry in plain.items():
        torch.testing.assert_close(actual[number], entry, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(dict(saved[1]["state_dict"]), dict(saved[0]["state_dict"]), rtol=1e-5, atol=1e-6)


def test_exception_with_gradients_of_a_step_and_no_callback_is_that_of_the_script(tmp_path):
    with pytest.raises(ValueError, match="of the script's own"):
        ours(tmp_path, accumulate_grad_batches=4).fit(Failing(), loader())


def test_manual_optimization_is_refused(tmp_path):
    with pytest.raises(errors.Refused, match="manual optimization"):
        ours(tmp_path, gradient_clip_val=None).fit(Manual(), loader())


def test_second_fit_of_a_model_is_refused(tmp_path):
    module = Module()
    ours(tmp_path, max_epochs=1).fit(module, loader())
    with pytest.raises(errors.Refused, match="ckpt_path"):
        ours(tmp_path, max_epochs=1).fit(module, loader())


def test_strategy_of_another_trainer_is_refused(tmp_path):
    strategy = geminid.lightning.GeminidStrategy(device_memory=DEVICE_MEMORY)
    trainer(tmp_path, strategy)
    with pytest.raises(errors.Refused, match="belongs to another Trainer already; make one for each"):
        trainer(tmp_path, strategy)


@pytest.mark.parametrize("make_callback, words", [
    (lambda: lightning.callbacks.StochasticWeightAveraging(1e-3, swa_epoch_start=1), "StochasticWeightAveraging.*torch.full"),
    (lambda: lightning.callbacks.EMAWeightAveraging(), "WeightAveraging.*torch.full"),
    (lambda: lightning.callbacks.ModelPruning("l1_unstructured", amount=0.5), "ModelPruning.*prune the module before"),
    (lambda: lightning.callbacks.LearningRateFinder(), "LearningRateFinder fits the module more than once"),
])
def test_callback_that_cannot_be_right_is_refused_before_anything_changes(tmp_path, make_callback, words):
    module = Module()
    module.lr = 1e-3
    with pytest.raises(errors.Refused, match=words):
        ours(tmp_path, callbacks=[make_callback()]).fit(module, loader())
    assert not hasattr(module, "_geminid_keeper")


def test_module_with_a_prepared_part_is_refused_with_the_line_to_delete(tmp_path):
    module = Module()
    twins.prepared(module.model, twins.adamw(module.model.parameters()))
    with pytest.raises(errors.Refused, match="delete the line with geminid.torch.prepare"):
        ours(tmp_path).fit(module, loader())


def test_checkpoint_after_a_test_is_loaded_by_a_plain_module(tmp_path):
    module = Module()
    fitted = ours(tmp_path)
    fitted.fit(module, loader())
    after, = fitted.test(module, loader(), verbose=False)
    fitted.save_checkpoint(tmp_path / "tested.ckpt")
    plain, = trainer(tmp_path).test(Module.load_from_checkpoint(tmp_path / "tested.ckpt"), loader(), verbose=False)
    assert after["val_loss"] == pytest.approx(plain["val_loss"], rel=1e-6)


def test_checkpoint_in_the_middle_of_an_epoch_is_gone_on_from_as_in_the_plain_trainer(tmp_path):
    losses = []
    for name, make in (("plain", trainer), ("ours", ours)):
        saved = lightning.callbacks.ModelCheckpoint(dirpath=tmp_path / name, every_n_train_steps=2, save_top_k=-1)
        begun, again = Module(), Module()
        options = dict(accumulate_grad_batches=2)
        make(tmp_path, enable_checkpointing=True, callbacks=[saved], **options).fit(begun, loader())
        make(tmp_path, **options).fit(again, loader(), ckpt_path=tmp_path / name / "epoch=0-step=2.ckpt")
        losses.append(begun.losses + again.losses)
    twins.assert_close(losses[1], losses[0], twins.LOSS, "losses")


def test_bf16_is_that_of_the_plain_trainer(tmp_path):
    expected, actual = Module(), Module()
    trainer(tmp_path, precision="bf16-mixed").fit(expected, loader())
    ours(tmp_path, precision="bf16-mixed").fit(actual, loader())
    assert actual.losses[0] == expected.losses[0]
    twins.assert_close(actual.losses, expected.losses, 1e-3, "losses")


class Wholes(Batches):
    def __getitem__(self, number):
        return batch(number, size=4)


def test_two_ranks_of_torchrun_fit_and_resume_as_one(tmp_path):
    expected = Module()
    trainer(tmp_path).fit(expected, torch.utils.data.DataLoader(Wholes(), batch_size=None))
    program = pathlib.Path(__file__).parent / "lightning_program.py"
    subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(program),
                    str(tmp_path)], check=True, timeout=PATIENCE_SECONDS)
    ranks = [torch.load(tmp_path / f"rank{rank}.pt") for rank in range(2)]
    twins.assert_close([sum(losses) / 2 for losses in zip(*ranks)], expected.losses, twins.LOSS, "losses")
