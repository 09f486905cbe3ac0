"""The tests of a module are those that pytest collects, and the names of the program those that it loads."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from torl.components.programs.suites import module_tests
from torl.components.programs.units import program_names

MODULE = """
import pytest, unittest
def test_a(): ...
async def test_b(): ...
def helper_test(): ...
@pytest.fixture
def test_data(): ...
if True:
    def test_c(): ...
class Mixed:
    def test_mixed(self): ...
class Base(unittest.TestCase):
    def test_base(self): ...
class Case(Mixed, Base):
    async def test_case(self): ...
class Single(unittest.TestCase):
    def runTest(self): ...
class TestOne:
    def test_one(self): ...
    class TestInner(Mixed):
        def test_inner(self): ...
    class Other:
        def test_other(self): ...
class TestMade:
    def __init__(self): ...
    def test_made(self): ...
class Nothing:
    def test_nothing(self): ...
"""


def test_units_are_what_pytest_collects(tmp_path: Path) -> None:
    (tmp_path / "test_module.py").write_text(MODULE)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
    ]
    done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, check=False, cwd=tmp_path)
    collected = {tuple(line.split("::")[1:]) for line in done.stdout.split("\n") if "::" in line and " " not in line}
    units = {tuple(each for part in test.unit[1:] for each in part.split(".")) for test in module_tests(MODULE, (), "")}
    assert units == collected
    assert len(units) == 11


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("assert f(1)", "f"),
        ("def t():\n    f = 3\n    return f\nassert f(1)", "f"),
        ("def t(f): return f(g)", "g"),
        ("class C:\n    f = 1\n    def m(self): return f", "f"),
        ("[f for f in g()]", "g"),
        ("f = 1\nassert f", ""),
        ("def t():\n    global f\n    f = 1\nassert f", ""),
        ("try: g()\nexcept E as f: f", "E g"),
        ("assert len([sum(1)])", "sum"),
        ("assert HELP(f)", "f"),
    ],
)
def test_names_are_the_program_s_that_the_module_loads(code: str, names: str) -> None:
    found = program_names(code, "HELP = lambda x: f", "def sum(x): ...")
    assert " ".join(found) == re.sub(" +", " ", names)
