"""Reads the optimizer's state from the engine in the form of torch's optimizers, and writes such a state back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import torch

from geminid.errors import Refused
from geminid.torch.keeper import Keeper
from geminid.torch.optimizers import Kind, check_orthogonal, check_unset, fixed_options
from geminid.torch.parameter import Record
from geminid.torch.tensors import address_of

Groups = Sequence[dict[str, Any]]  # torch's param_groups of a prepared model

_GATHERED_AT_ONCE = 1 << 20


def _elementwise(kind: Kind, what: str) -> None:
    if not kind.elementwise:
        raise Refused(f"{what} has no place for what {kind.name} keeps of whole tensors; use geminid.torch.save and load")


def read(keeper: Keeper, kind: Kind, groups: Groups) -> dict[str, Any]:
    """Returns the state_dict() of the original optimizer after its last step, complete on every rank. All ranks must call it."""
    _elementwise(kind, "optimizer.state_dict()")
    keeper.between_steps()
    updates, counts = keeper.engine.updates()
    state: dict[int, dict[str, Any]] = {}
    numbered = 0
    packed = []
    for group in groups:
        numbers = []
        for parameter in group["params"]:
            if hasattr(parameter, "_geminid"):  # torch keeps a parameter without elements, and it has no state
                entry = _entry(keeper, kind, group, parameter, counts[parameter._geminid.id] if counts else updates)
                if entry:
                    state[numbered] = entry
            numbers.append(numbered)
            numbered += 1
        packed.append({**{key: value for key, value in group.items() if key != "params"}, "params": numbers})
    return {"state": state, "param_groups": packed}


def _entry(keeper: Keeper, kind: Kind, group: Mapping[str, Any], parameter: Any, count: int) -> dict[str, Any]:
    """Returns the state that torch's optimizer has of a parameter after `count` updates. Before the first update the state is
    zeros, which is equal to no state; torch's distributed checkpoint loads into these tensors. SGD with dampening is the
    exception: it takes a first gradient undampened, but would dampen it with a state of zeros. So it has no state."""
    if not count and group.get("dampening"):
        return {}
    record = parameter._geminid
    entry = {name: read_kind(keeper, record, of, parameter.shape)
             for name, of in kind.state.items() if keeper.engine.has_state(record.id, of)}
    return {"step": torch.tensor(float(count)), **entry} if kind.counts else entry


_ADVICE = ("state = optimizer.state_dict(), change what is in it, and optimizer.load_state_dict(state)")
_IN_PLACE = frozenset(f"__i{name}__" for name in "add sub mul truediv floordiv mod pow and or xor lshift rshift".split())


def _refuse_change(*_: Any, **__: Any) -> NoReturn:
    raise Refused(f"optimizer.state has copies of what the engine keeps, and changing one would change nothing. Write {_ADVICE}")


class StateTensor(torch.Tensor):
    """A copy of the engine's state, to read and to copy. An in-place change would be lost, so it is refused."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name in ("__setitem__", "__set__") or name in _IN_PLACE or (name.endswith("_") and not name.endswith("__")):
            first = args[0] if args else None
            if any(isinstance(one, cls) for one in (first if isinstance(first, (list, tuple)) else (first,))):
                _refuse_change()
        if isinstance(kwargs.get("out"), cls):
            _refuse_change()
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **kwargs)
            if isinstance(result, torch.Tensor):
                given = [one for one in args if isinstance(one, cls)]
                if any(result.untyped_storage()._cdata == one.untyped_storage()._cdata for one in given):
                    result.__class__ = cls
            elif name == "numpy":
                result.flags.writeable = False
        return result

    def plain(self) -> torch.Tensor:
        with torch._C.DisableTorchFunctionSubclass():
            return self.clone()

    def __deepcopy__(self, memo: Any) -> torch.Tensor:
        return self.plain()

    def __reduce_ex__(self, protocol: Any) -> Any:
        plain: Any = self.plain()
        return plain.__reduce_ex__(protocol)


