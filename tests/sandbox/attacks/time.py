# %% bare loop: timeout
while True: pass

# %% loop that catches everything: timeout
while True:
    try:
        while True: pass
    except BaseException: pass

# %% loop in a finally clause: timeout
try:
    1 / 0
finally:
    while True: pass

# %% loop that prints nothing: timeout
while True:
    print(end='')

# %% recursion that catches everything: timeout
def f():
    try: f()
    except BaseException: f()
f()

# %% recursion of generators that catch everything: timeout
def f(n):
    while True:
        try: yield from f(n + 1)
        except BaseException: yield n
for _ in f(0): pass

# %% generator that will not close: timeout
def f():
    while True:
        try: yield
        except BaseException: pass
g = f()
next(g)
while True:
    try: g.close()
    except RuntimeError: pass

# %% context manager that swallows all: timeout
class Swallow:
    def __enter__(self): return self
    def __exit__(self, *a): return True
while True:
    with Swallow():
        raise KeyboardInterrupt

# %% destructor: timeout
class A:
    def __del__(self):
        while True: pass
a = A()
del a

# %% destructor at exit: timeout
class A:
    def __del__(self):
        while True: pass
a = A()

# %% destructor that makes its own successor: timeout
class A:
    def __del__(self):
        A()
        while True: pass
A()

# %% destructor that rises again and again: timeout
import gc
class A:
    def __del__(self):
        global kept
        kept = [A(), self]
        kept.append(kept)
kept = A()
while True:
    kept = None
    gc.collect()

# %% exit function: timeout
import atexit
@atexit.register
def f():
    while True: pass

# %% exit function that registers itself: timeout
import atexit
def f():
    atexit.register(f)
    atexit._run_exitfuncs()
    while True: pass
atexit.register(f)

# %% exit after sys.exit: timeout
import atexit, sys
@atexit.register
def f():
    while True:
        try: sys.exit()
        except SystemExit: pass
sys.exit()

# %% regex of nested repeats: timeout
import re
re.match('(a+)+$', 'a' * 50 + 'b')

# %% regex of alternatives: timeout
import re
re.fullmatch('(a|a)*', 'a' * 40 + 'b')

# %% regex with back references: timeout
import re
re.match(r'(.*)(.*)(.*)(.*)(.*)\1\2\3\4\5x', 'ab' * 200)

# %% regex of many stars: timeout
import re
re.match('.*.*.*.*.*.*.*.*x', 'a' * 300)

# %% regex that substitutes: timeout
import re
re.sub('(x+x+)+y', '', 'x' * 40)

# %% power: timeout
10**10**10

# %% power of floats as integers: timeout
x = int(1e300) ** 10**6
while True: x *= x

# %% modular power: timeout
pow(3, 2**200000 + 1, 2**200000 - 1)

# %% factorial: timeout
import math
math.factorial(10**8)

# %% binomial: timeout
import math
math.comb(10**8, 5 * 10**7)

# %% str of a huge integer: timeout
import sys
sys.set_int_max_str_digits(0)
x = str(7**(10**7))

# %% integer of a huge str: timeout
import sys
sys.set_int_max_str_digits(0)
int('7' * 10**7)

# %% division of huge integers: timeout
x = (1 << 10**7) // ((1 << 5 * 10**6) - 1)
while True: x = divmod((1 << 10**7) + x, (1 << 5 * 10**6) - 1)[1]

# %% greatest common divisor of huge integers: timeout
import math
a, b = 1, 1
for _ in range(10**7): a, b = a + b, a
math.gcd(a, b)

# %% fractions that grow: timeout
from fractions import Fraction
x = Fraction(1, 3)
while True: x = x * x + 1

# %% decimals of all the precision there is: timeout
import decimal
decimal.getcontext().prec = 10**6
while True: decimal.Decimal(2).sqrt()

# %% iterator in C: timeout
import collections, itertools
collections.deque(itertools.count(), maxlen=0)

# %% sum in C: timeout
import itertools
sum(itertools.repeat(1))

# %% search in an endless range: timeout
print(-1 in iter(int, 1))

# %% any of an endless generator: timeout
any(False for _ in iter(int, 1))

