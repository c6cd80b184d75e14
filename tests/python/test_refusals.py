"""Invalid use is refused with a Python error that says what to do, and training continues."""

import copy
import gc
import io
import pickle
import re

import pytest
import torch

import geminid.torch
import twins
from geminid import errors
from torch.fx.experimental.proxy_tensor import make_fx
from geminid.torch.prepare import bytes_of
from models import batch, make
from steps import one_batch


def refused(words):
    return pytest.raises(errors.Refused, match=words)


def test_copies_are_refused(both):
    model = both[1].model
    for whole in (model, model.blocks[0], model.norm):
        with refused("cannot be copied"):
            copy.deepcopy(whole)
    with refused("cannot be copied"):
        copy.deepcopy(model.norm.weight)
    with refused("cannot be pickled"):
        pickle.dumps(model.norm.weight)


@pytest.mark.parametrize("change", [lambda m: m.half(), lambda m: m.to(torch.bfloat16), lambda m: m.double(),
                                    lambda m: m.blocks[0].to("meta"), lambda m: m.norm.half()])
def test_changes_of_type_and_place_are_refused(both, change):
    with refused("Call them before geminid.torch.prepare"):
        change(both[1].model)


def test_changes_that_change_nothing_are_done(both):
    model = both[1].model
    assert model.to("cpu") is model and model.float() is model


@pytest.mark.parametrize("read", [lambda w: w.sum(), lambda w: w.clone(), lambda w: w.numpy(), lambda w: w[0, 0].item(),
                                  lambda w: w.detach() + 1, lambda w: w.data, lambda w: repr(w), lambda w: w.tolist(),
                                  lambda w: torch.equal(w, w), lambda w: w.cpu().norm(), lambda w: w == w])
def test_values_that_are_absent_are_refused(both, read):
    with torch.no_grad(), refused("'head.weight'.*not on the device now.*geminid.torch.full"):
        read(both[1].model.head.weight)


@pytest.mark.parametrize("change", [lambda w: w.zero_(), lambda w: w.mul_(2), lambda w: w.copy_(w), lambda w: torch.nn.init.zeros_(w),
                                    lambda w: w.__setitem__(0, 1.0), lambda w: torch.add(w, 1, out=w)])
def test_values_changed_behind_the_engine_are_refused(both, change):
    with torch.no_grad(), refused("'head.weight'.*without the engine.*geminid.torch.full"):
        change(both[1].model.head.weight)


def test_data_replaced_is_refused(both):
    with refused("cannot be replaced"):
        both[1].model.head.weight.data = torch.zeros(1)


def test_what_is_no_value_is_free(both):
    weight = both[1].model.head.weight
    assert weight.shape == (96, 64) and weight.dtype == torch.float32 and weight.requires_grad
    assert weight.numel() == 96 * 64 and weight.is_leaf and weight.grad is None and len({weight}) == 1


def test_gradients_in_the_engine_are_there_and_cannot_be_read(both):
    twin = both[1]
    twin.model(*batch(0)).backward()
    gradient = twin.model.head.weight.grad
    assert gradient is not None and gradient.shape == (96, 64) and gradient.dtype == torch.float32
    assert repr(gradient) == "<the gradient of 'head.weight', which the engine has>"
    for read in (gradient.norm, gradient.cpu, lambda: gradient + 1, lambda: torch.stack([gradient]), gradient.zero_,
                 lambda: gradient.data, lambda: twin.model.head.weight * gradient, lambda: gradient.mul_(0.5), gradient.tolist,
                 lambda: copy.deepcopy(gradient)):
        with refused("is in the engine.*clip_grad_norm_"):
            read()
    with refused("cannot be set.*parameter.register_hook"):
        twin.model.head.weight.grad = torch.zeros(96, 64)
    twin.optimizer.zero_grad()
    assert twin.model.head.weight.grad is None


def test_gradients_of_gradients_are_refused(both):
    twin = both[1]
    x = torch.randn(2, 5, 64, requires_grad=True)
    with refused("create_graph=True"):
        torch.autograd.grad(twin.model.blocks[0](x).sum(), x, create_graph=True)
    with refused("create_graph=True"):
        twin.model(*batch(0)).backward(create_graph=True)
    twin.optimizer.zero_grad()


@pytest.mark.parametrize("differentiate", [
    lambda model, x: torch.func.grad(lambda x: model(x).sum())(x), lambda model, x: torch.func.jacrev(model)(x),
    lambda model, x: torch.func.vmap(torch.func.grad(lambda x: model(x[None]).sum()))(x[0])])
