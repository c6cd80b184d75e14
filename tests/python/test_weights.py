"""Models on the meta device whose weights are read from safetensors files in pieces."""

import json
import os
import pathlib
import struct
import subprocess
import sys

import pytest
import torch

import geminid.torch
import twins
from geminid import errors
from geminid.torch import weights
from models import GptBlock, Model, make
from steps import one_batch

NUMBERS = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}


def write(path, tensors):
    """Writes a safetensors file as the format's documentation defines it."""
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, tensor in tensors.items():
        size = tensor.numel() * tensor.element_size()
        header[name] = {"dtype": NUMBERS[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(bytes(tensor.contiguous().flatten().view(torch.uint8).numpy()) if tensor.numel() else b"")


def write_shards(folder, tensors, count=3):
    names, index = list(tensors), {}
    for number in range(count):
        part = {name: tensors[name] for name in names[number::count]}
        file = f"model-{number + 1:05}-of-{count:05}.safetensors"
        write(folder / file, part)
        index.update(dict.fromkeys(part, file))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    write(folder / "consolidated.safetensors", {names[0]: torch.zeros(1)})  # the index does not name this file


def empty_model(**options):
    with geminid.torch.empty_weights():
        return Model(GptBlock, **options)


def prepared(model, source, **options):
    return twins.prepared(model, twins.adamw(model.parameters()), weights=source, **options)


@pytest.mark.parametrize("options", [dict(), dict(tied="shared"), dict(outer=True)], ids=["plain", "tied", "outer"])
def test_sharded_folder_trains_as_the_model_that_was_saved(tmp_path, options):
    plain = make("gpt", **options)
    state = plain.state_dict()
    if options.get("tied"):
        del state["head.weight"]  # files have only one name of tied weights
    write_shards(tmp_path, state)
    model = empty_model(**options)
    kept = list(model.parameters())
    assert all(p.is_meta for p in kept)
    both = (twins.Twin(plain, twins.adamw(plain.parameters())),
            twins.Twin(*prepared(model, tmp_path, device_memory="448KiB")))
    assert [id(p) for p in both[1].model.parameters()] == [id(p) for p in kept]  # the objects stay the same
    twins.run(both, one_batch, steps=3)
    twins.assert_same(both)


def test_names_of_a_mapping_are_read_as_well():
    plain = make("gpt")
    both = (twins.Twin(plain, twins.adamw(plain.parameters())),
            twins.Twin(*prepared(empty_model(), {name: value.clone() for name, value in plain.state_dict().items()})))
    twins.run(both, one_batch, steps=2)
    twins.assert_same(both)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_other_types_in_the_file_become_those_of_the_model(tmp_path, dtype):
    rounded = {name: value.to(dtype) for name, value in make("gpt").state_dict().items()}
    write(tmp_path / "model.safetensors", rounded)
    model, _ = prepared(empty_model(), tmp_path / "model.safetensors")
    for name, value in model.state_dict().items():
        assert torch.equal(value, rounded[name].float()), name


def test_disabled_prepare_reads_them_too(monkeypatch):
    monkeypatch.setenv("GEMINID_DISABLE", "1")
    plain = make("gpt")
    model, optimizer = prepared(empty_model(), plain.state_dict())
    both = twins.Twin(plain, twins.adamw(plain.parameters())), twins.Twin(model, optimizer)
    twins.run(both, one_batch, steps=2)
    assert both[0].losses == both[1].losses


def test_frozen_parameters_that_stay_torchs_are_read_too():
    plain = make("gpt").eval()
    plain.norm.double().requires_grad_(False)
    model = empty_model().eval()
    model.norm.double().requires_grad_(False)
    optimizer = twins.adamw([p for p in model.parameters() if p.requires_grad])
    model, _ = twins.prepared(model, optimizer, weights=plain.state_dict())
    assert torch.equal(model.norm.weight, plain.norm.weight) and model.norm.weight.dtype == torch.float64


def test_large_tensors_are_read_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(weights, "_PIECE_ELEMENTS", 1000)
    state = make("gpt").state_dict()
    write(tmp_path / "model.safetensors", state)
    model, _ = prepared(empty_model(), tmp_path)
    for name, value in model.state_dict().items():
        assert torch.equal(value, state[name]), name


def test_buffers_are_made_and_parameters_are_not():
    with geminid.torch.empty_weights():
        module = torch.nn.BatchNorm1d(4)
        tied = torch.nn.Linear(4, 4)
        tied.other = tied.weight
    assert module.weight.is_meta and not module.running_mean.is_meta and tied.other is tied.weight
    assert not torch.nn.Linear(2, 2).weight.is_meta


def refused(model, source, words, error=errors.Refused):
    with pytest.raises(error, match=words):
        prepared(model, source)
    assert all(type(p) is torch.nn.Parameter and p.is_meta for p in model.parameters())


def test_weights_that_cannot_be_right_are_refused_before_anything_changes(tmp_path):
    state = make("gpt").state_dict()
    refused(empty_model(), None, "'embedding.weight' is on the meta device.*weights=FOLDER")
    refused(empty_model(), tmp_path, "there is no file of safetensors", errors.NotFound)
    refused(empty_model(), {**state, "norm.weight": torch.zeros(3)}, r"'norm.weight' is \(64,\) in the model and \(3,\)")
    refused(empty_model(), {n: v for n, v in state.items() if n != "norm.weight"}, "'norm.weight' is on the meta device.*no tensor")
    (tmp_path / "model.safetensors").write_bytes(b"not one")
    refused(empty_model(), tmp_path, "is not a file of safetensors", errors.DataLoss)
    write_shards(tmp_path, state)
    (tmp_path / "model-00002-of-00003.safetensors").unlink()
    refused(empty_model(), tmp_path, "model-00002-of-00003.safetensors does not exist", errors.NotFound)


def test_weights_for_a_model_that_has_them_are_refused():
    model = make("gpt")
    with pytest.raises(errors.InvalidArgument, match="has none there"):
        prepared(model, model.state_dict())


def test_buffer_on_the_meta_device_is_refused_by_name():
    with torch.device("meta"):
        model = torch.nn.Sequential(torch.nn.BatchNorm1d(4))
    with pytest.raises(errors.Refused, match="the buffer '0.running_mean'.*empty_weights"):
        prepared(model, {})


def test_file_that_ends_too_early_is_told(tmp_path):
    write(tmp_path / "model.safetensors", make("gpt").state_dict())
    path = tmp_path / "model.safetensors"
    with open(path, "r+b") as file:
        file.truncate(path.stat().st_size - 4)
    refused(empty_model(), tmp_path, "ends too early", errors.DataLoss)


PEAK = """
import pathlib, sys
import torch
torch.set_num_threads(1)
import geminid.torch
with geminid.torch.empty_weights():
    model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(24)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
pathlib.Path("/proc/self/clear_refs").write_text("5")
model, optimizer = geminid.torch.prepare(model, optimizer, device_memory="16MiB", unit="leaf", weights=sys.argv[1])
status = dict(line.split(":") for line in pathlib.Path("/proc/self/status").read_text().splitlines())
print(status["VmHWM"].split()[0], status["VmRSS"].split()[0])
"""


def test_host_memory_of_prepare_is_what_training_needs(tmp_path):
    """Weights of 96 MiB go into the engine without a copy."""
    state = {f"{i}.{name}": torch.zeros(shape) for i in range(24) for name, shape in (("weight", (1024, 1024)), ("bias", (1024,)))}
    write_shards(tmp_path, state, count=4)
    done = subprocess.run([sys.executable, "-c", PEAK, str(tmp_path)], capture_output=True, text=True, check=True, env=os.environ)
    peak, steady = map(int, done.stdout.split())
    assert steady <= peak <= 1.05 * steady, (peak, steady)


def test_llama_of_transformers_is_streamed(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=3, num_attention_heads=4,
                                      vocab_size=97, max_position_embeddings=32)
    torch.manual_seed(0)
    plain = transformers.LlamaForCausalLM(config).train()
    plain.save_pretrained(tmp_path, max_shard_size="100KB")
    assert len(list(pathlib.Path(tmp_path).glob("*.safetensors"))) > 2
    with geminid.torch.empty_weights():
        model = transformers.AutoModelForCausalLM.from_config(config).train()
    both = (twins.Twin(plain, twins.adamw(plain.parameters())), twins.Twin(*prepared(model, tmp_path)))
    tokens = torch.randint(0, 97, (2, 16))

    def step(twin, _number):
        loss = twin.model(input_ids=tokens, labels=tokens).loss
        twin.losses.append(loss.item())
        loss.backward()
        twins.finish(twin)

    twins.run(both, step, 3)
    twins.assert_same(both)
