"""run.py LOOP --job JSON: runs a loop of loops/ in this process, and prints a line of JSON.

The job has layers, width, batch, length, steps, device, device_memory, and die_at: the step in which the process kills
itself (-1: none). With die_at the loop runs in a child, which is restarted once. If the loop is one of Geminid's, a session of
Geminid's daemon is open around both.
"""

import argparse
import contextlib
import json
import os
import pathlib
import runpy
import signal
import socket
import subprocess
import sys
import time

LOOPS = pathlib.Path(__file__).parent / "loops"
UNTIMED_STEPS = 2  # these allocate memory and make the plan
VOCABULARY = 4096


def build(torch, job):
    """Returns a function that makes the model of the comparison."""
    nn, functional = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            batch, length, width = x.shape
            q, k, v = (t.view(batch, length, 8, width // 8).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
            return x + self.down(functional.gelu(self.up(self.norm2(x))))

    class Model(nn.Module):
        def __init__(self, layers, width):
            super().__init__()
            self.embedding = nn.Embedding(VOCABULARY, width)
            self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)

        def forward(self, tokens):
            x = self.embedding(tokens)
            for block in self.blocks:
                x = block(x)
            logits = self.head(self.norm(x))
            return functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten())

    def make_model():
        torch.manual_seed(0)
        return Model(job["layers"], job["width"])
    return make_model


class Steps:
    """The batches of the job, and the loop's report about each."""

    def __init__(self, torch, job):
        self.torch, self.job, self.losses, self.times = torch, job, [], []

    def batches(self):
        for step in range(self.job["steps"]):
            generator = self.torch.Generator().manual_seed(step)
            tokens = self.torch.randint(VOCABULARY, (self.job["batch"], self.job["length"]), generator=generator)
            if step == self.job["die_at"] and os.environ.get("PEERS_DIES") == "1":
                os.kill(os.getpid(), signal.SIGKILL)
            yield tokens.to(self.job["device"])

    def report(self, loss):
        self.losses.append(float(loss))
        self.times.append(time.monotonic())

    def tokens_per_second(self):
        timed = self.times[UNTIMED_STEPS - 1:]
        if len(timed) < 2:
            return None
        return self.job["batch"] * self.job["length"] * (len(timed) - 1) / (timed[-1] - timed[0])


def peak_host_bytes():
    """Returns this process's peak host memory by the kernel's count. It includes used memory that a daemon shares."""
    status = pathlib.Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


def run(loop, job):
    import torch
    torch.set_num_threads(job["threads"])
    steps = Steps(torch, job)
    before = peak_host_bytes()
    runpy.run_path(str(LOOPS / f"{loop}.py"), init_globals={
        "torch": torch, "make_model": build(torch, job), "batches": steps.batches, "report": steps.report,
        "DEVICE": job["device"], "DEVICE_MEMORY": job["device_memory"], "BATCH": job["batch"],
        "BACKEND": "nccl" if job["device"] == "cuda" else "gloo"})
    on_gpu = job["device"] == "cuda"
    print("\n" + json.dumps({
        "losses": steps.losses, "tokens_per_second": steps.tokens_per_second(),
        "host_bytes": peak_host_bytes() - before,
        "device_bytes": torch.cuda.max_memory_allocated() if on_gpu else None}), flush=True)
    os._exit(0)  # some peers leave threads that do not end


@contextlib.contextmanager
def daemon_of(loop):
    """Returns the environment of the loop's processes. For Geminid's loops it has a daemon that outlives them."""
    if not loop.startswith("geminid"):
        yield os.environ
        return
    from geminid.session import Session
    keeper = Session(64 << 10, private_daemon=True, daemon_flags=["--host-memory", "4GiB", "--device-memory", "1GiB"])
    yield {**os.environ, "GEMINID_SOCKET": keeper.describe()["socket"]}
    keeper.close()


def killed(loop, arguments, steps):
    """Starts the loop, which is killed, and restarts it. Returns the steps that the second process did not repeat."""
    with daemon_of(loop) as environment:
        command = [sys.executable, __file__, loop, "--job", json.dumps(arguments), "--child"]
        subprocess.run(command, env={**environment, "PEERS_DIES": "1"}, stdout=subprocess.DEVNULL, check=False)
        second = subprocess.run(command, env={**environment, "PEERS_DIES": "0"}, stdout=subprocess.PIPE, text=True, check=True)
    done = json.loads(second.stdout.strip().splitlines()[-1])
    print("\n" + json.dumps({"steps_kept": steps - len(done["losses"])}))


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("loop")
    parser.add_argument("--job", type=json.loads, required=True)
    parser.add_argument("--child", action="store_true")
    arguments = parser.parse_args()
    os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", LOCAL_WORLD_SIZE="1", MASTER_ADDR="127.0.0.1",
                      MASTER_PORT=str(free_port()))
    if arguments.job["die_at"] >= 0 and not arguments.child:
        killed(arguments.loop, arguments.job, arguments.job["steps"])
    else:
        run(arguments.loop, arguments.job)


if __name__ == "__main__":
    main()