def test_gradients_of_torch_func_are_refused_with_what_works(both, differentiate):
    block = both[1].model.blocks[0]
    x = torch.randn(1, 2, 64)
    with refused("torch.func.grad.*torch.autograd.functional"):
        differentiate(block.up, x)
    both[1].optimizer.zero_grad()
    works = torch.autograd.functional.jacobian(block.up, x)
    torch.testing.assert_close(works, torch.autograd.functional.jacobian(both[0].model.blocks[0].up, x))


def test_part_of_the_gradients_cannot_be_clipped(both):
    twin = both[1]
    twin.model(*batch(0)).backward()
    with refused("clipped together"):
        torch.nn.utils.clip_grad_norm_(twin.model.blocks.parameters(), 1.0)
    with refused("2-norm"):
        torch.nn.utils.clip_grad_norm_(twin.model.parameters(), 1.0, norm_type=1.0)
    twin.optimizer.zero_grad()


def test_graph_kept_over_a_step_is_told(both):
    """The error of torch: the weights that the graph saved have changed."""
    for twin in both:
        loss = twin.model(*batch(0))
        loss.backward(retain_graph=True)
        twin.optimizer.step()
        twin.optimizer.zero_grad()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()
        twin.optimizer.zero_grad()


def test_momentum_changed_after_prepare_is_refused():
    model = make("gpt")
    model, optimizer = twins.prepared(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    model(*batch(0)).backward()
    optimizer.param_groups[0]["momentum"] = 0.5
    with refused("cannot change from step to step"):
        optimizer.step()


def test_groups_added_after_prepare_are_refused(both):
    twin = both[1]
    with refused("cannot be added after prepare"):
        twin.optimizer.add_param_group({"params": [torch.nn.Parameter(torch.zeros(1))]})


@pytest.mark.parametrize("option", ["amsgrad", "maximize"])
def test_options_set_after_prepare_that_the_engine_has_not_are_refused(both, option):
    twin = both[1]
    twin.model(*batch(0)).backward()
    twin.optimizer.param_groups[0][option] = True
    with refused(f"{option}=True.*leave {option} out"):
        twin.optimizer.step()
    twin.optimizer.param_groups[0][option] = False
    twin.optimizer.zero_grad()


@pytest.mark.parametrize("make_other, words", [
    (lambda p: torch.optim.AdamW(p, amsgrad=True), "amsgrad=True"),
    (lambda p: torch.optim.AdamW(p, maximize=True), "maximize=True"),
    (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), "another optimizer.*no betas"),
    (lambda p: torch.optim.Adagrad(p), "another optimizer.*no betas"),
    (lambda p: torch.optim.Adamax(p), "another optimizer.*'embedding.weight' it has exp_inf"),
])
def test_state_of_another_optimizer_is_refused_and_nothing_is_loaded(both, make_other, words):
    model = make("gpt", seed=4)
    other = make_other(model.parameters())
    model(*batch(0)).backward()
    other.step()
    state = other.state_dict()
    if "exp_inf" in words:  # with a name alone of others
        state["state"] = {number: {"step": entry["step"], "exp_inf": entry["exp_inf"]} for number, entry in state["state"].items()}
    before = dict(both[1].optimizer.param_groups[0])
    with refused(words):
        both[1].optimizer.load_state_dict(state)
    assert both[1].optimizer.param_groups[0] == before


@pytest.mark.parametrize("change", [
    lambda groups: groups.reverse(), lambda groups: groups.pop(), lambda groups: groups[0]["params"].clear(),
    lambda groups: groups[1]["params"].append(groups[0]["params"].pop())])
def test_parameters_moved_between_groups_after_prepare_are_refused(change):
    model = make("gpt")
    first, *rest = model.parameters()
    model, optimizer = twins.prepared(model, torch.optim.AdamW([{"params": [first]}, {"params": rest, "lr": 1e-5}]))
    model(*batch(0)).backward()
    groups = optimizer.param_groups
    before = [(group, list(group["params"])) for group in groups]
    change(groups)
    with refused("other parameters than in geminid.torch.prepare.*requires_grad_"):
        optimizer.step()
    groups[:] = [group for group, _ in before]
    for group, members in before:
        group["params"][:] = members
    optimizer.step()


@pytest.mark.parametrize("make_optimizer, words", [
    (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), "another optimizer.*no momentum"),
    (lambda p: torch.optim.Adam(p), "use torch.optim.AdamW")])
