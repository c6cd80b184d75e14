"""The engine's Trainer compared with the plain Trainer of transformers."""

import os
import pathlib
import subprocess
import sys

import pytest
import torch
import twins

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")

import geminid.transformers
from geminid import errors

TOKENS, LENGTH, EXAMPLES = 97, 12, 20
PATIENCE_SECONDS = 300
DEVICE_MEMORY = "1MiB"  # less than weights and gradients need


@pytest.fixture(autouse=True)
def environment_as_before():
    """Restores the environment: in releases before 5, arguments with bf16 set a variable that later trainers obey."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


class Sentences(torch.utils.data.Dataset):
    """A data set of fixed sentences."""

    def __len__(self):
        return EXAMPLES

    def __getitem__(self, number):
        tokens = torch.randint(1, TOKENS, (LENGTH,), generator=torch.Generator().manual_seed(number))
        return {"input_ids": tokens, "labels": tokens}


def loss_in_double(logits, labels, vocab_size, num_items_in_batch=None, **_):
    """Computes in fp64 the loss that transformers computes in fp32: the last bits of fp32 differ between CPUs."""
    logits, labels = logits[:, :-1].double().reshape(-1, vocab_size), labels[:, 1:].reshape(-1)
    whole = torch.nn.functional.cross_entropy(logits, labels, reduction="sum")
    return whole / ((labels != -100).sum() if num_items_in_batch is None else num_items_in_batch)


def make_model(dtype=torch.float32):
    torch.manual_seed(0)
    config = transformers.LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=3, num_attention_heads=4,
                                      vocab_size=TOKENS, max_position_embeddings=32)
    model = transformers.LlamaForCausalLM(config).to(dtype)
    model.loss_function = loss_in_double
    return model


def arguments(folder, **more):
    given = dict(output_dir=str(folder), use_cpu=True, per_device_train_batch_size=4, num_train_epochs=2, logging_steps=1,
                 save_strategy="no", report_to="none", disable_tqdm=True, learning_rate=1e-3, weight_decay=0.1,
                 lr_scheduler_type="linear", warmup_steps=2, seed=7)
    return transformers.TrainingArguments(**{**given, **more})


class Seen:
    """Records the losses of micro-batches. A trainer logs only their sums in fp32."""

    def training_step(self, *args, **kwargs):
        loss = super().training_step(*args, **kwargs)
        self.losses = [*getattr(self, "losses", []), float(loss)]
        return loss


class Plain(Seen, transformers.Trainer):
    pass


class Ours(Seen, geminid.transformers.Trainer):
    pass


def plain(folder, model=None, **more):
    return Plain(model or make_model(), arguments(folder, **more), train_dataset=Sentences(), eval_dataset=Sentences())


def ours(folder, model=None, **more):
    return Ours(model or make_model(), arguments(folder, **more), train_dataset=Sentences(), eval_dataset=Sentences(),
                device_memory=DEVICE_MEMORY)


def logged(trainer, key):
    return [entry[key] for entry in trainer.state.log_history if key in entry]


def assert_same(expected, actual, loss=twins.LOSS, norm=twins.NORM):
    twins.assert_close(actual.losses, expected.losses[-len(actual.losses):], loss, "losses")
    assert len(logged(actual, "loss")) == len(logged(expected, "loss"))
    if logged(expected, "grad_norm") or logged(actual, "grad_norm"):  # before release 5 it is logged only with clipping
        twins.assert_close(logged(actual, "grad_norm"), logged(expected, "grad_norm"), norm, "norms")
    assert logged(actual, "learning_rate") == logged(expected, "learning_rate")


@pytest.mark.parametrize("options", [
    {}, {"gradient_accumulation_steps": 3}, {"max_grad_norm": 0.1}, {"max_grad_norm": 0.0},
    {"gradient_checkpointing": True}, {"label_smoothing_factor": 0.1}, {"adam_beta1": 0.5, "optim": "adamw_torch"},
    {"optim": "sgd"}, {"optim": "adagrad"},
], ids=lambda options: ", ".join(f"{name} {value}" for name, value in options.items()) or "as it is")
def test_trainer_logs_what_the_plain_one_logs(tmp_path, options):
    expected, actual = plain(tmp_path / "plain", **options), ours(tmp_path / "ours", **options)
    expected.train()
    actual.train()
    assert_same(expected, actual)


def test_trainer_of_transformers_itself_takes_a_prepared_optimizer(tmp_path):
    options = dict(lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1)
    expected = plain(tmp_path / "plain")
    model = make_model()
    options["model"] = model  # releases before 5 do not pass it
    actual = Plain(model, arguments(tmp_path / "ours"), train_dataset=Sentences(), optimizer_cls_and_kwargs=(
        geminid.transformers.PreparedAdamW, {"device_memory": DEVICE_MEMORY, **options}))
    expected.train()
    actual.train()
    assert_same(expected, actual)


def test_run_that_is_resumed_goes_on_as_if_it_had_not_ended(tmp_path):
    whole = ours(tmp_path / "whole")
    whole.train()
    first = ours(tmp_path / "cut", save_strategy="steps", save_steps=4, save_total_limit=1)
    first.add_callback(Stopper(4))
    first.train()
    second = ours(tmp_path / "cut", save_strategy="steps", save_steps=4, save_total_limit=1)
    second.train(resume_from_checkpoint=True)
    assert logged(second, "loss") == logged(whole, "loss")
    assert logged(second, "grad_norm") == logged(whole, "grad_norm")


class Stopper(transformers.TrainerCallback):
    def __init__(self, after):
        self.after = after

    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop = state.global_step >= self.after


def test_checkpoint_of_the_plain_trainer_is_resumed(tmp_path):
    options = dict(save_strategy="steps", save_steps=4)
    expected = plain(tmp_path / "run", **options)
    expected.train()
    actual = ours(tmp_path / "run", **options)
    actual.train(resume_from_checkpoint=str(tmp_path / "run/checkpoint-4"))
    assert len(logged(actual, "loss")) == 10
    assert_same(expected, actual)


def test_evaluation_while_it_trains_and_the_best_model_at_the_end(tmp_path):
    options = dict(eval_strategy="steps", eval_steps=2, save_strategy="steps", save_steps=2, load_best_model_at_end=True)
    expected, actual = plain(tmp_path / "plain", **options), ours(tmp_path / "ours", **options)
    expected.train()
    actual.train()
    twins.assert_close(logged(actual, "eval_loss"), logged(expected, "eval_loss"), twins.LOSS, "losses")
    assert_same(expected, actual)
    assert actual.evaluate()["eval_loss"] == min(logged(actual, "eval_loss"))


def test_bf16_is_that_of_the_plain_trainer(tmp_path):
    expected, actual = plain(tmp_path / "plain", bf16=True), ours(tmp_path / "ours", bf16=True)
    expected.train()
    actual.train()
    assert actual.losses[0] == expected.losses[0]
    assert_same(expected, actual, loss=1e-3, norm=3e-3)  # rounding to bf16 amplifies a last bit of fp32


def with_adapters():
    peft = pytest.importorskip("peft")
    torch.manual_seed(1)
    return peft.get_peft_model(make_model(), peft.LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "down_proj"]))


def test_adapters_of_peft_train_are_saved_and_resumed(tmp_path):
    options = dict(save_strategy="steps", save_steps=4)
    expected = plain(tmp_path / "plain", with_adapters(), **options)
    actual = ours(tmp_path / "ours", with_adapters(), **options)
    expected.train()
    actual.train()
    assert_same(expected, actual)
    saved = tmp_path / "ours/checkpoint-4"
    assert (saved / "adapter_model.safetensors").stat().st_size < (1 << 16), "the base model is saved, too"
    again = ours(tmp_path / "ours", with_adapters(), **options)
    again.train(resume_from_checkpoint=str(saved))
    assert logged(again, "loss") == logged(actual, "loss")


def test_saved_model_is_loaded_by_transformers(tmp_path):
    trainer = ours(tmp_path)
    trainer.train()
    trainer.save_model(tmp_path / "saved")
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "saved")
    for name, values in trainer.model.state_dict().items():
        assert torch.equal(values, loaded.state_dict()[name]), name


def test_second_train_goes_on_with_the_same_engine(tmp_path):
    trainer = ours(tmp_path, max_steps=2)
    trainer.train()
    keeper = trainer.model._geminid_keeper
    trainer.train()
    assert trainer.model._geminid_keeper is keeper


def test_optimizer_that_the_engine_lacks_is_refused_by_name(tmp_path):
    with pytest.raises(errors.Refused, match="Adafactor"):
        ours(tmp_path, optim="adafactor").train()


def test_two_ranks_of_torchrun_train_and_resume_as_one(tmp_path):
    expected = plain(tmp_path / "plain")
    expected.train()
    program = pathlib.Path(__file__).parent / "trainer_program.py"
    subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(program),
                    str(tmp_path)], check=True, timeout=PATIENCE_SECONDS)
    seen = torch.load(tmp_path / "rank0.pt")
    twins.assert_close(seen["loss"], logged(expected, "loss"), twins.LOSS, "losses")
    twins.assert_close(seen["grad_norm"], logged(expected, "grad_norm"), twins.NORM, "norms")
    alone = ours(tmp_path / "run")  # continues from a checkpoint of two ranks
    alone.train(resume_from_checkpoint=str(tmp_path / "run/checkpoint-4"))
    twins.assert_close(alone.losses, expected.losses[4:], twins.LOSS, "losses")
