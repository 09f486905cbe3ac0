"""Imports and executes typical code once, so that every snippet starts warm. Evaluated in the guest before the
snapshot.

Importing is not enough: caches fill, code specializes, tables are built and modules are imported at the first use.
Otherwise every run that needs this work repeats it. So the mathematical libraries are exercised broadly once, and then
common operations often. No snippet may change a setting (a precision, an option, a recursion limit): it would persist
in every run. Do not add code of `benchmarks/sandbox/snippets.py`, which measures everything else.
"""

import abc
import array
import bisect
import calendar
import cmath
import collections
import contextlib
import copy
import csv
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import glob
import graphlib
import hashlib
import heapq
import inspect
import io
import itertools
import json
import math
import numbers
import operator
import os
import pathlib
import pprint
import random
import re
import secrets
import shutil
import statistics
import string
import struct
import sys
import tempfile
import textwrap
import time
import timeit
import traceback
import typing
import uuid
import warnings

import mpmath
import networkx
import numpy
import pandas
import scipy
import scipy.constants
import scipy.fft
import scipy.integrate
import scipy.interpolate
import scipy.linalg
import scipy.optimize
import scipy.sparse
import scipy.spatial
import scipy.special
import scipy.stats
import sympy
import sympy.abc
import sympy.calculus.util
import sympy.combinatorics
import sympy.geometry
import sympy.ntheory.modular
import sympy.ntheory.residue_ntheory
import sympy.parsing.sympy_parser
import sympy.solvers
import sympy.solvers.diophantine
import sympy.stats
import sympy.vector

import _torl_driver
import _torl_library

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
print(statistics.mean([1, 2, 3]), re.findall(r"[0-9]+", "a1b22"), json.dumps({"a": [1, 2.5, None]}))
print(random.random() < 2)
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
    """
import os, csv, json
with open("warm.txt", "w") as file:
    file.write("a,b\\n1,2\\n")
with open("warm.txt") as file:
    print(file.read(), list(csv.reader(["1,2"])), os.listdir("."), os.path.exists("warm.txt"))
with open("warm.json", "w") as file:
    json.dump({"a": [1, 2.5]}, file)
with open("warm.json", "rb") as file:
    print(json.load(file))
os.remove("warm.txt")
os.remove("warm.json")
try:
    open("missing.txt")
except FileNotFoundError as error:
    print(error)
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


# Less common code, by subject. Once is enough for imports, builds and caches of the first use.
BREADTH = [
    # Algebra.
    """
from sympy import *
x, y, z, a, b, c = symbols('x y z a b c')
print(solve(x**2 + x + 1, x), solve(x**4 - 5*x**2 + 4, x), solve(2**x - 32, x), solve(log(x) - 2, x))
print(solve(sqrt(x + 5) - x + 1, x))
print(solve([x + y + z - 6, x*y + y*z + z*x - 11, x*y*z - 6], [x, y, z]))
print(solve([x**2 + y**2 - 13, x*y - 6], [x, y], dict=True))
print(linsolve([x + 2*y - 5, 3*x - y - 1], (x, y)), nonlinsolve([x**2 - y, y - 4], [x, y]), nsolve(cos(x) - x, x, 1))
print(solve(a*x**2 + b*x + c, x), solve(Eq(1/x + 1/(x + 2), Rational(5, 12)), x))
p = Poly(2*x**4 - 3*x**3 + x - 7, x)
print(p.degree(), p.all_coeffs(), p.nroots(n=6), p.eval(3), p.LC(), p.as_expr(), rem(p, Poly(x - 2, x)))
print(quo(p, Poly(x - 2, x)))
print(roots(x**3 - 3*x**2 - 4*x + 12, x), real_roots(x**3 - 4*x + 1), factor_list(x**6 - 1), lcm(x**2 - 4, x + 2))
print(degree(p))
print(apart((3*x + 5)/(x**2 + 3*x + 2)), together(1/x + 1/(x - 1)), cancel((x**3 - x)/(x + 1)))
print(collect(x*y + x*z + y, x))
print(radsimp(1/(sqrt(3) - sqrt(2))), sqrtdenest(sqrt(5 + 2*sqrt(6))), nsimplify(0.75), powsimp(x**a*x**b))
print(expand_log(log(6), force=True))
print(simplify(sqrt(50) + sqrt(8)), ratsimp(1/x + 1/y), cbrt(27), root(64, 3), floor(Rational(7, 2)), ceiling(2.1))
print(Mod(17, 5), sign(-3))
print(lambdify(x, x**2 + 1)(3), (x**2).subs(x, 5), Function('f')(x), Piecewise((x, x > 0), (0, True)).subs(x, 2))
print(interpolate([1, 4, 9], x))
print(Max(3, 5, x), Min(2, 1), sympify('3*x + 2'), expand((x + y + z)**3).coeff(x, 2), Symbol('k', positive=True))
print(re(3 + 4*I), S(1)/3)
""",
    """
