"""Parameters whose values the engine stores. The values are at the parameter's address while an operation holds it. At
any other time an access to that address ends the process, so every use in Python passes through this module."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from geminid.errors import Refused
from geminid.torch.saved_weights import before_node
from geminid.torch.tensors import managed_in, tensors_in

if TYPE_CHECKING:
    from geminid.torch.keeper import Keeper

_DISABLED = torch._C.DisableTorchFunctionSubclass
_T: Any = torch.Tensor
_GET_GRAD, _SET_GRAD, _DELETE_GRAD = _T.grad.__get__, _T.grad.__set__, _T.grad.__delete__
_SET_DATA = _T.data.__set__
_ATTRIBUTES = frozenset((_GET_GRAD, _SET_GRAD, _DELETE_GRAD, _SET_DATA))


def _metadata() -> frozenset[Any]:
    """Returns the functions that describe a tensor without reading its values."""
    properties = ("shape dtype device requires_grad is_leaf grad_fn layout ndim is_sparse is_cuda is_cpu is_quantized "
                  "is_meta is_mkldnn is_nested is_xpu is_mps is_mtia is_ipu is_maia is_vulkan is_xla is_sparse_csr "
                  "_version itemsize nbytes output_nr retains_grad _backward_hooks _base name").split()
    methods = ("size dim numel nelement stride is_floating_point is_complex is_contiguous element_size requires_grad_ "
               "register_hook register_post_accumulate_grad_hook storage_offset __len__ __hash__ get_device data_ptr "
               "_is_view is_shared has_names is_signed is_conj is_neg is_inference dim_order ndimension").split()
    found = {getattr(_T, name).__get__ for name in properties if hasattr(getattr(_T, name, None), "__get__")}
    found |= {_T.requires_grad.__set__, _T._backward_hooks.__set__}
    found |= {getattr(_T, name) for name in methods if hasattr(_T, name)}
    return frozenset(found | {torch.is_floating_point, torch.is_complex, torch.numel})


def _without_graph() -> frozenset[Any]:
    """Returns the functions that return a tensor's values or memory outside of autograd's graph."""
    return frozenset({_T.data.__get__, _T.detach, torch.detach, _T.numpy, _T.__array__})


def _sharing() -> frozenset[Any]:
    """Returns the functions whose result may share memory with their first argument."""
    names = ("view reshape view_as reshape_as t transpose permute movedim moveaxis swapaxes swapdims squeeze unsqueeze expand "
             "expand_as narrow select diagonal unfold flatten unflatten ravel split split_with_sizes chunk tensor_split hsplit "
             "vsplit dsplit unbind as_strided adjoint alias __getitem__").split()
    properties = {getattr(_T, name).__get__ for name in ("T", "mT", "H", "mH")}
    found = {getattr(owner, name) for owner in (_T, torch) for name in names if hasattr(owner, name)}
    return frozenset(found | properties | _without_graph())


_METADATA, _WITHOUT_GRAPH, _SHARING = _metadata(), _without_graph(), _sharing()
_READING = frozenset(("__int__", "__index__", "__invert__", "__iter__"))  # their names look like those of in-place functions


def _writes(name: str) -> bool:
    return name == "__setitem__" or (name.endswith("_") and not name.endswith("__")) or (
        name.startswith("__i") and name.endswith("__") and name not in _READING)


def _is_changed(parameter: torch.Tensor, func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> bool:
    first = args[0] if args else next(iter(kwargs.values()), None)
    if kwargs and (kwargs.get("out") is parameter or kwargs.get("max_norm") is not None):
        return True
    if first is parameter or (isinstance(first, (tuple, list)) and any(each is parameter for each in first)):
        return _writes(getattr(func, "__name__", ""))
    return False


def name_of(func: Any) -> str:
    """Returns a function's name for messages; for a property, the property's name."""
    name = getattr(func, "__name__", str(func))
    return str(getattr(getattr(func, "__self__", None), "__name__", name)) if name == "__get__" else name


class Record:
    """The data about one managed parameter."""

    __slots__ = ("id", "name", "keeper", "held", "opened", "has_gradient", "trained", "data_type", "group",
                 "orthogonal", "__weakref__")

    keeper: Keeper

    def __init__(self, id_: int, name: str, data_type: int, trained: bool, group: int, orthogonal: bool = False) -> None:
        self.id, self.name, self.data_type, self.trained, self.group = id_, name, data_type, trained, group
        self.orthogonal = orthogonal  # with Muon: its step is Muon's, not AdamW's
        self.held = 0  # the number of operations that hold it on the device
        self.opened = False  # geminid.torch.full has opened it
        self.has_gradient = False  # the engine has its gradient of this step


class ManagedParameter(torch.nn.Parameter):
    """The class of a prepared model's parameters. ``prepare`` changes the class; the objects stay the same."""

    _geminid: Record

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        if func in _METADATA:
            with _DISABLED():
                return func(*args, **kwargs)
        if func in _ATTRIBUTES:
            return _attribute(func, args)
        return NotImplemented if GradientInEngine in types else _use(func, args, kwargs)

    def __deepcopy__(self, memo: Any) -> NoReturn:
        raise Refused(f"'{self._geminid.name}' cannot be copied: the engine keeps it. Copy the model before "
                      "geminid.torch.prepare, or load model.state_dict() into another one")

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise Refused(f"'{self._geminid.name}' cannot be pickled: the engine keeps it. Save model.state_dict()")


