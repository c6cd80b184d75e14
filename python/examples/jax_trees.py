"""JAX with one jitted function for the whole model. The parameters are a tree in pinned host memory. Each step is committed.

    python jax_trees.py [--die-at STEP]

The tree is JAX's: the jitted function copies each layer to the device when it computes that layer. Geminid has the same
values with AdamW's moments, updates them with the gradients, and retains them when the process dies. So the next process
restores the tree of the last committed step. For that start a daemon first, and set GEMINID_SOCKET and, to a name of the
run, GEMINID_JOB_ID. With GEMINID_DISABLE=1 the same steps run in JAX's own memory and print the same losses.
"""

import argparse
import ctypes
import math
import os
import signal

import jax
import jax.numpy as jnp
import numpy as np

from geminid import engine as zero
from geminid.session import Ranks, Session

WIDTH, LAYERS, STEPS = 128, 4, 6
ADAM = {"learning_rate": 1e-3, "weight_decay": 0.0, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8}
ON_HOST, ON_DEVICE = (jax.sharding.SingleDeviceSharding(jax.devices()[0], memory_kind=kind)
                      for kind in ("pinned_host", "device"))


def initial():
    generator = np.random.default_rng(0)

    def made(*shape):
        return (generator.standard_normal(shape) / math.sqrt(shape[0])).astype(np.float32)

    return {"layers": [{"up": made(WIDTH, 4 * WIDTH), "down": made(4 * WIDTH, WIDTH), "bias": np.zeros(WIDTH, np.float32)}
                       for _ in range(LAYERS)]}


@jax.jit
def loss_and_gradients(tree, x, target):
    def loss(tree):
        hidden = x
        for layer in tree["layers"]:
            layer = jax.device_put(layer, ON_DEVICE)
            hidden = hidden + 0.1 * jnp.tanh(hidden @ layer["up"]) @ layer["down"] + layer["bias"]
        return ((hidden - target) ** 2).mean()

    return jax.value_and_grad(loss)(tree)


class Kept:
    """A tree's values and AdamW's state in Geminid's memory. With a separate daemon this memory outlives the process."""

    def __init__(self, tree, device_memory, run):
        leaves, self.structure = jax.tree_util.tree_flatten_with_path(tree)
        values = [leaf for _, leaf in leaves]
        ranks = Ranks()
        session = Session(device_memory, place=ranks.place, run=run, keep_on_death=run is not None)
        self.engine = zero.Engine(session, ranks, [
            zero.Parameter(jax.tree_util.keystr(path), leaf.shape, unit=number) for number, (path, leaf) in enumerate(leaves)],
            zero.Optimizer("adamw"), resume=run is not None)
        self.count = len(leaves)
        if self.engine.resumed() is None:
            self.engine.initialize(lambda number, first, address, count: ctypes.memmove(
                address, values[number].reshape(-1)[first:].ctypes.data, 4 * count))

    def steps(self):
        """Returns the number of committed steps."""
        return self.engine.committed

    def restore(self):
        """Returns the tree of the last committed step, in pinned host memory."""
        leaves = []
        for number in range(self.count):
            operation = self.engine.use(zero.EVALUATE, (ctypes.c_uint32 * 1)(number), 1)
            value = np.array(np.from_dlpack(self.engine.weight(operation, number)))  # a copy, because the weight may be evicted
            self.engine.finish(operation)
            leaves.append(jax.device_put(value, ON_HOST))
        return jax.tree_util.tree_unflatten(self.structure, leaves)

    def commit(self, gradients):
        """Commits one step with a tree of gradients. After it returns, a next process would continue after this step."""
        self.engine.begin_micro_batch()
        for number, gradient in enumerate(jax.tree_util.tree_leaves(gradients)):
            values = np.ascontiguousarray(gradient)
            self.engine.add_gradient(number, values.ctypes.data, values.nbytes, zero.FLOAT32)
        self.engine.step([ADAM])


class Plain:
    """The same training in JAX's memory."""

    def __init__(self, tree):
        self.tree = jax.device_put(tree, ON_HOST)
        self.mean = self.square = jax.tree_util.tree_map(np.zeros_like, tree)
        self.committed = 0

    def steps(self):
        return self.committed

    def restore(self):
        return self.tree

    def commit(self, gradients):
        self.committed += 1
        first, second = (1 - ADAM[beta] ** self.committed for beta in ("beta1", "beta2"))
        of = jax.tree_util.tree_map
        gradients = of(np.asarray, gradients)
        self.mean = of(lambda m, g: ADAM["beta1"] * m + (1 - ADAM["beta1"]) * g, self.mean, gradients)
        self.square = of(lambda s, g: ADAM["beta2"] * s + (1 - ADAM["beta2"]) * g ** 2, self.square, gradients)
        updated = of(lambda value, m, s: np.asarray(value) - ADAM["learning_rate"] * (m / first) / (
            np.sqrt(s / second) + ADAM["epsilon"]), self.tree, self.mean, self.square)
        self.tree = jax.device_put(of(np.float32, updated), ON_HOST)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--die-at", type=int, default=-1)
    die_at = parser.parse_args().die_at
    run = "jax-trees" if "GEMINID_SOCKET" in os.environ else None
    model = Plain(initial()) if os.environ.get("GEMINID_DISABLE") == "1" else Kept(initial(), 1 << 20, run)
    for step in range(model.steps(), STEPS):
        generator = np.random.default_rng(1000 + step)
        x, target = (jnp.asarray(generator.standard_normal((8, WIDTH)), jnp.float32) for _ in range(2))
        loss, gradients = loss_and_gradients(model.restore(), x, target)
        print(f"loss {float(loss):.9g}", flush=True)
        if step == die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        model.commit(gradients)


if __name__ == "__main__":
    main()
