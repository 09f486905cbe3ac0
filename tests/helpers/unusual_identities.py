"""Right programs whose identities, types and changing data a test sees, with their tests."""

from unusual_tests import asserted, module_of

_STACK = "class Stack(list):\n    def push(self, x): self.append(x)\ndef push(s, x): s.append(x)\n"
_KINDS = (
    "import collections, collections.abc\nfrom abc import ABC\nclass A(ABC): pass\n"
    "class B(A):\n    def __init__(self): self.x = [1]\n    def __iter__(self): return iter(self.x)\n"
    "def chars():\n    yield 'a'\ndef ordered(): return collections.OrderedDict(a=1)\n"
    "def missing(): return collections.defaultdict(int)\n"
)

IDENTITIES = {
    "a result that is its argument": asserted(
        "def f(x): return x\ndef g(x): return list(x)\n",
        "a = [[1], {2: [3]}]\nassert f(a) is a and g(a) is not a\nassert g(a)[0] is a[0] and g(a)[1][2] is a[1][2]",
        "import copy\na = [[1]]\nb = f(a)\nb.append(2)\nassert a == [[1], 2] and f((a,))[0] is b",
    ),
    "an attribute that is an argument": module_of(
        "class C:\n    def __init__(self, x): self.x = x\n    def y(self): return list(self.x)\n",
        "import unittest\nfrom solution import C\nclass T(unittest.TestCase):\n    def test(self):\n        a = [1]\n"
        "        c = C(a)\n        self.assertIs(c.x, a)\n        self.assertIs(c.x, c.x)\n"
        "        self.assertIsNot(c.y(), c.y())\n",
    ),
    "arguments that change": asserted(
        "class C:\n    def __init__(self, x): self.x = x\n    def sort(self): self.x.sort()\n"
        "def add(pair): pair[0].append(pair[1])\ndef set_first(grid): grid[0][0] = 5\n",
        "a = [2, 1]\nC(a).sort()\nassert a == [1, 2]",
        "a = []\nadd((a, 7))\nassert a == [7]",
        "g = [[1]]\nrow = g[0]\nset_first(g)\nassert row == [5] and g[0] is row",
    ),
    "one object": asserted(
        "class S:\n    one = None\n    def __new__(cls):\n        cls.one = cls.one or super().__new__(cls)\n"
        "        return cls.one\ndef get(): return S.one\n",
        "assert S() is S() and S() is get() and get() is not S",
    ),
    "types": asserted(
        _KINDS,
        "b = B()\nassert type(b) is B and type(b) is not A and type(b).__name__ == 'B' and type(b) == B",
        "from collections.abc import Iterable, Iterator\nb = B()\n"
        "assert isinstance(b, Iterable) and not isinstance(b, Iterator) and isinstance(b, (int, A))",
        "from abc import ABC\nassert issubclass(A, ABC) and issubclass(B, A) and not callable(B()) and callable(B)",
        "assert B().__dict__ == {'x': [1]} and vars(B()) == {'x': [1]}",
        "import collections, types\nassert isinstance(ordered(), collections.OrderedDict)\n"
        "assert isinstance(missing(), collections.defaultdict) and isinstance(chars(), types.GeneratorType)\n"
        "assert isinstance(missing(), dict | list) and type(missing()) is collections.defaultdict",
    ),
    "a list that grows": asserted(
        _STACK,
        "s = Stack()\ns.push(1)\nassert len(s) == 1 and s == [1]\npush(s, 2)\n"
        "assert s == [1, 2] and s[1] == 2 and list(s) == [1, 2]",
    ),
    "a dictionary that grows": asserted(
        "from collections import OrderedDict\nclass Cache(OrderedDict):\n    def put(self, k, v): self[k] = v\n",
        "c = Cache()\nc.put('a', 1)\nassert 'a' in c and len(c) == 1\nc.put('b', 2)\n"
        "assert dict(c) == {'a': 1, 'b': 2}",
    ),
    "a number with arithmetic of its own": asserted(
        "class Mod(int):\n    def __add__(self, o): return Mod((int(self) + int(o)) % 7)\n",
        "assert Mod(5) + Mod(4) == 2 and Mod(5) + 4 == 2 and Mod(5) < 6 and Mod(5) * 2 == 10",
    ),
    "functions of mathematics": asserted(
        "class M:\n    def __divmod__(self, o): return (1, o)\n    def __floor__(self): return 4\n"
        "    def __ceil__(self): return 5\n    def __trunc__(self): return 6\n",
        "import math\nassert divmod(M(), 3) == (1, 3) and (math.floor(M()), math.ceil(M()), math.trunc(M())) == (4, 5, 6)",
    ),
    "views of dictionaries": asserted(
        "def keys(d): return d.keys()\ndef items(d): return d.items()\ndef values(d): return d.values()\n",
        "d = {'b': [1], 'a': [2], 'zz': [3]}\n"
        "assert list(keys(d)) == ['b', 'a', 'zz'] and keys(d) == {'a', 'b', 'zz'}\n"
        "assert list(items(d)) == list(d.items()) and items(d) == d.items() and list(values(d)) == [[1], [2], [3]]",
    ),
    "a dictionary with a factory": asserted(
        "def f(d):\n    d['x'].append(1)\n    return d\n",
        "from collections import defaultdict\nd = defaultdict(list)\nassert f(d) == {'x': [1]} and d['y'] == []",
        "from collections import defaultdict\nd = defaultdict(lambda: [0])\nassert f(d) == {'x': [0, 1]}",
    ),
    "arrays": asserted(
        "import array\ndef f(a):\n    a.append(3)\n    return array.array('d', a)\n",
        "import array\na = array.array('i', [1, 2])\nassert f(a) == array.array('d', [1, 2, 3]) and len(a) == 3",
    ),
    "a generator that raises": asserted(
        "def f():\n    yield 1\n    yield 2\n    yield 3\n    raise ValueError\n",
        "g, found = f(), []\ntry:\n    for x in g: found.append(x)\nexcept ValueError: found.append('error')\n"
        "assert found == [1, 2, 3, 'error'] and list(g) == []",
    ),
    "a generator that is continued": asserted(
        "import itertools\ndef f(): return itertools.count()\n",
        "from itertools import islice\ng = f()\nassert list(islice(g, 4)) == [0, 1, 2, 3] and next(g) == 4\n"
        "assert [x for x, _ in zip(g, range(3))] == [5, 6, 7] and next(g) == 9",
    ),
    "three hundred dependent steps": asserted(
        "def f(x): return x * 3 % 1009\n", "x = 1\nfor _ in range(300): x = f(x)\nassert x == pow(3, 300, 1009)"
    ),
}
