"""Snippets that `benchmarks/sandbox/speed.py` runs.

`<n>` represents a whole number that differs from run to run, so that no cache of results can answer for the code.
"""

# What each snippet prints, so that an engine that fails fast is not taken for a fast one. None: the exception below.
SNIPPETS: dict[str, tuple[str, str | None]] = {
    "print": ("print(1 + 1)\n", "2"),
    "sympy": ("from sympy import symbols, solve\nx = symbols('x')\nprint(solve(x**2 - 5*x + 6, x))\n", "[2, 3]"),
    "exception": ("def f(x):\n    return 10 / x\n\ndef g(x):\n    return f(x - 1)\n\nprint(g(1))\n", None),
    "numpy": (
        "import numpy as np\na = np.array([[2.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 1.0, 4.0]])\n"
        "print(round(np.linalg.det(a), 6))\n",
        "18.0",
    ),
    "scipy": (
        "from scipy.optimize import root\nfound = root(lambda x: x**3 - 2*x - 5, 2.0)\nprint(round(found.x[0], 6))\n",
        "2.094551",
    ),
    "loop": ("total = 0\nfor i in range(10**6):\n    total += i\nprint(total)\n", "499999500000"),
}
EXCEPTION = "ZeroDivisionError: division by zero"

# Kinds of code that the warm-up has run often, with other numbers: some small, some large, like those below.
SEEN: dict[str, str] = {
    "print": "print(<n> + 1)\n",
    "sympy solve": "from sympy import symbols, solve\nx = symbols('x')\nprint(solve(x**2 - (<n> + 3)*x + 3*<n>, x))\n",
    "exception": "def f(x):\n    return <n> / x\n\ndef g(x):\n    return f(x - <n>)\n\nprint(g(<n>))\n",
    "numpy determinant": "import numpy as np\na = np.array([[<n>, 1.0], [2.0, 3.0]])\n"
    "print(np.linalg.det(a), np.linalg.solve(a, np.array([1.0, <n>])))\n",
    "scipy root": "from scipy import optimize\n"
    "print(optimize.root_scalar(lambda x: x * x - <n>, bracket=[0, <n>]).root)\n"
    "print(optimize.fsolve(lambda x: x * x - <n>, 1.0))\n",
    "scipy minimize": "from scipy import optimize, integrate\n"
    "print(optimize.minimize(lambda x: (x[0] - <n>) ** 2, [0.0]).x, integrate.quad(lambda x: x * x, 0, <n>)[0])\n",
    "function": "def total(values):\n    result = 0\n    for value in values:\n        result += value * 2 / 3\n"
    "    return result\nprint(total([1, 2, <n>]), f'{total([<n>]):.2f}', round(<n> / 4), <n> // 2, <n> ** 20)\n",
    "class": "class Point:\n    def __init__(self, x, y):\n        self.x, self.y = x, y\n    def __repr__(self):\n"
    "        return f'Point({self.x}, {self.y})'\nprint([Point(i, <n>) for i in range(3)])\n",
    "standard library": "import math, itertools, collections, fractions, statistics, re\n"
    "print(math.comb(<n> + 5, 2), list(itertools.permutations([1, 2, <n>], 2))[:2])\n"
    "print(fractions.Fraction(1, <n>) + fractions.Fraction(1, 6), collections.Counter('abca' * <n>).most_common(1))\n"
    "print(statistics.mean([1, 2, <n>]), re.findall(r'[0-9]+', 'a<n>b22'))\n",
    "recursion": "import functools\n@functools.lru_cache(maxsize=None)\ndef fibonacci(n):\n"
    "    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)\nprint(fibonacci(<n> + 50))\n",
    "sympy system": "from sympy import symbols, solve\nx, y = symbols('x y')\n"
    "print(solve([x + y - <n>, x - y - 1], [x, y]), solve(x**3 - 2*x - <n>, x)[0].evalf())\n",
    "sympy algebra": "from sympy import symbols, simplify, expand, factor, diff, integrate\nx, y = symbols('x y')\n"
    "print(simplify((x**2 - <n>**2) / (x - <n>)), expand((x + <n>)**4), factor(x**2 - <n>**2), diff(x**<n>, x))\n"
    "print(integrate(x**<n>, x))\n",
    "sympy numbers": "import sympy as sp\nn = sp.Symbol('n', integer=True, positive=True)\n"
    "print(sp.summation(n, (n, 1, <n>)), sp.factorint(360 * <n>), sp.isprime(<n>), sp.gcd(12 * <n>, 18))\n"
    "print(sp.latex(sp.Rational(1, <n>) * n**2), sp.N(sp.E, 5), sp.binomial(<n>, 3), sp.solveset(n**2 - <n>**2, n))\n",
    "sympy inequality": "import sympy as sp\nt = sp.Symbol('t')\n"
    "print(sp.solve_univariate_inequality(t**2 < <n>**2, t))\n",
}

