"""LLaMA-Factory v1 with Geminid: plugins for distribution and optimizers, which a job's file names.

    dist_config: {name: geminid, device_memory: 20GiB}
    optim_config: {name: geminid_adamw, lr: 2e-5}

Import this module before the trainer starts. Run as a program, this module calls the plugins as the trainer does, with a
model that it makes: steps, a checkpoint, and the later steps once more from the checkpoint.

    pip install --no-deps llamafactory omegaconf torchdata
    python llamafactory_plugin.py

Release 0.9.5 asks only the plugins "fsdp2" and "deepspeed" for checkpoints. It saves other models itself, on the first
rank only. So with that release train on one rank, or call the plugin's methods.
"""

import os
import tempfile

import torch
import transformers
from llamafactory.v1.config.arg_utils import PluginConfig
from llamafactory.v1.plugins.trainer_plugins.distributed.hub import DistributedPlugin
from llamafactory.v1.plugins.trainer_plugins.optimizer import OptimizerPlugin

import geminid.torch

_RANK = int(os.environ.get("RANK", 0))


@DistributedPlugin("geminid").register()
def shard_model(model, dist_config, **_):
    """Returns the model unchanged: the trainer makes the optimizer later, and prepare needs both."""
    model.geminid_memory = dist_config["device_memory"]
    return model


@OptimizerPlugin("geminid_adamw").register()
def prepare_with_adamw(model, optim_config):
    options = {name: value for name, value in optim_config.items() if name != "name"}
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], **options)
    return geminid.torch.prepare(model, optimizer, device_memory=model.geminid_memory)[1]


@DistributedPlugin("geminid").register("save_model")
def save_model(model, output_dir, processor):
    values = model.state_dict()  # on all ranks
    if _RANK == 0:
        model.save_pretrained(output_dir, state_dict=values)
        if processor is not None:
            processor.save_pretrained(output_dir)


@DistributedPlugin("geminid").register("save_checkpoint")
def save_checkpoint(model, optimizer, ckpt_dir, **options):
    """Saves a checkpoint in the trainer's layout, so that runs without Geminid can load it, too."""
    save_model(model, os.path.join(ckpt_dir, "model"), options.get("processor"))
    state = optimizer.state_dict()  # on all ranks
    if _RANK == 0:
        os.makedirs(os.path.join(ckpt_dir, "optimizer"), exist_ok=True)
        torch.save(state, os.path.join(ckpt_dir, "optimizer", "state_dict.pt"))


@DistributedPlugin("geminid").register("load_checkpoint")
def load_checkpoint(model, optimizer, ckpt_dir, **_):
    saved = type(model).from_pretrained(os.path.join(ckpt_dir, "model"))
    model.load_state_dict(saved.state_dict())
    optimizer.load_state_dict(torch.load(os.path.join(ckpt_dir, "optimizer", "state_dict.pt"), map_location="cpu",
                                         weights_only=True))


def make():
    """Returns (model, optimizer), as the trainer makes them."""
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=4, num_attention_heads=4, vocab_size=96,
        max_position_embeddings=32))
    model = DistributedPlugin("geminid")(model, PluginConfig(name="geminid", device_memory="1MiB"), bf16=False)
    return model, OptimizerPlugin("geminid_adamw")(model, PluginConfig(name="geminid_adamw", lr=1e-3))


def train(model, optimizer, steps):
    losses = []
    for step in steps:
        tokens = torch.randint(1, 96, (4, 16), generator=torch.Generator().manual_seed(step))
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        print(f"loss {losses[-1]:.9g}")
    return losses


def main():
    model, optimizer = make()
    train(model, optimizer, range(3))
    with tempfile.TemporaryDirectory() as folder:
        plugin = DistributedPlugin("geminid")
        plugin.save_checkpoint(model, optimizer, folder, processor=None)
        after = train(model, optimizer, range(3, 6))
        model, optimizer = make()
        plugin.load_checkpoint(model, optimizer, folder)
        assert train(model, optimizer, range(3, 6)) == after


if __name__ == "__main__":
    main()
