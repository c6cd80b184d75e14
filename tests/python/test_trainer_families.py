"""geminid-train compared with transformers. A folder that transformers saved has the same loss, gradients and text in both.
A model that geminid-train exports is the same model in transformers."""

import json
import os
import pathlib
import subprocess

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

TRAIN = pathlib.Path(os.environ["GEMINID_DAEMON"]).resolve().with_name("geminid-train")
CONTEXT = 48
VERSION = tuple(int(number) for number in transformers.__version__.split(".")[:2])

SHAPE = dict(hidden_size=32, intermediate_size=56, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             vocab_size=256, max_position_embeddings=64, bos_token_id=None, eos_token_id=None, pad_token_id=None)
# Heads of 16 columns; rotary embeddings rotate 4 of them.
NEOX = dict(hidden_size=64, intermediate_size=56, num_hidden_layers=2, num_attention_heads=4, vocab_size=256,
            max_position_embeddings=64, rotary_pct=0.25, bos_token_id=None, eos_token_id=None, pad_token_id=None)
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=256)
YARN = dict(rope_type="yarn", factor=4.0, beta_fast=8.0, beta_slow=1.0, original_max_position_embeddings=64)

FAMILIES = {
    "gpt2": ("GPT2", dict(n_embd=32, n_layer=2, n_head=4, n_positions=64, vocab_size=256, bos_token_id=None,
                          eos_token_id=None, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)),
    "opt": ("OPT", dict(hidden_size=32, ffn_dim=56, num_hidden_layers=2, num_attention_heads=4, vocab_size=256,
                        max_position_embeddings=64, bos_token_id=None, eos_token_id=None, pad_token_id=None,
                        dropout=0.0)),
    "gpt_neox": ("GPTNeoX", dict(NEOX)),
    "gpt_neox, whole heads turned": ("GPTNeoX", dict(NEOX, rotary_pct=1.0, rotary_emb_base=500)),
    "gpt_neox, one after the other": ("GPTNeoX", dict(NEOX, use_parallel_residual=False, attention_bias=False)),
    "gpt_neox, gelu_fast, tied": ("GPTNeoX", dict(NEOX, hidden_act="gelu_fast", tie_word_embeddings=True)),
    "gpt_neox, yarn": ("GPTNeoX", dict(NEOX, rotary_pct=0.5, rope_scaling=dict(YARN, rope_theta=500.0))),
    "llama": ("Llama", dict(SHAPE)),
    "llama with wide heads": ("Llama", dict(SHAPE, head_dim=16)),
    "llama with biases": ("Llama", dict(SHAPE, attention_bias=True)),
    "llama, linear": ("Llama", dict(SHAPE, rope_scaling=dict(rope_type="linear", factor=4.0))),
    "llama 3": ("Llama", dict(SHAPE, head_dim=16, rope_theta=500.0, rope_scaling=LLAMA3)),
    "llama, yarn": ("Llama", dict(SHAPE, head_dim=16, rope_theta=500.0, rope_scaling=YARN)),
    "llama, yarn, tied": ("Llama", dict(SHAPE, head_dim=16, rope_theta=500.0, tie_word_embeddings=True,
                                        rope_scaling=dict(YARN, mscale=0.707, mscale_all_dim=1.2, truncate=False))),
    "mistral": ("Mistral", dict(SHAPE, sliding_window=8)),
    "mistral with a window of one token": ("Mistral", dict(SHAPE, sliding_window=1)),
    "mistral without a window": ("Mistral", dict(SHAPE, sliding_window=None)),
    "qwen2": ("Qwen2", dict(SHAPE)),
    "qwen2, tied": ("Qwen2", dict(SHAPE, tie_word_embeddings=True)),
    "qwen3": ("Qwen3", dict(SHAPE, head_dim=16)),
    "qwen3, tied": ("Qwen3", dict(SHAPE, head_dim=16, tie_word_embeddings=True)),
    "qwen3, yarn": ("Qwen3", dict(SHAPE, head_dim=16, rope_theta=500.0, rope_scaling=YARN)),
}


def make(name):
    """Makes a model whose every weight matters: gains are not 1, and biases are not 0."""
    family, options = FAMILIES[name]
    config = getattr(transformers, f"{family}Config")(**options)
    config._attn_implementation = "eager"
    model = getattr(transformers, f"{family}LMHeadModel" if family == "GPT2" else f"{family}ForCausalLM")(config)
    generator = torch.Generator().manual_seed(len(name))
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(parameter + 0.1 * noise if parameter.dim() == 1 else 0.2 * noise)
    return model.float().eval()


