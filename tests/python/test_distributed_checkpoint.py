"""torch's distributed checkpoint saves and loads a prepared model and its optimizer, by torch's own functions."""

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import state_dict as states

import twins
from models import make
from steps import one_batch
from test_scenarios import OPTIMIZERS


def fresh(name, seed):
    model = make("gpt", seed=seed)
    return twins.Twin(*twins.prepared(model, OPTIMIZERS[name](list(model.parameters())), device_memory="448KiB"))


def plain_twin(name, seed):
    model = make("gpt", seed=seed)
    return twins.Twin(model, OPTIMIZERS[name](list(model.parameters())))


def saved(twin, folder):
    model, optimizer = states.get_state_dict(twin.model, twin.optimizer)
    dcp.save({"model": model, "optimizer": optimizer}, checkpoint_id=folder)


def loaded(twin, folder):
    model, optimizer = states.get_state_dict(twin.model, twin.optimizer)
    dcp.load({"model": model, "optimizer": optimizer}, checkpoint_id=folder)
    states.set_state_dict(twin.model, twin.optimizer, model_state_dict=model, optim_state_dict=optimizer)


# torch's checkpoint of Adagrad and of SGD without momentum has no state that the others lack.
NAMES = ["adamw_groups", "adam", "momentum", "sgd"]


@pytest.mark.parametrize("name", NAMES)
def test_run_goes_on_from_a_distributed_checkpoint(name, tmp_path):
    """Loads into a model that has not trained yet: its optimizer state must exist, because torch loads into it."""
    plain, ours = plain_twin(name, 0), fresh(name, 0)
    twins.run((plain, ours), one_batch, steps=3)
    saved(ours, tmp_path)
    again = fresh(name, seed=9)
    loaded(again, tmp_path)
    for twin in (plain, ours, again):
        twin.losses.clear(), twin.norms.clear()
    twins.run((plain, ours, again), one_batch, steps=3)
    twins.assert_same((plain, ours))
    twins.assert_same((plain, again))


@pytest.mark.parametrize("name", NAMES)
def test_checkpoint_of_plain_torch_is_loaded(name, tmp_path):
    plain = plain_twin(name, 0)
    twins.run((plain,), one_batch, steps=3)
    saved(plain, tmp_path)
    ours = fresh(name, seed=9)
    loaded(ours, tmp_path)
    plain.losses.clear(), plain.norms.clear()
    twins.run((plain, ours), one_batch, steps=3)
    twins.assert_same((plain, ours))


def test_state_before_the_first_step_goes_on_as_a_fresh_start(tmp_path):
    plain, ours = plain_twin("adam", 0), fresh("adam", 0)
    state = ours.optimizer.state_dict()
    assert len(state["state"]) == len(list(ours.model.parameters()))
    assert all(float(entry["step"]) == 0 and not entry["exp_avg"].any() for entry in state["state"].values())
    plain.optimizer.load_state_dict(state)
    ours.optimizer.load_state_dict(state)
    twins.run((plain, ours), one_batch, steps=3)
    twins.assert_same((plain, ours))


def test_saving_changes_nothing(tmp_path):
    """torch makes a step of zero gradients if the optimizer has no state yet."""
    plain, ours = plain_twin("adam", 0), fresh("adam", 0)
    saved(ours, tmp_path)
    twins.run((plain, ours), one_batch, steps=3)
    twins.assert_same((plain, ours))