# Code that the warm-up has not run, nor anything made after it: warmed up with it, it would measure nothing any more.
UNSEEN: dict[str, str] = {
    "word puzzle": """\
text = "the quick brown fox jumps over the lazy dog " * <n>
vowels = sum(letter in "aeiou" for letter in text)
longest = max(text.split(), key=len)
shifted = "".join(chr((ord(c) - 97 + <n>) % 26 + 97) if c.isalpha() else c for c in text[:60])
print(vowels, longest, shifted.title(), text.count("o"), shifted[::-1].replace(" ", "_"))
""",
    "dataclass": """\
from dataclasses import dataclass, field, asdict
@dataclass(order=True)
class Item:
    price: float
    name: str = field(compare=False)
    tags: list = field(default_factory=list, compare=False)
items = [Item((i * 7) % <n> + 0.5, f"item{i}") for i in range(20)]
items.sort()
print(items[0], asdict(items[-1]), sum(item.price for item in items))
""",
    "inclusion and exclusion": """\
from itertools import combinations
from math import lcm, prod
divisors = [2, 3, 5, 7]
limit = 100 * <n>
count = sum((-1) ** (k + 1) * (limit // lcm(*chosen)) for k in range(1, 5) for chosen in combinations(divisors, k))
print(count, prod(divisors), limit - count)
""",
    "digits of pi": """\
from decimal import Decimal, getcontext
getcontext().prec = 20 + <n>
def arctan_inverse(x):
    power = Decimal(1) / x
    total, k = power, 1
    while abs(power) > Decimal(10) ** -(getcontext().prec):
        power /= -x * x
        k += 2
        total += power / k
    return total
print(4 * (4 * arctan_inverse(5) - arctan_inverse(239)))
""",
    "generator pipeline": """\
def collatz(n):
    while n != 1:
        yield n
        n = n // 2 if n % 2 == 0 else 3 * n + 1
    yield 1
def squares(values):
    for value in values:
        yield value * value % 97
lengths = {start: len(list(collatz(start))) for start in range(<n>, <n> + 20)}
print(max(lengths, key=lengths.get), sum(squares(collatz(27))))
""",
    "n queens": """\
def place(row, columns, up, down, size):
    if row == size:
        return 1
    count = 0
    for column in range(size):
        if column in columns or row + column in up or row - column in down:
            continue
        count += place(row + 1, columns | {column}, up | {row + column}, down | {row - column}, size)
    return count
print(place(0, frozenset(), frozenset(), frozenset(), 5), <n>)
""",
    "regular expressions": """\
import re
pattern = re.compile(r"(?P<amount>\\d+(?:\\.\\d+)?)\\s*(?P<unit>kg|miles|dollars)\\b")
text = "Ann paid <n>.5 dollars for 3 kg of apples and drove 12 miles"
for match in pattern.finditer(text):
    print(match.group("unit"), float(match.group("amount")) * 2)
print(re.sub(r"\\b(\\w)(\\w*)", lambda m: m.group(1).upper() + m.group(2), text), re.split(r"\\W+", text)[:4])
""",
    "json round trip": """\
import json
record = {"name": "run", "values": [i / <n> for i in range(1, 20)], "nested": {"flag": True, "none": None}}
text = json.dumps(record, indent=2, sort_keys=True)
back = json.loads(text)
print(len(text), back == record, back["values"][3])
""",
    "class hierarchy": """\
from abc import ABC, abstractmethod
from functools import total_ordering
@total_ordering
class Shape(ABC):
    @abstractmethod
    def area(self): ...
    def __eq__(self, other): return self.area() == other.area()
    def __lt__(self, other): return self.area() < other.area()
class Square(Shape):
    def __init__(self, side): self.side = side
    @property
    def diagonal(self): return self.side * 2 ** 0.5
    def area(self): return self.side ** 2
class Circle(Shape):
    def __init__(self, radius): self.radius = radius
    def area(self): return 3.14159 * self.radius ** 2
shapes = [Square(<n>), Circle(<n>), Square(<n> + 1)]
print(min(shapes).area(), type(max(shapes)).__name__, f"{shapes[0].diagonal:.3f}", Square(2) >= Circle(1))
""",
    "dynamic programming": """\
def ways(amount, coins):
    table = [1] + [0] * amount
    for coin in coins:
        for value in range(coin, amount + 1):
            table[value] += table[value - coin]
    return table[amount]
def subsequence(a, b):
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            table[i + 1][j + 1] = table[i][j] + 1 if x == y else max(table[i][j + 1], table[i + 1][j])
    return table[-1][-1]
print(ways(100 + <n>, [1, 5, 10, 25]), subsequence("reinforcement", "learning<n>"))
""",
    "shortest path": """\
import heapq
from collections import defaultdict, deque
graph = defaultdict(list)
for i in range(30):
    graph[i].append(((i * 7 + <n>) % 30, i % 5 + 1))
    graph[i].append(((i + 1) % 30, 3))
distance, queue = {0: 0}, [(0, 0)]
while queue:
    length, node = heapq.heappop(queue)
    for neighbour, weight in graph[node]:
        if length + weight < distance.get(neighbour, 10**9):
            distance[neighbour] = length + weight
            heapq.heappush(queue, (length + weight, neighbour))
print(distance[17], deque(sorted(distance.values()), maxlen=3))
""",
    "calendar": """\
import calendar
from datetime import date, timedelta
start = date(2000 + <n>, 1, 31)
fridays = [d for d in (start + timedelta(days=k) for k in range(400)) if d.weekday() == 4 and d.day == 13]
print(fridays, calendar.isleap(start.year), calendar.monthrange(start.year, 2))
""",
    "fractions": """\
from fractions import Fraction
def egyptian(value):
    parts = []
    while value:
        unit = -(-value.denominator // value.numerator)
        parts.append(unit)
        value -= Fraction(1, unit)
    return parts
print(egyptian(Fraction(<n>, <n> + 8)), sum(Fraction(1, k) for k in range(1, 20)).limit_denominator(<n> + 50))
""",
    "sympy number theory": """\
from sympy import totient, divisors, mod_inverse, n_order, primitive_root, nextprime
p = nextprime(100 * <n>)
print(p, totient(12 * <n>), divisors(<n> * 60)[:6], mod_inverse(<n>, p), primitive_root(p), n_order(2, p))
""",
    "sympy congruences": """\
from sympy.ntheory.modular import crt
from sympy.ntheory.residue_ntheory import sqrt_mod, discrete_log
from sympy import continued_fraction_convergents, continued_fraction_iterator, sqrt
print(crt([3, 5, 7], [<n> % 3, <n> % 5, <n> % 7]), sqrt_mod(<n> * <n> % 101, 101), discrete_log(101, <n>, 2))
convergents = continued_fraction_convergents(continued_fraction_iterator(sqrt(<n>**2 + 2)))
print([next(convergents) for _ in range(5)])
""",
    "sympy geometry": """\
from sympy import Point, Triangle, Circle, Line
t = Triangle(Point(0, 0), Point(<n>, 0), Point(0, 4))
print(t.area, t.circumradius, t.incenter, t.is_right())
print(Circle(Point(0, 0), <n>).intersection(Line(Point(0, 0), Point(1, 1))))
""",
    "sympy series": """\
from sympy import symbols, series, sin, exp
x = symbols('x')
print(series(exp(<n> * x) * sin(x), x, 0, 5))
""",
    "sympy trigonometry": """\
from sympy import symbols, sin, cos, tan, pi, trigsimp, expand_trig, solveset, Interval
t = symbols('t', real=True)
print(trigsimp(sin(<n> * t)**2 + cos(<n> * t)**2), expand_trig(sin(2 * t + <n>)), tan(pi / <n>).evalf(8))
print(solveset(<n> * sin(t) - 1, t, Interval(0, 2 * pi)))
""",
    "sympy matrices": """\
from sympy import Matrix, symbols
x = symbols('x')
m = Matrix([[2, 1, 0], [1, <n>, 1], [0, 1, 2]])
print(m.inv(), m.rank(), m.charpoly(x).as_expr(), m.rref())
print(Matrix([[<n>, 1], [2, 3]]).eigenvals(), Matrix([1, 2, <n>]).cross(Matrix([3, 2, 1])).T)
""",
    "sympy inequalities": """\
from sympy import symbols, reduce_inequalities, solve, Abs
x = symbols('x', real=True)
print(reduce_inequalities([x**2 - <n> <= 0, x >= 1], x))
print(solve(Abs(x - <n>) < 2, x))
""",
    "sympy recurrence": """\
from sympy import Function, rsolve, symbols
n = symbols('n', integer=True)
y = Function('y')
print(rsolve(y(n + 1) - 3 * y(n) - <n>, y(n), {y(0): 1}))
""",
    "sympy differential equation": """\
from sympy import Function, dsolve, Eq, symbols
t = symbols('t')
f = Function('f')
print(dsolve(Eq(f(t).diff(t), -<n> * f(t)), f(t)))
""",
    "sympy polynomials": """\
from sympy import Poly, symbols, resultant, discriminant, gcd, apart, div, real_roots
x = symbols('x')
p = Poly(x**4 - <n> * x**2 + 1, x)
print(p.discriminant(), resultant(p, p.diff(x)), apart(1 / (x**2 - <n>**2), x), div(x**3 + <n>, x - 1))
print(gcd(x**2 - <n>**2, x**2 - 2 * <n> * x + <n>**2), len(real_roots(p)), discriminant(x**2 + <n> * x + 1, x))
""",
    "numpy fft": """\
import numpy as np
signal = np.sin(np.linspace(0, 2 * np.pi * <n>, 256, endpoint=False))
spectrum = np.abs(np.fft.rfft(signal))
print(spectrum.argmax(), np.allclose(np.fft.ifft(np.fft.fft(signal)).real, signal), np.convolve([1, 2, 3], [0, 1, <n>]))
""",
    "numpy linear algebra": """\
import numpy as np
a = np.arange(1.0, 17.0).reshape(4, 4) + np.diag([<n>, 2, 3, 4])
values, vectors = np.linalg.eig(a)
u, s, vh = np.linalg.svd(a)
q, r = np.linalg.qr(a)
print(values.real.round(3), s.round(3), np.linalg.norm(q @ r - a) < 1e-9, np.linalg.inv(a).trace().round(6))
""",
    "numpy simulation": """\
import numpy as np
rng = np.random.default_rng(<n>)
walk = rng.choice([-1, 1], size=(50, 100)).cumsum(axis=1)
dice = rng.integers(1, 7, size=(1000, 2)).sum(axis=1)
print(walk.max(axis=1).mean(), np.bincount(dice)[2:], np.percentile(rng.normal(size=500), [5, 50, 95]).round(3))
""",
    "scipy statistics": """\
from scipy import stats
print(stats.binom.pmf(3, <n>, 0.5), stats.norm.cdf(<n> / 10), stats.poisson(<n>).sf(4))
print(stats.linregress([1, 2, 3, 4], [2, 4, 5, <n>]).slope, stats.ttest_ind([1, 2, 3, 4], [2, 3, 4, <n>]).pvalue)
""",
    "scipy optimize": """\
import numpy as np
from scipy.optimize import linprog, curve_fit
best = linprog([-1, -2], A_ub=[[1, 1], [1, 3]], b_ub=[<n>, 2 * <n>], method="highs")
x = np.linspace(0, 4, 30)
fitted, _ = curve_fit(lambda x, a, b: a * np.exp(-b * x), x, <n> * np.exp(-0.7 * x))
print(best.fun, fitted.round(4))
""",
    "scipy integrate": """\
import numpy as np
from scipy.integrate import solve_ivp, dblquad, simpson
solution = solve_ivp(lambda t, y: [y[1], -<n> * y[0]], (0, 1), [1.0, 0.0])
print(solution.y[0, -1].round(4), dblquad(lambda y, x: x * y, 0, <n>, 0, 1)[0], simpson(np.arange(5) ** 2, dx=<n>))
""",
    "statistics and lists": """\
import statistics
from itertools import accumulate, groupby
from operator import itemgetter
rows = [(name, (i * 37 + <n>) % 50) for i, name in enumerate("abcab" * 8)]
table = {key: [v for _, v in group] for key, group in groupby(sorted(rows), key=itemgetter(0))}
print({k: (statistics.median(v), round(statistics.stdev(v), 3)) for k, v in table.items()})
print(list(accumulate(table["a"], max))[-1], statistics.quantiles(table["b"], n=4))
print(sum(map(sum, zip(*[iter(range(12))] * 3))))
""",
}