def test_state_of_adamw_in_another_optimizer_is_refused_as_such(make_optimizer, words):
    model, other = make("gpt"), make("gpt")
    state = torch.optim.AdamW(other.parameters()).state_dict()
    _, optimizer = twins.prepared(model, make_optimizer(model.parameters()))
    with refused(words):
        optimizer.load_state_dict(state)


@pytest.mark.parametrize("trace", [
    lambda block, x: make_fx(block)(x), lambda block, x: make_fx(block, tracing_mode="fake", _allow_non_fake_inputs=True)(x)])
def test_traces_of_operators_are_refused(both, trace):
    with refused("is traced, as by make_fx.*another copy of the model"):
        trace(both[1].model.blocks[0].up, torch.randn(2, 64))


def test_export_in_full_computes_as_the_model():
    model = make("gpt")
    model, optimizer = twins.prepared(model, twins.adamw(model.parameters()))
    with geminid.torch.full(model):
        program = torch.export.export(model.blocks[0].up, (torch.randn(2, 64),))
        x = torch.randn(2, 64)
        assert torch.equal(program.module()(x), model.blocks[0].up(x))


def test_second_engine_for_a_parameter_is_refused(both):
    model = both[1].model
    with refused("'embedding.weight' is prepared already"):
        twins.prepared(model, torch.optim.AdamW(model.parameters()))


def not_prepared(model, optimizer, words, error=errors.Refused, **options):
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    with pytest.raises(error, match=words):
        twins.prepared(model, optimizer, **options)
    for name, p in model.named_parameters():
        assert type(p) is torch.nn.Parameter and torch.equal(p, before[name])


@pytest.mark.parametrize("make_optimizer, words", [
    (lambda p: torch.optim.RMSprop(p), "RMSprop is not an optimizer.*AdamW"),
    (lambda p: torch.optim.AdamW(p, amsgrad=True), "amsgrad=True"),
    (lambda p: torch.optim.SGD(p, lr=0.1, maximize=True), "maximize=True"),
    (lambda p: torch.optim.SGD([{"params": p[:1], "momentum": 0.5}, {"params": p[1:]}], lr=0.1), "differ in what.*momentum"),
    (lambda p: torch.optim.AdamW(p[1:]), "'embedding.weight' requires a gradient.*requires_grad_"),
    (lambda p: torch.optim.AdamW([*p, torch.nn.Parameter(torch.zeros(3))]), "not in the model"),
])
def test_what_the_engine_has_not_is_refused_before_anything_changes(make_optimizer, words):
    model = make("gpt")
    not_prepared(model, make_optimizer(list(model.parameters())), words)


def test_gradients_of_before_prepare_are_refused_with_what_drops_them():
    model = make("gpt")
    optimizer = twins.adamw(model.parameters())
    model(*batch(0)).backward()
    not_prepared(model, optimizer, r"'embedding.weight' has a gradient.*optimizer.zero_grad\(\) before geminid.torch.prepare")
    assert model.head.weight.grad is not None
    optimizer.zero_grad()
    both = twins.pair(model)
    twins.run(both, one_batch, steps=2)
    twins.assert_same(both)


@pytest.mark.parametrize("kind", [torch.nn.Embedding, torch.nn.EmbeddingBag])
def test_embeddings_that_change_their_weight_are_refused(kind):
    model = make("gpt")
    model.embedding = kind(96, 64, max_norm=1.0)
    not_prepared(model, twins.adamw(model.parameters()), f"'embedding' is {kind.__name__} with max_norm=1.0.*max_norm=None")


@pytest.mark.parametrize("kind", [torch.nn.Embedding, torch.nn.EmbeddingBag])
def test_embeddings_with_sparse_gradients_are_refused(kind):
    model = make("gpt")
    model.embedding = kind(96, 64, sparse=True)
    not_prepared(model, twins.adamw(model.parameters()), f"'embedding' is {kind.__name__} with sparse=True.*Write sparse=False")
    model.embedding.weight.requires_grad_(False)
    twins.prepared(model, twins.adamw(p for p in model.parameters() if p.requires_grad))


def tied_by_data(model):
    model.head.weight.data = model.embedding.weight.data


def row_of(model):
    model.row = torch.nn.Parameter(model.embedding.weight.data[1])


def buffer_of(model):
    model.register_buffer("shown", model.head.weight.detach()[:4])


def attribute_of(model):
    model.shown = model.head.weight.data


