"""The items of torch-on-device: the model, the library that trains it, and the report of each process."""

import dataclasses
import os
import pathlib
import re
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
# The steps and the comparison of runs are those of the package's own tests.
TESTS = next(folder for folder in (HERE / "torch", HERE.parent.parent / "tests" / "python") if folder.exists())
GIB = 1 << 30
# The tolerance of a loss relative to plain torch's. On a GPU sums of different kernels differ by roundings of the type.
TOLERANCE = {"fp32": 1e-5, "bf16": 2e-2}


@dataclasses.dataclass(frozen=True)
class Model:
    """A published model, with random weights."""
    config: str
    settings: dict
    sequence: int
    batch: int
    micro_batch: int
    steps: int = 4  # the first step is not timed
    deterministic: bool = False  # torch's kernels give the same bits each time, so runs under different limits must agree


QWEN_7B = dict(hidden_size=3584, intermediate_size=18944, num_hidden_layers=28, num_attention_heads=28, num_key_value_heads=4,
               vocab_size=152064, tie_word_embeddings=False)
MODELS = {
    "qwen3-4b": Model("Qwen3Config", dict(hidden_size=2560, intermediate_size=9728, num_hidden_layers=36, num_attention_heads=32,
                                          num_key_value_heads=8, head_dim=128, vocab_size=151936, tie_word_embeddings=True),
                      2048, 2, 1),
    "1.5b": Model("Qwen2Config", dict(hidden_size=1536, intermediate_size=8960, num_hidden_layers=28, num_attention_heads=12,
                                      num_key_value_heads=2, vocab_size=151936, tie_word_embeddings=True), 1024, 4, 1,
                  deterministic=True),
    "7b": Model("Qwen2Config", QWEN_7B, 1024, 8, 4),
    "7b-x158": Model("Qwen2Config", QWEN_7B, 1024, 158, 4, steps=2),
}
TINY = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
            vocab_size=256)
TINY_SEQUENCE, TINY_BATCH, TINY_MEMORY = 32, 4, "16MiB"


@dataclasses.dataclass(frozen=True)
class Item:
    """The work of one process. `limit_gib`: the limit of all device memory. `engine_gib`: the engine's part of that."""
    name: str
    seconds: int  # the time limit
    by: str  # scenarios, geminid, plain, fsdp2, trainstream
    model: str  # a key of MODELS; for scenarios the type
    limit_gib: int = 0
    engine_gib: int = 0
    activations: str = "keep"


# In the order of their importance. Published figures of a rival: qwen3-4b 5.63 s per step with 20.1 GiB, 7b-x158 27.2 s.
ITEMS = [
    Item("scenarios-fp32", 50, "scenarios", "fp32"),
    Item("scenarios-bf16", 40, "scenarios", "bf16"),
    Item("qwen3-4b/geminid-12GiB", 80, "geminid", "qwen3-4b", 12, 6),
    Item("1.5b/plain", 35, "plain", "1.5b"),
    Item("1.5b/geminid-6GiB", 40, "geminid", "1.5b", 6, 2),
    Item("qwen3-4b/fsdp2-offload", 70, "fsdp2", "qwen3-4b"),
    Item("7b/geminid-24GiB", 120, "geminid", "7b", 24, 12),
    Item("1.5b/geminid-4GiB", 40, "geminid", "1.5b", 4, 1),
    Item("1.5b/geminid-4GiB-offload", 40, "geminid", "1.5b", 4, 1, activations="offload"),
    Item("scenarios-fp32-offload", 50, "scenarios", "fp32", activations="offload"),
    Item("1.5b/geminid-12GiB", 40, "geminid", "1.5b", 12, 6),
    Item("1.5b/geminid-24GiB", 40, "geminid", "1.5b", 24, 16),
    Item("1.5b/geminid-unlimited", 40, "geminid", "1.5b", 100, 60),
    Item("1.5b/trainstream", 70, "trainstream", "1.5b"),
    Item("qwen3-4b/plain", 50, "plain", "qwen3-4b"),
    Item("7b-x158/geminid-24GiB", 200, "geminid", "7b-x158", 24, 12),
]


