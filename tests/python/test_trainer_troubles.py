"""Problems that users of other sharding libraries had with Hugging Face's Trainer, compared with the plain Trainer."""

import pytest
import torch
import twins
from test_trainer import (DEVICE_MEMORY, Ours, Plain, Seen, Sentences, arguments, assert_same, environment_as_before,
                          logged, make_model, ours, plain, transformers)

import geminid.torch
import geminid.transformers
from geminid import errors

__all__ = ["environment_as_before"]


def evaluated(trainer):
    return trainer.evaluate()["eval_loss"]


def test_evaluation_and_prediction_before_training_leave_it_as_it_is(tmp_path):
    expected, actual = plain(tmp_path / "plain"), ours(tmp_path / "ours")
    assert evaluated(actual) == evaluated(expected)
    assert actual.predict(Sentences()).metrics["test_loss"] == expected.predict(Sentences()).metrics["test_loss"]
    expected.train()
    actual.train()
    assert_same(expected, actual)
    assert evaluated(actual) == pytest.approx(evaluated(expected), rel=1e-6)


def test_evaluation_at_the_start_and_training_in_two_parts(tmp_path):
    options = dict(max_steps=3, eval_on_start=True)
    expected, actual = plain(tmp_path / "plain", **options), ours(tmp_path / "ours", **options)
    for trainer in (expected, actual):
        trainer.train()
        trainer.evaluate()
        trainer.train()
    assert_same(expected, actual)


def test_best_model_is_loaded_from_checkpoints_of_models_alone(tmp_path):
    options = dict(eval_strategy="steps", eval_steps=3, save_strategy="steps", save_steps=3, save_only_model=True,
                   load_best_model_at_end=True, max_steps=6)
    trainer = ours(tmp_path, **options)
    trainer.train()
    assert evaluated(trainer) == min(logged(trainer, "eval_loss"))
    assert not list(tmp_path.glob("checkpoint-*/optimizer.pt"))


def test_checkpoint_of_the_model_alone_is_gone_on_from_with_a_new_optimizer(tmp_path):
    options = dict(save_strategy="steps", save_steps=3, save_only_model=True, max_steps=6)
    plain(tmp_path, **options).train()
    expected, actual = plain(tmp_path, **options), ours(tmp_path, **options)
    for trainer in (expected, actual):
        trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    assert len(actual.losses) == 3
    assert_same(expected, actual)


@pytest.mark.parametrize("steps", [3, 8])
def test_accumulation_over_more_batches_than_the_epoch_has(tmp_path, steps):
    options = dict(gradient_accumulation_steps=steps, per_device_train_batch_size=8)  # 3 batches; the last is half full
    expected, actual = plain(tmp_path / "plain", **options), ours(tmp_path / "ours", **options)
    expected.train()
    actual.train()
    assert_same(expected, actual)


class Uneven(Sentences):
    """Sentences with different numbers of tokens in the loss."""

    def __getitem__(self, number):
        example = super().__getitem__(number)
        labels = example["labels"].clone()
        labels[:1 + 2 * (number % 5)] = -100
        return {**example, "labels": labels}


def test_accumulation_weighs_tokens_and_not_batches(tmp_path):
    pair = []
    for make in (plain, ours):
        trainer = make(tmp_path / make.__name__, gradient_accumulation_steps=2, per_device_train_batch_size=2)
        trainer.train_dataset = Uneven()
        trainer.train()
        pair.append(trainer)
    assert_same(*pair)


class TooLarge(transformers.LlamaForCausalLM):
    """A model that fails with more than two sentences at a time."""

    def forward(self, input_ids=None, labels=None, **more):
        if self.training and len(input_ids) > 2 and getattr(self, "calls", 0) > 0:
            raise RuntimeError("CUDA out of memory.")
        self.calls = getattr(self, "calls", 0) + 1
        return super().forward(input_ids=input_ids, labels=labels, **more)


def test_smaller_batch_is_tried_after_one_that_did_not_fit(tmp_path):
    """The second step fails, when the model is prepared and has made a step."""
    trained = []
    for make in (plain, ours):
        model = make_model()
        model.__class__ = TooLarge
        trainer = make(tmp_path / make.__name__, model, auto_find_batch_size=True, max_steps=4)
        trainer.train()
        trained.append(trainer)
    assert len(trained[1].losses) >= 5, "there was no second attempt"
    assert_same(*trained)