@pytest.mark.parametrize("share", [tied_by_data, row_of, buffer_of, attribute_of])
def test_memory_that_parameters_share_is_refused_by_both_names(share):
    model = make("gpt")
    share(model)
    names = "'embedding.weight' and '(head.weight|row)'" if share in (tied_by_data, row_of) else "'head.weight' and 'shown'"
    not_prepared(model, twins.adamw(model.parameters()), f"{names} share memory.*head.weight = embedding.weight")


class InOneMemory(torch.nn.Module):
    """Its parameters are parts of one tensor, which have no element in common."""

    def __init__(self):
        super().__init__()
        flat = torch.randn(64, 32)
        self.left, self.right = (torch.nn.Parameter(part) for part in flat[:32].split(16, 1))  # columns
        self.rest = torch.nn.Parameter(flat[32:].view(-1)[:512].view(16, 32))
        self.norm = torch.nn.utils.spectral_norm(torch.nn.Linear(32, 4))
        self.register_buffer("frozen", torch.randn(8))
        self.register_buffer("part", self.frozen[:4])

    def forward(self, x):
        return self.norm(x @ self.left @ self.rest + (x @ self.right) @ self.rest) * self.part


def test_parts_of_one_memory_that_have_nothing_in_common_are_trained():
    torch.manual_seed(0)
    both = twins.pair(InOneMemory())

    def step(twin, number):
        loss = twin.model(torch.randn(4, 32)).double().pow(2).mean()
        twin.losses.append(loss.item())
        loss.backward()
        twins.finish(twin)

    twins.run(both, step, steps=3)
    twins.assert_same(both, loss=2e-6, norm=2e-6)  # of small losses, means of squares


@pytest.mark.parametrize("make_program", [torch.jit.script, lambda module: torch.jit.trace(module, torch.randn(2, 64))])
def test_programs_of_jit_are_refused_before_anything_changes(make_program):
    model = make("gpt")
    model.norm = make_program(model.norm)
    not_prepared(model, twins.adamw(model.parameters()), "'norm' is a program of torch.jit.*torch.compile works")


def test_types_that_are_not_trained_are_refused():
    model = make("gpt").half()
    not_prepared(model, torch.optim.AdamW(model.parameters()), "torch.float16.*before prepare")


@pytest.mark.parametrize("kind, unit", [("gpt", "block"), ("gpt", "leaf"), ("llama", "block")])
def test_arena_that_is_too_small_is_named_with_the_smallest_that_trains(kind, unit):
    model = make(kind)
    optimizer = twins.adamw(model.parameters())
    with pytest.raises(errors.ResourceExhausted) as refusal:
        twins.prepared(model, optimizer, device_memory="80KiB", unit=unit)
    said = re.search(r"device_memory is 80 KiB; '.*' needs (\d+) KiB for .* to at least \1 KiB$", str(refusal.value))
    enough = int(said.group(1))
    not_prepared(model, optimizer, f"at least {enough} KiB", errors.ResourceExhausted, device_memory=f"{enough - 4}KiB",
                 unit=unit)
    both = twins.pair(model, device_memory=f"{enough}KiB", unit=unit)
    twins.run(both, one_batch, steps=3)
    twins.assert_same(both)


def test_blocks_that_do_not_fit_become_modules():
    model = make("gpt")
    model, _ = twins.prepared(model, twins.adamw(model.parameters()), unit=None, device_memory="384KiB")
    assert model._geminid_keeper.granularity == "block"
    model = make("gpt")
    model, _ = twins.prepared(model, twins.adamw(model.parameters()), unit=None, device_memory="256KiB")
    assert model._geminid_keeper.granularity == "leaf"


def test_sizes_that_are_none_are_refused():
    model = make("gpt")
    not_prepared(model, twins.adamw(model.parameters()), "device_memory is '20GB'", errors.InvalidArgument,
                 device_memory="20GB")


def test_model_and_optimizer_in_the_wrong_order_are_refused():
    model = make("gpt")
    with pytest.raises(errors.InvalidArgument, match=r"AdamW.*the order is prepare\(model, optimizer\)"):
        geminid.torch.prepare(twins.adamw(model.parameters()), model, device_memory="1MiB")


def test_complex_parameters_are_refused_with_what_to_write():
    model = torch.nn.Module()
    model.phase = torch.nn.Parameter(torch.ones(4, dtype=torch.complex64))
    with refused("'phase' is torch.complex64.*view_as_real"):
        geminid.torch.prepare(model, twins.adamw(model.parameters()), device_memory="1MiB")


