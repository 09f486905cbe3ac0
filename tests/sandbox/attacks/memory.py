# %% one string: memory
x = 'x' * 10**9

# %% one wide string: memory
x = '\U0001f600' * 10**8

# %% bytes: memory
x = bytes(10**9)

# %% bytearray: memory
x = bytearray(10**9)

# %% bytearray that grows: memory
x = bytearray()
while True: x += bytes(10**6)

# %% array: memory
import array
x = array.array('d', [0.0]) * 10**8

# %% list: memory
x = [None] * 10**8

# %% list of strings: memory
x = []
while True: x.append('x' * 10**6)

# %% list that holds itself: memory
x = [1]
while True: x += x

# %% list over a range: memory
list(range(10**9))

# %% list with a lying length: memory
class A:
    def __length_hint__(self): return 10**9
    def __iter__(self): return iter(())
list(A())

# %% tuple: memory
x = (None,) * 10**8

# %% doubling: memory
x = b'x'
while True: x += x

# %% doubling text: memory
x = 'x'
while True: x = x + x

# %% nested lists: memory
x = []
while True: x = [x, x]

# %% dictionary: memory
d = {}
i = 0
while True:
    d[i] = i
    i += 1

# %% set: memory
set(range(10**8))

# %% set of tuples: memory
s = set()
while True: s.add((len(s), 'x' * 1000))

# %% attributes: memory
class A: pass
x = []
while True:
    a = A()
    a.b = bytes(1000)
    x.append(a)

# %% classes: memory
x = []
while True: x.append(type('A', (), {'x': 'x' * 10**5}))

# %% functions: memory
x = []
while True: x.append(eval('lambda: 0', {'x': bytes(10**5)}))

# %% closures in a chain: memory
f = lambda: 0
while True: f = (lambda g: lambda: g)(f)

# %% objects of recursion: memory or error RecursionError
import sys
sys.setrecursionlimit(10**9)
def f(n):
    x = bytes(10**5)
    return f(n + 1), x
f(0)

# %% cached function: memory
import functools
@functools.cache
def f(n): return 'x' * 10**5 + str(n)
n = 0
while True:
    f(n)
    n += 1

# %% interned strings: memory
import sys
x = []
while True: x.append(sys.intern('x' * 10**5 + str(len(x))))

# %% generators kept: memory
def g():
    x = bytes(10**5)
    yield x
x = []
while True:
    x.append(g())
    next(x[-1])

# %% iterator teed: memory
import itertools
a, b = itertools.tee(itertools.count())
for _ in a: pass

# %% product: memory
import itertools
list(itertools.product(range(100), repeat=5))

# %% groups: memory
import itertools
list(itertools.permutations(range(12)))

# %% deque: memory or error SystemError
# (The interpreter forgets to say why it failed.)
import collections
collections.deque(iter(int, 1))

# %% counter: memory
import collections, itertools
collections.Counter(itertools.count())

# %% big integer: memory
x = 1 << (8 * 10**9 - 64)

# %% squares kept: memory
x = [3]
while len(x) < 20: x.append(x[-1] * x[-1])
while True: x.append(x[-1] + 1)

# %% format width: memory
'%999999999d' % 1

# %% f-string width: memory
f'{1:>999999999}'

# %% format precision: memory
'%.999999999f' % 1.5

# %% joined text: memory
','.join(['x' * 10**6] * 1000)

# %% replaced text: memory
('x' * 10**4).replace('x', 'y' * 10**5)

# %% repeated by a template: memory
import re
re.sub('x', lambda m: 'y' * 10**5, 'x' * 10**5)

# %% expanded tabs: memory
'\t'.expandtabs(10**9)

# %% centred text: memory
'x'.center(10**9)

# %% zero fill: memory
'x'.zfill(10**9)

# %% encoded text: memory
('\u1234' * 10**8).encode('utf-7')

# %% escaped text: memory
repr('\ud800' * 10**8)

# %% text stream: memory
import io
s = io.StringIO()
while True: s.write('x' * 10**6)

# %% byte stream that seeks: memory
import io
s = io.BytesIO()
s.seek(10**9)
s.write(b'x')

# %% compressed zeros: memory
import zlib
zlib.decompress(zlib.compress(bytes(5 * 10**7)) , bufsize=10**9)

# %% zlib bomb: memory
import zlib
d = zlib.compress(bytes(4 * 10**7))
x = [zlib.decompress(d) for _ in range(100)]

# %% gzip bomb: memory
import gzip
d = gzip.compress(bytes(10**7), 1)
x = gzip.decompress(d * 50)

# %% bz2 bomb: memory
import bz2
d = bz2.compress(bytes(5 * 10**6))
x = bz2.decompress(d * 100)

# %% lzma bomb: memory
import lzma
d = lzma.compress(bytes(10**7), preset=0)
x = lzma.decompress(d * 100)

# %% lzma dictionary: memory
import lzma
lzma.compress(b'x', format=lzma.FORMAT_RAW, filters=[{'id': lzma.FILTER_LZMA2, 'dict_size': 1 << 30}])

# %% zip bomb: memory
import io, zipfile
b = io.BytesIO()
with zipfile.ZipFile(b, 'w', zipfile.ZIP_DEFLATED) as z: z.writestr('x', bytes(4 * 10**7))
z = zipfile.ZipFile(b)
x = [z.read('x') for _ in range(100)]

# %% JSON bomb: memory
import json
json.loads('[' + '{"a":[]},' * 4 * 10**6 + '[]]')

# %% text that JSON escapes: memory
import json
json.dumps('\x01' * 10**8)

# %% pickle of a lying length: memory or error UnpicklingError
import pickle
pickle.loads(b'\x80\x04\x8e' + (10**9).to_bytes(8, 'little') + b'x.')

