"""Loading and saving of state, in torch's form and in the engine's checkpoints."""

import collections
import copy
import pickle

import pytest
import torch

import geminid.torch
import twins
from geminid import errors
from models import batch, make
from steps import one_batch
from test_scenarios import OPTIMIZERS


def trained(make_optimizer=twins.adamw, steps=3, **options):
    both = twins.pair(make("gpt", **options), make_optimizer, device_memory="448KiB")
    twins.run(both, one_batch, steps=steps)
    return both


def assert_near(actual, expected):
    assert list(actual) == list(expected)
    for name, value in expected.items():
        torch.testing.assert_close(actual[name], value, rtol=1e-5, atol=1e-6, msg=lambda m: f"{name}: {m}")


def test_state_dict_has_the_names_and_values_of_torch():
    plain, ours = trained(OPTIMIZERS["momentum"])
    assert_near(ours.model.state_dict(), plain.model.state_dict())
    part = ours.model.blocks[1].state_dict(prefix="x.")
    assert_near(part, plain.model.blocks[1].state_dict(prefix="x."))


def test_tied_parameters_share_memory_in_a_state_dict():
    _, ours = trained(tied="shared", steps=1)
    state = ours.model.state_dict()
    assert state["head.weight"].data_ptr() == state["embedding.weight"].data_ptr()


def test_state_dict_with_parameters_is_refused():
    _, ours = trained(steps=1)
    with pytest.raises(errors.Refused, match="keep_vars.*torch.onnx.export"):
        ours.model.state_dict(keep_vars=True)


def effect_of_last_bits(make_optimizer, steps):
    """How far apart the norms of PyTorch's own runs are after `steps` steps, where the last bits of the first weights differ.
    Adagrad's first update is nearly a sign, so that a gradient near zero makes much of a bit, and processors round
    differently."""
    plain, *others = [twins.Twin(make("gpt"), None) for _ in range(5)]
    for seed, other in enumerate(others):
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in other.model.parameters():
                bits = torch.randint(-1, 2, parameter.shape, generator=generator)
                parameter.mul_(1 + bits * torch.finfo(torch.float32).eps)
    for twin in (plain, *others):
        twin.optimizer = make_optimizer(list(twin.model.parameters()))
    twins.run((plain, *others), one_batch, steps=steps)
    return max(twins.difference(other.norms, plain.norms) for other in others)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_run_goes_on_from_the_state_of_torch_and_back(name):
    plain, ours = trained(OPTIMIZERS[name])
    model = make("gpt", seed=9)
    crossed = twins.Twin(*twins.prepared(model, OPTIMIZERS[name](list(model.parameters()))))
    crossed.model.load_state_dict(plain.model.state_dict())
    crossed.optimizer.load_state_dict(copy.deepcopy(plain.optimizer.state_dict()))
    back = twins.Twin(make("gpt", seed=8), None)
    back.optimizer = OPTIMIZERS[name](list(back.model.parameters()))
    back.model.load_state_dict(ours.model.state_dict())
    back.optimizer.load_state_dict(ours.optimizer.state_dict())
    for twin in (plain, ours, crossed, back):
        twin.losses.clear(), twin.norms.clear()
    twins.run((plain, ours, crossed, back), one_batch, steps=3)
    norm = max(twins.NORM, effect_of_last_bits(OPTIMIZERS[name], steps=6))
    for twin in (ours, crossed, back):
        twins.assert_same((plain, twin), norm=norm)


def test_optimizer_that_has_stepped_before_prepare_goes_on():
    plain = twins.Twin(make("gpt"), None)
    plain.optimizer = twins.adamw(plain.model.parameters())
    twins.run([plain], one_batch, steps=2)
    other = copy.deepcopy(plain.model)
    optimizer = twins.adamw(other.parameters())
    optimizer.load_state_dict(copy.deepcopy(plain.optimizer.state_dict()))
    ours = twins.Twin(*twins.prepared(other, optimizer))
    plain.losses.clear(), plain.norms.clear()
    twins.run((plain, ours), one_batch, steps=3)
    twins.assert_same((plain, ours))