from sympy import *
x = symbols('x', real=True)
print(solve(x**2 - 4*x + 3 <= 0, x), solve([x + 1 > 0, x - 5 < 0], x), solve_univariate_inequality(1/x > 2, x))
print(solveset(x**2 > 9, x, S.Reals))
print(reduce_inequalities([2*x + 3 > 1, x**2 < 25]), Interval(0, 5).intersect(Interval.open(3, 8)))
print(Union(Interval(0, 1), FiniteSet(4)))
print(solveset(Abs(x) < 3, x, S.Reals), solveset(exp(x) - 5, x, S.Reals), Interval(1, 4).measure)
print(Complement(S.Reals, FiniteSet(0)))
print(solve(Abs(2*x + 1) > 5, x), solve((x - 1)*(x + 2) / (x - 4) >= 0, x), ConditionSet(x, x > 2, S.Integers))
print(ImageSet(Lambda(x, 2*x), S.Integers))
""",
    # Precalculus.
    """
from sympy import *
x, theta = symbols('x theta', real=True)
print(cos(pi/3), sin(pi/12), tan(5*pi/12).simplify(), sec(pi/4), cot(pi/6), asin(Rational(1, 2)), acos(-1), atan(1))
print(atan2(1, -1), deg(pi/7), rad(30))
print(trigsimp(1 - sin(x)**2), expand_trig(cos(3*x)), simplify(sin(x)/cos(x)), expand_trig(tan(x + pi/4)))
print(cos(2*x).rewrite(exp), fu(sin(x)*cos(x)))
print(solve(2*cos(x)**2 - 3*cos(x) + 1, x), solveset(tan(x) - 1, x, Interval(0, pi)), solve(sin(x) - cos(x), x))
print(simplify(cos(pi/9)*cos(2*pi/9)))
z = 3 - 4*I
print(Abs(z), arg(1 + I), conjugate(z), expand(z**3), simplify((1 + I)/(1 - I)), re(z), im(z))
print(exp(I*pi/3).expand(complex=True), sqrt(-16), z.as_real_imag())
print(solve(x**2 + 2*x + 5, x), [r.evalf(5) for r in Poly(x**5 - 1, x).nroots()], N(sin(1), 15))
print((sqrt(2)*pi).evalf(20), Float(1.5), polar_lift(I))
m = Matrix([[3, 1, 2], [0, 2, 1], [1, 0, 4]])
v, w = Matrix([1, 2, 2]), Matrix([0, 3, 4])
print(m.det(), m.inv(), m.T, m**2, m.trace(), m.rank(), m.rref(), m.eigenvals(), v.dot(w), v.cross(w), v.norm())
print(m*v, m.adjugate())
print(Matrix([[2, 0], [1, 3]]).eigenvects(), Matrix([[1, 2], [2, 4]]).nullspace())
print(Matrix([[2, 1], [1, 2]]).diagonalize(), eye(2), zeros(2), ones(2, 2))
print(m.LUsolve(v), Matrix(2, 2, lambda i, j: i + j), Matrix([[1, 1], [1, 0]])**10, m.charpoly().as_expr())
print(m.minor(0, 0), m.row(0), m[:, 1], Matrix.hstack(v, w))
""",
    # Calculus.
    """
from sympy import *
x, y, t, n, k = symbols('x y t n k')
print(limit(sin(x)/x, x, 0), limit((1 + 2/x)**x, x, oo), limit((x**2 - 1)/(x - 1), x, 1), limit(1/x, x, 0, '-'))
print(limit((sqrt(n + 1) - sqrt(n))*sqrt(n), n, oo))
print(diff(sin(x)*exp(x), x), diff(log(x)/x, x, 2), idiff(x**2 + y**2 - 25, y, x), diff(x**2*y**3, x, y))
print(Derivative(x**3, x).doit(), atan(x).diff(x))
print(integrate(x*exp(x), x), integrate(1/(x**2 + 1), (x, 0, 1)), integrate(sin(x)**2, (x, 0, pi)))
print(integrate(log(x), (x, 1, E)), integrate(exp(-x**2), (x, -oo, oo)))
print(integrate(x*y, (x, 0, 1), (y, 0, x)), integrate(1/(x**2 - 1), x), integrate(sqrt(1 - x**2), (x, -1, 1)))
print(Integral(x**2, (x, 0, 3)).doit(), integrate(cos(x)*x, x))
print(series(cos(x), x, 0, 6), series(1/(1 - x), x, 0, 4).removeO(), (sin(x) + x).series(x, 0, 4))
print(series(log(1 + x), x, 0, 4), sqrt(1 + x).series(x, 0, 3))
print(summation(k**2, (k, 1, n)), summation(1/k**2, (k, 1, oo)), Sum(Rational(1, 2)**k, (k, 0, oo)).doit())
print(summation(1/(k*(k + 1)), (k, 1, n)), product(k, (k, 1, 5)))
print(Sum(k, (k, 1, 10)).doit(), Sum(k*2**k, (k, 1, n)).doit().simplify(), Product(1 + 1/k, (k, 1, n)).doit())
print(summation(binomial(5, k), (k, 0, 5)), Sum(1/k, (k, 1, 4)).evalf())
f = Function('f')
print(dsolve(f(t).diff(t) - 2*f(t), f(t)), dsolve(f(t).diff(t, 2) + 4*f(t), f(t)))
print(rsolve(f(n + 2) - f(n + 1) - f(n), f(n), {f(0): 0, f(1): 1}))
print(solve(diff(x**3 - 3*x, x), x), hessian(x**2*y, (x, y)), minimum(x**2 - 2*x, x))
print(maximum(sin(x), x, Interval(0, 2)), singularities(1/x, x), stationary_points(x**2, x))
from sympy.calculus.util import continuous_domain, function_range, periodicity
print(continuous_domain(sqrt(x - 1), x, S.Reals), function_range(x**2, x, Interval(0, 2)), periodicity(sin(2*x), x))
print(fourier_series(x, (x, -pi, pi)).truncate(2), gamma(5))
""",
    # Number theory, and counting.
    """
