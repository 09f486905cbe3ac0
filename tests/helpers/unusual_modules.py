"""Modules of tests with all that the judge has of pytest and unittest, each with a right program."""

from unusual_tests import module_of

_STATE = "state = []\ndef f(): return list(state)\ndef add(x): state.append(x)\n"

MODULES = {
    "fixture used twice": module_of(
        "class S(list): pass\n",
        "import pytest\nfrom solution import S\n@pytest.fixture\ndef made(): return []\n"
        "@pytest.fixture(name='full')\ndef _full(made):\n    made.append(S())\n    return made\n"
        "def test(made, full):\n    assert len(made) == 1 and made is full\n",
    ),
    "fixture with parameters": module_of(
        "def f(x): return x\n",
        "import pytest\nfrom solution import f\nseen = []\n@pytest.fixture(params=[1, pytest.param(2)])\n"
        "def x(request):\n    request.addfinalizer(lambda: seen.append(0))\n    return request.param\n"
        "@pytest.mark.parametrize('y', [3, 4])\ndef test(x, y):\n    assert f(x) in (1, 2) and f(y) in (3, 4)\n",
    ),
    "fixture without a name in the test": module_of(
        _STATE,
        "import pytest\nfrom solution import f, add\n@pytest.fixture(autouse=True)\ndef filled():\n    add(1)\n"
        "    yield\n"
        "@pytest.fixture\ndef two(): add(2)\n@pytest.mark.usefixtures('two')\ndef test(): assert f() == [1, 2]\n",
    ),
    "class with fixtures": module_of(
        _STATE,
        "import pytest\nfrom solution import f, add\nclass TestF:\n    def setup_method(self): self.x = 1; add(1)\n"
        "    def teardown_method(self, method): add(2)\n    @pytest.fixture\n    def two(self): return self.x + 1\n"
        "    @pytest.mark.parametrize('y', [1])\n    def test(self, two, y): assert f() == [1] and two == y + 1\n",
    ),
    "setup of a function": module_of(
        _STATE,
        "from solution import f, add\ndef setup_module(module): add(0)\ndef setup_function(): add(1)\n"
        "def test(): assert f() == [0, 1]\n",
    ),
    "one name in a list": module_of(
        "def f(x): return x + 1\n",
        "import pytest\nfrom solution import f\n@pytest.mark.parametrize(['x'], [(1,), (2,)])\n"
        "@pytest.mark.slow\ndef test(x): assert f(x) > 1\n",
    ),
    "file of the test": module_of(
        "def f(): return 1\n",
        "import os\nfrom solution import f\nHERE = os.path.dirname(__file__)\ndef test(): assert f() == 1\n",
    ),
    "names of the program that a test sets": module_of(
        "LIMIT = 1\ndef g(): return 1\ndef f(): return LIMIT + g()\n",
        "from unittest.mock import patch\nimport solution\ndef test():\n    solution.LIMIT = 3\n"
        "    with patch('solution.g', return_value=7): assert solution.f() == 10\n    assert solution.f() == 4\n",
    ),
    "local name like one of the program": module_of(
        "def f(x): return x + 1\ndef g(x): return x\n",
        "def test_a():\n    f = 3\n    assert g(f) == 3\ndef test_b():\n    assert f(1) == 2\n"
        "    assert [g for g in [1]]\n",
    ),
}
