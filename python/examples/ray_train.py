"""Ray Train: two workers train one model, and a worker that dies is replaced.

    pip install "ray[train]"
    python ray_train.py [--die-at STEP]

Ray restarts the workers when one has died, and each continues with the weights that the daemon retained for it. Start a
daemon first, and set GEMINID_SOCKET and, to a name of the run, GEMINID_JOB_ID. Without a daemon the weights die with the
worker, and the run begins anew.
"""

import argparse
import os
import pathlib
import signal
import tempfile

import ray
import ray.train
import torch
from ray.train.torch import TorchTrainer
from torch import nn

import geminid.torch
from geminid.session import Ranks


def train(config):
    from loop import LENGTH, VOCABULARY, Model
    place = ray.train.get_context()
    # Ray sets the same environment variables as torchrun.
    ranks = Ranks()
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer = geminid.torch.prepare(model, optimizer, device_memory="1MiB", ranks=ranks, resume=config["run"])
    run = geminid.torch.resume(model)
    for step in run.range(config["steps"]):
        tokens = torch.randint(VOCABULARY, (8, LENGTH), generator=torch.Generator().manual_seed(step))
        own = tokens.chunk(place.get_world_size())[place.get_world_rank()]
        loss = nn.functional.cross_entropy(model(own).flatten(0, 1), own.flatten())
        value = run.same(loss.item())
        loss.backward()
        died = pathlib.Path(config["died"])
        if step == config["die_at"] and place.get_world_rank() == 1 and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        with open(config["log"], "a", encoding="utf-8") as log:
            log.write(f"{place.get_world_rank()} {step} {value:.9g}\n")


def losses_of(log):
    """Returns the mean over the ranks, by step."""
    seen = {}
    for line in pathlib.Path(log).read_text(encoding="utf-8").splitlines():
        rank, step, loss = line.split()
        seen.setdefault(int(step), {})[rank] = float(loss)
    return [sum(ranks.values()) / len(ranks) for _, ranks in sorted(seen.items())]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--die-at", type=int, default=-1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ray.init(num_cpus=2, include_dashboard=False, runtime_env={"env_vars": dict(os.environ)})
        config = {"run": f"ray-{os.getpid()}", "steps": 6, "die_at": arguments.die_at, "died": f"{folder}/died",
                  "log": f"{folder}/log"}
        TorchTrainer(train, train_loop_config=config, scaling_config=ray.train.ScalingConfig(num_workers=2),
                     torch_config=ray.train.torch.TorchConfig(backend="gloo"),
                     run_config=ray.train.RunConfig(storage_path=folder,
                                                    failure_config=ray.train.FailureConfig(max_failures=2))).fit()
        for loss in losses_of(f"{folder}/log"):
            print(f"loss {loss:.9g}")
        ray.shutdown()


if __name__ == "__main__":
    main()