from sympy import *
from sympy.ntheory import *
from sympy.ntheory.modular import crt, solve_congruence
from sympy.ntheory.residue_ntheory import sqrt_mod_iter
print(factorint(2024), primefactors(90), divisors(28), divisor_count(60), divisor_sigma(12), totient(36))
print(isprime(101), nextprime(50), prevprime(50), prime(10), primepi(30))
print(list(primerange(10, 40)), gcd(48, 36), lcm(4, 6), igcd(12, 18), ilcm(4, 6), gcdex(12, 8), mod_inverse(3, 11))
print(pow(3, 100, 7), n_order(3, 7), multiplicity(2, 40))
print(crt([3, 5], [2, 3]), solve_congruence((2, 3), (3, 5)), is_quad_residue(2, 7), legendre_symbol(2, 7))
print(jacobi_symbol(2, 15), sqrt_mod(4, 7), list(sqrt_mod_iter(1, 8)))
print(discrete_log(7, 2, 3), primitive_root(7), is_primitive_root(3, 7), quadratic_residues(11), mobius(6))
print(perfect_power(64), integer_nthroot(27, 3), digits(255, 2))
print(count_digits(1223), nthroot_mod(2, 3, 7), polynomial_congruence(x**2 - 1, 8) if 'x' in dir() else '')
print(is_mersenne_prime(7), abundance(12), is_perfect(28), reduced_totient(15))
from sympy.solvers.diophantine import diophantine
from sympy.abc import x, y
print(diophantine(3*x + 5*y - 1), diophantine(x**2 - y**2 - 15), diophantine(x**2 - 2*y**2 - 1))
print(continued_fraction(sqrt(3)), list(continued_fraction_periodic(0, 1, 3)), egyptian_fraction(Rational(3, 7)))
print(list(continued_fraction_convergents([1, 2, 2])), continued_fraction_reduce([1, 2]), factorial(8))
print(binomial(9, 3), factorial2(7), subfactorial(4), catalan(4), fibonacci(12), lucas(6))
from sympy.functions.combinatorial.numbers import nC, nP, nT
print(bell(4), bernoulli(4), harmonic(4), euler(4), ff(5, 2), rf(5, 2), npartitions(6), nC(5, 2), nP(5, 2), nT(5, 2))
from sympy.utilities.iterables import multiset_permutations, partitions, subsets, multiset_partitions
print(len(list(multiset_permutations('aabb'))), [dict(p) for p in partitions(4)], list(subsets([1, 2, 3], 2)))
print(len(list(multiset_partitions([1, 2, 3]))))
from sympy.combinatorics import Permutation, SymmetricGroup
print(Permutation([1, 2, 0]).order(), Permutation(0, 1)(2, 3).cycle_structure, SymmetricGroup(3).order())
from sympy.stats import Die, P, E, density, variance, Binomial, Normal, Coin
d = Die('D', 6)
print(P(d > 4), E(d), variance(d), density(d).dict, E(Binomial('B', 4, S.Half)), P(Normal('N', 0, 1) > 0))
print(density(Coin('C')).dict)
""",
    # Geometry.
    """