def text_files():
    """Returns the pages that the models train on: those beside this file, or those of the repository."""
    folder = next((folder for folder in (HERE / "text", HERE.parent.parent / "docs") if folder.exists()), None)
    return sorted(folder.rglob("*.md")) if folder else []


def tokens_of(files, vocabulary):
    """Returns the words and signs of a text as numbers, in the order of their first occurrence."""
    words = [word for file in files for word in re.findall(r"\w+|[^\w\s]", file.read_text(encoding="utf-8"))]
    numbers = {}
    return [numbers.setdefault(word, len(numbers)) % vocabulary for word in words]


class Text:
    """Batches of the text, one after another, and then again from the beginning."""

    def __init__(self, torch, vocabulary):
        tokens = tokens_of(text_files(), vocabulary)
        if not tokens:
            raise FileNotFoundError(f"there are no pages in {HERE / 'text'} or in docs of the repository to train on")
        self.torch, self.tokens, self.next = torch, torch.tensor(tokens), 0

    def batch(self, sequences, length):
        places = (self.torch.arange(sequences * length) + self.next) % len(self.tokens)
        self.next += sequences * length
        return self.tokens[places].view(sequences, length)


def scenarios(options, item):
    """Runs the steps of the package's own tests on the device."""
    sys.path.insert(0, str(TESTS))
    import torch
    import models
    import steps
    import twins

    from geminid.torch import activations

    activations.SMALLEST = 512  # bytes; so small because the models are small
    plain_batch = models.batch
    device = torch.device(options.device)
    torch.set_default_device(device)

    def batch(*arguments):
        with torch.device("cpu"):  # the generator is on the CPU
            return tuple(t.to(device) for t in plain_batch(*arguments))

    models.batch = steps.batch = batch
    worst, dtype = {}, {"fp32": torch.float32, "bf16": torch.bfloat16}[item.model]
    for step in steps.STEPS[:3] if options.tiny else steps.STEPS:
        for unit in ("block", "leaf"):
            model = models.make("gpt").to(device=device, dtype=dtype)
            memory = twins.AMPLE if options.device == "cuda" or step in steps.WHOLE else twins.SMALL["gpt", unit]
            pair = twins.pair(model, device_memory=memory, unit=unit, activations=item.activations)
            twins.run(pair, step)
            plain, ours = pair
            worst[f"{step.__name__} {unit}"] = twins.difference(ours.losses + ours.norms, plain.losses + plain.norms)
            ours.model._geminid_keeper.engine.close()
    apart = {name: value for name, value in worst.items() if not value <= TOLERANCE[item.model]}
    return {"relative_differences": worst, "different": bool(apart)}


def reader_of_used_bytes(device):
    """Returns a function that returns the used device memory by the driver's count. It uses NVML, which needs no context."""
    if device == "cpu":
        return lambda: 0
    import gpu_memory
    try:
        return gpu_memory.Gpu().used_bytes
    except gpu_memory.Unavailable:
        import torch

        def used_bytes():
            free, total = torch.cuda.mem_get_info()
            return total - free
        return used_bytes


class PeakMemory:
    """Samples the peak of the used device memory while it is entered, above the use when it was made."""

    def __init__(self, device):
        self.used_bytes, self.peak, self.stopping = reader_of_used_bytes(device), 0, threading.Event()
        self.before = self.used_bytes()
        self.thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self):
        while not self.stopping.wait(0.005):
            self.peak = max(self.peak, self.used_bytes() - self.before)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stopping.set()
        self.thread.join()


def shape_of(options, item):
    """Returns the model's description; a tiny one with --tiny."""
    model = MODELS[item.model]
    if not options.tiny:
        return model
    settings = {**model.settings, **TINY}
    settings.pop("head_dim", None)
    batch = min(model.batch, TINY_BATCH)
    return dataclasses.replace(model, settings=settings, sequence=TINY_SEQUENCE, batch=batch,
                               micro_batch=min(model.micro_batch, batch))


def make_model(torch, options, shape):
    import transformers
    config = getattr(transformers, shape.config)(**shape.settings, max_position_embeddings=shape.sequence, use_cache=False)
    torch.manual_seed(0)
    with torch.device(options.device):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.train()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model