def test_disabled_hands_back_what_it_was_given(monkeypatch):
    monkeypatch.setenv("GEMINID_DISABLE", "1")
    model = make("gpt")
    optimizer = twins.adamw(model.parameters())
    assert geminid.torch.prepare(model, optimizer, device_memory="1B") == (model, optimizer)
    assert type(model.norm.weight) is torch.nn.Parameter


def test_disabled_save_and_load_say_how_pytorch_saves(monkeypatch, tmp_path):
    monkeypatch.setenv("GEMINID_DISABLE", "1")
    model = make("gpt")
    for call in (geminid.torch.save, geminid.torch.load):
        with pytest.raises(errors.InvalidArgument, match=r"GEMINID_DISABLE=1 leaves.*torch\.save\(model\.state_dict\(\), FILE"):
            call(model, tmp_path)


def test_models_are_not_pickled(both):
    model = both[1].model
    for whole in (model, model.blocks[0]):
        with refused("model cannot be pickled.*state_dict"):
            pickle.dumps(whole)
    with refused("model cannot be pickled.*state_dict"):
        torch.save(model, io.BytesIO())


def test_prepared_optimizer_given_again_is_refused_by_the_parameter(both):
    with refused("'embedding.weight' is prepared already"):
        twins.prepared(both[1].model, both[1].optimizer)


def test_clipping_without_an_optimizer_is_refused():
    model = make("gpt")
    model, optimizer = twins.prepared(model, twins.adamw(model.parameters()))
    model(*batch(0)).backward()
    del optimizer
    gc.collect()
    with refused("returned is gone.*keep it"):
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)


@pytest.mark.parametrize("size, words", [(0, "must be more than 0"), (-5, "must be more than 0"), ("0MiB", "must be more than 0"),
                                         (1 << 70, "must be more than 0 bytes, and less than"),
                                         (True, "is True; write bytes"), ("1.2.3MiB", "'1.2.3MiB'; write bytes")])
def test_device_memory_that_is_no_size_is_refused(size, words):
    model = make("gpt")
    not_prepared(model, twins.adamw(model.parameters()), f"device_memory is {re.escape(repr(size))}.*" if "must" in words else words,
                 errors.InvalidArgument, device_memory=size)


@pytest.mark.parametrize("size, count", [("1.5KiB", 1536), ("2 MiB", 2 << 20), (".5GiB", 1 << 29), (4096, 4096)])
def test_sizes_are_read(size, count):
    assert bytes_of(size) == count


def test_schedule_of_momentum_is_refused_with_what_to_write():
    model = make("gpt")
    model, optimizer = twins.prepared(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=9)
    model(*batch(0)).backward()
    with refused("cycle_momentum=False"):
        optimizer.step()


def test_lazy_modules_without_shapes_are_refused():
    model = torch.nn.Sequential(torch.nn.LazyLinear(4))
    with refused("'0.weight' has no shape yet.*one batch"):
        twins.prepared(model, torch.optim.SGD(model.parameters(), lr=0.1))


def test_hooks_and_state_of_the_optimizer_before_prepare_go_on():
    called = []
    both = []
    for is_ours in (False, True):
        model = make("gpt")
        given = twins.adamw(model.parameters())
        given.register_step_pre_hook(lambda *_, is_ours=is_ours: called.append((is_ours, "before")))
        handle = given.register_step_post_hook(lambda *_, is_ours=is_ours: called.append((is_ours, "after")))
        given.register_state_dict_post_hook(lambda _, state: {**state, "mine": 1})
        made = twins.prepared(model, given) if is_ours else (model, given)
        both.append((given, handle, twins.Twin(*made)))
    twins.run([twin for _, _, twin in both], one_batch, steps=1)
    assert called == [(False, "before"), (False, "after"), (True, "before"), (True, "after")]
    for _, handle, _ in both:
        handle.remove()
    twins.run([twin for _, _, twin in both], one_batch, steps=1)
    assert called[4:] == [(False, "before"), (True, "before")]
    plain, ours = (given.state_dict() for given, _, _ in both)  # what a script saves that still has the given optimizer
    assert ours["mine"] == plain["mine"] == 1 and list(ours["state"]) == list(plain["state"])
    for number, entry in plain["state"].items():
        torch.testing.assert_close(ours["state"][number], entry, rtol=1e-5, atol=1e-6)
    for (given, _, _), state in zip(both, (plain, ours)):
        given.load_state_dict(state)
    twins.run([twin for _, _, twin in both], one_batch, steps=1)
    twins.assert_same([twin for _, _, twin in both])