from sympy import *
from sympy.geometry import *
a, b, c = Point(0, 0), Point(6, 0), Point(2, 5)
t, circle, line = Triangle(a, b, c), Circle(Point(1, 1), 3), Line(a, c)
print(t.area, t.perimeter, t.centroid, t.circumcenter, t.orthocenter, t.angles[a], t.is_isosceles(), t.altitudes[a])
print(t.medians[b], t.inradius.evalf(5), t.sides)
print(circle.area, circle.circumference, circle.intersection(Line(Point(0, 0), Point(1, 0))), circle.equation())
print(circle.tangent_lines(Point(8, 1)), circle.encloses_point(a))
print(line.slope, line.equation(), line.distance(b), line.perpendicular_line(b))
print(line.intersection(Line(b, Point(0, 4))), line.angle_between(Line(a, b)), line.is_parallel(Line(b, c)))
print(a.distance(c), a.midpoint(b), Point.is_collinear(a, b, c), Segment(a, b).perpendicular_bisector())
print(Polygon(a, b, c, Point(-1, 3)).area, RegularPolygon(a, 2, 6).area, Ray(a, b))
print(Ellipse(Point(0, 0), 3, 2).foci, Parabola(Point(0, 2), Line(Point(0, -2), Point(1, -2))).vertex)
print(Circle(a, b, c).radius, Polygon(a, b, c).centroid, c.rotate(pi/2), b.scale(2, 2))
print(Point3D(1, 2, 3).distance(Point3D(0, 0, 0)))
print(Plane(Point3D(1, 0, 0), Point3D(0, 1, 0), Point3D(0, 0, 1)).equation())
print(Line3D(Point3D(0, 0, 0), Point3D(1, 1, 1)).direction_ratio)
""",
    # Printing, and numbers to many places.
    """
from sympy import *
from sympy.parsing.sympy_parser import parse_expr
import mpmath
x = symbols('x')
print(latex(Integral(sqrt(x)/x**2, x)), latex(Matrix([[1, x]])), pretty(x**2/3), str(Eq(x, 1)), srepr(x))
print(sstr(sqrt(2)), parse_expr('2*x + sin(x)'), sympify('1/3'), Rational('0.125'))
pprint(sqrt(x) + Rational(1, 2))
with mpmath.workdps(30):
    print(mpmath.sqrt(2))
print(mpmath.mp.dps, mpmath.quad(lambda t: t**2, [0, 1]), mpmath.findroot(lambda t: t**2 - 3, 1.5), mpmath.pi)
print(mpmath.nstr(mpmath.e, 10), mpmath.mpf('0.1'), mpmath.polyroots([1, 0, -1]))
print(nsolve([x**2 - 2], [x], [1]), solve(x**5 - x + 1, x), CRootOf(x**5 - x + 1, 0).evalf(5), N(pi, 30))
print(Rational(1, 7).evalf(), float(sqrt(3)), int(Integer(5)), round(pi, 3), GoldenRatio.n(5))
""",
    # Arrays.
    """
import numpy as np
a = np.array([[4.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 1.0, 2.0]])
print(np.linalg.inv(a), np.linalg.eigvals(a), np.linalg.eigh(a)[0], np.linalg.matrix_rank(a), np.linalg.norm(a))
print(np.linalg.lstsq(a, np.ones(3), rcond=None)[0], np.linalg.matrix_power(a, 2))
print(np.linalg.svd(a)[1], np.linalg.qr(a)[1].shape, np.linalg.eig(a)[0], np.linalg.cholesky(a), np.trace(a))
print(np.dot(a, a[0]), np.cross([1, 0, 0], [0, 1, 0]), np.outer([1, 2], [3, 4]), a.T)
print(a.sum(axis=0), a.max(), a.argmin(), np.sort([3, 1, 2]), np.unique([1, 1, 2]), np.where(a > 1), a[a > 1])
print(np.cumsum([1, 2]), np.diff([1, 4, 9]), np.prod([2, 3]), np.median([1, 5, 2]))
print(np.mean([1, 2]), np.std([1, 2]), np.var([1, 2]), np.percentile([1, 2, 3], 50))
print(np.histogram([1, 2, 2], bins=2), np.bincount([1, 1, 3]), np.corrcoef([1, 2, 3], [2, 4, 7]))
print(np.clip([1, 9], 2, 5))
print(np.polyfit([0, 1, 2], [0, 1, 4], 2), np.polyval([1, 0, 1], 2), np.poly1d([1, -1])(3), np.roots([1, 0, -1]))
print(np.polynomial.Polynomial([1, 2])(3), np.convolve([1, 2], [1, 3]), np.interp(1.5, [1, 2], [3, 5]))
print(np.zeros((2, 2)), np.ones(3), np.eye(2), np.full(2, 7), np.arange(0, 1, 0.25), np.linspace(0, 1, 3))
print(np.meshgrid([1, 2], [3, 4])[0], np.reshape(range(6), (2, 3)), np.stack([[1], [2]]), np.vstack([[1], [2]]))
print(np.concatenate([[1], [2]]), np.isclose(0.1 + 0.2, 0.3), np.allclose([1], [1]), np.sqrt(2), np.sin(np.pi))
print(np.arctan2(1, 1), np.degrees(np.pi), np.exp(1), np.log([1, 2]), np.abs([-1]), np.round(2.345, 2))
print(np.floor(2.5))
rng = np.random.default_rng(1)
print(rng.random(2), rng.integers(0, 9, 3), rng.normal(size=2), rng.choice([1, 2, 3]), rng.permutation(3))
print(np.random.randint(0, 9, 2), np.random.choice([1, 2]), np.random.normal(0, 1, 2), np.random.uniform(0, 1))
print(np.random.shuffle([1, 2]))
print(np.fft.fft([1, 0, 0, 0]), np.fft.ifft([1, 1]).real, np.gcd(12, 18), np.lcm(4, 6))
print(np.array([1, 2], dtype=int) % 2, np.int64(3), np.float64(2.5), np.any([0, 1]), np.all([1]))
print(np.count_nonzero([0, 1]), np.array(['a', 'b']), 1 / np.array([2.0, 4.0]))
print(np.array([1.0]) / np.array([0.0]), np.nan, np.inf, np.vectorize(lambda t: t + 1)([1, 2]))
print(np.array2string(np.array([1.5])), np.triu(a), np.flip([1, 2]), np.tile([1], 2), np.repeat(1, 2))
print(np.argsort([2, 1]), np.searchsorted([1, 3], 2))
""",
    """