class Entry(dict[str, Any]):
    """A parameter's entry of ``optimizer.state``: a read-only dictionary of the form that torch has."""

    __delitem__ = clear = pop = popitem = setdefault = update = __ior__ = _refuse_change

    def __setitem__(self, name: str, value: Any) -> None:
        """Accepts only the values that it already has: Lightning moves each value to a device and writes it back."""
        now = self.get(name)
        if now is None or not isinstance(value, torch.Tensor) or value.shape != now.shape or not torch.equal(value.to(now.device), now):
            _refuse_change()

    def __deepcopy__(self, memo: Any) -> dict[str, Any]:
        return {name: value.clone() for name, value in self.items()}

    def __reduce_ex__(self, protocol: Any) -> Any:
        return dict, (list(self.items()),)


def _entry_of(copies: Mapping[str, torch.Tensor]) -> Entry:
    for value in copies.values():
        value.__class__ = StateTensor
    return Entry(copies)


class State(Mapping[torch.nn.Parameter, "dict[str, Any]"]):
    """An optimizer's ``state``. Each access to an entry reads a copy from the engine. The mapping is true even without
    entries: else torch's distributed checkpoint would make a step of zero gradients. With several
    ranks, and for optimizers with numbers of whole tensors, it has no entries."""

    def __init__(self, keeper: Keeper, kind: Kind, groups: Groups) -> None:
        self._keeper, self._kind = keeper, kind
        readable = keeper.ranks.world_size == 1 and kind.elementwise
        self._groups = {p: group for group in groups for p in group["params"] if hasattr(p, "_geminid")} if readable else {}

    def __getitem__(self, parameter: Any) -> dict[str, Any]:
        group = self._groups[parameter]
        self._keeper.between_steps()
        updates, counts = self._keeper.engine.updates()
        count = counts[parameter._geminid.id] if counts else updates
        return _entry_of(_entry(self._keeper, self._kind, group, parameter, count))

    clear = pop = popitem = setdefault = update = __delitem__ = _refuse_change

    def __setitem__(self, parameter: Any, entry: Mapping[str, Any]) -> None:
        """Accepts only an entry that it returned: Lightning moves each entry to the device and writes it back."""
        now = self[parameter]
        if entry.keys() != now.keys() or not all(torch.equal(entry[name], now[name]) for name in now):
            raise Refused(f"the optimizer's state of '{parameter._geminid.name}' is the engine's. Write "
                          + _ADVICE)

    def __iter__(self) -> Iterator[torch.nn.Parameter]:
        return iter(self._groups)

    def __len__(self) -> int:
        return len(self._groups)

    def __bool__(self) -> bool:
        return True


def read_kind(keeper: Keeper, record: Record, kind: int, shape: torch.Size) -> torch.Tensor:
    """Returns the whole tensor. Each rank stores a shard of it."""
    values = torch.zeros(shape, dtype=torch.float32)
    for offset, elements in keeper.engine.shard(record.id):
        keeper.engine.read_shard(record.id, kind, offset, address_of(values) + 4 * offset, elements)
    if keeper.ranks.world_size > 1:
        for part in torch.split(values.view(-1), _GATHERED_AT_ONCE):
            exact = part.double()  # the shards of other ranks are 0 here, so no sum is rounded
            keeper.ranks.sum(address_of(exact), exact.numel())
            part.copy_(exact)
    return values


def write_kind(keeper: Keeper, record: Record, kind: int, values: torch.Tensor) -> None:
    keeper.check_loading()
    values = values.detach().to(dtype=torch.float32, device="cpu").contiguous()
    # A rank without a shard calls write_shard with 0 elements: all ranks must drop their device copies, or none.
    for offset, elements in keeper.engine.shard(record.id) or [(0, 0)]:
        keeper.engine.write_shard(record.id, kind, offset, address_of(values) + 4 * offset, elements)