def _use(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Calls a function of torch that has managed parameters, or views of them, among its arguments."""
    absent = None
    records = []
    record = None
    for parameter in managed_in(args, kwargs):
        record = parameter._geminid
        if not record.opened:
            records.append(record)
        if not record.opened and _is_changed(parameter, func, args, kwargs):
            raise Refused(f"{name_of(func)} would change '{record.name}', which the engine keeps, without the engine; "
                          "do that in `with geminid.torch.full(module):` between steps")
        if not record.held and not record.opened:
            record.keeper.keep_outside(record, name_of(func), has_graph=func not in _WITHOUT_GRAPH)
            absent = record.keeper
    try:
        with _DISABLED():
            result = func(*args, **kwargs)
    except TypeError as problem:
        if record is None or "__torch_dispatch__" not in str(problem):
            raise
        raise Refused(f"{name_of(func)} of '{record.name}' is traced, as by make_fx, and a trace would hold weights that "
                      "the engine moves. Trace another copy of the model that has loaded model.state_dict()") from None
    if absent is not None:
        absent.begin_backward_at(result)
    if records and torch.is_grad_enabled() and not torch.compiler.is_compiling():
        _follow(result, records)
    return _guarded(result, args[0]) if func in _SHARING and args else result


def _guarded(result: Any, source: Any) -> Any:
    """Returns a result that shares memory with a parameter as a view that knows its parameter. Results with a graph are
    returned unchanged: autograd refuses to change them in place."""
    record = getattr(source, "_geminid", None)
    if record is None or record.opened:
        return result
    if isinstance(result, (tuple, list)):
        return type(result)(_guarded(part, source) for part in result)
    if not isinstance(result, torch.Tensor):  # a NumPy array, whose writes nothing can intercept
        result = result.copy()
        result.setflags(write=False)
        return result
    is_watched = result.requires_grad and torch.is_grad_enabled()  # autograd guards it; under no_grad autograd guards nothing
    if type(result) is not torch.Tensor or is_watched or not _share_memory(result, source):
        return result
    view: Any = result.as_subclass(View)
    view._geminid = record
    return view


def _share_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    try:
        with _DISABLED():
            return bool(one.untyped_storage()._cdata == other.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):  # a tensor of a function transformation (torch.func)
        return False


def _follow(result: Any, records: list[Record]) -> None:
    """Follows the result of an operator that used these parameters in a forward, because its backward may come."""
    tensor: Any
    for tensor in (result,) if type(result) is torch.Tensor else tensors_in(result):
        base = tensor._base
        if isinstance(base, ManagedParameter):
            if type(tensor) is torch.Tensor:
                view: Any = tensor
                view.__class__, view._geminid = View, base._geminid
        elif tensor.grad_fn is not None:
            tensor.grad_fn.register_prehook(before_node(records))


class View(torch.Tensor):
    """A tensor in the memory of a managed parameter: `parameter.data`, `parameter.detach()`, or a view such as `weight[0]`, with
    or without a graph. The same rules hold as for the parameter: an in-place change is refused; absent values are loaded to
    the device, or the use is refused."""

    _geminid: Record

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        if func in _METADATA or func in _ATTRIBUTES:
            with _DISABLED():
                return func(*args, **(kwargs or {}))
        return NotImplemented if GradientInEngine in types else _use(func, args, kwargs or {})

    def __deepcopy__(self, memo: Any) -> Any:
        return self.clone() if self.is_leaf else _T.__deepcopy__(self, memo)  # torch refuses to copy a tensor with a graph

    def __reduce_ex__(self, protocol: Any) -> Any:
        plain: Any = self.clone()
        return plain.__reduce_ex__(protocol)


def _attribute(func: Any, args: Any) -> Any:
    parameter = args[0]
    record = parameter._geminid
    if func == _SET_DATA:
        if record.opened:
            with _DISABLED():
                return func(*args)
        raise Refused(f"the data of '{record.name}' cannot be replaced: the engine keeps it. Copy into it in "
                      "`with geminid.torch.full(module):` between steps")
    if func == _SET_GRAD and args[1] is not None:
        raise Refused(f"the gradient of '{record.name}' cannot be set: the engine has it. Call loss.backward(), which hands it "
                      "over, and change it in a hook: parameter.register_hook(lambda gradient: ...)")
    if func != _GET_GRAD:
        record.keeper.drop_gradient(record)
    with _DISABLED():
        if func == _GET_GRAD and record.keeper.gradients.are_of(record):
            return GradientInEngine.of(parameter, record)
        return func(*args)


class GradientInEngine(torch.Tensor):
    """The value of `parameter.grad` until zero_grad() drops it. It has a shape and a type, but no values."""

    _geminid_name: str

    @staticmethod
    def of(parameter: torch.Tensor, record: Record) -> GradientInEngine:
        shape = torch.empty(parameter.shape, dtype=parameter.dtype, device="meta")
        gradient = shape.as_subclass(GradientInEngine)
        gradient._geminid_name = record.name
        return gradient

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        if func in _METADATA:
            with _DISABLED():
                return func(*args, **(kwargs or {}))
        name = next((arg._geminid_name for arg in args if isinstance(arg, cls)), "a parameter")
        raise Refused(f"the gradient of '{name}' is in the engine until optimizer.step(). Clip by torch.nn.utils.clip_grad_norm_ or "
                      "optimizer.clip_grad_norm_, which return the norm; drop it by optimizer.zero_grad()")

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"<the gradient of '{self._geminid_name}', which the engine has>"


def make_managed(parameter: Any, record: Record, view: torch.Tensor) -> None:
    """Makes a parameter managed: from now on `view` has its values."""
    needs_gradient = parameter.requires_grad
    parameter.data = view
    if record.trained:
        parameter.requires_grad_(True)  # a frozen parameter may be unfrozen later
        # torch stores the hook where the garbage collector does not search. So the hook must not keep the engine alive.
        on_gradient = weakref.WeakMethod(record.keeper.on_gradient)
        parameter.register_post_accumulate_grad_hook(lambda changed: on_gradient()(changed))  # type: ignore[misc]
        parameter.requires_grad_(needs_gradient)
    parameter._geminid = record
    parameter.__class__ = ManagedParameter