import numpy as np
from scipy import optimize, integrate, stats, special, linalg, interpolate
from scipy.spatial import distance, ConvexHull
print(optimize.brentq(lambda x: x**3 - 2, 0, 2), optimize.bisect(lambda x: x - 1, 0, 3))
print(optimize.newton(lambda x: x**2 - 2, 1.0), optimize.minimize_scalar(lambda x: (x - 1)**2).x)
print(optimize.fsolve(lambda v: [v[0] + v[1] - 3, v[0] - v[1] - 1], [1, 1]))
print(optimize.root(lambda x: x**2 - 2, 1.0).x)
print(optimize.minimize(lambda v: v[0]**2 + v[1]**2, [1, 1], method='Nelder-Mead').fun)
disc = {'type': 'ineq', 'fun': lambda v: 1 - v[0]**2 - v[1]**2}
print(optimize.minimize(lambda v: v[0] + v[1], [1, 1], constraints=disc).x)
print(optimize.minimize(lambda v: (v[0] - 2)**2, [0], bounds=[(0, 1)]).x)
print(optimize.linprog([1, 1], A_ub=[[-1, -2]], b_ub=[-3]).x)
print(optimize.curve_fit(lambda x, a: a * x, [1, 2], [2, 4])[0], optimize.least_squares(lambda x: x - 1, [0]).x)
print(optimize.linear_sum_assignment([[1, 2], [3, 1]]))
print(integrate.quad(np.sin, 0, np.pi), integrate.dblquad(lambda y, x: x, 0, 1, 0, 1))
print(integrate.trapezoid([1, 2, 3]), integrate.simpson([1, 2, 3]))
print(integrate.solve_ivp(lambda t, y: -y, (0, 1), [1.0]).y[0][-1], integrate.odeint(lambda y, t: -y, 1.0, [0, 1]))
print(special.comb(5, 2, exact=True), special.perm(5, 2), special.factorial(5), special.gamma(3.5))
print(special.beta(2, 3), special.erf(0.5), special.binom(5, 2), special.zeta(2), special.lambertw(1))
print(special.jv(0, 1))
print(stats.norm.cdf(1), stats.norm.ppf(0.975), stats.norm(1, 2).pdf(0), stats.binom.pmf(2, 5, 0.5))
print(stats.binom.cdf(2, 5, 0.5), stats.poisson.pmf(2, 3), stats.t.ppf(0.9, 5), stats.uniform.rvs(size=1))
print(stats.expon.sf(1), stats.hypergeom.pmf(1, 10, 4, 3))
print(stats.geom.pmf(2, 0.3), stats.chi2.sf(3, 2), stats.linregress([1, 2, 3], [2, 4, 5]).slope)
print(stats.pearsonr([1, 2, 3], [1, 3, 2])[0], stats.mode([1, 1, 2]).mode, stats.describe([1, 2, 3]).mean)
print(stats.ttest_1samp([1, 2, 3], 1).pvalue, stats.gmean([1, 4]), stats.zscore([1, 2, 3]))
print(linalg.det([[1, 2], [3, 4]]), linalg.inv([[1, 2], [3, 4]]), linalg.eig([[2, 0], [0, 3]])[0])
print(linalg.solve([[2, 1], [1, 3]], [1, 2]), linalg.expm([[0, 1], [0, 0]]), linalg.null_space([[1, 1], [1, 1]]))
print(linalg.lu([[1, 2], [3, 4]])[2])
print(interpolate.interp1d([0, 1], [0, 2])(0.5), interpolate.CubicSpline([0, 1, 2], [0, 1, 4])(1.5))
print(interpolate.lagrange([0, 1], [1, 2]), distance.euclidean([0, 0], [3, 4]), distance.cdist([[0, 0]], [[1, 1]]))
print(ConvexHull([[0, 0], [1, 0], [0, 1]]).volume)
""",
    # Tables and graphs.
    """
