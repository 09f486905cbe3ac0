"""Programs that are right in unusual ways, each with the tests that it must pass."""

from unusual_callbacks import CALLBACKS
from unusual_identities import IDENTITIES
from unusual_modules import MODULES
from unusual_objects import CLASSES
from unusual_tests import asserted, module_of
from unusual_values import PRINTERS, VALUES

FUNCTIONS = {
    "generator": asserted(
        "def squares(n):\n    for k in range(n): yield k * k\n",
        "assert list(squares(4)) == [0, 1, 4, 9]",
        "assert sum(squares(4)) == 14 and next(squares(1)) == 0",
        "import types\nassert isinstance(squares(3), types.GeneratorType)",
    ),
    "endless generator": asserted(
        "def naturals():\n    n = 0\n    while True:\n        yield n\n        n += 1\n",
        "import itertools\nassert list(itertools.islice(naturals(), 100)) == list(range(100))",
        "for each in naturals():\n    if each > 50: break\nassert each == 51",
    ),
    "ten thousand items": asserted(
        "def many(): return iter(range(10_000))\n",
        "assert sum(many()) == 49_995_000",
        "assert [n for n in many()] == list(range(10_000))",
    ),
    "lazy iterators": asserted(
        "def doubled(x): return map(lambda n: 2 * n, x)\ndef odd(x): return filter(lambda n: n % 2, x)\n",
        "assert list(doubled([1, 2])) == [2, 4] and sorted(odd([3, 2, 1])) == [1, 3]",
        "assert 4 in doubled([1, 2]) and dict(zip('ab', doubled([1, 2]))) == {'a': 2, 'b': 4}",
    ),
    "ten thousand calls": asserted(
        "def half(n): return n // 2\n", "for n in range(2000):\n    assert half(n) == n // 2"
    ),
    "deep recursion": asserted("def depth(n): return 0 if n == 0 else 1 + depth(n - 1)\n", "assert depth(900) == 900"),
    "recursion limit raised": asserted(
        "import sys\nsys.setrecursionlimit(10**6)\ndef depth(n): return 0 if n == 0 else 1 + depth(n - 1)\n",
        "assert depth(9000) == 9000",
    ),
    "closures": asserted(
        "def counter():\n    n = 0\n    def count():\n        nonlocal n\n        n += 1\n        return n\n    return count\n",
        "c = counter()\nc()\nassert c() == 2 and counter()() == 1",
    ),
    "cached decorator": asserted(
        "import functools\n@functools.lru_cache(None)\ndef fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)\n",
        "assert fib(300) % 10**9 == 835_928_600 or fib(90) == 2880067194370816120",
        "fib(5)\nassert fib.cache_info().hits > 0",
    ),
    "arguments of every kind": asserted(
        "def f(a, /, b=2, *more, c, **rest): return [a, b, list(more), c, rest]\n",
        "assert f(1, c=3) == [1, 2, [], 3, {}] and f(1, 2, 3, c=4, d=5) == [1, 2, [3], 4, {'d': 5}]",
    ),
    "default argument that stays": asserted(
        "def add(x, to=[]):\n    to.append(x)\n    return to\n", "add(1)\nassert add(2) == [1, 2]"
    ),
    "changed arguments": asserted(
        "def reverse(x): x.reverse()\ndef clear(d, *, s): d.clear(); s.add(1)\n",
        "x = [1, 2, 3]\nassert reverse(x) is None and x == [3, 2, 1]",
        "d, s = {1: 2}, set()\nclear(d, s=s)\nassert d == {} and s == {1}",
    ),
    "no result": asserted("def nothing(): pass\n", "assert nothing() is None"),
    "prints and returns": module_of(
        "def show(n):\n    print('n is', n)\n    return n\n",
        "from solution import show\ndef test(capsys):\n"
        "    assert show(3) == 3\n    assert capsys.readouterr().out == 'n is 3\\n'\n",
    ),
    "prints of a redirected output": asserted(
        "def show(n): print(n, end='')\n",
        "import io, contextlib\nout = io.StringIO()\n"
        "with contextlib.redirect_stdout(out):\n    show(3)\nassert out.getvalue() == '3'",
    ),
    "asynchronous function": asserted(
        "import asyncio\nasync def double(n):\n    await asyncio.sleep(0)\n    return 2 * n\n",
        "import asyncio\nassert asyncio.run(double(3)) == 6",
        "import asyncio\nasync def both():\n    return [await double(1), *await asyncio.gather(double(2), double(3))]\n"
        "assert asyncio.run(both()) == [2, 4, 6]",
    ),
    "program that is also a script": asserted(
        "def f(n): return n + 1\nif __name__ == '__main__':\n    print(f(int(input())))\n", "assert f(1) == 2"
    ),
    "threads": asserted(
        "import threading\ndef run(n):\n    found = []\n    threads = [threading.Thread(target=found.append, args=(k,)) "
        "for k in range(n)]\n    for each in threads: each.start()\n    for each in threads: each.join()\n    return sorted(found)\n",
        "assert run(3) == [0, 1, 2]",
    ),
    "name of a builtin": asserted("def sum(a, b): return 10 * a + b\n", "assert sum(1, 2) == 12"),
    "exceptions of libraries": module_of(
        "import json\ndef load(text): return json.loads(text)\n",
        "import json, pytest\nfrom solution import load\n"
        "def test():\n    with pytest.raises(json.JSONDecodeError):\n        load('{')\n"
        "    with pytest.raises(ValueError):\n        load('{')\n",
    ),
    "ends the interpreter": module_of(
        "import sys\ndef main(): sys.exit(3)\n",
        "import pytest\nfrom solution import main\ndef test():\n"
        "    with pytest.raises(SystemExit) as found:\n        main()\n    assert found.value.code == 3\n",
    ),
    "parameters and fixtures": module_of(
        "def inc(n): return n + 1\n",
        "import pytest\nfrom solution import inc\n@pytest.fixture\ndef one():\n    return 1\n"
        "@pytest.mark.parametrize('n, m', [(1, 2), (2, 3)])\ndef test(n, m, one):\n    assert inc(n) == m == n + one\n",
    ),
    "module with state": asserted(
        "total = 0\ndef add(n):\n    global total\n    total += n\n",
        "import sys\nadd(2)\nadd(3)\nassert add(0) is None",
    ),
}

UNUSUAL = {
    f"{kind}: {name}": pair
    for kind, programs in (
        ("class", CLASSES),
        ("function", FUNCTIONS),
        ("callback", CALLBACKS),
        ("identity", IDENTITIES),
        ("module", MODULES),
        ("value", VALUES),
        ("printer", PRINTERS),
    )
    for name, pair in programs.items()
}
"""Programs by name, with tests."""
