"""Right programs that use functions, classes and objects of a test, with their tests."""

from unusual_tests import asserted

CALLBACKS = {
    "a linked list of the test": asserted(
        "def reverse(head):\n    done = None\n    while head:\n        next = head.next\n        head.next = done\n"
        "        done, head = head, next\n    return done\n",
        "class Node:\n    def __init__(self, value, next=None): self.value, self.next = value, next\n"
        "head, found = reverse(Node(1, Node(2, Node(3)))), []\nwhile head:\n    found.append(head.value)\n    head = head.next\n"
        "assert found == [3, 2, 1]",
    ),
    "a lambda": asserted(
        "def apply(f, x): return [f(each) for each in x]\n", "assert apply(lambda n: n * n, [1, 2, 3]) == [1, 4, 9]"
    ),
    "builtin functions": asserted(
        "def apply(f, x): return [f(each) for each in x]\n",
        "assert apply(len, ['a', 'bc']) == [1, 2]",
        "assert apply(int, ['1', '2']) == [1, 2]",
        "assert apply(str.upper, ['a']) == ['A']",
    ),
    "a key": asserted(
        "def order(x, key): return sorted(x, key=key)\n",
        "assert order([3, -5, 1], key=lambda n: -abs(n)) == [-5, 3, 1]",
    ),
    "composition": asserted(
        "def compose(*fs):\n    def call(x):\n        for f in reversed(fs): x = f(x)\n        return x\n    return call\n",
        "assert compose(lambda n: n + 1, lambda n: n * 2)(5) == 11",
    ),
    "a decorator": asserted(
        "import functools\ndef memoize(f):\n    known = {}\n    @functools.wraps(f)\n    def call(*a):\n"
        "        if a not in known: known[a] = f(*a)\n        return known[a]\n    return call\n",
        "calls = []\n@memoize\ndef fib(n):\n    calls.append(n)\n    return n if n < 2 else fib(n - 1) + fib(n - 2)\n"
        "assert fib(8) == 21 and len(calls) == 9 and fib.__name__ == 'fib'",
    ),
    "a function that fails": asserted(
        "def attempt(f, times):\n    for _ in range(times):\n        try: return f()\n"
        "        except ValueError: pass\n    raise RuntimeError('gave up')\n",
        "calls = []\ndef f():\n    calls.append(1)\n    if len(calls) < 3: raise ValueError('no')\n    return 'yes'\n"
        "assert attempt(f, 5) == 'yes' and len(calls) == 3",
        "def f(): raise KeyError('mine')\ntry: attempt(f, 2)\nexcept KeyError as error:\n    assert error.args == ('mine',)\n"
        "else: assert False",
    ),
    "an exception of the test": asserted(
        "def guard(f, kind):\n    try: return f()\n    except kind as error: return str(error)\n",
        "class Mine(Exception): pass\ndef f(): raise Mine('hello')\nassert guard(f, Mine) == 'hello'",
    ),
    "an object of the test": asserted(
        "def length(node):\n    n = 0\n    while node:\n        n += 1\n        node = node.next\n    return n\n",
        "class Node:\n    def __init__(self, next=None): self.next = next\nassert length(Node(Node(Node()))) == 3",
    ),
    "a class of the test": asserted(
        "def build(kind, n): return [kind(k) for k in range(n)]\n",
        "class Item:\n    def __init__(self, n): self.n = n\nassert [each.n for each in build(Item, 3)] == [0, 1, 2]",
    ),
    "an object that comes back": asserted(
        "def same(x): return x\n", "class Item: pass\ni = Item()\nassert same(i) is i"
    ),
    "an object that it changes": asserted(
        "def fill(x):\n    x.value = 5\n    x.items.append(1)\n    x.add(7)\n",
        "class Item:\n    items = ()\n    def add(self, n): self.sum = n\n"
        "class Quiet(Item):\n    class items:\n        append = staticmethod(lambda n: None)\n"
        "i = Quiet()\nfill(i)\nassert i.value == 5 and i.sum == 7",
    ),
    "operators of the test's objects": asserted(
        "def total(x, start): \n    for each in x: start = start + each\n    return start\n",
        "class M:\n    def __init__(self, n): self.n = n\n    def __add__(self, o): return M(self.n + o.n)\n"
        "assert total([M(1), M(2)], M(0)).n == 3",
    ),
    "a generator of the test": asserted(
        "def first(x, n): return [value for value, _ in zip(x, range(n))]\n",
        "import itertools\nassert first(itertools.count(), 3) == [0, 1, 2]",
        "assert first((n * n for n in range(9)), 3) == [0, 1, 4]",
    ),
    "a file of the test": asserted(
        "def lines(file): return [line.strip() for line in file]\n",
        "import io\nassert lines(io.StringIO('a\\nb')) == ['a', 'b']",
    ),
    "a mock": asserted(
        "def notify(send, names):\n    for each in names: send(each, loud=True)\n",
        "from unittest.mock import Mock, call\nsend = Mock()\n"
        "notify(send, ['a', 'b'])\nassert send.call_args_list == [call('a', loud=True), call('b', loud=True)]",
    ),
    "listeners": asserted(
        "class Bus:\n    def __init__(self): self.listeners = []\n    def on(self, f): self.listeners.append(f); return f\n"
        "    def emit(self, *a):\n        for f in self.listeners: f(*a)\n",
        "found = []\nb = Bus()\nb.on(found.append)\n@b.on\ndef twice(n): found.append(2 * n)\nb.emit(4)\nassert found == [4, 8]",
    ),
}