import pandas as pd
frame = pd.DataFrame({"name": ["a", "b", "a"], "value": [1, 2.5, 3]})
print(frame, frame["value"].mean(), frame.groupby("name")["value"].sum(), frame[frame["value"] > 1])
print(frame.describe(), frame.sort_values("value").head(2))
print(frame.to_dict(), frame.loc[0, "name"], frame.iloc[1].tolist(), frame.shape, frame.columns.tolist())
print(pd.Series([1, 2]).cumsum().tolist(), pd.concat([frame, frame]).reset_index(drop=True))
frame["double"] = frame["value"].apply(lambda v: 2 * v)
print(frame.to_string(index=False), pd.merge(frame, frame, on="name").shape)
print(frame.pivot_table(index="name", values="value"), frame["name"].value_counts())
print(pd.date_range("2024-01-01", periods=2))
""",
    """
import networkx as nx
graph = nx.Graph([(1, 2), (2, 3), (3, 1), (3, 4)])
graph.add_edge(4, 5, weight=2)
print(nx.shortest_path(graph, 1, 5), list(nx.connected_components(graph)), nx.is_connected(graph))
print(dict(graph.degree()), list(nx.find_cliques(graph)))
""",
    # Programs in plain Python.
    """
import abc, array, bisect, calendar, cmath, contextlib, copy, dataclasses, enum, hashlib, heapq, inspect
import operator, pprint, string, struct, textwrap, time, typing, uuid
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple, ChainMap
from dataclasses import dataclass, field
from decimal import Decimal, getcontext, localcontext, ROUND_HALF_UP
from datetime import date, datetime, timedelta
from fractions import Fraction
from functools import cached_property, partial, reduce, total_ordering, cmp_to_key, wraps, cache
from itertools import accumulate, chain, combinations, combinations_with_replacement, compress, count
from itertools import cycle, groupby, islice, pairwise, permutations, product, repeat, starmap, takewhile
from itertools import dropwhile, tee, zip_longest
@dataclass
class Account:
    owner: str
    balance: float = 0.0
    history: list = field(default_factory=list)
    def deposit(self, amount: float) -> None:
        if amount < 0:
            raise ValueError("negative")
        self.balance += amount
        self.history.append(amount)
account = Account("Ann")
account.deposit(5)
print(account, dataclasses.replace(account, owner="Bob"), dataclasses.asdict(account))
@dataclass(frozen=True, order=True)
class Version:
    major: int
    minor: int = 0
print(Version(1) < Version(1, 2), {Version(1): "a"})
class Colour(enum.Enum):
    RED = 1
    BLUE = enum.auto()
print(Colour.RED, Colour(2).name, list(Colour))
Pair = namedtuple("Pair", "left right")
class Typed(typing.NamedTuple):
    x: int
    y: int = 0
print(Pair(1, 2)._asdict(), Pair(1, 2).left, Typed(3))
class Animal(abc.ABC):
    kinds = 0
    def __init__(self, name):
        self.name = name
        type(self).kinds += 1
    @abc.abstractmethod
    def speak(self): ...
    @classmethod
    def make(cls, name): return cls(name)
    @staticmethod
    def help(): return "help"
    @property
    def title(self): return self.name.title()
    def __str__(self): return f"{self.__class__.__name__}({self.name!r})"
class Dog(Animal):
    def speak(self): return super().help() + self.title
    def __add__(self, other): return Dog(self.name + other.name)
    def __eq__(self, other): return self.name == other.name
    def __hash__(self): return hash(self.name)
    def __len__(self): return len(self.name)
    def __getitem__(self, index): return self.name[index]
    def __iter__(self): return iter(self.name)
    def __contains__(self, letter): return letter in self.name
    def __call__(self): return 1
print(Dog.make("rex").speak(), str(Dog("a") + Dog("b")), Dog("a") == Dog("a"), len(Dog("abc")), Dog("abc")[1])
print("".join(Dog("ab")), "a" in Dog("a"), isinstance(Dog("x"), Animal))
def primes():
    found = []
    for n in count(2):
        if all(n % p for p in takewhile(lambda p: p * p <= n, found)):
            found.append(n)
            yield n
print(list(islice(primes(), 8)), sum(n * n for n in range(5)), next(filter(lambda n: n > 3, range(9))))
def delegate():
    received = yield 1
    yield from (received, 2)
g = delegate()
print(next(g), g.send(5), list(g))
def logged(function):
    @wraps(function)
    def wrapper(*arguments, **keywords):
        return function(*arguments, **keywords)
    return wrapper
@logged
def hanoi(n, a="A", b="B", c="C"):
    return [] if n == 0 else hanoi(n - 1, a, c, b) + [(a, c)] + hanoi(n - 1, b, a, c)
print(len(hanoi(4)), reduce(operator.mul, range(1, 6)), partial(pow, 2)(5), list(accumulate([1, 2, 3])))
print(list(pairwise("abc")))
@contextlib.contextmanager
def manager():
    try:
        yield 1
    finally:
        print("closed")
