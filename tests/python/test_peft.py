"""LoRA by Hugging Face's PEFT: the adapter trains as in plain torch, and the base does not change."""

import pytest
import torch

import geminid.torch
import test_transformers
import twins
from geminid import errors
from test_transformers import STEPS, batch, weight_bytes

peft = pytest.importorskip("peft")

LAYERS = {"gpt2": ["c_attn", "c_fc"], "llama": ["q_proj", "v_proj", "down_proj"], "t5": ["q", "v", "wo"]}


def make(name, **options):
    model = test_transformers.make(name)
    torch.manual_seed(1)
    config = peft.LoraConfig(r=4, lora_alpha=8, lora_dropout=0.1, target_modules=LAYERS[name],
                             fan_in_fan_out=name == "gpt2", **options)
    return peft.get_peft_model(model, config)


def pair(model, device_memory):
    return twins.pair(model, lambda parameters: twins.adamw([p for p in parameters if p.requires_grad]),
                      device_memory=device_memory)


def train(both, name, steps=STEPS):
    def step(twin, number):
        with torch.no_grad(), twin.model.disable_adapter():  # the reference model of preference training
            twin.losses.append(float(twin.model(**batch(name, 50 + number)).loss))
        loss = twin.model(**batch(name, number)).loss
        loss.backward()
        twin.losses.append(float(loss.detach()))
        twins.finish(twin)
    twins.run(both, step, steps)


@pytest.mark.parametrize("more", [{}, {"use_dora": True}, {"modules_to_save": ["lm_head"]}], ids=["lora", "dora", "head"])
@pytest.mark.parametrize("name", LAYERS)
def test_adapter_trains_as_in_plain_torch_and_the_base_stays(name, more):
    model = make(name, **more)
    before = {key: p.detach().clone() for key, p in model.named_parameters()}
    trained = {key for key, p in model.named_parameters() if p.requires_grad}
    both = pair(model, weight_bytes(model) * 3 // 4)
    train(both, name)
    twins.assert_same(both)
    twins.assert_moved(both[1], STEPS // 2)
    after = dict(both[1].model.state_dict())
    for key, value in before.items():
        assert torch.equal(after[key], value) == (key not in trained), key


def test_adapter_that_was_saved_is_loaded_by_peft(tmp_path):
    _, ours = both = pair(make("llama"), twins.AMPLE)
    train(both, "llama")
    ours.model.save_pretrained(tmp_path)
    loaded = peft.PeftModel.from_pretrained(test_transformers.make("llama"), tmp_path).eval()
    ours.model.eval()
    with torch.no_grad():
        made, expected = (model(**batch("llama", 9)).logits for model in (loaded, ours.model))
    assert torch.equal(made, expected)
    assert {key: value.shape for key, value in peft.get_peft_model_state_dict(loaded).items()} == {
        key: value.shape for key, value in peft.get_peft_model_state_dict(ours.model).items()}


def test_adapter_is_merged_into_the_base_and_taken_out_again():
    _, ours = both = pair(make("llama"), twins.AMPLE)
    train(both, "llama", 2)
    for twin in both:
        twin.model.eval()
    with torch.no_grad():
        expected = ours.model(**batch("llama", 9)).logits
        with geminid.torch.full(ours.model):
            ours.model.merge_adapter()
        torch.testing.assert_close(ours.model(**batch("llama", 9)).logits, expected, rtol=1e-4, atol=1e-5)
        with geminid.torch.full(ours.model):
            ours.model.unmerge_adapter()
        torch.testing.assert_close(ours.model(**batch("llama", 9)).logits, expected, rtol=1e-4, atol=1e-5)


def test_adapter_added_after_prepare_is_refused_with_when_to_add_it():
    _, ours = both = pair(make("llama"), twins.AMPLE)
    train(both, "llama", 2)
    ours.model.add_adapter("late", peft.LoraConfig(r=2, target_modules=LAYERS["llama"]))
    train((both[0], ours), "llama", 1)  # it is there, and another one is active
    ours.model.set_adapter("late")
    ours.model(**batch("llama", 3)).loss.backward()
    with pytest.raises(errors.Refused, match=r"lora_A.late.weight' was added to the model after geminid.torch.prepare"):
        ours.optimizer.step()


def test_adapters_of_before_prepare_take_turns():
    model = make("llama")
    model.add_adapter("second", peft.LoraConfig(r=4, target_modules=LAYERS["llama"]))
    model.base_model.set_adapter(["default", "second"])  # both require gradients, so the optimizer gets both
    both = pair(model, twins.AMPLE)
    for name in ("default", "second"):
        for twin in both:
            twin.model.set_adapter(name)
        train(both, "llama", 2)
    twins.assert_same(both)