def put(keeper: Keeper, kind: Kind, pairs: Iterable[tuple[Any, Mapping[str, Any]]]) -> None:
    """Writes the entries of torch's optimizer to the engine. pairs: (parameter, entry)."""
    counts = [0] * len(keeper.records)
    for parameter, entry in pairs:
        if not hasattr(parameter, "_geminid"):
            continue
        record = parameter._geminid
        counts[record.id] = int(entry["step"]) if "step" in entry else int(bool(entry))
        for name, of in kind.state.items():
            if keeper.engine.has_state(record.id, of):
                given = entry.get(name)
                write_kind(keeper, record, of, torch.zeros(parameter.shape) if given is None else given)
    _set_counts(keeper, counts)


def _set_counts(keeper: Keeper, counts: Sequence[int]) -> None:
    """Sets the number of updates of each parameter, by parameter number. If the engine does not count updates for each
    parameter, the optimizer's formula does not use the count, such as SGD without dampening."""
    most = max(counts, default=0)
    _, counted = keeper.engine.updates()
    keeper.engine.restore(most, most, counts if counted else ())
    keeper.loaded()


def _check(kind: Kind, groups: Groups,
           state_dict: Mapping[str, Any]) -> tuple[Groups, list[tuple[Any, Mapping[str, Any]]]]:
    """Checks the whole state before anything is written."""
    saved = state_dict["param_groups"]
    for group, given in zip(groups, saved):
        check_orthogonal(kind, {**group, **given, "params": group["params"]})
        missing = [name for name in kind.options if name not in given]
        if missing:
            raise Refused(f"this is the state of another optimizer: its groups have no {missing[0]}, and those of {kind.name} do. "
                          "Load the state of the optimizer that was given to geminid.torch.prepare")
        check_unset(kind, {**group, **given}, f"the state of {kind.name}")
    if [len(group["params"]) for group in saved] != [len(group["params"]) for group in groups]:
        raise ValueError("this state is of other groups of parameters")
    numbers = [number for group in saved for number in group["params"]]
    parameters = [parameter for group in groups for parameter in group["params"]]
    pairs = [(parameter, state_dict["state"].get(number, {})) for number, parameter in zip(numbers, parameters)
             if hasattr(parameter, "_geminid")]
    for parameter, entry in pairs:
        check_entry(kind, parameter, entry, parameter._geminid.name)
    for group, given in zip(groups, saved):
        now, then = fixed_options(kind, group), fixed_options(kind, {**group, **given})
        if now != then:
            raise Refused(f"this state is of an optimizer with {then}, and {kind.name} was prepared with {now}; these cannot "
                          "change after geminid.torch.prepare. Make the optimizer with the options of the state before it")
    return saved, pairs


def check_entry(kind: Kind, parameter: torch.Tensor, entry: Mapping[str, Any], name: str) -> None:
    """Checks that the tensors of an entry are this optimizer's and have their parameter's shape."""
    others = sorted(set(entry) - {"step"})
    if others and not any(of in entry for of in kind.state):
        raise Refused(f"this is the state of another optimizer: of '{name}' it has {', '.join(others)}, and {kind.name} keeps "
                      f"{', '.join(kind.state)}. Load the state of the optimizer that was given to geminid.torch.prepare")
    for of in kind.state:
        if entry.get(of) is not None and entry[of].shape != parameter.shape:
            raise ValueError(f"{of} of '{name}' is {tuple(entry[of].shape)}, and the parameter is {tuple(parameter.shape)}")


def write(keeper: Keeper, kind: Kind, groups: Groups, state_dict: Mapping[str, Any]) -> None:
    _elementwise(kind, "optimizer.load_state_dict()")
    keeper.at_rest("optimizer.load_state_dict()")
    keeper.check_loading()
    saved, pairs = _check(kind, groups, state_dict)
    put(keeper, kind, pairs)
    for group, given in zip(groups, saved):
        group.update({key: value for key, value in given.items() if key != "params"})