def test_state_of_another_shape_is_told_as_torch_tells_it():
    _, ours = trained(steps=1)
    state = ours.model.state_dict()
    before = ours.model.state_dict()
    state["norm.weight"] = torch.zeros(3)
    with pytest.raises(RuntimeError, match="size mismatch for norm.weight"):
        ours.model.load_state_dict(state)
    assert torch.equal(ours.model.state_dict()["norm.weight"], before["norm.weight"])
    del state["norm.weight"]
    with pytest.raises(RuntimeError, match="Missing key.*norm.weight"):
        ours.model.load_state_dict(state)


def test_checkpoint_of_the_engine_goes_on_to_the_bit(tmp_path):
    _, ours = trained()
    folder = geminid.torch.save(ours.model, tmp_path, data_position=17)
    assert "step-000000003" in folder
    model = make("gpt", seed=9)
    again = twins.Twin(*twins.prepared(model, twins.adamw(model.parameters()), device_memory="448KiB"))
    assert geminid.torch.load(again.model, tmp_path) == 17
    ours.losses.clear(), ours.norms.clear()
    twins.run((ours, again), one_batch, steps=3)
    assert again.losses == ours.losses and again.norms == ours.norms


def test_checkpoints_of_a_diverged_run_leave_the_newest_healthy_one(tmp_path):
    _, ours = trained(steps=1)
    geminid.torch.save(ours.model, tmp_path, keep=1)
    for _ in range(2):
        twins.run((ours,), one_batch, steps=1)
        geminid.torch.save(ours.model, tmp_path, keep=1, healthy=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000000001", "step-000000003"]


def test_state_in_bf16_follows_fp32_and_goes_on_to_the_bit_and_in_no_other_type(tmp_path):
    plain, ours = twins.pair(make("gpt"), twins.adamw, state_dtype="bf16")
    twins.run((plain, ours), one_batch, steps=6)
    assert ours.losses != plain.losses
    torch.testing.assert_close(torch.tensor(ours.losses), torch.tensor(plain.losses), rtol=1e-2, atol=1e-2)
    for entry in ours.optimizer.state.values():
        assert torch.equal(entry["exp_avg_sq"], entry["exp_avg_sq"].bfloat16().float())
    geminid.torch.save(ours.model, tmp_path)

    def another(**options):
        model = make("gpt", seed=9)
        return twins.Twin(*twins.prepared(model, twins.adamw(model.parameters()), **options))

    again = another(state_dtype="bf16")
    geminid.torch.load(again.model, tmp_path)
    ours.losses.clear()
    twins.run((ours, again), one_batch, steps=3)
    assert again.losses == ours.losses
    with pytest.raises(errors.FailedPrecondition, match="state in bf16; this run uses fp32"):
        geminid.torch.load(another().model, tmp_path)
    with pytest.raises(errors.InvalidArgument, match="state_dtype is 'fp8'; it must be 'fp32' or 'bf16'"):
        another(state_dtype="fp8")


def test_state_that_is_streamed_through_the_device_has_the_same_bits():
    def placed(where):
        model = make("gpt")
        return twins.Twin(*twins.prepared(model, twins.adamw(model.parameters()), optimizer_state=where))

    host, streamed = placed("host"), placed("streamed")
    twins.run((host, streamed), one_batch, steps=4)
    assert streamed.losses == host.losses and streamed.norms == host.norms
    with pytest.raises(errors.InvalidArgument, match="optimizer_state is 'disk', .* name them with state_disk"):
        placed("disk")
    with pytest.raises(errors.InvalidArgument, match="optimizer_state is 'nowhere'; it must be 'auto', .* or 'disk'"):
        placed("nowhere")


def test_state_on_disk_has_the_same_bits_in_files_of_the_asked_size_that_have_no_names(tmp_path):
    disks = [tmp_path / "one", tmp_path / "two"]
    for disk in disks:
        disk.mkdir()

    def placed(**options):
        model = make("gpt")
        return twins.Twin(*twins.prepared(model, twins.adamw(model.parameters()), **options))

    host, disk = placed(optimizer_state="host"), placed(optimizer_state="disk", state_disk=disks)
    twins.run((host, disk), one_batch, steps=4)
    assert disk.losses == host.losses and disk.norms == host.norms
    said = geminid.torch.statistics(disk.model)
    assert said["state_disk_bytes"] > 0 and said["disk_written_bytes"] > 0
    assert [list(folder.iterdir()) for folder in disks] == [[], []]
    enough = geminid.torch.statistics(placed(state_disk=disks).model)
    assert enough["state_disk_bytes"] == 0 and enough["state_disk"].startswith("none on disk")
    entries = zip(host.optimizer.state.values(), disk.optimizer.state.values(), strict=True)
    for one, other in entries:
        assert torch.equal(one["exp_avg_sq"], other["exp_avg_sq"])
    with pytest.raises(errors.InvalidArgument, match="optimizer_state is 'host', and state_disk puts the state on disk"):
        placed(optimizer_state="host", state_disk=disks)
    with pytest.raises(errors.NotFound, match="nowhere"):
        placed(state_disk=tmp_path / "nowhere")
    with pytest.raises(errors.ResourceExhausted, match="state_disk.limit_bytes|limit"):
        placed(optimizer_state="disk", state_disk=str(disks[0]), state_disk_limit_bytes=4096)


def test_full_reads_and_changes_between_steps():
    plain, ours = trained()
    with torch.no_grad():
        plain.model.head.weight.mul_(0.5)
        with geminid.torch.full(ours.model.head):
            torch.testing.assert_close(ours.model.head.weight.mul_(0.5), plain.model.head.weight, rtol=1e-5, atol=1e-6)
        with geminid.torch.full(ours.model):
            assert float(ours.model.norm.weight.sum()) == pytest.approx(float(plain.model.norm.weight.sum()), rel=1e-6)
    with torch.no_grad(), pytest.raises(errors.Refused):
        ours.model.head.weight.sum()
    twins.run((plain, ours), one_batch, steps=2)
    twins.assert_same((plain, ours), loss=4e-7)


def test_changes_in_full_stay_after_a_forward_pass_in_its_block():
    plain, ours = both = trained(OPTIMIZERS["momentum"])
    made = []
    for twin in both:
        with geminid.torch.full(ours.model) if twin is ours else torch.no_grad(), torch.enable_grad():
            with torch.no_grad():
                twin.model.head.weight.mul_(0.5)
            made.append(twin.model(*batch(50)).item())
    assert made[1] == pytest.approx(made[0], rel=4e-7)
    assert_near(ours.model.state_dict(), plain.model.state_dict())
    twins.run(both, one_batch, steps=2)
    twins.assert_same(both, loss=4e-7)


@pytest.mark.parametrize("average", [{}, {"multi_avg_fn": torch.optim.swa_utils.get_ema_multi_avg_fn(0.9), "use_buffers": True}],
                         ids=["mean", "ema"])
def test_averages_that_were_made_before_prepare_are_updated_in_full(average):
    model = make("gpt")
    averages = [torch.optim.swa_utils.AveragedModel(model, **average) for _ in range(2)]
    both = twins.pair(model, OPTIMIZERS["momentum"], device_memory="448KiB")

    def step(twin, number):
        one_batch(twin, number)
        ours = twin is both[1]
        with geminid.torch.full(twin.model) if ours else torch.no_grad():
            averages[ours].update_parameters(twin.model)

    twins.run(both, step, steps=3)
    assert_near(averages[1].state_dict(), averages[0].state_dict())
    twins.assert_same(both)


@pytest.mark.parametrize("change, words", [
    (lambda m: setattr(m.head.weight, "data", torch.zeros(3, 64)), r"'head.weight' was \(96, 64\), torch.float32, and is \(3, 64\)"),
    (lambda m: setattr(m.head.weight, "data", m.head.weight.data.double()), "'head.weight' was .*torch.float64 now"),
    (lambda m: setattr(m, "head", torch.nn.Linear(64, 96)), "'head.weight' is new.*would not be trained")])
def test_changes_in_full_that_cannot_stay_are_refused(change, words):
    plain, ours = trained()
    head = ours.model.head
    before = ours.model.state_dict()
    with pytest.raises(errors.Refused, match=words):
        with geminid.torch.full(ours.model):
            change(ours.model)
    ours.model.head = head
    assert_near(ours.model.state_dict(), before)
    twins.run((plain, ours), one_batch, steps=2)
    twins.assert_same((plain, ours))


def test_exception_in_full_is_that_of_the_caller():
    _, ours = trained(steps=1)
    with pytest.raises(KeyError, match="mine"):
        with geminid.torch.full(ours.model):
            ours.model.head.weight.data = torch.zeros(1)
            raise KeyError("mine")


def test_state_of_the_optimizer_is_there_by_parameter():
    plain, ours = trained()
    parameters = list(zip(plain.model.parameters(), ours.model.parameters()))
    assert len(ours.optimizer.state) == len(parameters)
    for theirs, mine in parameters:
        assert_near(ours.optimizer.state[mine], plain.optimizer.state[theirs])


def test_state_of_the_optimizer_takes_back_what_it_gave_and_nothing_else():
    _, ours = trained(steps=1)
    for parameter, entry in ours.optimizer.state.items():
        ours.optimizer.state[parameter] = entry
    with pytest.raises(errors.Refused, match="'norm.weight'.*load_state_dict"):
        ours.optimizer.state[ours.model.norm.weight] = {**entry, "step": torch.tensor(9.0)}


def test_state_after_a_forward_without_its_backward_is_that_of_the_last_step(tmp_path):
    plain, ours = both = trained()
    losses = []
    for twin in both:
        losses.append(twin.model(*batch(50)))
        saved = twin.optimizer.state_dict()
        twin.optimizer.load_state_dict(saved)
        twin.model.load_state_dict(twin.model.state_dict())
        with geminid.torch.full(ours.model.head) if twin is ours else torch.no_grad(), torch.no_grad():
            twin.model.head.weight.mul_(0.5)
    geminid.torch.save(ours.model, tmp_path)
    assert_near(ours.optimizer.state_dict()["state"][0], plain.optimizer.state_dict()["state"][0])
    twins.run(both, one_batch, steps=2)
    twins.assert_same(both)


def test_state_between_backward_and_step_is_that_of_the_last_step():
    plain, ours = trained(steps=2)
    ours.model(*batch(50)).backward()
    assert_near(ours.optimizer.state_dict()["state"][0], plain.optimizer.state_dict()["state"][0])
    ours.optimizer.zero_grad()
    assert_near(ours.optimizer.state_dict()["state"][0], plain.optimizer.state_dict()["state"][0])


WARM = {"momentum": OPTIMIZERS["momentum"], "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01), "adamw": twins.adamw,
        "dampened": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, dampening=0.1)}