# %% comprehension: timeout
[None for _ in iter(int, 1) if False]

# %% nested comprehensions: timeout
sum(a * b * c * d for a in range(1000) for b in range(1000) for c in range(1000) for d in range(1000))

# %% product of ranges: timeout
import itertools
for _ in itertools.product(range(100), repeat=10): pass

# %% permutations: timeout
import itertools
max(itertools.permutations(range(20)))

# %% sorting with a hostile key: timeout
def key(x):
    while True: pass
sorted([3, 1, 2], key=key)

# %% sorting with a hostile comparison: timeout
class A:
    def __lt__(self, other):
        while True: pass
sorted([A(), A()])

# %% sorting again and again: timeout
while True: sorted(range(10**5), key=lambda x: -x)

# %% a heap with hostile comparisons: timeout
import heapq
class A:
    def __lt__(self, other): return sum(iter(int, 1))
heapq.heapify([A(), A()])

# %% deep copies: timeout
import copy
x = [[0] * 100 for _ in range(100)]
while True: copy.deepcopy(x)

# %% deep copy that multiplies: timeout
import copy
class A:
    def __deepcopy__(self, memo): return [copy.deepcopy(A(), {}) for _ in range(2)]
try: copy.deepcopy(A())
except RecursionError: pass
while True:
    try: copy.deepcopy(A())
    except RecursionError: pass

# %% copies of memory: timeout
x = bytes(3 * 10**7)
while True: y = bytearray(x)

# %% one string searched for another: timeout
x = ('a' * 1000 + 'b') * 1000
while True: (x + 'c').find('a' * 1001)

# %% replacing in strings: timeout
x = 'a' * 10**6
while True: x = x.replace('a', 'b').replace('b', 'a')

# %% translating strings: timeout
while True: ('x' * 10**6).translate({120: 'y'})

# %% comparing equal sequences: timeout
a, b = [0] * 10**6, [0] * 10**6
while a == b: pass

# %% equality that never answers: timeout
class A:
    def __eq__(self, other):
        while True: pass
[A()].index(3)

# %% hash that never answers: timeout
class A:
    def __hash__(self):
        while True: pass
{A()}

# %% keys that all collide: timeout
class A:
    def __hash__(self): return 1
{A(): None for _ in range(10**6)}

# %% integers that all collide: timeout
step = 2**31 - 1
{i * step for i in range(10**5)}

# %% truth that never answers: timeout
class A:
    def __bool__(self):
        while True: pass
not A()

# %% index that never answers: timeout
class A:
    def __index__(self):
        while True: pass
[1][A()]

# %% length that never answers: timeout
class A:
    def __len__(self):
        while True: pass
len(A())

# %% attribute that never answers: timeout
class A:
    def __getattribute__(self, name):
        while True: pass
A().x

# %% class that never comes about: timeout
class Meta(type):
    def __prepare__(*a):
        while True: pass
class A(metaclass=Meta): pass

# %% subclass hook: timeout
import abc
class A(abc.ABC):
    @classmethod
    def __subclasshook__(cls, other):
        while True: pass
isinstance(1, A)

# %% decorator: timeout
@lambda f: next(x for x in iter(int, 1) if x)
def f(): pass

# %% display of the exception: timeout
class E(Exception):
    def __str__(self):
        while True: pass
raise E

# %% attributes of the exception: timeout
class E(Exception):
    def __getattribute__(self, name):
        while True: pass
raise E

# %% name of the exception's class: timeout
class Meta(type):
    def __getattribute__(cls, name):
        while True: pass
class E(Exception, metaclass=Meta): pass
raise E

# %% suggestion for a misspelt name: timeout
class A:
    def __dir__(self):
        while True: pass
A().nothing

# %% exception hook: timeout
import sys
def f(*a):
    while True: pass
sys.excepthook = f
1 / 0

# %% hook for exceptions nobody sees: timeout
import sys
def f(*a):
    while True: pass
sys.unraisablehook = f
class A:
    def __del__(self): 1 / 0
A()

# %% trace function: timeout
import sys
def f(*a):
    while True: pass
sys.settrace(f)
def g(): pass
g()

# %% profile function: timeout
import sys
def f(*a):
    while True: pass