with manager() as value:
    print(value)
try:
    try:
        [][1]
    except IndexError as error:
        raise RuntimeError("again") from error
except RuntimeError as error:
    print(repr(error), error.__cause__)
else:
    print("never")
finally:
    print("finally")
graph = {"a": ["b", "c"], "b": ["d"], "c": ["d"], "d": []}
seen, queue = {"a"}, deque(["a"])
while queue:
    for node in graph[queue.popleft()]:
        if node not in seen:
            seen.add(node)
            queue.append(node)
print(sorted(seen), sorted("bca", key=lambda c: -ord(c)), sorted([3, 1], reverse=True))
print(max([1, 5], key=lambda v: -v), min("ab"), any([0, 1]), all([]), list(zip("ab", [1, 2])))
print(list(enumerate("ab")), list(reversed([1, 2])), list(map(str, [1])))
heap = [5, 1, 4]
heapq.heapify(heap)
heapq.heappush(heap, 0)
print(heapq.heappop(heap), heapq.nlargest(1, heap), bisect.bisect([1, 3], 2), bisect.insort(heap, 2))
print(Counter("abc") + Counter("a"), defaultdict(int, a=1), OrderedDict(a=1), ChainMap({"a": 1}))
print(deque([1, 2], maxlen=1))
print(list(combinations("abc", 2)), list(product([0, 1], repeat=2)), [(k, len(list(v))) for k, v in groupby("aab")])
print(list(chain([1], [2])), list(zip_longest([1], [])), list(starmap(pow, [(2, 3)])))
print(list(combinations_with_replacement("ab", 2)))
text = "The rain, in Spain"
print(text.lower().split(), text.replace("a", "o"), text.find("in"), text[::-1], text.count("a"))
print(text.startswith("The"), ",".join("ab"), text.upper(), text.title(), text.strip("T"), text.partition(","))
print(text.zfill(20), text.center(30, "*"), "abc".isalpha(), "12".isdigit(), "a-b".split("-"), text.encode())
print(text.translate(str.maketrans("ai", "xy")), text.swapcase(), text.index("r"), "%d %s %.2f" % (1, "a", 2.5))
print("{:>5} {:,} {:.3e} {!r} {:b} {:x} {:08.3f} {:+d} {:%}".format(1, 10**6, 1e-5, "a", 5, 255, 3.14159, 4, 0.5))
print(f"{3.14159:.2f} {10**9:,} {'a':>4}|{'b':<4}|{'c':^4} {5!r} {255:#x} {0.25:.1%} {1=}")
print(textwrap.fill("a b c", 3), string.ascii_lowercase, ord("a"), chr(98), bin(5), hex(255), oct(8), int("101", 2))
print(int("ff", 16), divmod(7, 2), pow(2, 10, 7), abs(-2), round(2.567, 1), sum([1, 2]), complex(1, 2) * 2)
print(cmath.sqrt(-1), cmath.phase(1j), bytes([65]), bytearray(b"a"), 0.1 + 0.2, 1e20, 1 / 3, -7 // 2, -7 % 3)
print(2 ** 0.5, 10 ** 30, float("inf"), True + True, 3 & 1, 3 | 4, 3 ^ 1, ~3, 1 << 5, (5).bit_length())
import re
print(re.match(r"(\w+)\s(\w+)", text).groups(), re.sub(r"\d+", lambda m: str(int(m.group()) + 1), "a1"))
print(re.split(r"[,;]\s*", text), re.search(r"(?P<word>in)", text)["word"])
print([m.start() for m in re.finditer("a", text)], re.fullmatch("[a-z]+", "abc"))
print(re.compile(r"^a.*z$", re.I | re.M).findall("az"), re.escape("a.b"))
import json, random, statistics
print(json.dumps({"b": [1, 2.5, None, True], "a": {"c": "d"}}, indent=2, sort_keys=True))
print(json.loads('{"a": [1, 2, {"b": null}]}'))
random.seed(1)
print(random.randint(1, 6), random.choice("abc"), random.sample(range(9), 2), random.uniform(0, 1))
print(random.gauss(0, 1), random.shuffle([1, 2]), random.choices("ab", weights=[1, 2], k=2))
print(random.Random(3).random())
print(statistics.median([1, 2, 3]), statistics.stdev([1, 2, 4]), statistics.variance([1, 2, 4]))
print(statistics.mode([1, 1, 2]), statistics.pstdev([1, 2]), statistics.fmean([1, 2]), statistics.multimode("aab"))
print(statistics.harmonic_mean([1, 2]), statistics.quantiles([1, 2, 3]))
with localcontext() as context:
    context.prec = 30
    print(Decimal(2).ln())
print(getcontext().prec, Decimal(1) / Decimal(7), Decimal("2").sqrt())
print(Decimal("2.675").quantize(Decimal("0.01"), rounding=ROUND_HALF_UP), Fraction(3, 4) * 2, Fraction("0.125"))
print(Fraction(0.5).limit_denominator(10), Fraction(7, 3).numerator, float(Fraction(1, 3)))
print(sum([Fraction(1, 2), Fraction(1, 3)]))
print(date(2024, 1, 1).weekday(), (date(2024, 3, 1) - date(2024, 2, 1)).days)
print(datetime(2024, 5, 6, 7, 8).isoformat(), datetime.strptime("2024-01-02", "%Y-%m-%d"), timedelta(hours=5))
print(date.today().year, calendar.monthrange(2024, 2), calendar.isleap(2024), calendar.day_name[0], time.time() > 0)
print(time.perf_counter() > 0)
print(copy.deepcopy({"a": [1]}), hashlib.sha256(b"a").hexdigest(), hashlib.md5(b"a").hexdigest())
print(array.array("i", [1, 2]), struct.pack("<i", 1), pprint.pformat({"a": 1}), inspect.signature(hanoi))
print(sys.maxsize if "sys" in dir() else 0, isinstance(1, (int, str)), callable(len), type(1).__name__, id(1) > 0)
print(hash("a") is not None, vars(account), dir(account)[:1], getattr(account, "owner"), hasattr(account, "x"))
matrix = [[1, 2], [3, 4]]
print([list(row) for row in zip(*matrix)])
print([[sum(a * b for a, b in zip(row, column)) for column in zip(*matrix)] for row in matrix])
print({k: v for k, v in zip("ab", [1, 2])}, {n % 3 for n in range(9)}, {1, 2} & {2}, {1} | {2}, {1, 2} - {1})
print({1} ^ {2}, {1} <= {1, 2}, [*range(3)], {**{"a": 1}}, (n := 5) + n, "yes" if n else "no")
print([n for row in matrix for n in row if n % 2])
match [1, {"k": "v"}]:
    case [int(first), {"k": value}]:
        print(first, value)
    case _:
        print("other")
a, *rest = [1, 2, 3]
del rest[0]
global_counter = 0
def increment(step: int = 1) -> int:
    global global_counter
    global_counter += step
    def inner():
        nonlocal step
        step += 1
        return step
    return inner()
print(increment(), rest, global_counter, assert_free := True)
assert assert_free, "message"
i = 0
while True:
    i += 1
    if i == 2:
        continue
    if i > 4:
        break
else:
    print("never")
for i in range(2):
    pass
else:
    print("done", end="\\n", flush=True)
if __name__ == "__main__":
    print(*[1, 2], sep=", ")
""",
]

MISTAKES = [
    "import math\nmath.sqrt(-1)\n",
    "x = 5\nx.append(1)\n",
    "def f(a):\n    return a\nf()\n",
    "def f():\n    y += 1\nf()\n",
    "assert 1 == 2, 'not equal'\n",
    "from sympy import symbols, solve\nx = symbols('x')\nif x > 0:\n    print(x)\n",
    "from sympy import symbols, solve\nx = symbols('x')\nprint(solve(x**2 + 1, x)[5])\n",
    "from sympy import no_such_name\n",
    "import sympy as sp\nsp.solve(sp.Symbol('x') + sp.sin(sp.Symbol('x')) - 1, sp.Symbol('x'))\n",
    "import numpy as np\nnp.linalg.inv(np.zeros((2, 2)))\n",
    "import numpy as np\nnp.array([1, 2]) + np.array([1, 2, 3])\n",
    "print('a' 1)\n",
    "x = [1, 2\nprint(x)\n",
    "def f()\n    pass\n",
    "for i in range(3):\nprint(i)\n",
    "print(f'{x')\n",
    "print 'hello'\n",
    "x = 'abc\n",
    "raise SystemExit(1)\n",
    "a, b = [1, 2, 3]\n",
    "next(iter([]))\n",
    "open('data.txt')\n",
    "input()\n",
    "None + 1\n",
    "None.real\n",
    "[1, 2]['a']\n",
    "len(5)\n",
    "int('3.5')\n",
    "'abc'.foo()\n",
    "lambda: (yield)\nraise NotImplementedError\n",
    "class E(Exception):\n    pass\nraise E('own')\n",
]


# By then code has specialized itself, and writes to itself no more.
REPETITIONS = 8


def warm_up():
    """Runs every snippet in the way a run does."""
    _torl_library.install()
    for snippet in BREADTH:
        report = _torl_driver.rehearse(snippet.encode())
        if not report.startswith(_torl_driver.OK):
            raise RuntimeError(f"a snippet of the warm-up failed: {report!r}")
    for snippet in MISTAKES:
        _torl_driver.rehearse(snippet.encode())
    for _ in range(REPETITIONS):
        for snippet in SNIPPETS:
            _torl_driver.rehearse(snippet.encode())
    _torl_driver.rehearse(b"1 + 1", True)
    # The rounding above must not be visible.
    decimal.getcontext().clear_flags()


warm_up()