def by_geminid(torch, options, item, shape, model, optimizer):
    import geminid.torch
    if options.device == "cpu":
        return geminid.torch.prepare(model, optimizer, device_memory=TINY_MEMORY, activations=item.activations)
    return geminid.torch.prepare(model, optimizer, device_memory=TINY_MEMORY if options.tiny else item.engine_gib * GIB,
                                 torch_memory=(item.limit_gib - item.engine_gib) * GIB, activations=item.activations)


def by_fsdp2(torch, options, item, shape, model, optimizer):
    """Trains with FSDP2 and fp32 masters, to compare speed and memory."""
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
    for key, value in dict(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1").items():
        os.environ.setdefault(key, value)
    backend = "cuda:nccl,cpu:gloo" if options.device == "cuda" else "gloo"
    torch.distributed.init_process_group(backend, store=torch.distributed.HashStore(), rank=0, world_size=1)
    model.to("cpu").float()
    mesh = torch.distributed.device_mesh.init_device_mesh(options.device, (1,))
    policy = dict(mesh=mesh, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16),
                  **({"offload_policy": CPUOffloadPolicy()} if options.device == "cuda" else {}))
    for block in model.model.layers:
        fully_shard(block, **policy)
    fully_shard(model, **policy)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-5)


def by_trainstream(torch, options, item, shape, model, optimizer):
    """Trains with TrainStream, which compiles its extension with nvcc here, and clips by itself."""
    import trainstream
    return trainstream.wrap(model, optimizer, max_grad_norm=1.0, accumulation_steps=shape.batch // shape.micro_batch)


BY = {"geminid": by_geminid, "fsdp2": by_fsdp2, "trainstream": by_trainstream,
      "plain": lambda torch, options, item, shape, model, optimizer: (model, optimizer)}


def one_step(torch, item, shape, device, text, model, optimizer):
    """Makes a step and returns its loss."""
    tokens, total = text.batch(shape.batch, shape.sequence).to(device), 0.0
    for part in tokens.split(shape.micro_batch):
        loss = model(input_ids=part, labels=part).loss * (len(part) / shape.batch)
        loss.backward()
        total += loss.detach().float()
    if item.by != "trainstream":
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return float(total)


def train(options, item):
    memory = PeakMemory(options.device)
    shape = shape_of(options, item)
    if shape.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    import torch
    if shape.deterministic:
        torch.use_deterministic_algorithms(True, warn_only=True)
    text, model = Text(torch, shape.settings["vocab_size"]), make_model(torch, options, shape)
    parameters = sum(p.numel() for p in model.parameters())
    # FSDP2 makes its own optimizer of its parameters. Fused steps are the fastest of plain torch.
    fused = {"fused": True} if item.by == "plain" else {}
    model, optimizer = BY[item.by](torch, options, item, shape, model, torch.optim.AdamW(model.parameters(), lr=1e-5, **fused))
    if options.device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    losses, seconds = [], []
    with memory:
        for _ in range(shape.steps):
            began = time.monotonic()
            losses.append(one_step(torch, item, shape, options.device, text, model, optimizer))
            seconds.append(time.monotonic() - began)
    step_seconds = sorted(seconds[1:])[len(seconds[1:]) // 2]
    found = {"parameters": parameters, "losses": losses, "losses_hex": [loss.hex() for loss in losses],
             "step_seconds": step_seconds, "tokens_per_second": shape.batch * shape.sequence / step_seconds,
             "peak_device_bytes": memory.peak, "sequence": shape.sequence, "batch": shape.batch,
             "micro_batch": shape.micro_batch, "deterministic": shape.deterministic}
    if item.by == "geminid":
        import geminid.torch
        with open(os.devnull, "w", encoding="utf-8") as nothing:
            found["torch_memory"] = geminid.torch.explain(model, file=nothing).torch_memory
        found["statistics"] = geminid.torch.statistics(model)
    return found


def machine(torch, device):
    return {"torch": torch.__version__, "cuda": torch.version.cuda, "gpu": torch.cuda.get_device_name(0) if device == "cuda" else None}


def run(options, item):
    found = (scenarios if item.by == "scenarios" else train)(options, item)
    import torch
    return {**found, "machine": machine(torch, options.device)}