def warm(twin, number):
    """A step without a gradient of block 2."""
    twin.model.order = [0, 1]
    one_batch(twin, number)
    twin.model.order = None


@pytest.mark.parametrize("name", WARM)
def test_optimizer_that_has_not_stepped_all_parameters_goes_on(name):
    """Checks prepare and load_state_dict."""
    plain = twins.Twin(make("gpt"), None)
    plain.optimizer = WARM[name](list(plain.model.parameters()))
    twins.run([plain], warm, steps=2)
    others = []
    for loads in (False, True):
        other = copy.deepcopy(plain.model)
        optimizer = WARM[name](list(other.parameters()))
        if not loads:
            optimizer.load_state_dict(copy.deepcopy(plain.optimizer.state_dict()))
        others.append(twins.Twin(*twins.prepared(other, optimizer)))
        if loads:
            others[-1].optimizer.load_state_dict(copy.deepcopy(plain.optimizer.state_dict()))
    plain.losses.clear(), plain.norms.clear()
    twins.run((plain, *others), one_batch, steps=3)
    for other in others:
        twins.assert_same((plain, other))


def test_state_with_options_that_cannot_change_is_refused_before_anything_changes():
    _, ours = trained(OPTIMIZERS["momentum"], steps=1)
    state = ours.optimizer.state_dict()
    before = copy.deepcopy(state)
    state["param_groups"][0]["momentum"] = 0.5
    for entry in state["state"].values():
        entry["momentum_buffer"].zero_()
    with pytest.raises(errors.Refused, match="'momentum': 0.5.*prepared with.*'momentum': 0.9.*before it"):
        ours.optimizer.load_state_dict(state)
    after = ours.optimizer.state_dict()
    assert after["param_groups"] == before["param_groups"]
    for number, entry in before["state"].items():
        assert torch.equal(after["state"][number]["momentum_buffer"], entry["momentum_buffer"])


