"""Unusual results and outputs of right programs, with their tests."""

from unusual_tests import asserted, called, printed

_BIG = "9" * 5_000
VALUES = {
    "long texts": asserted(
        "def twice(text): return text * 2\n", "assert len(twice(twice('x' * 1_000_000))) == 4_000_000"
    ),
    "changed containers in arguments": asserted(
        "def f(grid): grid[0][0] = 9\n", "row = [1, 2]\ngrid = [row]\nf(grid)\nassert row == [9, 2] and grid == [row]"
    ),
    "changed arrays": asserted("def f(x): x[0] = 9\n", "import numpy\nx = numpy.zeros(2)\nf(x)\nassert x[0] == 9"),
    "time zones and identifiers": asserted(
        "import datetime, uuid\ndef now(): return datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)\ndef name(): return uuid.UUID(int=5)\n",
        "import datetime, uuid\nassert now() == datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc) and name() == uuid.UUID(int=5)",
    ),
    "huge integers": asserted(
        "def power(n): return 10 ** n\n", "assert power(5000) == 10 ** 5000 and len(str(power(5000))) == 5001"
    ),
    "huge integer as a result": called("def big(): return int('9' * 5000)\n", ("big", [], 10**5000 - 1)),
    "numpy arrays": asserted(
        "import numpy as np\ndef ones(n): return np.ones(n)\ndef mean(x): return np.mean(x)\n",
        "import numpy as np\nassert np.array_equal(ones(3), [1, 1, 1]) and ones(3).shape == (3,)",
        "import numpy as np\nnp.testing.assert_allclose(ones((2, 2)) * 2, [[2, 2], [2, 2]])\nassert mean(np.arange(3)) == 1.0",
    ),
    "numpy scalars as results": called(
        "import numpy as np\ndef top(x): return np.max(x)\ndef all(x): return list(np.array(x))\ndef yes(x): return np.bool_(True)\n",
        ("top", [[1, 3, 2]], 3),
        ("all", [[1, 2]], [1, 2]),
        ("yes", [1], True),
    ),
    "fractions and decimals": asserted(
        "from fractions import Fraction\nfrom decimal import Decimal\ndef half(): return Fraction(1, 2)\ndef tenth(): return Decimal('0.1')\n",
        "from fractions import Fraction\nassert half() == Fraction(1, 2) == 0.5",
        "from decimal import Decimal\nassert tenth() * 3 == Decimal('0.3')",
    ),
    "complex numbers": asserted("def root(): return (-1 + 0j) ** 0.5\n", "assert abs(root() - 1j) < 1e-9"),
    "sets": asserted(
        "def letters(t): return set(t)\ndef frozen(t): return frozenset(t)\n",
        "assert letters('aab') == {'a', 'b'} and frozen('a') == {'a'}",
        "assert letters('ab').issuperset('a') and {frozen('a'): 1}[frozenset('a')] == 1",
    ),
    "bytes": asserted(
        "def raw(t): return t.encode()\ndef more(b): b.extend(b'!')\n",
        "assert raw('ä') == b'\\xc3\\xa4' and raw('a').hex() == '61'",
        "b = bytearray(b'a')\nmore(b)\nassert b == b'a!'",
    ),
    "NaN and infinity": asserted(
        "def odd(): return [float('nan'), float('inf')]\n",
        "import math\nassert math.isnan(odd()[0]) and odd()[1] == math.inf",
    ),
    "NaN as a result": called(
        "def odd(): return [float('nan'), float('inf')]\n", ("odd", [], [float("nan"), float("inf")])
    ),
    "counters and deques": asserted(
        "from collections import *\ndef count(t): return Counter(t)\ndef queue(x): return deque(x, 3)\ndef groups(x):\n    d = defaultdict(list)\n"
        "    for each in x: d[len(each)].append(each)\n    return d\n",
        "assert count('aab').most_common(1) == [('a', 2)] and list(queue([1, 2])) == [1, 2]",
        "assert groups(['a', 'bb', 'c']) == {1: ['a', 'c'], 2: ['bb']}",
    ),
    "integer keys": called(
        "def squares(n): return {k: k * k for k in range(n)}\n",
        ("squares", [2], {"0": 0, "1": 1}),
        ("squares", [2], {0: 0, 1: 1}),
    ),
    "tuples for lists": called("def pair(): return (1, (2, 3))\n", ("pair", [], [1, [2, 3]])),
    "named tuple as a result": called(
        "from collections import namedtuple\nP = namedtuple('P', 'a b')\ndef pair(): return P(1, 2)\n",
        ("pair", [], [1, 2]),
    ),
    "decimal as a result": called(
        "from decimal import Decimal\nfrom fractions import Fraction\ndef f(): return [Decimal('0.5'), Fraction(1, 4)]\n",
        ("f", [], [0.5, 0.25]),
    ),
    "tolerance in lists": called(
        "def thirds(): return [[1 / 3], {'a': 2 / 3}]\n", ("thirds", [], [[0.33333333], {"a": 0.66666667}])
    ),
    "method of Solution": called(
        "class Solution:\n    def __init__(self): self.n = 1\n    def f(self, x): return x + self.n\n",
        ("Solution.f", [1], 2),
    ),
    "dates": asserted(
        "import datetime\ndef day(): return datetime.date(2024, 2, 29)\n",
        "import datetime\nassert day() + datetime.timedelta(1) == datetime.date(2024, 3, 1) and day().year == 2024",
    ),
    "nested values": asserted(
        "def nest(n):\n    x = []\n    for _ in range(n): x = [x]\n    return x\n",
        "x = nest(100)\nfor _ in range(100): x = x[0]\nassert x == []",
    ),
}