sys.setprofile(f)
len('')

# %% monitoring: timeout
import sys
def f(*a):
    while True: pass
sys.monitoring.use_tool_id(3, 'x')
sys.monitoring.register_callback(3, sys.monitoring.events.PY_START, f)
sys.monitoring.set_events(3, sys.monitoring.events.PY_START)
def g(): pass
g()

# %% audit hook: timeout
import sys
def f(*a):
    while True: pass
sys.addaudithook(f)
compile('1', 'x', 'exec')

# %% import hook: timeout
import sys
class F:
    def find_spec(*a):
        while True: pass
sys.meta_path.insert(0, F())
import nonsense

# %% path hook: timeout
import sys
def f(path):
    while True: pass
sys.path_hooks.insert(0, f)
sys.path.insert(0, 'nowhere')
import nonsense

# %% codec: timeout
import codecs
def f(name):
    while True: pass
codecs.register(f)
''.encode('nonsense')

# %% error handler of a codec: timeout
import codecs
def f(error):
    while True: pass
codecs.register_error('mine', f)
'\xff'.encode('ascii', 'mine')

# %% error handler that never moves on: timeout or memory
import codecs
codecs.register_error('mine', lambda error: ('', error.start))
'\xff'.encode('ascii', 'mine')

# %% output stream: timeout
import sys
class S:
    def write(self, text): pass
    def flush(self):
        while True: pass
sys.stdout = S()

# %% error stream: timeout
import sys
class S:
    def write(self, text):
        while True: pass
sys.stderr = S()
1 / 0

# %% garbage collector's callback: timeout
import gc
def f(*a):
    while True: pass
gc.callbacks.append(f)
gc.collect()

# %% garbage collection again and again: timeout
import gc
x = [[] for _ in range(10**5)]
while True: gc.collect()

# %% garbage collection at every object: timeout
import gc
gc.set_threshold(1)
x = []
while True:
    y = []
    y.append(y)

# %% weak reference's callback: timeout
import weakref
class A: pass
a = A()
def f(reference):
    while True: pass
w = weakref.ref(a, f)
del a

# %% eval of eval: timeout
eval('all(True for _ in iter(int, 1))')

# %% compiler: timeout or memory
compile('x=1\n' * 10**7, 'f', 'exec')

# %% constant folding: timeout
while True: compile("x = (((1 << 120) ** 1) * 'a') if 0 else 2 ** 64", 'f', 'exec')

# %% optimiser of many branches: timeout
while True: compile('if x:\n y\nelse:\n z\n' * 1000, 'f', 'exec')

# %% parser that tries again: timeout
while True:
    try: compile('(' * 50 + 'x = ' + ')' * 50, 'f', 'exec')
    except SyntaxError: pass

# %% unpickler: timeout
import pickle
while True: pickle.loads(pickle.dumps(list(range(10**5))))

# %% parser of JSON: timeout
import json
x = '[' + '1,' * 10**5 + '1]'
while True: json.loads(x)

# %% hashing: timeout
import hashlib
while True: hashlib.sha3_512(b'x' * 10**6).digest()

# %% key derivation: timeout
import hashlib, hmac
k = b'x'
for _ in range(10**9): k = hmac.digest(k, b'salt', 'sha256')

# %% compression: timeout
import lzma
while True: lzma.compress(bytes(10**6), preset=6)

# %% a query that never ends: timeout
import sqlite3
sqlite3.connect(':memory:').execute('with recursive c(x) as (select 1 union all select x + 1 from c) select sum(x) from c').fetchall()

# %% numpy products: timeout
import numpy
a = numpy.ones((300, 300))
while True: a @ a

# %% one large numpy product: timeout
import numpy
a = numpy.ones((1500, 1500))
a @ a @ a @ a @ a @ a

# %% numpy decomposition: timeout
import numpy
numpy.linalg.svd(numpy.random.rand(1200, 1200))

# %% numpy sort: timeout
import numpy
while True: numpy.sort(numpy.random.rand(10**6))

# %% numpy einsum: timeout
import numpy
a = numpy.ones((200, 200))
while True: numpy.einsum('ab,bc,cd->ad', a, a, a, optimize=False)

