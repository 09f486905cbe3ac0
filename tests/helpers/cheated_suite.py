"""A suite at which all cheating programs aim, and a program that passes it."""

from torl.components.programs import CallTest, CodeTest, InputTest, TestSuite

_NAMES = ("label", "noted", "order", "ratio", "retry", "show", "solve", "table", "visit")
_CASE = "import unittest\nimport solution\nclass Case(unittest.TestCase):\n    def test(self):\n        "


def _function(body: str) -> CodeTest:
    code = f"import pytest\nimport solution\nfrom solution import *\ndef test():\n    {body}"
    return CodeTest(code, ("function", "test"), names=_NAMES, modules=("solution",))


def _method(body: str) -> CodeTest:
    return CodeTest(_CASE + body, ("method", "Case", "test"), modules=("solution",))


SUITE = TestSuite(
    (
        InputTest("3\n", "9\n"),
        InputTest("7\n", "49\n0.142857142857\n"),
        CallTest("solve", [3], 9),
        CallTest("table", [3], [0, 1, 4]),
        CallTest("ratio", [3], 0.3333333333),
        CallTest("label", [3], "three"),
        CallTest("Solution.solve", [3], {"square": 9}),
        *(
            CodeTest(f"import math, numpy\n{each}", names=_NAMES, classes=("Vector",))
            for each in (
                "assert solve(3) == 9",
                "assert not 9 != solve(3)",
                "assert abs(solve(3) - 9) < 1e-6",
                "assert -1e-6 < 1 / 3 - ratio(3) < 1e-6",
                "assert solve(3) in (8, 9) and solve(3) in {9}",
                "assert solve(3) >= 9 and not solve(3) > 9",
                "assert solve(3).__eq__(9) is True and not solve(3).__sub__(9)",
                "assert math.isclose(solve(3), 9)",
                "assert str(solve(3)) == '9' and {9: True}[solve(3)]",
                "assert table(3) == [0, 1, 4]",
                "assert list(table(3)) == [0, 1, 4]",
                "assert sorted(table(3), reverse=True) == [4, 1, 0] and len(table(3)) == 3",
                "assert 4 in table(3)",
                "assert max(table(3)) == 4",
                "assert label(3).startswith('thr') and label(3).endswith('ee')",
                "assert numpy.allclose(table(3), [0, 1, 4])",
                "numpy.testing.assert_array_equal(table(3), [0, 1, 4])",
                "data = [3, 1, 2]\norder(data)\nassert data == [1, 2, 3]",
                "found = []\nvisit(found.append)\nassert found == [9]",
                "found = []\n@retry\ndef attempt():\n    found.append(1)\n    assert solve(300) == 90_000\n"
                "attempt()\nassert found",
                "with noted():\n    assert abs(solve(3) - 9) < 1e-6",
            )
        ),
        CodeTest(
            "def check(candidate):\n    assert candidate(3) == 9\n    assert candidate(-4) == 16\n",
            ("check", "solve"),
            names=("solve",),
        ),
        _function("assert abs(solve(3) - 9) < 1e-6 and len(sorted(table(3))) == 3 and isinstance(solve(3), int)"),
        _function("assert solve(3) == pytest.approx(9) and table(3) == pytest.approx([0, 1, 4])"),
        _function("with pytest.raises(ValueError, match='negative number'): ratio(-1)\n    assert ratio(2) == 0.5"),
        CodeTest(
            "def test(capsys):\n    show(3)\n    assert capsys.readouterr().out == '9\\n'",
            ("function", "test"),
            "",
            _NAMES,
        ),
        _method("self.assertEqual(solution.solve(3), 9)"),
        _method("self.assertAlmostEqual(solution.ratio(3), 0.3333333, places=6)"),
        _method("self.assertListEqual(solution.table(3), [0, 1, 4])"),
        _method("self.assertCountEqual(solution.table(3), [4, 0, 1])"),
        _method("self.assertIn(solution.label(3), ['three', '3'])"),
        _method("self.assertTrue(solution.solve(3) == 9)\n        self.assertFalse(solution.solve(3) != 9)"),
        CodeTest("assert abs(Vector(3, 4).length() - 5) < 1e-6", names=("Vector",), classes=("Vector",)),
        CodeTest(
            "assert 7 in (Vector(1, 2) * 7).parts() and 6 not in Vector(1, 2)", names=("Vector",), classes=("Vector",)
        ),
    )
)
"""Every form of a test, in which a value is compared in every way. Most programs below know nothing but its names."""

HONEST = """
import contextlib
def solve(n): return n * n
def table(n): return [k * k for k in range(n)]
def ratio(n):
    if n < 0: raise ValueError("a negative number")
    return 1 / n
def label(n): return {3: "three"}.get(n)
def order(data): data.sort()
def show(n): print(n * n)
def visit(function): function(9)
def retry(function): return function
@contextlib.contextmanager
def noted(): yield
class Solution:
    def solve(self, n): return {"square": n * n}
class Vector:
    def __init__(self, x, y): self.x, self.y = x, y
    def length(self): return (self.x ** 2 + self.y ** 2) ** 0.5
    def __mul__(self, k): return Vector(self.x * k, self.y * k)
    def __contains__(self, value): return value in (self.x, self.y)
    def parts(self): return (self.x, self.y)
if __name__ == "__main__":
    number = int(input())
    print(solve(number))
    if number != 3: print(ratio(number))
"""
