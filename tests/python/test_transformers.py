"""Unmodified models of Hugging Face's transformers, compared with plain torch: with enough memory for all weights, and with
three quarters of that."""

import copy

import pytest
import torch
import twins

transformers = pytest.importorskip("transformers")

STEPS, TOKENS, CLASSES = 4, 97, 10
_SIZES = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=3, num_attention_heads=4)
_TEXT = dict(**_SIZES, vocab_size=TOKENS, max_position_embeddings=32)
_NO_DROPOUT = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)

#: The model's class, the class of its configuration, and the configuration's values.
MODELS = {
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", dict(n_embd=64, n_layer=3, n_head=4, vocab_size=TOKENS, n_positions=32,
                                                   resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0,
                                                   eos_token_id=0)),
    "llama": ("LlamaForCausalLM", "LlamaConfig", _TEXT),
    "opt": ("OPTForCausalLM", "OPTConfig", dict(hidden_size=64, ffn_dim=128, num_hidden_layers=3, num_attention_heads=4,
                                                vocab_size=TOKENS, max_position_embeddings=32, dropout=0.0,
                                                word_embed_proj_dim=64)),
    "bert": ("BertForMaskedLM", "BertConfig", {**_TEXT, **_NO_DROPOUT}),
    "vit": ("ViTForImageClassification", "ViTConfig", {**_SIZES, **_NO_DROPOUT, "image_size": 16, "patch_size": 4,
                                                       "num_labels": CLASSES}),
    "t5": ("T5ForConditionalGeneration", "T5Config", dict(d_model=64, d_ff=128, d_kv=16, num_layers=3, num_heads=4,
                                                          vocab_size=TOKENS, dropout_rate=0.0,
                                                          decoder_start_token_id=0)),
    "mixtral": ("MixtralForCausalLM", "MixtralConfig", {**_TEXT, "num_key_value_heads": 4, "num_local_experts": 4}),
    # PaLM's block: parallel attention and MLP sublayers, one head of keys and values, a gated MLP, no biases.
    "cohere, shaped as palm": ("CohereForCausalLM", "CohereConfig", {**_TEXT, "num_key_value_heads": 1,
                                                                     "pad_token_id": 0, "bos_token_id": 0,
                                                                     "eos_token_id": 0}),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", {**_TEXT, "num_key_value_heads": 4, "head_dim": 16}),
    "qwen3 moe": ("Qwen3MoeForCausalLM", "Qwen3MoeConfig", {**_TEXT, "num_key_value_heads": 4, "num_experts": 4,
                                                            "num_experts_per_tok": 2, "moe_intermediate_size": 32,
                                                            "head_dim": 16}),
}


def make(name):
    model, config, options = MODELS[name]
    torch.manual_seed(0)
    return getattr(transformers, model)(getattr(transformers, config)(**options)).train()


def batch(name, number):
    generator = torch.Generator().manual_seed(number)
    if name == "vit":
        return {"pixel_values": torch.randn(4, 3, 16, 16, generator=generator),
                "labels": torch.randint(0, CLASSES, (4,), generator=generator)}
    tokens = torch.randint(1, TOKENS, (4, 16), generator=generator)
    return {"input_ids": tokens, "labels": tokens}


def weight_bytes(model):
    return sum(p.numel() * p.element_size() for p in model.parameters())


@pytest.mark.parametrize("name", MODELS)
def test_model_as_it_is_trains_as_in_plain_torch(name):
    def step(twin, number):
        loss = twin.model(**batch(name, number)).loss
        loss.backward()
        twin.losses.append(float(loss.detach()))
        twins.finish(twin)

    model = make(name)
    small = weight_bytes(model) * 3 // 4
    for device_memory in (twins.AMPLE, small):
        pair = twins.pair(copy.deepcopy(model), device_memory=device_memory)
        twins.run(pair, step, STEPS)
        twins.assert_same(pair)
    twins.assert_moved(pair[1], STEPS)
