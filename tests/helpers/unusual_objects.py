"""Classes that are right in unusual ways, with their tests."""

from unusual_tests import asserted, module_of

_VECTOR = """
class Vector:
    def __init__(self, x, y): self.x, self.y = x, y
    def __eq__(self, other): return (self.x, self.y) == (other.x, other.y)
    def __hash__(self): return hash((self.x, self.y))
    def __add__(self, other): return Vector(self.x + other.x, self.y + other.y)
    def __mul__(self, k): return Vector(self.x * k, self.y * k)
    __rmul__ = __mul__
    def __neg__(self): return self * -1
    def __abs__(self): return (self.x ** 2 + self.y ** 2) ** 0.5
    def __lt__(self, other): return abs(self) < abs(other)
    def __repr__(self): return f"Vector({self.x}, {self.y})"
    def __bool__(self): return bool(self.x or self.y)
    def __iter__(self): return iter((self.x, self.y))
    def __getitem__(self, index): return (self.x, self.y)[index]
    def __contains__(self, value): return value in (self.x, self.y)
    def __len__(self): return 2
"""
_STACK = """
class EmptyError(Exception):
    def __init__(self, size):
        super().__init__(f"empty at {size}")
        self.size = size
class Stack:
    limit = 3
    def __init__(self, items=()): self._items = list(items)
    @property
    def top(self): return self._items[-1]
    @top.setter
    def top(self, value): self._items[-1] = value
    @classmethod
    def of(cls, *items): return cls(items)
    @staticmethod
    def twice(n): return 2 * n
    def pop(self):
        if not self._items: raise EmptyError(0)
        return self._items.pop()
    def push(self, *items): self._items.extend(items); return self
    def items(self): return self._items
"""