# %% pickle that doubles: memory
import pickle
class A:
    def __reduce__(self): return (bytes, (10**7,))
x = b''.join(pickle.dumps(A(), 0)[:-1] for _ in range(100))
pickle.loads(b'(' + x + b'l.')

# %% marshal with a lying size: memory or error ValueError EOFError
import marshal
marshal.loads(b'(\xff\xff\xff\x0f')

# %% XML of a billion laughs: memory or error ParseError
import xml.etree.ElementTree as tree
entities = '<!ENTITY a0 "ha">' + ''.join(f'<!ENTITY a{i + 1} "{f"&a{i};" * 10}">' for i in range(9))
tree.fromstring(f'<!DOCTYPE x [{entities}]><x>&a9;</x>')

# %% XML of many elements: memory
import xml.etree.ElementTree as tree
tree.fromstring('<x>' + '<y a="1"/>' * 10**7 + '</x>')

# %% regex of many alternatives: timeout or memory
import re
re.compile('|'.join(['x' * 100] * 10**6))

# %% regex that matches much: memory
import re
re.match('(?:(x)|y)*', 'xy' * 10**7)

# %% matches kept: memory
import re
[re.match("(x)" * 90, "x" * 90) for _ in range(10**6)]

# %% code object: memory
compile('x = ' + '1,' * 10**7, 'f', 'exec')

# %% tree of code: memory
import ast
ast.parse('x\n' * 10**7)

# %% source of many names: memory
compile('\n'.join(f'x{i} = {i}' for i in range(10**6)), 'f', 'exec')

# %% numpy array: memory
import numpy
x = numpy.ones((10000, 10000))

# %% numpy arrays: memory
import numpy
x = [numpy.ones(10**6) for _ in range(10**4)]

# %% numpy outer product: memory
import numpy
numpy.outer(numpy.ones(10**4), numpy.ones(10**4))

# %% numpy broadcast made real: memory
import numpy
numpy.broadcast_to(numpy.zeros(1), (10**8,)).copy()

# %% numpy tiles: memory
import numpy
numpy.tile(numpy.zeros(10**6), 100)

# %% numpy text: memory
import numpy
numpy.zeros(100, dtype='U1000000')

# %% numpy grid: memory
import numpy
numpy.mgrid[0:1000, 0:1000, 0:50]

# %% numpy range: memory
import numpy
numpy.arange(0, 1, 1e-8)

# %% scipy sparse made dense: memory
import scipy.sparse
scipy.sparse.eye(10**4).tocsr().toarray()

# %% pandas frame: memory
import numpy, pandas
pandas.DataFrame(numpy.zeros((10, 100))).reindex(range(10**6))

# %% sympy swell: memory
from sympy import *
x, y, z = symbols('x y z')
e = x
while True: e = expand((e + y * z)**3)

# %% sympy subsets: memory
from sympy.utilities.iterables import subsets
list(subsets(range(40)))

# %% exceptions that hold their frames: memory
kept = []
def f():
    x = bytes(10**5)
    raise ValueError
while True:
    try: f()
    except ValueError as error: kept.append(error)

# %% tracemalloc: memory
import tracemalloc
tracemalloc.start(100)
x = []
while True: x.append(bytes(10**5))

# %% database: memory or error OperationalError
import sqlite3
c = sqlite3.connect(':memory:')
c.execute('create table t(x)')
while True: c.execute('insert into t values (zeroblob(1000000))')

# %% database blob: memory or error OperationalError DataError
import sqlite3
sqlite3.connect(':memory:').execute('select zeroblob(900000000)').fetchone()

# %% fragments: ok or memory
x = []
for size in range(1000, 10**6, 1000):
    x += [bytes(size) for _ in range(20)]
    del x[::3]

# %% fragments of growing size: memory
x = []
n = 1
while True:
    x.append(bytes(n))
    if len(x) % 2: x[len(x) // 2] = None
    n += n // 8 + 1

# %% all memory is taken and the error caught: timeout
x = []
while True:
    try:
        while True: x.append(bytes(10**6))
    except MemoryError: pass

# %% all memory is taken to the last byte: memory or crash
# The interpreter itself is not proof against having no byte left: with the next layout of its heap this may be a trap.
x = []
size = 1 << 27
while True:
    try: x.append(bytes(size))
    except MemoryError:
        if size < 2: break
        size //= 2
raise MemoryError

# %% all memory is taken and more is asked for at exit: memory
import atexit
@atexit.register
def f():
    y = []
    while True: y.append([None] * 1000)
x = []
while True: x.append(bytes(10**5))

# %% all memory is taken and more is asked for in the handler: memory or crash
# As above: the interpreter's own handling of the second error may meet a null pointer.
x = []
try:
    while True: x.append([0] * 10)
except MemoryError:
    y = [1]
    while True: y.append(str(y[-1]) * 2)

# %% memory errors in a destructor: memory
class A:
    def __del__(self): self.x = bytes(10**9)
kept = []
while True:
    A()
    kept.append(bytes(10**6))

# %% memory error with a cause: memory
try: bytes(10**9)
except MemoryError as error: raise MemoryError('again') from error

# %% memory error raised by hand: memory
raise MemoryError('x' * 1000)

# %% subclass of a memory error: memory
class E(MemoryError): pass
raise E

# %% memory error in a group: error ExceptionGroup
raise ExceptionGroup('g', [MemoryError()])

# %% sizes beyond the address space: error OverflowError MemoryError
x = bytes(2**40)

# %% lists beyond the address space: memory
x = [0] * (2**31 - 1)

# %% shifts beyond the address space: error OverflowError MemoryError
1 << 2**40

# %% shapes beyond the address space: error ValueError MemoryError
import numpy
numpy.zeros((2**20, 2**20))