def test_optimizer_with_state_of_another_shape_is_not_prepared():
    model = make("gpt")
    optimizer = twins.adamw(model.parameters())
    model(*batch(0)).backward()
    optimizer.step()
    optimizer.zero_grad()
    optimizer.state[model.head.weight]["exp_avg"] = torch.zeros(3)
    with pytest.raises(ValueError, match=r"exp_avg of 'head.weight' is \(3,\), and the parameter is \(96, 64\)"):
        twins.prepared(model, optimizer)
    assert type(model.head.weight) is torch.nn.Parameter


CHANGES_OF_STATE = {
    "in place": lambda state, p: state[p]["exp_avg"].zero_(),
    "by an operator": lambda state, p: state[p]["exp_avg"].__imul__(0.5),
    "of an element": lambda state, p: state[p]["exp_avg"].__setitem__(0, 0.0),
    "of a view": lambda state, p: state[p]["exp_avg"].view(-1)[:4].zero_(),
    "of its data": lambda state, p: state[p]["exp_avg"].data.mul_(0.5),
    "of the count": lambda state, p: state[p]["step"].fill_(0.0),
    "of several": lambda state, p: torch._foreach_zero_(list(state[p].values())),
    "as an output": lambda state, p: torch.zeros(p.shape, out=state[p]["exp_avg"]),
    "of an entry": lambda state, p: state[p].update(exp_avg=torch.zeros(p.shape)),
    "of a name in an entry": lambda state, p: state[p].__setitem__("exp_avg", torch.zeros(p.shape)),
    "of all": lambda state, p: state.clear(),
    "without an entry": lambda state, p: state.pop(p),
}