# CPU-bound programs: `<n>` is the amount of work.
PROGRAMS: dict[str, tuple[str, int]] = {
    "n-body": (
        """\
def simulate(steps):
    bodies = [
        [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 39.47],
        [4.84, -1.16, -0.10, 0.606, 2.81, -0.02, 0.037],
        [8.34, 4.12, -0.40, -1.01, 1.82, 0.008, 0.011],
        [12.89, -15.11, -0.22, 1.08, 0.868, -0.010, 0.0017],
        [15.37, -25.9, 0.179, 0.979, 0.594, -0.034, 0.0020],
    ]
    pairs = [(a, b) for i, a in enumerate(bodies) for b in bodies[i + 1:]]
    for _ in range(steps):
        for a, b in pairs:
            dx, dy, dz = a[0] - b[0], a[1] - b[1], a[2] - b[2]
            pull = 0.01 * (dx * dx + dy * dy + dz * dz) ** -1.5
            to_a, to_b = b[6] * pull, a[6] * pull
            a[3] -= dx * to_a
            a[4] -= dy * to_a
            a[5] -= dz * to_a
            b[3] += dx * to_b
            b[4] += dy * to_b
            b[5] += dz * to_b
        for body in bodies:
            body[0] += 0.01 * body[3]
            body[1] += 0.01 * body[4]
            body[2] += 0.01 * body[5]
    return bodies[0][0]
print(simulate(<n>))
""",
        10_000,
    ),
    "sieve": (
        """\
def primes(limit):
    marks = bytearray([1]) * (limit + 1)
    count = 0
    for number in range(2, limit + 1):
        if marks[number]:
            count += 1
            for multiple in range(number * number, limit + 1, number):
                marks[multiple] = 0
    return count
print(primes(<n>))
""",
        500_000,
    ),
    "bare loop": ("total = 0\nfor i in range(<n>):\n    total += i\nprint(total)\n", 2_000_000),
}
