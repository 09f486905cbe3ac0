"""Code that runs before the snapshot leaves the interpreter fast, and otherwise as it was."""

import subprocess
import sys

from sandboxes import FRESH
from torl_sandbox import SandboxPool

SETTINGS = """
import decimal, sys
import mpmath, numpy, sympy
context = decimal.getcontext()
print(context.prec, context.rounding, [flag for flag, up in context.flags.items() if up], decimal.DefaultContext.prec)
print(sys.getrecursionlimit(), sys.get_int_max_str_digits(), sys.getswitchinterval(), sys.gettrace(), sys.getprofile())
print(sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__, hasattr(sys, "ps1"))
print(mpmath.mp.dps, mpmath.mp.pretty, mpmath.iv.dps)
print(sorted(numpy.geterr().items()), sorted(numpy.get_printoptions().items(), key=str))
print(sympy.core.parameters.global_parameters.evaluate, sympy.printing.str.StrPrinter._global_settings)
print(sorted(name for name in globals() if not name.startswith("__")))
"""


def test_warm_up_leaves_no_setting() -> None:
    native = subprocess.run([sys.executable, "-E", "-c", SETTINGS], capture_output=True, text=True, check=True)
    with SandboxPool(1, **FRESH) as pool:
        outcome = pool.run(SETTINGS)
    assert outcome.ok, outcome
    assert outcome.stdout == native.stdout


def test_nothing_that_mathematics_needs_is_imported_by_a_run() -> None:
    names = (
        "numpy, scipy.stats, scipy.optimize, scipy.integrate, scipy.interpolate, sympy.geometry, sympy.ntheory, pandas"
    )
    with SandboxPool(1, **FRESH) as pool:
        outcome = pool.run(f"import sys\nbefore = set(sys.modules)\nimport {names}\nprint(set(sys.modules) - before)")
    assert outcome.stdout == "set()\n", outcome