@pytest.mark.parametrize("way", CHANGES_OF_STATE)
def test_state_of_the_optimizer_that_is_changed_where_it_would_be_lost_is_refused(way):
    both = trained(steps=1)
    ours = both[1]
    with pytest.raises(errors.Refused, match="optimizer.state_dict.*load_state_dict"):
        CHANGES_OF_STATE[way](ours.optimizer.state, ours.model.norm.weight)
    with pytest.raises(errors.Refused, match="cannot be replaced.*load_state_dict"):
        ours.optimizer.state = collections.defaultdict(dict)
    twins.run(both, one_batch, steps=2)
    twins.assert_same(both)


def test_copies_of_the_optimizers_state_are_plain():
    plain, ours = trained(steps=1)
    entry = ours.optimizer.state[ours.model.norm.weight]
    theirs = plain.optimizer.state[plain.model.norm.weight]
    assert int(entry["step"]) == 1 and float(entry["exp_avg"].sum()) == float(entry["exp_avg"].clone().sum())
    for copied in (copy.deepcopy(entry), pickle.loads(pickle.dumps(entry)), {k: v.clone() for k, v in entry.items()}):
        assert type(copied) is dict and all(type(value) is torch.Tensor for value in copied.values())
        assert_near(copied, theirs)
        copied["exp_avg"].zero_()
    assert_near(ours.optimizer.state[ours.model.norm.weight], theirs)


def test_moments_that_are_set_to_zero_as_the_refusal_says_are_zero():
    both = trained(steps=2)
    for twin in both:
        state = twin.optimizer.state_dict()
        for entry in state["state"].values():
            entry["exp_avg"].zero_()
            entry["exp_avg_sq"].zero_()
        twin.optimizer.load_state_dict(state)
    twins.run(both, one_batch, steps=3)
    twins.assert_same(both)


def test_state_dict_loaded_within_full_stays():
    both = trained(steps=1)
    for twin in both:
        halved = {name: value * 0.5 for name, value in twin.model.state_dict().items()}
        with geminid.torch.full(twin.model.blocks) if twin is both[1] else torch.no_grad():
            twin.model.load_state_dict(halved)
    assert_near(both[1].model.state_dict(), both[0].model.state_dict())
    twins.run(both, one_batch, steps=2)
    twins.assert_same(both)


def test_step_within_full_is_refused_and_undoes_nothing(tmp_path):
    both = trained(steps=1)
    ours = both[1]
    loss = ours.model(*batch(3))
    with geminid.torch.full(ours.model.norm), pytest.raises(errors.Refused, match="a backward pass is inside.*full.*Leave"):
        loss.backward()
    for twin in both:
        twin.model(*batch(4)).backward()
        if twin is ours:
            with geminid.torch.full(ours.model.norm):
                for what, call in (("optimizer.step", ours.optimizer.step),
                                   ("geminid.torch.save", lambda: geminid.torch.save(ours.model, tmp_path)),
                                   ("geminid.torch.load", lambda: geminid.torch.load(ours.model, tmp_path))):
                    with pytest.raises(errors.Refused, match=f"{what}.* is inside .*full"):
                        call()
        twin.optimizer.step()
        twin.optimizer.zero_grad()
    twins.run(both, one_batch, steps=2)
    twins.assert_same(both)
