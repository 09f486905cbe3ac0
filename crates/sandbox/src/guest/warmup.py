"""What every snippet finds already imported and already run once. Evaluated in the guest before the snapshot.

Importing is not enough: caches fill, code specialises and lazy imports happen at the first use, so the usual things
are done once here.
"""

import bisect
import cmath
import collections
import copy
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import gc
import heapq
import io
import itertools
import json
import math
import operator
import random
import re
import statistics
import string
import sys
import time
import typing

import numpy
import scipy
import scipy.integrate
import scipy.linalg
import scipy.optimize
import scipy.special
import scipy.stats
import sympy
import sympy.combinatorics
import sympy.geometry
import sympy.ntheory
import sympy.solvers
import sympy.stats

import _torl_driver

SNIPPETS = [
    """
def total(values):
    '''A docstring.'''
    result = 0
    for value in values:
        result += value * 2 / 3
    return result
print(total([1, 2, 3]), f"{total([4]):.2f}", round(2.5), 7 // 2, 2 ** 100, sep=" ")
print([x for x in range(5)], {"a": 1}, (1,), {1, 2}, None, True)
""",
    """
from sympy import symbols, solve, Eq, simplify, Rational, sqrt, pi, expand, factor, diff, integrate, limit, Matrix, nsolve
x, y = symbols('x y')
print(solve(Eq(x**2 - 5*x + 6, 0), x))
print(solve([x + y - 3, x - y - 1], [x, y]), solve(x**3 - 2*x - 5, x)[0].evalf())
print(simplify((x**2 - 1) / (x - 1)), expand((x + 1)**4), factor(x**2 - 1), diff(x**3, x), integrate(x**2, x))
print(Rational(1, 3) + sqrt(8), pi.evalf(10), limit((1 + 1/x)**x, x, sympy.oo) if 'sympy' in dir() else '')
print(Matrix([[1, 2], [3, 4]]).det(), sorted([Rational(1, 2), Rational(1, 3)]))
""",
    """
import sympy as sp
n = sp.Symbol('n', integer=True, positive=True)
print(sp.summation(n, (n, 1, 10)), sp.factorint(360), sp.isprime(97), list(sp.primerange(20)), sp.gcd(12, 18))
print(sp.latex(sp.Rational(1, 2) * n**2), sp.N(sp.E, 5), sp.binomial(10, 3), sp.solveset(n**2 - 4, n))
print(sp.solve(sp.Abs(n - 3) < 5, n) if False else sp.solve_univariate_inequality(sp.Symbol('t')**2 < 4, sp.Symbol('t')))
""",
    """
import numpy as np
from scipy import optimize, integrate
a = np.array([[1.0, 2.0], [3.0, 4.0]])
print(np.linalg.det(a), np.linalg.solve(a, np.array([1.0, 2.0])), a @ a, a.mean(), np.arange(5).sum())
print(np.roots([1, -3, 2]), np.random.rand(2).shape, np.linspace(0, 1, 3))
print(optimize.root_scalar(lambda x: x * x - 2, bracket=[0, 2]).root, integrate.quad(lambda x: x * x, 0, 1)[0])
print(optimize.fsolve(lambda x: x * x - 2, 1.0), optimize.minimize(lambda x: (x[0] - 1) ** 2, [0.0]).x)
""",
    """
import math, itertools, collections, functools, fractions, decimal, datetime, statistics, re, json, random, heapq
print(math.sqrt(2), math.comb(5, 2), math.gcd(4, 6), math.factorial(20), math.isclose(0.1 + 0.2, 0.3))
print(list(itertools.permutations([1, 2, 3], 2))[:2], collections.Counter("abca").most_common(1))
print(fractions.Fraction(1, 3) + fractions.Fraction(1, 6), decimal.Decimal("1.1") * 2)
print(datetime.date(2024, 2, 29) + datetime.timedelta(days=1), datetime.datetime(2024, 1, 1).strftime("%A %Y-%m-%d"))
print(statistics.mean([1, 2, 3]), re.findall(r"[0-9]+", "a1b22"), json.dumps({"a": [1, 2.5, None]}), random.random() < 2)
@functools.lru_cache(maxsize=None)
def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)
print(fibonacci(50), heapq.nsmallest(2, [3, 1, 2]))
class Point:
    def __init__(self, x, y):
        self.x, self.y = x, y
    def __repr__(self):
        return f"Point({self.x}, {self.y})"
print(Point(1, 2))
try:
    int("x")
except ValueError as error:
    print("caught", error)
""",
    "def f(x):\n    return 1 / x\n\ndef g(x):\n    return f(x - 1)\n\nprint(g(2))\nprint(g(1))\n",
    "print(undefined_nam)\n",
    "import sympy\nsympy.Symbol('x').no_such_attribute\n",
    "values = [1, 2]\nvalues[5]\n",
    "{}['key']\n",
    "'a' + 1\n",
    "import no_such_module\n",
    "def f(:\n    pass\n",
    "  print(1)\n",
    "print(1\n",
    "raise ValueError('first') from KeyError('second')\n",
]


def warm_up():
    """Runs every snippet twice in the way a run does, then leaves the interpreter as a run shall find it."""
    for _ in range(2):
        for snippet in SNIPPETS:
            _torl_driver.rehearse(snippet.encode())
    for module in (re, functools):
        assert module
    gc.collect()
    gc.freeze()
    gc.disable()


warm_up()
