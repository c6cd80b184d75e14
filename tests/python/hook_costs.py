#!/usr/bin/env python3
"""hook_costs.py [--steps N]: the cost of a prepared model's hooks for the training thread, in microseconds of thread time
(the median of each kind), if all weights fit. The engine's calls inside the hooks are shown separately. Also shows the
thread time of a prepared step as a ratio of a plain step in the same process."""

import argparse
import collections
import statistics
import time

import torch

import twins
from geminid.engine import Engine
from geminid.torch import hooks, keeper
from models import batch, make

HOOKS = ("before forward", "after forward", "before backward", "after backward", "gradient")
CALLS = ("use", "finish", "add_gradient")


class Times:
    """Microseconds by kind of hook or call."""

    def __init__(self):
        self.taken = collections.defaultdict(list)
        self._instead = []

    def timed(self, kind, function):
        taken = self.taken[kind]

        def timed(*arguments, **named):
            began = time.thread_time_ns()
            result = function(*arguments, **named)
            taken.append((time.thread_time_ns() - began) / 1e3)
            return result
        return timed

    def replace(self, owner, name, made):
        self._instead.append((owner, name, getattr(owner, name)))
        setattr(owner, name, made)

    def restore(self):
        for owner, name, before in reversed(self._instead):
            setattr(owner, name, before)

    def figures(self, kind):
        """Returns (tenth percentile, median)."""
        return statistics.quantiles(self.taken[kind], n=10)[0], statistics.median(self.taken[kind])


def _watch_hooks(times):
    for name, kind in (("_before_unit", "before forward"), ("_after_unit", "after forward")):
        made = getattr(hooks, name)
        times.replace(hooks, name, lambda *given, made=made, kind=kind: times.timed(kind, made(*given)))
    for name, kind in (("before_backward", "before backward"), ("after_backward", "after backward")):
        times.replace(keeper.Call, name, times.timed(kind, getattr(keeper.Call, name)))
    times.replace(keeper.Keeper, "on_gradient", times.timed("gradient", keeper.Keeper.on_gradient))


def _watch_calls(times):
    for name in CALLS:
        times.replace(Engine, name, times.timed(name, getattr(Engine, name)))


def _train(twin, steps):
    """Returns the thread time of each step, without the first three, in which the engine samples and plans."""
    taken = []
    for number in range(3 + steps):
        began = time.thread_time_ns()
        twin.model(*batch(number)).backward()
        twins.finish(twin)
        taken.append((time.thread_time_ns() - began) / 1e3)
    return taken[3:]


def _of(watch, steps):
    times = Times()
    watch(times)
    try:
        model = make("llama")
        _train(twins.Twin(*twins.prepared(model, twins.adamw(model.parameters()))), steps)
    finally:
        times.restore()
    return times


def measure(steps):
    """Returns figures by name: of hooks and calls, and the ratio of steps."""
    hooked, called = _of(_watch_hooks, steps), _of(_watch_calls, steps)
    found = {kind: hooked.figures(kind) for kind in HOOKS} | {kind: called.figures(kind) for kind in CALLS}
    plain, ours = twins.pair(make("llama"))
    pairs = [(_train(plain, 1)[0], _train(ours, 1)[0]) for _ in range(max(1, steps // 4))]
    found["step"] = statistics.median(after / before for before, after in pairs)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    steps = parser.parse_args().steps
    torch.set_num_threads(1)
    found = measure(steps)
    print(f"hooks, microseconds of thread time in {steps} steps: tenth percentile, median")
    for kind in HOOKS:
        print(f"  {kind:16} {found[kind][0]:7.1f} {found[kind][1]:7.1f}")
    print("the engine's calls in them:")
    for kind in CALLS:
        print(f"  {kind:16} {found[kind][0]:7.1f} {found[kind][1]:7.1f}")
    print(f"thread time of a step beside plain PyTorch's: {found['step']:.2f}")


if __name__ == "__main__":
    main()
