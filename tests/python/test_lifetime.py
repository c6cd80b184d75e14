"""The time for which a prepared model keeps its engine and its device memory."""

import gc
import weakref

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
