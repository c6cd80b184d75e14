"""Ways in which users write a training step. Each does one step of a twin and records its losses and norms there."""

import torch

import models
import twins
from models import batch


def forward(twin, seed, size=2):
    loss = twin.model(*batch(seed, size))
    twin.losses.append(loss.item())
    return loss


def one_batch(twin, number):
    forward(twin, number).backward()
    twins.finish(twin)


def accumulate(twin, number):
    count = 3 if number % 2 == 0 else 1  # the last step of an epoch has fewer micro-batches
    for micro in range(count):
        (forward(twin, 10 * number + micro) / count).backward()
    twins.finish(twin)


def evaluate_between(twin, number):
    loss = forward(twin, number)
    with torch.no_grad():
        forward(twin, 100 + number)
    loss.backward()
    with torch.no_grad():
        forward(twin, 200 + number)
    twins.clip(twin)
    with torch.no_grad():
        forward(twin, 300 + number)
    twin.optimizer.step()
    twin.optimizer.zero_grad()


def two_losses(twin, number):
    (forward(twin, number) + forward(twin, 50 + number)).backward()
    twins.finish(twin)


def two_backwards(twin, number):
    first, second = forward(twin, number), forward(twin, 50 + number)
    first.backward()
    second.backward()
    twins.finish(twin)


def retained(twin, number):
    loss = forward(twin, number)
    loss.backward(retain_graph=True)
    loss.backward()
    twins.finish(twin)


def forward_alone(twin, number):
    forward(twin, 50 + number)  # in training mode; its result is not used
    forward(twin, number).backward()
    twins.finish(twin)


def cancelled(twin, number):
    forward(twin, 50 + number).backward()
    twin.optimizer.zero_grad()
    one_batch(twin, number)


def reordered(twin, number):
    twin.model.order = [[0, 1, 2], [2, 1, 0], [1, 0, 2]][number % 3]
    one_batch(twin, number)


def generate(twin, number):
    one_batch(twin, number)
    tokens = twin.model.generate(batch(number)[0][:, :3], 4)
    twin.losses.append(float(tokens.double().pow(2).mean()))


def penalty(twin, number):
    """A step that reads every parameter outside of its module."""
    loss = forward(twin, number) + 1e-4 * sum(p.pow(2).sum() for p in twin.model.parameters())
    loss.backward()
    twins.finish(twin)


def submodule(twin, number):
    tokens, labels = batch(number)
    projection = torch.randn(models.WIDTH, models.VOCABULARY) * 0.1
    loss = models.loss_of(twin.model.hidden(tokens) @ projection, labels)
    twin.losses.append(loss.item())
    loss.backward()
    twins.finish(twin)


def input_gradient(twin, number):
    """A step with autograd.grad with respect to a tensor that is no parameter."""
    x = torch.randn(2, 5, models.WIDTH, requires_grad=True)
    gradient, = torch.autograd.grad(twin.model.blocks[0](x).sum(), x)
    twin.losses.append(gradient.double().abs().sum().item())
    one_batch(twin, number)


def saved_on_cpu(twin, number):
    with torch.autograd.graph.save_on_cpu():
        loss = forward(twin, number)
    loss.backward()
    twins.finish(twin)


def unclipped(twin, number):
    forward(twin, number).backward()
    twin.optimizer.step()
    twin.optimizer.zero_grad()


def with_closure(twin, number):
    def closure():
        loss = forward(twin, number)
        loss.backward()
        return loss
    twin.optimizer.step(closure)
    twin.optimizer.zero_grad()


STEPS = [one_batch, accumulate, evaluate_between, two_losses, two_backwards, retained, forward_alone, cancelled, reordered,
         generate, penalty, submodule, input_gradient, saved_on_cpu, unclipped, with_closure]
WHOLE = (penalty,)  # steps that need all parameters at the same time
