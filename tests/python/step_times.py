"""step_times.py [--width N] [--layers N]: seconds of a GPT-2 step with plain PyTorch, prepared with memory for all
state, and prepared with a fifth of that memory. The three take turns in one process, on one thread: medians of seven steps."""

import argparse
import copy
import statistics
import time

import torch
import transformers

import geminid.torch

VOCABULARY, LENGTH, BATCH, STEPS, FIRST_TIMED = 8192, 128, 4, 10, 3
STATE_BYTES, WEIGHT_AND_GRADIENT_BYTES = 16, 8  # bytes for each fp32 parameter with AdamW


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)


def step(model, optimizer, tokens):
    loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--layers", type=int, default=12)
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        n_embd=given.width, n_layer=given.layers, n_head=8, vocab_size=VOCABULARY, n_positions=LENGTH, resid_pdrop=0,
        embd_pdrop=0, attn_pdrop=0, bos_token_id=0, eos_token_id=0)).train()
    count = sum(p.numel() for p in model.parameters())
    runs = {"plain": (model, adamw(model))}
    for name, memory in (("ample", 3 * WEIGHT_AND_GRADIENT_BYTES * count // 2), ("fifth", STATE_BYTES * count // 5)):
        other = copy.deepcopy(model)
        runs[name] = geminid.torch.prepare(other, adamw(other), device_memory=memory)
    tokens = torch.randint(0, VOCABULARY, (BATCH, LENGTH))
    seconds, losses = {name: [] for name in runs}, {}
    for _ in range(STEPS):
        for name, run in runs.items():
            began = time.monotonic()
            losses[name] = step(*run, tokens)
            seconds[name].append(time.monotonic() - began)
    median = {name: statistics.median(taken[FIRST_TIMED:]) for name, taken in seconds.items()}
    print(f"{count} parameters; seconds of a step: " + ", ".join(f"{name} {taken:.3f}" for name, taken in median.items()))
    print(f"ample over plain {median['ample'] / median['plain']:.3f}, ample over fifth {median['ample'] / median['fifth']:.3f}")
    print("last losses: " + ", ".join(f"{name} {loss:.6f}" for name, loss in losses.items()))


if __name__ == "__main__":
    main()