def test_model_that_train_makes_is_prepared_each_time(tmp_path):
    made = []
    for kind, more in ((Plain, {}), (Ours, {"device_memory": DEVICE_MEMORY})):
        trainer = kind(args=arguments(tmp_path / kind.__name__, max_steps=2), model_init=make_model,
                       train_dataset=Sentences(), **more)
        trainer.train()
        first = trainer.losses
        trainer.losses = []
        trainer.train()
        assert trainer.losses == first
        made.append(trainer)
    assert_same(*made)


def test_noise_in_embeddings_is_that_of_the_plain_trainer(tmp_path):
    options = dict(neftune_noise_alpha=5.0, max_steps=4)
    trained = []
    for make in (plain, ours):
        trainer = make(tmp_path / make.__name__, **options)  # the constructor seeds the noise
        trainer.train()
        trained.append(trainer)
    assert_same(*trained)


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return (Sentences()[number] for number in range(len(Sentences())))


def test_dataset_without_a_length_is_trained_and_resumed(tmp_path):
    options = dict(max_steps=7, save_strategy="steps", save_steps=3)
    trained = []
    for make in (plain, ours):
        trainer = make(tmp_path / make.__name__, **options)
        trainer.train_dataset = Stream()
        trainer.train()
        trained.append(trainer)
    assert_same(*trained)
    again = ours(tmp_path / "ours", **options)
    again.train_dataset = Stream()
    again.train(resume_from_checkpoint=str(tmp_path / "ours/checkpoint-3"))
    assert again.losses == trained[1].losses[3:]


def test_trainer_of_another_kind_trains_and_generates(tmp_path):
    """A class inherits from the engine's Trainer and from another Trainer."""
    class PlainWriter(Seen, transformers.Seq2SeqTrainer):
        pass

    class Writer(Seen, geminid.transformers.Trainer, transformers.Seq2SeqTrainer):
        pass

    def make(kind, **more):
        torch.manual_seed(0)
        model = transformers.T5ForConditionalGeneration(transformers.T5Config(
            d_model=64, d_ff=128, d_kv=16, num_layers=2, num_heads=4, vocab_size=97, dropout_rate=0.0,
            decoder_start_token_id=0, tie_word_embeddings=True))
        args = transformers.Seq2SeqTrainingArguments(
            str(tmp_path / kind.__name__), use_cpu=True, max_steps=2, per_device_train_batch_size=4, report_to="none",
            disable_tqdm=True, predict_with_generate=True, generation_max_length=6, logging_steps=1, save_strategy="no")
        return kind(model, args, train_dataset=Sentences(), **more)

    expected, actual = make(PlainWriter), make(Writer, device_memory=DEVICE_MEMORY)
    expected.train()
    actual.train()
    assert_same(expected, actual, loss=1e-6)  # the loss is computed in fp32
    written, wanted = (trainer.predict(Sentences()).predictions for trainer in (actual, expected))
    assert (written == wanted).all()


def test_optimizer_of_the_scripts_own_is_prepared(tmp_path):
    made = []
    for kind, more in ((Plain, {}), (Ours, {"device_memory": DEVICE_MEMORY})):
        model = make_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        trainer = kind(model, arguments(tmp_path / kind.__name__, max_steps=3), train_dataset=Sentences(),
                       optimizers=(optimizer, None), **more)
        trainer.train()
        made.append(trainer)
    assert_same(*made)


def test_model_that_is_prepared_already_is_refused_with_the_line_to_delete(tmp_path):
    model = make_model()
    geminid.torch.prepare(model, twins.adamw(model.parameters()), device_memory=DEVICE_MEMORY)
    with pytest.raises(errors.Refused, match="delete the line with geminid.torch.prepare"):
        ours(tmp_path, model)


def test_prepared_optimizer_without_its_model_is_refused_with_what_to_add():
    with pytest.raises(errors.Refused, match=r'\(PreparedAdamW, \{"model": model, \.\.\.\}\)'):
        geminid.transformers.PreparedAdamW([{"params": []}], device_memory=DEVICE_MEMORY)