CLASSES = {
    "arithmetic in place": asserted(
        "class C:\n    def __init__(self, n): self.n = n\n    def __iadd__(self, k):\n        self.n += k\n        return self\n",
        "c = C(1)\nd = c\nc += 2\nassert c.n == d.n == 3 and c is d",
    ),
    "linked list": asserted(
        "class Node:\n    def __init__(self, value, next=None): self.value, self.next = value, next\n"
        "def reverse(head):\n    done = None\n    while head: head.next, done, head = done, head, head.next\n    return done\n",
        "head, found = reverse(Node(1, Node(2, Node(3)))), []\nwhile head:\n    found.append(head.value)\n    head = head.next\n"
        "assert found == [3, 2, 1]",
    ),
    "asynchronous contexts and generators": asserted(
        "class C:\n    async def __aenter__(self): return 5\n    async def __aexit__(self, *a): return False\n"
        "async def three():\n    for n in range(3): yield n\n",
        "import asyncio\nasync def main():\n    async with C() as five: return [five, *[n async for n in three()]]\n"
        "assert asyncio.run(main()) == [5, 0, 1, 2]",
    ),
    "causes of exceptions": asserted(
        "class E(Exception): pass\ndef f():\n    try: 1 / 0\n    except ZeroDivisionError as error: raise E('x') from error\n",
        "try: f()\nexcept E as error: assert isinstance(error.__cause__, ZeroDivisionError)\nelse: assert False",
    ),
    "own equality": asserted(
        _VECTOR,
        "assert Vector(1, 2) == Vector(1, 2) and Vector(1, 2) != Vector(2, 1)",
        "assert len({Vector(1, 2), Vector(1, 2)}) == 1",
    ),
    "own arithmetic": asserted(
        _VECTOR,
        "assert Vector(1, 2) * 3 == Vector(3, 6) == 3 * Vector(1, 2)",
        "assert (Vector(1, 2) * 3 * 2).y == 12",
        "assert -Vector(1, 2) + Vector(1, 2) == Vector(0, 0)",
    ),
    "own order": asserted(
        _VECTOR,
        "assert sorted([Vector(3, 4), Vector(1, 0)])[0] == Vector(1, 0)",
        "assert max(Vector(1, 1), Vector(2, 2)).x == 2",
    ),
    "own size, truth and items": asserted(
        _VECTOR,
        "assert len(Vector(1, 2)) == 2 and not Vector(0, 0) and Vector(0, 1)",
        "x, y = Vector(1, 2)\nassert (x, y) == (1, 2) and Vector(5, 6)[1] == 6",
        "assert 2 in Vector(1, 2) and 3 not in Vector(1, 2)",
    ),
    "own text": asserted(
        _VECTOR, "assert repr(Vector(1, 2)) == 'Vector(1, 2)' and f'{Vector(1, 2)}' == 'Vector(1, 2)'"
    ),
    "own absolute value": asserted(_VECTOR, "assert abs(abs(Vector(3, 4)) - 5) < 1e-9"),
    "objects in containers": asserted(
        _VECTOR + "def both(): return [Vector(1, 2), {'a': Vector(3, 4)}]\n",
        "assert both() == [Vector(1, 2), {'a': Vector(3, 4)}]",
    ),
    "properties": asserted(_STACK, "s = Stack([1, 2])\ns.top = 7\nassert s.top == 7 and s.items() == [1, 7]"),
    "class and static methods": asserted(
        _STACK,
        "assert Stack.of(1, 2).pop() == 2 and Stack.twice(4) == 8 == Stack().twice(4)",
        "assert Stack.limit == 3",
    ),
    "methods that return their object": asserted(_STACK, "assert Stack().push(1).push(2, 3).items() == [1, 2, 3]"),
    "own exceptions": module_of(
        _STACK,
        "import pytest\nfrom solution import Stack, EmptyError\ndef test():\n"
        "    with pytest.raises(EmptyError, match='empty at 0') as found:\n        Stack().pop()\n"
        "    assert found.value.size == 0 and isinstance(found.value, EmptyError)\n",
    ),
    "exceptions of unittest": module_of(
        _STACK,
        "import unittest\nfrom solution import *\nclass Case(unittest.TestCase):\n"
        "    def setUp(self): self.stack = Stack([1])\n    def test_error(self):\n"
        "        self.stack.pop()\n        self.assertRaises(EmptyError, self.stack.pop)\n"
        "    def test_pop(self):\n        self.assertEqual(self.stack.pop(), 1)\n"
        "        self.assertIsInstance(self.stack, Stack)\n",
    ),
    "dataclass": asserted(
        "import dataclasses\n@dataclasses.dataclass(frozen=True, order=True)\nclass Point:\n    x: int\n"
        "    y: int = 0\n",
        "assert Point(1) == Point(1, 0) and Point(1) < Point(2)",
        "import dataclasses\ntry:\n    Point(1).x = 2\nexcept dataclasses.FrozenInstanceError:\n    done = True\nassert done",
        "assert str(Point(1, 2)) == 'Point(x=1, y=2)'",
    ),
    "enum": asserted(
        "import enum\nclass Color(enum.Enum):\n    RED = 1\n    BLUE = 2\ndef mix(a, b): return Color.BLUE\n",
        "assert mix(Color.RED, Color.RED) is Color.BLUE and Color['RED'] == Color(1)",
        "assert [each.name for each in Color] == ['RED', 'BLUE'] and Color.RED.value == 1",
    ),
    "integer enum": asserted(
        "import enum\nclass Level(enum.IntEnum):\n    LOW = 1\n    HIGH = 2\ndef top(): return Level.HIGH\n",
        "assert top() == 2 and top() > Level.LOW and top() + 1 == 3",
    ),
    "named tuple": asserted(
        "from collections import namedtuple\nPair = namedtuple('Pair', 'a b')\ndef pair(): return Pair(1, 2)\n",
        "assert pair() == (1, 2) and pair().b == 2 and isinstance(pair(), tuple)",
        "a, b = pair()\nassert a + b == 3",
    ),
    "singleton": asserted(
        "class One:\n    it = None\n    def __new__(cls):\n        cls.it = cls.it or super().__new__(cls)\n"
        "        return cls.it\n",
        "assert One() is One()",
    ),
    "inheritance": asserted(
        "class Animal:\n    def say(self): return self.sound\nclass Dog(Animal):\n    sound = 'Wuff'\n",
        "assert Dog().say() == 'Wuff' and isinstance(Dog(), Animal) and issubclass(Dog, Animal)",
        "assert Dog().__class__.__name__ == 'Dog'",
    ),
    "context manager": asserted(
        "class Suppress:\n    def __init__(self, kind): self.kind, self.ended = kind, False\n"
        "    def __enter__(self): return self\n    def __exit__(self, kind, error, trace):\n"
        "        self.ended = True\n        return kind is not None and issubclass(kind, self.kind)\n",
        "with Suppress(ValueError) as found:\n    raise ValueError('x')\nassert found.ended",
        "try:\n    with Suppress(KeyError):\n        raise ValueError('x')\nexcept ValueError:\n    done = 1\nassert done",
    ),
    "generator as context": asserted(
        "import contextlib\nlog = []\ndef logged(): return log\n@contextlib.contextmanager\ndef tag(name):\n"
        "    log.append('<' + name)\n    try: yield name.upper()\n    finally: log.append('>')\n",
        "with tag('p') as found:\n    assert found == 'P'\nassert logged() == ['<p', '>']",
    ),
    "subclass of dict": asserted(
        "class Default(dict):\n    def __missing__(self, key): return 0\ndef count(text):\n"
        "    found = Default()\n    for each in text: found[each] += 1\n    return found\n",
        "assert count('aab') == {'a': 2, 'b': 1} and count('')['x'] == 0",
    ),
    "deleted attributes": asserted("class Box: pass\n", "b = Box()\nb.x = 1\ndel b.x\nassert not hasattr(b, 'x')"),
    "copies": asserted(
        _STACK,
        "import copy\na = Stack([1])\nb = copy.deepcopy(a)\nb.push(2)\nassert a.items() == [1] and b.items() == [1, 2]",
    ),
    "slices": asserted(
        "class Range:\n    def __getitem__(self, key): return (key.start, key.stop) if isinstance(key, slice) else key\n",
        "assert Range()[1:3] == (1, 3) and Range()[5] == 5",
    ),
}
