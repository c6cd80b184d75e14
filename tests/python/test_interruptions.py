"""After an exception anywhere in a step the next step is correct, and no operation stays open."""

import threading

import pytest
import torch

import twins
from geminid._library import LIB
from models import batch, make
from steps import one_batch


class Stop(Exception):
    pass


def raising(error):
    def hook(*_):
        raise error
    return hook


@pytest.fixture(params=["block", "leaf"])
def both(request):
    pair = twins.pair(make("gpt"), device_memory=twins.SMALL["gpt", request.param], unit=request.param)
    twins.run(pair, one_batch, steps=2)
    yield pair
    twins.run(pair, one_batch, steps=3)
    twins.assert_same(pair)
    with twins.nothing_open(pair[1]):
        pass


@pytest.mark.parametrize("error", [Stop(), KeyboardInterrupt()], ids=["exception", "interrupt"])
def test_forward_that_raises_leaves_nothing(both, error):
    for twin in both:
        hook = twin.model.blocks[1].down.register_forward_pre_hook(raising(error))
        with pytest.raises(type(error)):
            twin.model(*batch(0))
        hook.remove()


@pytest.mark.parametrize("error", [Stop(), KeyboardInterrupt()], ids=["exception", "interrupt"])
def test_backward_that_raises_leaves_what_zero_grad_drops(both, error):
    for twin in both:
        tensors = []
        hook = twin.model.blocks[1].register_forward_hook(lambda _m, _i, output: tensors.append(output))
        loss = twin.model(*batch(0))
        hook.remove()
        tensors[0].register_hook(raising(error))
        with pytest.raises(type(error)):
            loss.backward()
        twin.optimizer.zero_grad()


def test_evaluation_that_raises_leaves_nothing(both):
    for twin in both:
        hook = twin.model.norm.register_forward_hook(raising(Stop()))
        with pytest.raises(Stop), torch.no_grad():
            twin.model(*batch(0))
        hook.remove()


def test_interrupt_between_the_engine_and_its_record_is_made_good(both):
    """The worst moment: the operation is open, and its number is not stored yet."""
    keeper = both[1].model._geminid_keeper
    use = keeper.engine.use

    def interrupted(*arguments):
        use(*arguments)
        raise KeyboardInterrupt

    keeper.engine.use = interrupted
    with pytest.raises(KeyboardInterrupt):
        both[1].model(*batch(0))
    keeper.engine.use = use


def interrupted(call):
    """Python raises KeyboardInterrupt as a call of the library returns."""
    def stopped(*arguments):
        call(*arguments)
        raise KeyboardInterrupt
    return stopped


@pytest.mark.parametrize("gradient", [0, 1])
def test_interrupt_of_a_gradient_leaves_what_zero_grad_drops(both, gradient, monkeypatch):
    engine, add = both[1].model._geminid_keeper.engine, both[1].model._geminid_keeper.engine.add_gradient
    calls = [add] * gradient + [interrupted(add)]
    monkeypatch.setattr(engine, "add_gradient", lambda *arguments: calls.pop(0)(*arguments), raising=False)
    with pytest.raises(KeyboardInterrupt):
        both[1].model(*batch(0)).backward()
    monkeypatch.undo()
    both[1].optimizer.zero_grad()
    assert both[1].model.head.weight.grad is None


def test_interrupt_of_a_step_leaves_it_made(both, monkeypatch):
    for twin in both:
        twin.model(*batch(0)).backward()
    both[0].optimizer.step()
    keeper = both[1].model._geminid_keeper
    before, call = keeper.engine.committed, LIB.call
    monkeypatch.setattr(LIB, "call", lambda name, *rest: (interrupted(call) if name == "engine_step" else call)(name, *rest))
    with pytest.raises(KeyboardInterrupt):
        both[1].optimizer.step()
    monkeypatch.undo()
    assert keeper.engine.committed == before + 1 and not keeper.has_gradient
    for twin in both:
        twin.optimizer.zero_grad()


def test_backward_in_another_thread_is_right(both):
    for twin in both:
        loss = twin.model(*batch(7))
        twin.losses.append(loss.item())
        thread = threading.Thread(target=loss.backward)
        thread.start()
        thread.join()
        twins.finish(twin)
