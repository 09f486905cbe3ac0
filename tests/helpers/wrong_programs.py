"""Programs that are wrong in ways that a judge could overlook, and tests that say nothing about a program."""

from unusual_tests import asserted, module_of

_M = "class M:\n    def __init__(self, v): self.v = v\n    def __lt__(self, other): return True\n"

WRONG = {
    "a test does not touch a program with a syntax error": module_of("def f(:\n", "def test():\n    assert True\n"),
    "a class of pytest": module_of(
        "def f(): return 1\n",
        "from solution import f\nclass TestF:\n    class TestInner:\n        def test(self):\n"
        "            assert f() == 2\n",
    ),
    "a test case by a base": module_of(
        "def f(): return 1\n",
        "import unittest\nfrom solution import f\nclass Base(unittest.TestCase): pass\n"
        "class F(Base):\n    def test(self): self.assertEqual(f(), 2)\n",
    ),
    "an asynchronous test": module_of(
        "async def f(): return 1\n", "from solution import f\nasync def test():\n    assert await f() == 2\n"
    ),
    "an asynchronous method": module_of(
        "async def f(): return 1\n",
        "import unittest\nfrom solution import f\nclass T(unittest.IsolatedAsyncioTestCase):\n"
        "    async def test(self): self.assertEqual(await f(), 2)\n",
    ),
    "the program does not raise for an order that the judge refuses": module_of(
        _M, "import pytest\nfrom solution import M\ndef test():\n    with pytest.raises(TypeError):\n        M(1) < 5\n"
    ),
    "the program does not raise for a sum that the judge refuses": asserted(
        "def f(): return type('M', (), {'__add__': lambda *a: 1})()\n",
        "try: f() + 1\nexcept TypeError: pass\nelse: assert False",
    ),
    "the argument instead of a copy": asserted(
        "def f(x): return x\nclass C:\n    def copy(self): return self\n",
        "a = [1]\nassert f(a) is not a",
        "a = [[1]]\nb = f(a)\nassert b[0] is not a[0]",
        "c = C()\nassert c.copy() is not c",
    ),
    "a copy instead of the argument": asserted("def f(x): return x[:]\n", "a = [1]\nassert f(a) is a"),
    "another type": asserted(
        "class A: pass\nclass B: pass\ndef f(): return A()\n",
        "assert type(f()) is B",
        "assert isinstance(f(), B)",
        "assert callable(f())",
        "from collections.abc import Iterator\nassert isinstance(f(), Iterator)",
    ),
    "a deleted attribute": asserted(_M, "m = M(1)\ntry:\n    del m.v\nexcept AttributeError: pass\nelse: assert False"),
    "an ordered dictionary in another order": asserted(
        "from collections import OrderedDict\ndef f(): return OrderedDict(b=1, a=2)\n",
        "from collections import OrderedDict\nassert f() == OrderedDict(a=2, b=1)",
    ),
}
"""Programs by name, with tests of which they must pass none."""

UNJUDGED = {
    "unittest skips": "import unittest\nfrom solution import f\nclass T(unittest.TestCase):\n"
    "    @unittest.skip('x')\n    def test(self): self.assertEqual(f(), 2)\n",
    "unittest skips in a test": "import unittest\nfrom solution import f\nclass T(unittest.TestCase):\n"
    "    def test(self):\n        self.skipTest('x')\n",
    "unittest expects a failure": "import unittest\nfrom solution import f\nclass T(unittest.TestCase):\n"
    "    @unittest.expectedFailure\n    def test(self): self.assertEqual(f(), 2)\n",
    "pytest skips": "import pytest\nfrom solution import f\ndef test():\n    pytest.skip('x')\n",
    "pytest expects a failure": "import pytest\nfrom solution import f\n@pytest.mark.xfail\ndef test():\n"
    "    assert f() == 2\n",
    "a mark of a class": "import pytest\nfrom solution import f\n@pytest.mark.skip\nclass TestF:\n"
    "    def test(self): f()\n",
    "a mark of a module": "import pytest\nfrom solution import f\n"
    "pytestmark = pytest.mark.skipif(True, reason='')\ndef test(): f()\n",
    "a module without tests": "from math import sqrt\nassert sqrt(4) == 2\n",
    "no parameters": "import pytest\nfrom solution import f\n@pytest.mark.parametrize('x', [])\n"
    "def test(x): assert f() == x\n",
    "patched input": "from unittest.mock import patch\nfrom solution import f\ndef test():\n"
    "    with patch('builtins.input', return_value='1'): assert f() == 1\n",
    "standard input": "import io, sys\nfrom solution import f\ndef test():\n    sys.stdin = io.StringIO('1')\n"
    "    assert f() == 1\n",
    "the environment": "import os\nfrom solution import f\ndef test():\n    os.environ['X'] = '1'\n"
    "    assert f() == 1\n",
    "a patch of the environment": "import os\nfrom unittest.mock import patch\nfrom solution import f\n"
    "@patch.dict(os.environ, {'X': '1'})\ndef test():\n    assert f() == 1\n",
    "a file": "import tempfile\nfrom solution import f\ndef test():\n"
    "    with tempfile.NamedTemporaryFile() as file: f()\n",
    "a path": "import pathlib\nfrom solution import f\ndef test():\n    assert f() == 1\n    f(pathlib.Path('x'))\n",
    "logs": "import unittest\nfrom solution import f\nclass T(unittest.TestCase):\n"
    "    def test(self):\n        with self.assertLogs(): f()\n",
    "a fixture of pytest": "from solution import f\ndef test(monkeypatch):\n    assert f() == 1\n",
    "a function of pytest": "import pytest\nfrom solution import f\ndef test():\n"
    "    with pytest.warns(UserWarning): f()\n",
    "a derived class": "from solution import C\nclass D(C): pass\ndef test():\n    assert D()\n",
}
"""Modules of tests that say nothing, or need the program in the same process, by name."""
