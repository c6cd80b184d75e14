"""geminid.torch.prepare: two lines around an unchanged training loop."""

from __future__ import annotations

import gc
import os
import re
import types
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from typing_extensions import Unpack

from geminid import engine as engine_
from geminid.errors import InvalidArgument
from geminid.session import Ranks, Session
from geminid.torch import clipping, compiling, fitting, holding, hooks, optimizers, placing, ranges, refusals, scaling, state
from geminid.torch import torch_memory as torch_memory_
from geminid.torch import weights as weights_
from geminid.torch import wrappers
from geminid.torch.activations import SavedTensors
from geminid.torch.additions import Additions
from geminid.torch.handover import Handover, Script, take_over
from geminid.torch.keeper import Keeper
from geminid.torch.optimizer import Optimizer
from geminid.torch.optimizer_state import State, check_entry, put
from geminid.torch.parameter import Record, make_managed
from geminid.torch.resume import buffer_bytes

M = TypeVar("M", bound=torch.nn.Module)

_TYPES = {torch.float32: engine_.FLOAT32, torch.bfloat16: engine_.BFLOAT16}
_FROZEN_TYPES = {torch.float16: engine_.FLOAT16, torch.int8: engine_.INT8, torch.uint8: engine_.UINT8}
_SIZE = re.compile(r"\s*([0-9]+\.?[0-9]*|\.[0-9]+)\s*(B|KiB|MiB|GiB|TiB)\s*")
_SCALE = {"B": 0, "KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40}


def bytes_of(size: int | str, what: str = "device_memory") -> int:
    """Returns a number of bytes for a size such as 1048576 or "1MiB"."""
    found = None if isinstance(size, int) else _SIZE.fullmatch(str(size))
    if isinstance(size, bool) or not (isinstance(size, int) or found):
        raise InvalidArgument(f"{what} is {size!r}; write bytes, or a number with KiB, MiB, GiB or TiB")
    count = int(float(found.group(1)) * (1 << _SCALE[found.group(2)])) if found else int(size)
    if not 0 < count < 1 << 63:
        raise InvalidArgument(f"{what} is {size!r}; it must be more than 0 bytes" +
                              (", and less than 8388608 TiB" if count > 0 else ""))
    return count


def _records(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[torch.nn.Parameter, Record]:
    """Returns a record for each parameter that the engine will store."""
    group_of = {p: number for number, group in enumerate(optimizer.param_groups) for p in group["params"]}
    records: dict[torch.nn.Parameter, Record] = {}
    for name, parameter in model.named_parameters():
        data_type = _type_of(parameter)
        if data_type is not None and parameter.numel():
            trained, group = parameter in group_of, group_of.get(parameter, 0)
            orthogonal = trained and optimizers.is_orthogonal(optimizer, optimizer.param_groups[group])
            records[parameter] = Record(len(records), compiling.name_of(name), data_type, trained, group, orthogonal)
    return records


def _type_of(parameter: torch.nn.Parameter) -> int | None:
    """Returns the engine's type. None: torch keeps the parameter, such as 8-bit subclasses with values elsewhere."""
    if parameter.dtype in _TYPES:
        return _TYPES[parameter.dtype]
    return _FROZEN_TYPES.get(parameter.dtype) if type(parameter) is torch.nn.Parameter else None


def _connect(device_memory: int | str, ranks: Ranks, run: str | None, is_kept: bool) -> Session:
    session = Session(bytes_of(device_memory), place=ranks.place, run=run, keep_on_death=is_kept,
                      daemon_flags=placing.daemon_flags())
    if is_kept:
        holding.warn_of_own_daemon(session)
    return session


def _hold(session: Session, model: torch.nn.Module, records: Mapping[torch.nn.Parameter, Record],
          optimizer: engine_.Optimizer, options: Mapping[str, Any], unit: str | None,
          held_bytes: int | None) -> tuple[holding.Holding | None, str | None]:
    """Returns the memory that this process holds for the next one, and the unit of the previous process. Refuses to resume
    from another script's state."""
    if session.run is None:
        return None, unit
    held = holding.Holding(session)
    mine, left = holding.terms_of(records, optimizer, options), held.left()
    if left is not None:
        try:
            holding.check(left, {**mine, "unit": unit or left["unit"]}, records)
        except Exception:
            session.leave()
            raise
    held.make_notes((held_bytes or holding.NOTE_BYTES) + 2 * buffer_bytes(model))
    held.mine = mine
    return held, unit if left is None else left["unit"]


def _take_over(model: torch.nn.Module, records: Mapping[torch.nn.Parameter, Record], optimizer: engine_.Optimizer,
               options: Mapping[str, Any], unit: str | None, ranks: Ranks, run: str, is_kept: bool) -> Handover | None:
    """Takes over the state of a run whose number of ranks, or whose hosts, have changed."""
    mine = holding.terms_of(records, optimizer, options)

    def check(left: Mapping[str, Any]) -> None:
        holding.check(left, {**mine, "unit": unit or left["unit"]}, records)

    def make_engine(session: Session, of_ranks: Ranks, granularity: str) -> engine_.Engine:
        return fitting.engine_of_former(model, records, session, of_ranks, optimizer, granularity, options)

    script = Script(list(records.values()), str(options.get("state_dtype", "fp32")), check, make_engine)
    return take_over(ranks, run, is_kept, script)


def prepare(model: M, optimizer: torch.optim.Optimizer, *, device_memory: int | str, unit: str | None = None,
            weights: weights_.Source | None = None, session: Session | None = None, ranks: Ranks | None = None,
            resume: bool | str = False, held_bytes: int | None = None, torch_memory: int | str | None = None,
            activations: str = "keep", **options: Unpack[engine_.Options]) -> tuple[M, torch.optim.Optimizer]:
    """Hands the parameters of a model to the engine, and returns (model, optimizer) for an unchanged
    training loop.

    model: any module. It is changed in place and returned. Trained parameters are fp32 or bf16, and frozen ones may
        also be fp16, int8 or uint8. torch keeps parameters of other types and of classes that quantise. The model may be
        on the host. If the daemon gives a GPU, buffers and all parameters are on that GPU afterwards.
    optimizer: has the trained parameters. AdamW, Adam, SGD, Adagrad or Muon of torch.optim, or Lion, Lamb, Lars, Adafactor,
        Came or Muon of geminid.torch.
    device_memory: bytes of the device for weights and gradients, such as 1 << 30 or "1GiB".
    unit: the parameters that are gathered together: "block", "leaf" (a module), or None for blocks if they fit.
    weights: the values of parameters that are on the meta device (``empty_weights``), by name. A folder that
        save_pretrained wrote, a safetensors file, or a mapping of tensors. They are read in pieces.
    session, ranks: of geminid.session, instead of those of this process's environment.
    resume: True: when torchrun restarts this process after a death, the new process resumes with the weights that the dead
        process left in the daemon's memory. The number of ranks may change. The script must then call geminid.torch.resume.
        A name of at most 63 characters: the same, for a run that another program than torchrun restarts.
    held_bytes: bytes for the state that geminid.torch.resume holds in addition to the model's buffers. Default: 1 MiB.
    torch_memory: on a GPU, the limit for PyTorch's own allocator in this process, for activations and the weights in
        use. Written like device_memory. None: the device's memory without device_memory, or less if
        torch.cuda.set_per_process_memory_fraction has set less.
    activations: "keep", or "offload" to store the tensors that the forward pass saves in host memory until the backward
        pass needs them. The results have the same bits. The transfers use a sixteenth of device_memory, at most 64 MiB.
    options: options of geminid.engine.Engine, such as update_threads.

    Raises Refused for a model or optimizer that would train wrongly, before anything has changed. Raises ResourceExhausted
    with the smallest sufficient device_memory. With GEMINID_DISABLE=1 in the environment it returns the given model and
    optimizer.
    """
    if os.environ.get("GEMINID_DISABLE") == "1":
        for parameter, source in weights_.find(model, weights).items():
            weights_.materialize(parameter, source)
        return model, optimizer
    if unit not in (None, "block", "leaf"):
        raise InvalidArgument(f"unit is {unit!r}; it must be 'block', 'leaf' or None")
    if activations not in ("keep", "offload"):
        raise InvalidArgument(f"activations is {activations!r}; it must be 'keep' or 'offload'")
    bytes_of(device_memory)  # refuses an invalid size before any other check
    if not isinstance(model, torch.nn.Module):
        raise InvalidArgument(f"the model is of {type(model)}, not a torch.nn.Module; the order is prepare(model, optimizer)")
    torch_bytes = None if torch_memory is None else bytes_of(torch_memory, "torch_memory")
    wrappers.check_unwrapped(model)
    refusals.check_unprepared(model)
    chosen, kind = optimizers.translate(optimizer)
    refusals.check_model(model, optimizer, _TYPES)
    for name, parameter in model.named_parameters():
        check_entry(kind, parameter, optimizer.state.get(parameter, {}), name)
    sources = weights_.find(model, weights)
    gc.collect()  # frees the device memory of a dropped model, which is in reference cycles
    ranks = ranks or Ranks()
    records = _records(model, optimizer)
    refusals.check_ranks(records, ranks)
    handed = run = None
    is_kept = False
    if session is None:
        holding.warn_of_no_restarts(resume)
        run, is_kept = holding.run_name(resume)
        if run is not None:
            handed = _take_over(model, records, chosen, options, unit, ranks, run, is_kept)
    try:
        session = session or _connect(device_memory, ranks, run, is_kept)
        given = _Given(records, sources, unit, held_bytes, activations == "offload", torch_bytes, options)
        return model, _prepare(model, optimizer, chosen, kind, session, ranks, handed, given)
    except BaseException:
        if handed is not None:
            handed.leave()  # the images are the only copy
        raise


@dataclass(frozen=True)
class _Given:
    """Arguments of prepare."""
    records: dict[torch.nn.Parameter, Record]
    sources: weights_.Sources
    unit: str | None
    held_bytes: int | None
    offloads: bool
    torch_bytes: int | None
    options: Mapping[str, Any]


def _prepare(model: Any, optimizer: torch.optim.Optimizer, chosen: engine_.Optimizer, kind: optimizers.Kind, session: Session,
             ranks: Ranks, handed: Handover | None, given: _Given) -> Optimizer:
    records, sources = given.records, given.sources
    place = placing.place_of(session)
    placing.check_device(model, place)
    memory = torch_memory_.limit_of(place.allocator, session, given.torch_bytes)
    held, unit = _hold(session, model, records, chosen, given.options, given.unit, given.held_bytes)
    goes_on = handed is not None and handed.world > 0

    def give_values(engine: engine_.Engine) -> None:
        if handed is not None and goes_on:
            handed.fill(engine)
        else:
            fitting.initialize(engine, records, sources)

    engine, units, granularity = fitting.make_engine(model, records, give_values, session, ranks, chosen, unit, place,
                                                     given.offloads, given.options)
    if held is not None:
        held.agree({**held.mine, "unit": granularity})
        held.take(handed, engine)
    for parameter, source in sources.items():
        if parameter not in records:
            weights_.materialize(parameter, source)
    keeper = Keeper(engine, list(records.values()), units, place, granularity, session, ranks)
    keeper.holding, keeper.torch_memory = held, memory
    bound = _bind(model, optimizer, kind, keeper, records)
    if given.offloads:
        keeper.activations = SavedTensors(engine, place, model)
    if memory is not None:
        memory.apply()
    return bound


def _bind(model: Any, optimizer: torch.optim.Optimizer, kind: optimizers.Kind, keeper: Keeper,
          records: Mapping[torch.nn.Parameter, Record]) -> Optimizer:
    for parameter, record in records.items():
        view = keeper.place.view(keeper.engine, record, parameter)
        if parameter.device != view.device:
            weights_.take_the_place_of(parameter, view)
        make_managed(parameter, record, view)
    placing.move_rest(model, keeper.place)
    if optimizer.state and keeper.resumed_step() is None:  # the optimizer has made steps before prepare
        put(keeper, kind, optimizer.state.items())
    state.serve(model)
    refusals.guard(model)
    hooks.attach(model, keeper)
    ranges.install(keeper)
    compiling.install(keeper.units)
    clipping.install()
    scaling.install()
    wrappers.install()
    made = Optimizer(optimizer, kind, keeper, Additions(model))
    refusals.retire(optimizer, made)
    made._state = State(keeper, kind, made.param_groups)
    keeper.optimizer = weakref.ref(made)
    model._geminid_keeper = keeper
    model.zero_grad = types.MethodType(_zero_grad, model)
    model.register_load_state_dict_post_hook(compiling.check_names)
    return made


def _zero_grad(self: Any, set_to_none: bool = True) -> None:
    """The zero_grad of a prepared model."""
    self._geminid_keeper.zero_grad(set_to_none)
    for parameter in self.parameters():
        is_trained = hasattr(parameter, "_geminid") and parameter._geminid.trained
        if not is_trained and parameter.grad is not None:
            if set_to_none:
                parameter.grad = None
            else:
                parameter.grad.detach_().zero_()