# %% numpy with objects: timeout
import numpy
class A:
    def __add__(self, other):
        while True: pass
numpy.array([A(), A()], dtype=object).sum()

# %% scipy that integrates for ever: timeout
import scipy.integrate
def f(x):
    while True: pass
scipy.integrate.quad(f, 0, 1)

# %% scipy that optimises for ever: timeout
import scipy.optimize
def f(x):
    while True: pass
scipy.optimize.minimize(f, [0.0])

# %% sympy integral: timeout
from sympy import *
x = symbols('x')
integrate(exp(sin(x)) * log(x + sqrt(x**7 + 1)), x)
while True: expand((x + 1)**200)

# %% sympy power: timeout
from sympy import *
x, y, z = symbols('x y z')
expand((x + y + z + 1)**300)

# %% sympy factorisation: timeout
from sympy import *
factorint(2**401 - 1)

# %% sympy primes: timeout
from sympy import *
nextprime(10**5000)

# %% sympy evaluation with all digits: timeout
from sympy import *
N(pi, 10**7)

# %% sympy simplification: timeout
from sympy import *
x = symbols('x')
simplify(sum(sin(x)**i * cos(x)**(30 - i) for i in range(30)))

# %% sympy determinant: timeout
from sympy import *
Matrix(12, 12, symbols('a:144')).det()

# %% sympy text: timeout
from sympy import *
sympify('9**9**9**9')

# %% sleeping: timeout
import time
while True: time.sleep(1000)

# %% waiting for the clock: timeout
import time
while time.time() > 0: pass

# %% waiting for an alarm that cannot come: timeout
import signal
try: signal.pause()
except BaseException: pass
while True: pass

# %% event loop: timeout
import asyncio, selectors
class Loop(asyncio.SelectorEventLoop):
    # The ordinary one asks for a pair of sockets, which this interpreter does not have.
    def _make_self_pipe(self): pass
    def _close_self_pipe(self): pass
async def f():
    while True: await asyncio.sleep(0)
Loop().run_until_complete(f())

# %% coroutine that swallows its cancellation: timeout
import asyncio
class Loop(asyncio.SelectorEventLoop):
    def _make_self_pipe(self): pass
    def _close_self_pipe(self): pass
async def f():
    while True:
        try: await asyncio.sleep(10)
        except BaseException: pass
async def main():
    task = asyncio.create_task(f())
    await asyncio.sleep(0)
    task.cancel()
    await task
Loop().run_until_complete(main())

# %% coroutine that never yields: timeout
import types
@types.coroutine
def step():
    while True: yield
async def f(): await step()
c = f()
while True: c.send(None)

# %% select: timeout
import select
while True: select.select([], [], [], 1000)

# %% host call for randomness: timeout
import os
while True: os.urandom(10**6)

# %% host call for much randomness: timeout
import os
while True: os.urandom(9 * 10**7)

# %% host call that reads the library: timeout
while True: open('/usr/local/lib/python315.zip', 'rb').read(10**6)

# %% host call that reads all of the library: timeout or memory or ok
import os
fd = os.open('/usr/local/lib/python315.zip', os.O_RDONLY)
while True: os.pread(fd, 6 * 10**7, 0)

# %% host call that writes nothing: timeout
import os
while True: os.write(1, b'')

# %% host call that writes an endless report: timeout
import os
while True: os.write(1001, bytes(5 * 10**7))

# %% host call that reads nothing: timeout
import os
while True: os.read(0, 10**8)

# %% host call for the clock: timeout
import time
while True: time.perf_counter()

# %% host call with a long name: timeout
import os
while True:
    try: os.open('x' * 10**6, 0)
    except OSError: pass

# %% host call about a file: timeout
import os
while True: os.stat('/usr/local/lib/python315.zip')

# %% memory that grows and is given back: timeout or memory
while True:
    x = bytearray(8 * 10**7)
    del x

# %% one large fill: timeout or memory
x = bytearray(10**8)
while True:
    x[:] = bytes(1) * 10**8

# %% one large move: timeout
x = bytearray(6 * 10**7)
while True:
    del x[:1]
    x.insert(0, 1)
