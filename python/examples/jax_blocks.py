"""JAX, one block at a time: a block's weights are in Geminid's device memory while the block computes.

    python jax_blocks.py

JAX's arrays cannot change, and a weight may be evicted when its block is done. So each block is a separate jitted function,
called between `use` and `finish`. Its weights must not be used after `finish`: `Weights` returns views of the memory, not
copies. Gradients are copied into the engine. With GEMINID_DISABLE=1 the same steps run in JAX's memory, with the same losses.
"""

import contextlib
import ctypes
import math
import os

import jax
import jax.numpy as jnp
import numpy as np

from geminid import engine as zero
from geminid.session import Ranks, Session

WIDTH, BLOCKS, STEPS = 128, 6, 6
SHAPES = {"up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)}
ADAM = {"learning_rate": 1e-3, "weight_decay": 0.0, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8}


def initial(block):
    generator = np.random.default_rng(block)
    return {name: (generator.standard_normal(shape) / math.sqrt(shape[0])).astype(np.float32)
            for name, shape in SHAPES.items()}


@jax.jit
def forward(weights, x):
    return x + 0.1 * jnp.tanh(x @ weights["up"]) @ weights["down"]


@jax.jit
def backward(weights, x, gradient):
    """Returns (gradients of the weights, gradient of x)."""
    return jax.vjp(forward, weights, x)[1](gradient)


@jax.jit
def loss_of(x, target):
    return ((x - target) ** 2).mean()


class Placed:
    """Weights and Adam's state in Geminid's memory. A fraction of them is on the device."""

    def __init__(self, device_memory):
        self.session, self.ranks = Session(device_memory), Ranks()
        self.ids = {(block, name): number for number, (block, name) in enumerate(
            (block, name) for block in range(BLOCKS) for name in SHAPES)}
        parameters = [zero.Parameter(f"blocks.{block}.{name}", SHAPES[name], unit=block) for block, name in self.ids]
        self.engine = zero.Engine(self.session, self.ranks, parameters, zero.Optimizer("adamw"))
        self.engine.initialize(self._fill)

    def _fill(self, number, first, address, count):
        block, name = list(self.ids)[number]
        values = initial(block)[name].reshape(-1)[first:first + count]
        ctypes.memmove(address, values.ctypes.data, values.nbytes)

    def _view(self, number, name):
        memory = (ctypes.c_float * math.prod(SHAPES[name])).from_address(self.engine.stable_address(number))
        return jax.dlpack.from_dlpack(np.frombuffer(memory, np.float32).reshape(SHAPES[name]), copy=False)

    @contextlib.contextmanager
    def weights(self, block):
        numbers = [self.ids[block, name] for name in SHAPES]
        operation = self.engine.use(zero.FORWARD, (ctypes.c_uint32 * len(numbers))(*numbers), len(numbers))
        try:
            yield {name: self._view(number, name) for name, number in zip(SHAPES, numbers)}
        finally:
            self.engine.finish(operation)

    def begin(self):
        self.engine.begin_micro_batch()

    def add(self, block, gradients):
        for name, gradient in gradients.items():
            values = np.ascontiguousarray(gradient)
            self.engine.add_gradient(self.ids[block, name], values.ctypes.data, values.nbytes, zero.FLOAT32)

    def step(self):
        self.engine.step([ADAM])


class Plain:
    """The same training in JAX's memory."""

    def __init__(self):
        self.values = [{name: jnp.asarray(value) for name, value in initial(block).items()} for block in range(BLOCKS)]
        self.moments = jax.tree.map(lambda value: (jnp.zeros_like(value), jnp.zeros_like(value)), self.values)
        self.steps, self.gradients = 0, {}

    @contextlib.contextmanager
    def weights(self, block):
        yield self.values[block]

    def begin(self):
        self.gradients = {}

    def add(self, block, gradients):
        self.gradients[block] = gradients

    def step(self):
        self.steps += 1
        first, second = (1 - ADAM[beta] ** self.steps for beta in ("beta1", "beta2"))
        for block, gradients in self.gradients.items():
            for name, gradient in gradients.items():
                mean, square = self.moments[block][name]
                mean = ADAM["beta1"] * mean + (1 - ADAM["beta1"]) * gradient
                square = ADAM["beta2"] * square + (1 - ADAM["beta2"]) * gradient ** 2
                update = (mean / first) / (jnp.sqrt(square / second) + ADAM["epsilon"])
                self.moments[block][name] = mean, square
                self.values[block][name] = self.values[block][name] - ADAM["learning_rate"] * update


def train_step(model, x, target):
    model.begin()
    inputs = []
    for block in range(BLOCKS):
        inputs.append(x)
        with model.weights(block) as weights:
            x = forward(weights, x).block_until_ready()  # x must be computed before the weights may be evicted
    loss, gradient = jax.value_and_grad(loss_of)(x, target)
    for block in reversed(range(BLOCKS)):
        with model.weights(block) as weights:
            gradients, gradient = jax.block_until_ready(backward(weights, inputs[block], gradient))
        model.add(block, gradients)
    model.step()
    return float(loss)


def main():
    # The limit is a fifth of weights, gradients and Adam's moments.
    model = Plain() if os.environ.get("GEMINID_DISABLE") == "1" else Placed(device_memory=2 << 20)
    for step in range(STEPS):
        generator = np.random.default_rng(1000 + step)
        x, target = (jnp.asarray(generator.standard_normal((8, WIDTH)), jnp.float32) for _ in range(2))
        print(f"loss {train_step(model, x, target):.9g}")


if __name__ == "__main__":
    main()
