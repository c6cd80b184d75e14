"""What a checkpoint has beside the weights and the optimizer's state: rates, buffers, and the states of schedulers."""

import pathlib

import numpy
import pytest
import torch

import geminid.torch
from geminid import errors


def batch_normed(schedule=None):
    """Returns a prepared model with a batch norm, its optimizer of two groups, and a scheduler."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1))
    rest = [model[0].bias, *model[1].parameters(), model[2].bias]
    groups = [{"params": [model[0].weight, model[2].weight], "lr": 0.05}, {"params": rest}]
    optimizer = torch.optim.AdamW(groups, lr=0.1, weight_decay=0.01)
    model, optimizer = geminid.torch.prepare(model, optimizer, device_memory="448KiB")
    return model, optimizer, None if schedule is None else schedule(optimizer)


def cosine(optimizer):
    return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=8)


def train_batch_normed(model, optimizer, scheduler, steps):
    """Returns the losses of the steps, and the loss of an evaluation after them."""
    losses = []
    for step in steps:
        loss = model(torch.randn(8, 4, generator=torch.Generator().manual_seed(step))).pow(3).mean()
        loss.backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        losses.append(model(torch.randn(8, 4, generator=torch.Generator().manual_seed(99))).pow(2).mean().item())
    model.train()
    return losses


SCHEDULES = {
    "CosineAnnealingLR": cosine,
    "StepLR": lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5),
    "LambdaLR": lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step)),
    "LambdaLR of NumPy": lambda optimizer: torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: 0.5 * (1 + numpy.cos(numpy.pi * step / 9))),
    "MultiStepLR": lambda optimizer: torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 4], gamma=0.5),
}


def resumed_in_another_process(name, folder, sent):
    model, optimizer, scheduler = batch_normed(SCHEDULES[name])
    geminid.torch.load(model, folder, scheduler)
    sent.put((train_batch_normed(model, optimizer, scheduler, range(3, 7)), [group["lr"] for group in optimizer.param_groups]))


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_run_that_loads_in_another_process_goes_on_to_the_bit_with_its_rates_and_buffers(tmp_path, name):
    model, optimizer, scheduler = batch_normed(SCHEDULES[name])
    train_batch_normed(model, optimizer, scheduler, range(3))
    geminid.torch.save(model, tmp_path, scheduler)
    expected = train_batch_normed(model, optimizer, scheduler, range(3, 7))
    spawning = torch.multiprocessing.get_context("spawn")
    sent = spawning.Queue()
    process = spawning.Process(target=resumed_in_another_process, args=(name, tmp_path, sent))
    process.start()
    assert sent.get(timeout=300) == (expected, [group["lr"] for group in optimizer.param_groups])
    process.join()


def test_what_a_checkpoint_has_beside_the_weights_is_read_by_torch_itself(tmp_path):
    model, optimizer, scheduler = batch_normed(cosine)
    train_batch_normed(model, optimizer, scheduler, range(3))
    saved = torch.load(pathlib.Path(geminid.torch.save(model, tmp_path, scheduler)) / "torch.pt", weights_only=True)
    assert saved["buffers"].keys() == {"1.running_mean", "1.running_var", "1.num_batches_tracked"}
    assert torch.equal(saved["buffers"]["1.running_mean"], model[1].running_mean)
    assert [group["settings"]["lr"] for group in saved["groups"]] == [group["lr"] for group in optimizer.param_groups]
    assert saved["groups"][0]["parameters"] == ["0.weight", "2.weight"]
    assert dict(saved["objects"]) == {"CosineAnnealingLR": scheduler.state_dict()}


def test_a_checkpoint_without_rates_and_buffers_loads_with_a_warning(tmp_path):
    model, optimizer, scheduler = batch_normed(cosine)
    train_batch_normed(model, optimizer, scheduler, range(3))
    model._geminid_keeper.engine.save(tmp_path)
    again, fresh, other = batch_normed(cosine)
    with pytest.raises(errors.Refused, match="no state of CosineAnnealingLR"):
        geminid.torch.load(again, tmp_path, other)
    with pytest.warns(UserWarning, match=r"step-000000003/torch.pt' does not exist: learning rates"):
        geminid.torch.load(again, tmp_path)
    assert [group["lr"] for group in fresh.param_groups] == [0.05, 0.1]
    assert torch.equal(again.state_dict()["0.weight"], model.state_dict()["0.weight"])


def assert_refused_and_unchanged(model, folder, match, *objects):
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(errors.Refused, match=match):
        geminid.torch.load(model, folder, *objects)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_a_checkpoint_of_other_buffers_groups_or_objects_is_refused_before_anything_changes(tmp_path):
    model, optimizer, scheduler = batch_normed(cosine)
    train_batch_normed(model, optimizer, scheduler, range(2))
    geminid.torch.save(model, tmp_path, scheduler)
    other, fresh, _ = batch_normed()
    assert_refused_and_unchanged(other, tmp_path, r"given \['LambdaLR'\].*\['CosineAnnealingLR'\]",
                                 SCHEDULES["LambdaLR"](fresh))
    other.register_buffer("mean", torch.zeros(3))
    assert_refused_and_unchanged(other, tmp_path, "buffer 'mean' is not in the checkpoint")
    del other.mean
    other[1].running_var = torch.ones(1)
    assert_refused_and_unchanged(other, tmp_path, r"'1.running_var' has the shape \[1\], and \[8\]")
    del other[1]._buffers["running_var"]
    assert_refused_and_unchanged(other, tmp_path, "buffer '1.running_var' is not in the model")
    torch.manual_seed(0)
    one = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1))
    one, _ = geminid.torch.prepare(one, torch.optim.AdamW(one.parameters()), device_memory="448KiB")
    assert_refused_and_unchanged(one, tmp_path, "group 0 of the optimizer, with '0.weight', has other parameters")


def test_a_damaged_byte_beside_the_weights_is_named(tmp_path):
    model, optimizer, scheduler = batch_normed(cosine)
    file = pathlib.Path(geminid.torch.save(model, tmp_path, scheduler)) / "torch.pt"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(errors.DataLoss, match="torch.pt"):
        geminid.torch.load(model, tmp_path)


class Opaque:
    def state_dict(self):
        return {"place": pathlib.Path("run")}

    def load_state_dict(self, state):
        raise AssertionError(state)


def test_a_state_that_would_need_code_to_load_is_refused_when_it_is_saved(tmp_path):
    model, optimizer, _ = batch_normed()
    with pytest.raises(errors.Refused, match="cannot save the state of the Opaque"):
        geminid.torch.save(model, tmp_path, Opaque())
    optimizer.param_groups[0]["note"] = Opaque()
    with pytest.warns(UserWarning, match="leaves out the setting 'note'"):
        geminid.torch.save(model, tmp_path, model, optimizer)
    assert list(tmp_path.iterdir())


def test_rates_that_are_tensors_or_numbers_of_numpy_come_back(tmp_path):
    def made(rate):
        model = torch.nn.Linear(4, 4)
        return geminid.torch.prepare(model, torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.8, 0.9)), device_memory="448KiB")

    for number, rate in enumerate((torch.tensor(0.25), numpy.float64(0.1), numpy.float32(0.1))):
        model, optimizer = made(rate)
        geminid.torch.save(model, tmp_path / str(number))
        model, optimizer = made(torch.tensor(0.5) if isinstance(rate, torch.Tensor) else 0.5)
        held = optimizer.param_groups[0]["lr"]
        geminid.torch.load(model, tmp_path / str(number))
        assert float(optimizer.param_groups[0]["lr"]) == float(rate)
        assert optimizer.param_groups[0]["betas"] == (0.8, 0.9)
        assert not isinstance(rate, torch.Tensor) or held is optimizer.param_groups[0]["lr"]


def test_weights_and_state_alone_are_loaded_into_an_optimizer_with_another_momentum(tmp_path):
    model, optimizer, scheduler = batch_normed(cosine)
    train_batch_normed(model, optimizer, scheduler, range(3))
    geminid.torch.save(model, tmp_path, scheduler)
    saved = {name: value.clone() for name, value in model.state_dict().items() if "running" not in name and "num_" not in name}
    fresh = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1))
    other, one_group = geminid.torch.prepare(fresh, torch.optim.AdamW(fresh.parameters(), lr=0.3, betas=(0.8, 0.9)),
                                             device_memory="448KiB")
    with pytest.raises(errors.Refused, match="settings=False"):
        geminid.torch.load(other, tmp_path)
    with pytest.raises(errors.Refused, match="loads none"):
        geminid.torch.load(other, tmp_path, scheduler, settings=False)
    geminid.torch.load(other, tmp_path, settings=False)
    loaded = other.state_dict()
    assert all(torch.equal(loaded[name], value) for name, value in saved.items())
    assert one_group.param_groups[0]["lr"] == 0.3 and other[1].num_batches_tracked == 0