PRINTERS = {
    "buffer": printed(
        "import sys\nn = int(sys.stdin.buffer.readline())\nsys.stdout.buffer.write(b'%d\\n' % (n + 1))\n",
        ("1\n", "2\n"),
    ),
    "descriptor": printed("import os\nos.write(1, str(int(os.read(0, 99)) + 1).encode())\n", ("1\n", "2\n")),
    "file of standard input": printed("print(sum(map(int, open(0))))\n", ("1\n2\n", "3\n")),
    "no end of line": printed("print(input(), end='')\n", ("a\n", "a\n")),
    "trailing white space": printed("for n in range(3): print(n, end=' ')\nprint('\\n\\n')\n", ("", "0 1 2\n")),
    "Windows line ends": printed("import sys\nsys.stdout.write('a\\r\\nb\\r\\n')\n", ("", "a\nb\n")),
    "fewer digits": printed("print(f'{1 / 3:.7f}', 2.5)\n", ("", "0.333333333333 2.500000000\n")),
    "an integer with a point": printed("print(float(input()))\n", ("3\n", "3\n")),
    "huge integer": printed("print(10 ** 5000 - 1)\n", ("", f"{_BIG}\n")),
    "huge integer as input": printed("print(int(input()) + 1)\n", (f"{_BIG}\n", "1" + "0" * 5_000)),
    "thread with a larger stack": printed(
        "import sys, threading\nsys.setrecursionlimit(10**6)\nthreading.stack_size(64 << 20)\ndef depth(n): return 0 if n == 0 else 1 + depth(n - 1)\n"
        "thread = threading.Thread(target=lambda: print(depth(20_000)))\nthread.start()\nthread.join()\n",
        ("", "20000\n"),
    ),
    "main function": printed(
        "def main():\n    n = int(input())\n    print(*[n] * 3, sep=',')\nif __name__ == '__main__':\n    main()\n",
        ("7\n", "7,7,7\n"),
    ),
    "exit with status 0": printed("import sys\nprint(1)\nsys.exit(0)\nprint(2)\n", ("", "1\n")),
    "future import": printed(
        "'''A program.'''\nfrom __future__ import annotations\nclass A:\n    b: B\nprint(__doc__)\n",
        ("", "A program.\n"),
    ),
    "replaced output": printed(
        "import io, sys\nsys.stdout = io.TextIOWrapper(sys.stdout.buffer, write_through=True)\nprint('x')\n", ("", "x")
    ),
    "other case": printed("print('YES')\n", ("", "YES")),
}
