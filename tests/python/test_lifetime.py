"""The time for which a prepared model keeps its engine and its device memory."""

import gc
import weakref

import pytest
import torch
import twins
from models import batch, loss_of, make


def trained():
    model = make("llama")
    model, optimizer = twins.prepared(model, twins.adamw(model.parameters()))
    tokens, labels = batch(0)
    loss_of(model(tokens), labels).backward()
    optimizer.step()
    return model, optimizer


def test_model_that_nobody_has_gives_its_engine_back():
    model, optimizer = trained()
    kept = [weakref.ref(each) for each in (model, optimizer, model._geminid_keeper, model._geminid_keeper.engine)]
    state = model.state_dict()
    del model, optimizer
    gc.collect()
    assert [each() for each in kept] == [None] * len(kept)
    assert len(state) > 0, "what was read of it stays"


def test_the_next_prepare_comes_after_it():
    model, optimizer = trained()
    engine = weakref.ref(model._geminid_keeper.engine)
    gc.disable()  # so that only prepare collects garbage
    try:
        del model, optimizer
        trained()
        assert engine() is None
    finally:
        gc.enable()


class Prompt(torch.nn.Module):
    """Returns its parameter itself."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4, 16))

    def forward(self):
        return self.weight


class Prompted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.prompt, self.layers = Prompt(), torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Linear(16, 16))

    def forward(self, x):
        return self.layers(torch.cat([self.prompt(), x]))


def prompted_step(twin, number):
    loss = twin.model(torch.randn(4, 16)).double().pow(2).mean()
    twin.losses.append(loss.item())
    loss.backward()
    twins.finish(twin)


@pytest.mark.parametrize("unit", ["block", "leaf"])
def test_module_that_returns_its_parameter_is_right_and_leaves_nothing_on_it(unit):
    torch.manual_seed(0)
    both = twins.pair(Prompted(), device_memory="256KiB", unit=unit)
    with twins.nothing_open(both[1]):
        twins.run(both, prompted_step, steps=5)
    twins.assert_same(both, loss=2e-6, norm=2e-6)  # of small losses, means of squares
    assert not both[1].model.prompt.weight._backward_hooks


def test_parameter_that_is_left_keeps_the_engine():
    model, optimizer = trained()
    engine = weakref.ref(model._geminid_keeper.engine)
    parameter = next(model.parameters())
    del model, optimizer
    gc.collect()
    assert engine() is not None
    assert isinstance(parameter, torch.nn.Parameter)
    del parameter
    gc.collect()
    assert engine() is None
