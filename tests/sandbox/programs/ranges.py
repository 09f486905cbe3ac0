"""Ranges that are longer than 32 bits count: each program prints the same natively."""

# %% samples and choices of a long range
import random

random.seed(5)
print(random.sample(range(10**10), 3), random.sample(range(-(10**12), 10**12, 7), 10))
print(random.choice(range(10**11)), random.choices(range(2**40), k=3))
print(random.Random(1).sample(range(10**15), k=30) == random.Random(1).sample(range(10**15), k=30))
print(random.sample(range(100), 5), random.choice("abc"), random.choices([1, 2], k=3), random.sample("ab", 3, counts=[2, 2]))
for wrong in (-1, 10**11):
    try:
        random.sample(range(10**10), wrong) if wrong < 0 else random.sample(range(10), 11)
    except ValueError as error:
        print(error)
# %% searching a long range
from bisect import bisect, bisect_left, bisect_right

print(bisect_left(range(10**10), 7 * 10**9), bisect(range(0, 10**11, 3), 30), bisect_right(range(10**10), -1))
print(bisect_left(range(10**18), 2 * 10**20, key=lambda n: n * n), bisect_left(range(10**12), 5, 10**11))
print(bisect_left([1, 2, 2, 3], 2), bisect_right([1, 2, 2, 3], 2), bisect([1, 5], 3, 0, 1), bisect_left(range(50), 7))
try:
    bisect_left(range(10**10), 1, -1)
except ValueError as error:
    print(type(error))
