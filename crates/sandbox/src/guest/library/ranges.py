"""Ranges longer than a 32-bit machine can count: sampling and searching them without `len`."""

import bisect
import random
import sys
from math import floor


LARGEST = 2**63 - 1  # maximum length on a 64-bit machine


def length(numbers):
    """Return the `len` of a range, as on a 64-bit machine."""
    count = max(0, -((numbers.start - numbers.stop) // numbers.step))
    if count > LARGEST:
        raise OverflowError("Python int too large to convert to C ssize_t")
    return count


def is_long(numbers):
    return type(numbers) is range and length(numbers) > sys.maxsize


class Random(random.Random):
    """The methods that need the length of their argument."""

    def sample(self, population, k, *, counts=None):
        if counts is not None or not is_long(population):
            return _sample(self, population, k, counts=counts)
        n = length(population)
        if not 0 <= k <= n:
            raise ValueError("Sample larger than population or is negative")
        # The order in which `random` draws from a population that is much larger than the sample.
        chosen = {}
        for _ in range(k):
            place = self._randbelow(n)
            while place in chosen:
                place = self._randbelow(n)
            chosen[place] = population[place]
        return list(chosen.values())

    def choice(self, population):
        try:
            n = len(population)
        except OverflowError:
            if type(population) is not range:
                raise
            n = length(population)
        if not n:
            raise IndexError("Cannot choose from an empty sequence")
        return population[self._randbelow(n)]

    def choices(self, population, weights=None, *, cum_weights=None, k=1):
        if weights is not None or cum_weights is not None or not is_long(population):
            return _choices(self, population, weights, cum_weights=cum_weights, k=k)
        n = length(population) + 0.0
        return [population[floor(self.random() * n)] for _ in range(k)]


_sample, _choices = random.Random.sample, random.Random.choices


def _searching(original, goes_left):
    """Return `bisect_left` or `bisect_right`, extended to counts that `original` does not support."""

    def search(a, x, lo=0, hi=None, *, key=None):
        try:
            return original(a, x, lo, hi, key=key)
        except OverflowError:
            if type(a) is not range:
                raise
        if lo < 0:
            raise ValueError("lo cannot be negative")
        if hi is None:
            hi = length(a)
        while lo < hi:
            middle = (lo + hi) // 2
            value = a[middle] if key is None else key(a[middle])
            if value < x if goes_left else not x < value:
                lo = middle + 1
            else:
                hi = middle
        return lo

    search.__name__ = search.__qualname__ = original.__name__
    search.__module__, search.__doc__ = "bisect", original.__doc__
    return search


def install():
    for name in ("sample", "choice", "choices"):
        setattr(random.Random, name, vars(Random)[name])
        setattr(random, name, getattr(random._inst, name))
    bisect.bisect_left = _searching(bisect.bisect_left, True)
    bisect.bisect = bisect.bisect_right = _searching(bisect.bisect_right, False)
