"""Requests between the backward passes of one step: the result equals PyTorch's, or the refusal says when to ask."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import geminid.torch
import twins
from geminid import errors
from models import batch, make
from steps import accumulate, one_batch

ASKED = {
    "optimizer.load_state_dict": lambda twin, folder: twin.optimizer.load_state_dict(twin.saved),
    "load_state_dict": lambda twin, folder: twin.model.load_state_dict(twin.model.state_dict()),
    "geminid.torch.save": lambda twin, folder: geminid.torch.save(twin.model, folder),
}


@pytest.fixture
def both():
    pair = twins.pair(make("gpt"), device_memory="448KiB")
    twins.run(pair, one_batch, steps=1)
    yield pair
    twins.run(pair, accumulate, steps=2)  # continues as without the refused request
    twins.assert_same(pair)


@pytest.mark.parametrize("what", ASKED)
def test_what_is_for_between_steps_is_refused_between_backward_passes(both, what, tmp_path):
    both[1].saved = both[1].optimizer.state_dict()
    for twin in both:
        twin.model(*batch(5)).backward()
    with pytest.raises(errors.Refused, match=rf"{what}.* works only between steps.*optimizer.step\(\) or optimizer.zero_grad\(\)"):
        ASKED[what](both[1], tmp_path)
    for twin in both:
        twin.model(*batch(6)).backward()
        twins.finish(twin)


def test_optimizer_state_within_a_step_is_that_of_the_last_step(both):
    plain, ours = both

    def agree():
        states = [twin.optimizer.state_dict()["state"] for twin in both]
        assert states[0].keys() == states[1].keys()
        for number, entry in states[0].items():
            for name, value in entry.items():
                torch.testing.assert_close(states[1][number][name], value, rtol=1e-4, atol=1e-6)
        for name, value in plain.optimizer.state[plain.model.norm.weight].items():
            torch.testing.assert_close(ours.optimizer.state[ours.model.norm.weight][name], value, rtol=1e-4, atol=1e-6)

    agree()
    for number in (5, 6):
        for twin in both:
            twin.model(*batch(number)).backward()
        agree()
    for twin in both:
        twins.clip(twin, float("inf"))
    agree()
    for twin in both:
        twin.optimizer.step()
        twin.optimizer.zero_grad()


def test_norm_between_backward_passes_is_refused_with_when_to_ask(both):
    for twin in both:
        twin.model(*batch(5)).backward()
        twins.clip(twin, float("inf"))
    with pytest.raises(errors.Refused, match=r"norm of this step's gradients.*optimizer.step\(\).*zero_grad.*after the last one"):
        both[1].model(*batch(6))
    for twin in both:
        twin.optimizer.step()
        twin.optimizer.zero_grad()


def test_evaluation_after_the_norm_is_free(both):
    for twin in both:
        twin.model(*batch(5)).backward()
        twins.clip(twin)
        with torch.no_grad():
            twin.losses.append(twin.model(*batch(6)).item())
        twin.optimizer.zero_grad()


def test_weights_are_read_in_full_between_backward_passes_and_not_changed(both):
    ours = both[1]
    for twin in both:
        twin.model(*batch(5)).backward()
    with geminid.torch.full(ours.model.norm):
        torch.testing.assert_close(ours.model.norm.weight, both[0].model.norm.weight, rtol=1e-5, atol=1e-6)
    with pytest.raises(errors.Refused, match="'norm.weight' was changed in geminid.torch.full.*old values.*optimizer.zero_grad"):
        with geminid.torch.full(ours.model.norm), torch.no_grad():
            ours.model.norm.weight.mul_(0.5)
    for twin in both:
        twin.model(*batch(6)).backward()
        twins.finish(twin)


class Shared(nn.Module):
    """One block that is called three times, as in ALBERT."""

    def __init__(self, reentrant):
        super().__init__()
        self.block, self.head, self.reentrant = nn.Sequential(nn.Linear(64, 64), nn.Tanh()), nn.Linear(64, 4), reentrant

    def forward(self, x):
        x = x.requires_grad_()
        for _ in range(3):
            x = x + checkpoint(self.block, x, use_reentrant=self.reentrant)
        return self.head(x).double().pow(2).mean()


def checkpointed(twin, number):
    loss = twin.model(torch.randn(3, 64))
    twin.losses.append(loss.item())
    loss.backward()
    twins.finish(twin)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def test_block_in_several_reentrant_checkpoints_is_refused_with_the_other_kind():
    torch.manual_seed(0)
    model = Shared(True)
    model, optimizer = twins.prepared(model, sgd(model.parameters()))
    with pytest.raises(errors.Refused, match="'block.*given a gradient twice.*use_reentrant=False.*zero_grad"):
        model(torch.randn(3, 64)).backward()
    optimizer.zero_grad()
    model.reentrant = False
    model(torch.randn(3, 64)).backward()
    optimizer.step()


def test_block_in_several_checkpoints_that_are_not_reentrant_is_right():
    torch.manual_seed(0)
    both = twins.pair(Shared(False), sgd)
    twins.run(both, checkpointed)
    twins.assert_same(both)