def in_memory(key):
    """Returns the name that this version of transformers has for a tensor of its files."""
    return "lm_head.weight" if key == "embed_out.weight" and VERSION >= (5, 13) else key


def train(*arguments):
    done = subprocess.run([TRAIN, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def text_of(folder):
    """Returns as many bytes as one sequence and its last target, so that a sequence can begin at one place only."""
    data = bytes(torch.randint(0, 256, (CONTEXT + 1,), generator=torch.Generator().manual_seed(1)).tolist())
    (folder / "text").write_bytes(data)
    return torch.tensor(list(data))


def loss_of(model, tokens):
    logits = model(tokens[None, :-1]).logits[0]
    return torch.nn.functional.cross_entropy(logits, tokens[1:])


@pytest.mark.parametrize("name", FAMILIES)
def test_loss_gradients_and_export_are_those_of_transformers(name, tmp_path):
    model, tokens = make(name), text_of(tmp_path)
    model.save_pretrained(tmp_path / "saved")
    rate = 0.25
    train("--load", tmp_path / "saved", "--text", tmp_path / "text", "--context", CONTEXT, "--batch", 1, "--steps", 1,
          "--optimizer", "sgd", "--momentum", 0, "--weight-decay", 0, "--lr", rate, "--schedule", "constant",
          "--warmup-steps", 0, "--clip-norm", 0, "--dtype", "fp32", "--report", tmp_path / "report",
          "--export", tmp_path / "exported", "--export-dtype", "fp32")
    loss = loss_of(model, tokens)
    loss.backward()
    assert json.loads((tmp_path / "report").read_text())["loss"][0] == pytest.approx(loss.item(), rel=2e-6)

    exported = load_file(tmp_path / "exported" / "model.safetensors")
    assert set(exported) == set(load_file(tmp_path / "saved" / "model.safetensors"))
    exported = {in_memory(key): value for key, value in exported.items()}
    expected = dict(model.named_parameters())  # a tied output layer has one entry
    assert set(exported) == set(expected)
    for key, parameter in expected.items():
        gradient = (parameter.detach() - exported[key]) / rate
        scale = parameter.grad.abs().max().item()
        torch.testing.assert_close(gradient, parameter.grad, rtol=1e-4, atol=1e-4 * scale + 2e-6, msg=lambda m: f"{key}: {m}")

    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "exported", attn_implementation="eager").eval()
    assert type(again) is type(model)
    with torch.no_grad():
        for key, parameter in expected.items():
            parameter.copy_(exported[key])
        torch.testing.assert_close(again(tokens[None]).logits, model(tokens[None]).logits, rtol=1e-5, atol=1e-5)
    if model.config.tie_word_embeddings:
        assert again.get_output_embeddings().weight is again.get_input_embeddings().weight


# The text is longer than the attention windows. Both programs cache keys and values.
@pytest.mark.parametrize("name", FAMILIES)
def test_text_that_is_written_on_is_that_of_transformers(name, tmp_path):
    model = make(name)
    model.save_pretrained(tmp_path / "saved")
    prompt = [7, 3, 200, 45, 9]
    answer = json.loads(train("generate", "--load", tmp_path / "saved", "--prompt-tokens", ",".join(map(str, prompt)),
                              "--tokens", 40, "--dtype", "fp32", "--json"))
    caches = FAMILIES[name][1].get("sliding_window") != 1  # for a window of one token, the cache of transformers holds all
    with torch.no_grad():
        written = model.generate(torch.tensor([prompt]), max_new_tokens=40, do_sample=False, use_cache=caches)
    assert answer["tokens"] == written[0, len(prompt):].tolist()


# The published files of Pythia contain causal masks and angles beside the parameters. These are not trained.
def test_buffers_of_older_files_are_passed_over(tmp_path):
    model, tokens = make("gpt_neox"), text_of(tmp_path)
    model.save_pretrained(tmp_path / "saved")
    file = tmp_path / "saved" / "model.safetensors"
    tensors = load_file(file)
    for layer in range(2):
        prefix = f"gpt_neox.layers.{layer}.attention."
        tensors[prefix + "bias"] = torch.ones(1, 1, 64, 64, dtype=torch.bool)
        tensors[prefix + "masked_bias"] = torch.tensor(-1e9)
        tensors[prefix + "rotary_emb.inv_freq"] = torch.ones(2)
    for head in ("embed_out.weight", "lm_head.weight"):
        tensors[head] = tensors.pop("embed_out.weight" if "embed_out.weight" in tensors else "lm_head.weight")
        save_file(tensors, file, metadata={"format": "pt"})
        train("--load", tmp_path / "saved", "--text", tmp_path / "text", "--context", CONTEXT, "--batch", 1, "--eval-only",
              "--validation-batches", 1, "--dtype", "fp32", "--report", tmp_path / "report")
        loss = json.loads((tmp_path / "report").read_text())["validation_loss"]
        assert loss == pytest.approx(loss_of(model, tokens).item(), rel=2e-6)


BERT = dict(hidden_size=32, intermediate_size=56, num_hidden_layers=2, num_attention_heads=4, vocab_size=257,
            max_position_embeddings=64, pad_token_id=None, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
MASKED = {"bert": {}, "bert, relu, one type": dict(hidden_act="relu", type_vocab_size=1),
          "bert, gelu_new, another epsilon": dict(hidden_act="gelu_new", layer_norm_eps=1e-5)}
MASK = 256
BITS = (1 << 64) - 1


def make_bert(options):
    config = transformers.BertConfig(**{**BERT, **options})
    config._attn_implementation = "eager"
    model = transformers.BertForMaskedLM(config)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(parameter + 0.1 * noise if parameter.dim() == 1 else 0.2 * noise)
    return model.float().eval()


def mix(value):
    value = (value + 0x9E3779B97F4A7C15) & BITS
    value = ((value ^ value >> 30) * 0xBF58476D1CE4E5B9) & BITS
    value = ((value ^ value >> 27) * 0x94D049BB133111EB) & BITS
    return value ^ value >> 31


def random_bits(stream, counter):
    return mix((mix(stream) + counter * 0x9E3779B97F4A7C15) & BITS)


def masked(tokens, stream):
    """Masks a sequence like the trainer: it chooses 15 % of the tokens, hides 80 % of them, makes 10 % random."""
    tokens, labels = list(tokens), [-100] * len(tokens)
    chosen = sorted(range(len(tokens)), key=lambda place: random_bits(stream, 3 * place))[:(15 * len(tokens) + 50) // 100]
    for place in chosen:
        labels[place] = tokens[place]
        share = ((random_bits(stream, 3 * place + 1) >> 11) + 0.5) * 2.0 ** -53
        if share < 0.9:
            tokens[place] = MASK if share < 0.8 else random_bits(stream, 3 * place + 2) % BERT["vocab_size"]
    return torch.tensor([tokens]), torch.tensor([labels])


TRAINED = random_bits(1 ^ 0x6D61736B73, 0)  # the first sample with --seed 1
MEASURED = random_bits(0x6D65617375, 0)     # the first sequence of the data


@pytest.mark.parametrize("name", MASKED)
def test_masked_loss_gradients_and_export_are_those_of_transformers(name, tmp_path):
    model, tokens = make_bert(MASKED[name]), text_of(tmp_path)
    model.save_pretrained(tmp_path / "saved")
    rate = 0.25
    train("--load", tmp_path / "saved", "--mask-token", MASK, "--text", tmp_path / "text", "--context", CONTEXT, "--batch", 1,
          "--steps", 1, "--optimizer", "sgd", "--momentum", 0, "--weight-decay", 0, "--lr", rate, "--schedule", "constant",
          "--warmup-steps", 0, "--clip-norm", 0, "--dtype", "fp32", "--report", tmp_path / "report",
          "--export", tmp_path / "exported", "--export-dtype", "fp32")
    inputs, labels = masked(tokens[:-1].tolist(), TRAINED)
    assert (labels >= 0).sum() == 7
    loss = model(inputs, labels=labels).loss
    loss.backward()
    assert json.loads((tmp_path / "report").read_text())["loss"][0] == pytest.approx(loss.item(), rel=2e-6)

    exported = load_file(tmp_path / "exported" / "model.safetensors")
    assert set(exported) == set(load_file(tmp_path / "saved" / "model.safetensors"))
    expected = dict(model.named_parameters())
    assert set(exported) == set(expected)
    for key, parameter in expected.items():
        gradient = (parameter.detach() - exported[key]) / rate
        scale = parameter.grad.abs().max().item()
        torch.testing.assert_close(gradient, parameter.grad, rtol=1e-4, atol=1e-4 * scale + 2e-6, msg=lambda m: f"{key}: {m}")

    again = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "exported", attn_implementation="eager").eval()
    assert type(again) is type(model)
    with torch.no_grad():
        for key, parameter in expected.items():
            parameter.copy_(exported[key])
        torch.testing.assert_close(again(inputs).logits, model(inputs).logits, rtol=1e-5, atol=1e-5)
    # The exported folder names its mask token.
    train("--load", tmp_path / "exported", "--text", tmp_path / "text", "--context", CONTEXT, "--batch", 1, "--eval-only",
          "--validation-batches", 1, "--dtype", "fp32", "--report", tmp_path / "report")
    inputs, labels = masked(tokens[:-1].tolist(), MEASURED)
    with torch.no_grad():
        loss = model(inputs, labels=labels).loss.item()
    assert json.loads((tmp_path / "report").read_text())["validation_loss"] == pytest.approx(loss, rel=2e-6)


# The published google-bert/bert-base-uncased has other names for gains and shifts, the table twice, and layers for tasks
# that the model is not trained for.
def test_older_files_of_bert_are_read_with_the_mask_token_of_their_vocabulary(tmp_path):
    model, tokens = make_bert({}), text_of(tmp_path)
    model.save_pretrained(tmp_path / "saved")
    file = tmp_path / "saved" / "model.safetensors"
    tensors = {key.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): value
               for key, value in load_file(file).items()}
    tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"].clone()
    tensors["cls.predictions.decoder.bias"] = tensors["cls.predictions.bias"].clone()
    tensors["cls.seq_relationship.weight"] = torch.ones(2, 32)
    tensors["bert.pooler.dense.weight"] = torch.ones(32, 32)
    tensors["bert.embeddings.position_ids"] = torch.arange(64)[None]
    words = [f"word{number}" for number in range(MASK)] + ["[MASK]"]
    (tmp_path / "saved" / "vocab.txt").write_text("\n".join(words))
    inputs, labels = masked(tokens[:-1].tolist(), MEASURED)
    with torch.no_grad():
        expected = model(inputs, labels=labels).loss.item()
    for absent in ("cls.predictions.decoder.bias", "cls.predictions.bias"):
        save_file({key: value for key, value in tensors.items() if key != absent}, file, metadata={"format": "pt"})
        train("--load", tmp_path / "saved", "--text", tmp_path / "text", "--context", CONTEXT, "--batch", 1, "--eval-only",
              "--validation-batches", 1, "--dtype", "fp32", "--report", tmp_path / "report")
        assert json.loads((tmp_path / "report").read_text())["validation_loss"] == pytest.approx(expected, rel=2e-6)


def test_of_bert_what_is_missing_or_cannot_be_is_said(tmp_path):
    model = make_bert({})
    text_of(tmp_path)
    model.save_pretrained(tmp_path / "saved")

    def refusal(*arguments):
        done = subprocess.run([TRAIN, *map(str, arguments)], capture_output=True, text=True)
        assert done.returncode == 2, done.stderr
        return done.stderr

    usual = ("--load", tmp_path / "saved", "--text", tmp_path / "text", "--context", CONTEXT)
    assert "no mask token" in refusal(*usual)
    assert "the mask token is 257" in refusal(*usual, "--mask-token", 257)
    assert "--mask-token is for masked language models" in refusal("--model", "gpt2-tiny", "--mask-token", 3, *usual[2:])
    masks = (*usual, "--mask-token", MASK)
    assert "the family bert does not work with tensor yet" in refusal(*masks, "--parallel", "tensor=1d:2")
    assert "sequence=ring does not yet support encoders" in refusal(*masks, "--parallel", "sequence=ring:2")
    assert "pipeline=zbv does not support encoders yet" in refusal("--model", "bert-tiny", "--layers", 4, *usual[2:],
                                                                      "--parallel", "pipeline=zbv:2", "--accumulate", 2)
    assert "an encoder: each token sees those after it" in refusal("generate", "--load", tmp_path / "saved", "--prompt", "a")
