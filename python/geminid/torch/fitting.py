"""Makes the engine of a model. Units are blocks if the device memory suffices, else modules. If neither fits, the error
says how much memory suffices."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from geminid import engine as engine_
from geminid.errors import ResourceExhausted
from geminid.session import Ranks, Session
from geminid.torch.activations import PLACES, least_memory, place_bytes
from geminid.torch import weights as weights_
from geminid.torch.parameter import Record
from geminid.torch.placing import Place, place_of
from geminid.torch.tensors import address_of
from geminid.torch.units import Unit, choose_units

Records = Mapping[torch.nn.Parameter, Record]


def _engine(session: Session, ranks: Ranks, records: Records, units: Sequence[Unit], optimizer: engine_.Optimizer,
            place: Place, options: Mapping[str, Any]) -> engine_.Engine:
    unit_of: dict[torch.nn.Parameter, int] = {}
    for number, unit in enumerate(units):
        unit.records = tuple(records[parameter] for parameter in unit.parameters)
        for parameter in unit.parameters:
            unit_of.setdefault(parameter, number)
    parameters = [engine_.Parameter(record.name, tuple(parameter.shape), record.data_type, record.trained,
                                    unit_of[parameter], record.group, record.orthogonal)
                  for parameter, record in records.items()]
    return engine_.Engine(session, ranks, parameters, optimizer, resume=session.run is not None,
                          stable_addresses=place.stable_addresses, **options)


def initialize(engine: engine_.Engine, records: Records, sources: weights_.Sources) -> None:
    """Fills the engine with the values of the parameters, or of their files."""
    tensors = [parameter.detach() for parameter in records]
    given = [sources.get(parameter) for parameter in records]

    def fill(number: int, first: int, address: int, count: int) -> None:
        source = given[number]
        if source is not None:
            return weights_.copy(source, first, address, count)
        values = tensors[number].reshape(-1)[first:first + count].to(device="cpu", dtype=torch.float32).contiguous()
        ctypes.memmove(address, address_of(values), 4 * count)

    engine.initialize(fill)


def _ids(unit: Unit) -> tuple[Any, int]:
    return (ctypes.c_uint32 * len(unit.records))(*(record.id for record in unit.records)), len(unit.records)


def _try_units(engine: engine_.Engine, units: Sequence[Unit]) -> None:
    """Raises ResourceExhausted if the weights of one unit do not fit."""
    for unit in units:
        engine.finish(engine.use(engine_.EVALUATE, *_ids(unit)))


def _needed_bytes(engine: engine_.Engine, unit: Unit, place: Place) -> int:
    """Returns the engine's memory for a unit's weights, plus its largest gradient if weights stay while it computes."""
    ids = [record.id for record in unit.records]
    trained = [record.id for record in unit.records if record.trained]
    beside = ids if place.stable_addresses else []
    return max(engine.device_bytes(ids, []), *(engine.device_bytes(beside, [id_]) for id_ in trained), 0)


def _check_units(engine: engine_.Engine, units: Sequence[Unit], place: Place, arena_bytes: int, passing_bytes: int) -> None:
    needed, largest = max(((_needed_bytes(engine, unit, place), unit) for unit in units), key=lambda found: found[0])
    if needed + passing_bytes > arena_bytes:
        least = least_memory(needed) if passing_bytes else needed
        beside = f", and activations on their way to host memory take {passing_bytes >> 10} KiB" if passing_bytes else ""
        raise ResourceExhausted(
            f"device_memory is {arena_bytes >> 10} KiB; '{largest.name}' needs {needed >> 10} KiB for its weights and one "
            f"gradient{beside}. Raise device_memory to at least {least >> 10} KiB")


def engine_of_former(model: torch.nn.Module, records: Records, session: Session, ranks: Ranks,
                     optimizer: engine_.Optimizer, granularity: str, options: Mapping[str, Any]) -> engine_.Engine:
    """Makes the engine of a rank of a previous group, with the state that this rank left."""
    units = choose_units(model, lambda parameter: parameter in records, granularity)
    return _engine(session, ranks, records, units, optimizer, place_of(session), options)


def make_engine(model: torch.nn.Module, records: Records, give_values: Callable[[engine_.Engine], None], session: Session,
                ranks: Ranks, optimizer: engine_.Optimizer, granularity: str | None, place: Place, offloads: bool,
                options: Mapping[str, Any]) -> tuple[engine_.Engine, list[Unit], str]:
    """Returns (engine, units, granularity). The engine has the values that it was given, or those of the previous process.
    offloads: also make a store of activations."""
    arena_bytes = session.describe()["arena_bytes"]
    passing_bytes = PLACES * place_bytes(arena_bytes) if offloads else 0
    for tried in ("block", "leaf") if granularity is None else (granularity,):
        units = choose_units(model, lambda parameter: parameter in records, tried)
        engine = _engine(session, ranks, records, units, optimizer, place, options)
        try:
            _check_units(engine, units, place, arena_bytes, passing_bytes)
            if offloads:
                engine.make_activation_store(place_bytes(arena_bytes), PLACES)
            if engine.resumed() is None:
                give_values(engine)
            _try_units(engine, units)
            return engine, units, tried
        except ResourceExhausted:
            if engine.resumed() is not None:
                session.leave()
                raise
            engine.close()
            if tried == "leaf" or granularity is not None:
                raise
    raise AssertionError
