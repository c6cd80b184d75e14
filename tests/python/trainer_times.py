"""trainer_times.py [--width N] [--layers N] [--steps N]: the speed of Hugging Face's Trainer and of Lightning's Trainer with
Geminid, compared with a PyTorch loop with Geminid. After each step of a trainer the loop does the same step with its own
model, in the same process. Prints medians of the steps' ratios, of time and of this thread's CPU time. The ratio of CPU time
shows the cost of the trainer's own code on a busy machine. Exit code 1 if a ratio of time is below 0.95."""
import argparse
import statistics
import sys
import tempfile
import time

import lightning.pytorch
import torch
import transformers

import geminid.lightning
import geminid.torch
import geminid.transformers

VOCABULARY, LENGTH, BATCH, FIRST_TIMED = 4096, 128, 4, 3
ENOUGH = 0.95


def make_model(width, layers):
    torch.manual_seed(0)
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        n_embd=width, n_layer=layers, n_head=4, vocab_size=VOCABULARY, n_positions=LENGTH, resid_pdrop=0, embd_pdrop=0,
        attn_pdrop=0, bos_token_id=0, eos_token_id=0)).train()


class Sentences(torch.utils.data.Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, number):
        tokens = torch.randint(VOCABULARY, (LENGTH,), generator=torch.Generator().manual_seed(number))
        return {"input_ids": tokens, "labels": tokens}


def now():
    return time.monotonic(), time.thread_time()


def since(began, ended):
    return tuple(last - first for first, last in zip(began, ended))


class Beside:
    """The loop, and the times of the loop and of a trainer for each step."""

    def __init__(self, width, layers, memory):
        model = make_model(width, layers)
        self.model, self.optimizer = geminid.torch.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-4),
                                                           device_memory=memory)
        self.tokens = torch.stack([Sentences(BATCH)[number]["input_ids"] for number in range(BATCH)])
        self.loops, self.trainers = [], []  # (seconds, CPU seconds of this thread) of each step
        self._last = now()

    def step(self):
        """Call it after a step of the trainer."""
        began = now()
        self.model(input_ids=self.tokens, labels=self.tokens).loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        ended = now()
        self.loops.append(since(began, ended))
        self.trainers.append(since(self._last, began))
        self._last = ended

    def ratios(self):
        """Returns the trainer's speed as a fraction of the loop's, by time and by CPU time."""
        steps = list(zip(self.loops, self.trainers))[FIRST_TIMED:]
        return tuple(statistics.median(loop[kind] / trainer[kind] for loop, trainer in steps) for kind in (0, 1))


class AfterSteps(transformers.TrainerCallback):
    def __init__(self, beside):
        self.beside = beside

    def on_step_end(self, *_, **__):
        self.beside.step()


def hugging_face(width, layers, steps, memory):
    beside = Beside(width, layers, memory)
    with tempfile.TemporaryDirectory() as folder:
        args = transformers.TrainingArguments(
            folder, use_cpu=True, per_device_train_batch_size=BATCH, max_steps=steps, logging_steps=steps, learning_rate=1e-4,
            save_strategy="no", report_to="none", disable_tqdm=True)
        geminid.transformers.Trainer(make_model(width, layers), args, train_dataset=Sentences(steps * BATCH),
                                     callbacks=[AfterSteps(beside)], device_memory=memory).train()
    return beside.ratios()


class Module(lightning.pytorch.LightningModule):
    def __init__(self, width, layers):
        super().__init__()
        self.model = make_model(width, layers)

    def training_step(self, given, number):
        return self.model(**given).loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-4)


class AfterBatches(lightning.pytorch.Callback):
    def __init__(self, beside):
        self.beside = beside

    def on_train_batch_end(self, *_):
        self.beside.step()


def of_lightning(width, layers, steps, memory):
    beside = Beside(width, layers, memory)
    loader = torch.utils.data.DataLoader(Sentences(steps * BATCH), batch_size=BATCH)
    lightning.pytorch.Trainer(
        strategy=geminid.lightning.GeminidStrategy(device_memory=memory), accelerator="cpu", devices=1, max_epochs=1,
        gradient_clip_val=1.0, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[AfterBatches(beside)]).fit(Module(width, layers), loader)
    torch.distributed.destroy_process_group()
    return beside.ratios()


def measure(width, layers, steps):
    """Returns each trainer's speed over the loop's. All have two thirds of the memory of weights and gradients."""
    memory = 2 * 8 * sum(p.numel() for p in make_model(width, layers).parameters()) // 3
    return {"transformers": hugging_face(width, layers, steps, memory),
            "lightning": of_lightning(width, layers, steps, memory)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name, usual in (("width", 512), ("layers", 6), ("steps", 23)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    given = parser.parse_args()
    torch.set_num_threads(1)
    found = measure(given.width, given.layers, given.steps)
    print("of the loop's speed: " + "; ".join(f"{name} {speed:.3f} (by processor time {processor:.3f})"
                                              for name, (speed, processor) in found.items()))
    return 0 if min(speed for speed, _ in found.values()) >= ENOUGH else 1


if __name__ == "__main__":
    sys.exit(main())
