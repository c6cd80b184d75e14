"""Makes the weights that autograd saved available on the device when the node that saved them runs.

The outputs of a unit's call begin its backward pass (hooks.py). Autograd may also enter the call elsewhere: at a tensor that
the forward stored in an attribute, that a hook of a submodule took, or that is inside an object of a user's class. So
each operator that used a parameter checks, just before its node runs, whether the parameter is on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from geminid.torch.keeper import Call
    from geminid.torch.parameter import Record


def before_node(records: Sequence[Record]) -> Callable[[Any], None]:
    """Returns a hook that runs before the node of an operator that used these parameters in the current forward."""
    calls = records[0].keeper.open_calls
    call = calls[-1] if calls else None

    def hook(_gradients: Any) -> None:
        for record in records:
            if not record.held:
                _bring(call, records)
                return

    return hook


def _bring(call: Call | None, records: Sequence[Record]) -> None:
    """Gathers the unit whose call ran the operator. Parameters still absent are then held until the pass ends."""
    if call is not None:
        call.before_backward(None)
    for record in records:
        if not record.held:
            record.keeper.backward()
            record.keeper.hold_outside(record)
