"""Tracebacks are formatted in fewer steps than by the library's own functions, with the same text."""

import json

import pytest

from torl_sandbox import SandboxPool

CALLED = "def f(*a, **k):\n    raise ValueError(1)\n\n"
FAILING = [
    "f(1)",
    "f(1)  # f(2)",
    "x = f(1)",
    "x = (f(1))",
    "x = y = f(1)",
    "x.y = f(1)",
    "x = f(1); y = 2",
    "x: int = f(1)",
    "(x := f(1))",
    "x = 1 + f(1)",
    "x = f(1) + 1",
    "x = [f(1)]",
    "x = z.f(1)",
    "x == f(1)",
    "print(f(1), 2 == 3)",
    "return_ = 5; f(1)",
    "def g():\n    return f(1)\ng()",
    "def g(): return f(1)\ng()",
    "def g():\n    return f(1) # f(2)\ng()",
    "def g():\n    return (f(1))\ng()",
    "def g():\n    return z.f(1)\ng()",
    "def g():\n    return f(1)[0]\ng()",
    "def g():\n    return f(\n        1,\n    )\ng()",
    "def g():\n    return 1 + f(\n        1,\n\n    ) + 2\ng()",
    "x = f(\n    1)",
    "x = '='; f(1)",
    "10 / 0",
    "x = 10 / 0",
    "x = 10 / (5 - 5)",
    "[1][5]",
    "x = {}[(1)]",
    "None.real",
    "x = f",
    "f(1)\t+ 2",
    "if 1:\n\tf(1)\t+ 2",
    "é = f(1)",
    "x = 'é' + f(1)",
    "x = '漢字' + f('漢字') # 漢字",
    "x = '🎉'; f('🎉')",
    "f('\\x1b[31m')",
    "f('\x1b[31m', '\x1a', '\x7f')",
    "#\nf(1)",
    "x = '#' + f('#')",
    "raise ValueError('return f(1)')",
    "assert f(1), 'x=1'",
    "for i in f(1): pass",
    "[f(i) for i in range(3)]",
    "lambda: f(1)\n(lambda: f(1))()",
    "with f(1) as x: pass",
    "import math; math.sqrt(-1)",
    "x = 'a' + 1",
    "@f\ndef g(): pass",
    "class A(f(1)): pass",
    "f(1)\\\n  + 2",
    "x = \\\n  f(1)",
]

PROGRAM = """
import json, linecache, sys, traceback
import _torl_tracebacks as fast

def steps(work):
    count = 0
    def profile(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")
    sys.setprofile(profile)
    try:
        text = work()
    finally:
        sys.setprofile(None)
    return text, count

class Z: pass
ours, theirs = [], []
for number, source in enumerate(json.loads(input())):
    name = f"program {number}"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    names = {"z": Z()}
    try:
        exec(compile(source, name, "exec"), names)
    except Exception as error:
        caught = error
    else:
        continue
    render = lambda: "".join(traceback.format_exception(caught))
    render()
    ours.append(steps(render))
    traceback._display_width = fast._display_width
    traceback.StackSummary._should_show_carets = fast._should_show_carets
    theirs.append(steps(render))
    fast.install()
print(json.dumps([ours, theirs]))
"""


@pytest.fixture(scope="module")
def rendered() -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    with SandboxPool(1) as pool:
        outcome = pool.run(PROGRAM, stdin=json.dumps([CALLED + source for source in FAILING]))
    assert outcome.ok, outcome.stderr
    return json.loads(outcome.stdout)  # type: ignore[no-any-return]


def test_text_is_the_librarys(rendered: tuple[list[tuple[str, int]], list[tuple[str, int]]]) -> None:
    ours, theirs = ([text for text, _ in rows] for rows in rendered)
    assert len(ours) > 50
    assert ours == theirs
    assert "    x = 10 / 0\n        ~~~^~~\n" in "".join(ours)


def test_ordinary_line_takes_fewer_steps(rendered: tuple[list[tuple[str, int]], list[tuple[str, int]]]) -> None:
    ours, theirs = ([steps for _, steps in rows] for rows in rendered)
    assert sum(ours) < 0.85 * sum(theirs)
