"""Floats that do not fit into an integer become in the sandbox what x86-64 makes of them."""

import platform
from typing import Any

import pytest

from sandboxes import KEPT
from torl_sandbox import SandboxPool

# Runs natively and in the sandbox. numpy's own answer for 32 unsigned bits depends on where in the array an element
# is, so all that it gives are collected.
CASTS = """
import warnings
import numpy as np
warnings.simplefilter("ignore")
edges = [0.4, 3.7, 255.5, 300.5, 70000.0, 3e9, 5e9 + 777, 2.0**31, 2.0**32 + 5000, 2.0**53 + 2, 2.0**63, 1.5e19, 2.0**64, 1e20, np.inf]
casts = {
    f"{kind} {number} {to}": sorted(
        {int(cast) for length in (1, 7, 33) for cast in np.full(length, number).astype(kind).astype(to)}
    )
    for kind in ("f8", "f4", "f2")
    for to in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")
    for number in [np.nan, *edges, *(-edge for edge in edges)]
}
casts["reciprocals"] = [np.reciprocal(np.array([0, 2, -1])).tolist(), np.reciprocal(np.array([0, 1], "u1")).tolist()]
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other machines convert such floats otherwise")
def test_casts_are_those_of_this_machine() -> None:
    native: dict[str, Any] = {}
    exec(CASTS, native)
    with SandboxPool(1, **KEPT) as pool:
        outcome = pool.run(f"{CASTS}print(casts)")
    casts = eval(outcome.stdout)
    assert casts.keys() == native["casts"].keys()
    assert [name for name, found in casts.items() if " u4" not in name and found != native["casts"][name]] == []
    assert [name for name, found in casts.items() if " u4" in name and not {*found} <= {*native["casts"][name]}] == []
