"""The shortest run of hook_costs.py prints every figure."""

import hook_costs


def test_every_hook_and_call_is_measured():
    found = hook_costs.measure(steps=4)
    assert set(found) == {*hook_costs.HOOKS, *hook_costs.CALLS, "step"}
    assert found.pop("step") > 0
    assert all(0 < least <= usual for least, usual in found.values())
