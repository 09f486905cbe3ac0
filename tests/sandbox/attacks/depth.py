# %% recursion: error RecursionError
def f(n): return f(n + 1)
f(0)

# %% recursion with a raised limit: memory
import sys
sys.setrecursionlimit(10**9)
def f(n): return f(n + 1)
f(0)

# %% recursion of methods: error RecursionError
class A:
    def f(self): return self.f()
A().f()

# %% recursion of functions in turn: error RecursionError
def f(): return g()
def g(): return f()
f()

# %% recursion that prints its depth: error RecursionError | ''.join(f'{n}\n' for n in range(990))
def f(n):
    print(n) if n < 990 else None
    f(n + 1)
f(0)

# %% recursion of functions with defaults: memory or error RecursionError
def f(*a, **k): return f(*a, **k)
f(*range(10))

# %% recursion in a cached function: error RecursionError
import functools, sys
sys.setrecursionlimit(10**9)
@functools.cache
def f(n): return f(n + 1)
f(0)

# %% recursion in a comprehension: error RecursionError
def f(n): return [f(n + 1) for _ in range(1)]
f(0)

# %% recursion in a generator: error RecursionError
def g(n): yield from g(n + 1)
next(g(0))

# %% recursion in coroutines: error RecursionError
async def f(): await f()
f().send(None)

# %% recursion in a property: error RecursionError
class A:
    @property
    def x(self): return self.x
A().x

# %% recursion in attribute access: error RecursionError
class A:
    def __getattr__(self, name): return getattr(self, name + 'x')
A().x

# %% recursion in a descriptor: error RecursionError
class D:
    def __get__(self, *a): return A().x
class A: x = D()
A().x

# %% recursion in a call: error RecursionError
class A:
    def __call__(self): self()
A()()

# %% recursion in a constructor: error RecursionError
class A:
    def __init__(self): A()
A()

# %% recursion in a metaclass: error RecursionError
class M(type):
    def __call__(cls): return cls()
class A(metaclass=M): pass
A()

# %% recursion in equality: error RecursionError
class A:
    def __eq__(self, other): return self == other
A() == 1

# %% recursion in hashing: error RecursionError
class A:
    def __hash__(self): return hash(self)
{A()}

# %% recursion in truth: error RecursionError
class A:
    def __bool__(self): return bool(self)
not A()

# %% recursion in addition: error RecursionError
class A:
    def __add__(self, other): return self + other
A() + 1

# %% recursion in a destructor: ok
class A:
    def __del__(self): A()
A()

# %% recursion in a sort key: error RecursionError
def key(x): return sorted([2, 1], key=key)
sorted([2, 1], key=key)

# %% recursion in map: error RecursionError
def f(x): return list(map(f, [x]))
f(1)

# %% recursion in reduce: error RecursionError
import functools
def f(a, b): return functools.reduce(f, [1, 2])
f(1, 2)

# %% recursion in partial functions: error RecursionError
import functools
def f(): functools.partial(f)()
f()

# %% recursion in regex substitution: error RecursionError
import re
def f(m): return re.sub('x', f, 'x')
f(None)

# %% recursion in eval: error RecursionError
x = 'eval(x)'
eval(x)

# %% recursion in exec: error RecursionError
x = 'exec(x)'
exec(x)

# %% recursion in import: error RecursionError
import sys
class F:
    def find_spec(self, name, *a): return __import__(name + 'x')
sys.meta_path.insert(0, F())
import nonsense

# %% recursion in formatting: error RecursionError
class A:
    def __format__(self, spec): return f'{self}'
f'{A()}'

# %% recursion in repr: error RecursionError
class A:
    def __repr__(self): return repr(self)
repr(A())

# %% recursion in pickling: error RecursionError
import pickle
class A:
    def __reduce__(self): return (pickle.dumps, (A(),))
pickle.dumps(A())

# %% recursion in copying: error RecursionError
import copy
class A:
    def __deepcopy__(self, memo): return copy.deepcopy(A(), memo)
copy.deepcopy(A())

# %% recursion in isinstance: error RecursionError
class M(type):
    def __instancecheck__(cls, x): return isinstance(x, cls)
class A(metaclass=M): pass
isinstance(1, A)

# %% recursion in an abstract class: error RecursionError
import abc
class A(abc.ABC):
    @classmethod
    def __subclasshook__(cls, other): return issubclass(other, cls)
issubclass(int, A)

# %% recursion in numpy: error RecursionError
import numpy
f = numpy.frompyfunc(lambda x: f(x), 1, 1)
f(1)

# %% recursion in an array's conversion: error RecursionError
import numpy
class A:
    def __array__(self, *a, **k): return numpy.array(A())
numpy.array(A())

# %% recursion in scipy: error RecursionError
import scipy.integrate
def f(x): return scipy.integrate.quad(f, 0, 1)[0]
f(0)

# %% recursion in sympy: error RecursionError
from sympy import *
class F(Function):
    @classmethod
    def eval(cls, x): return F(x)
F(1)

# %% recursion in the trace function: error RecursionError
import sys
def f(*a): g()
def g(): f()
sys.settrace(f)
g()

# %% recursion and recovery: ok | 'RecursionError 2\n' * 100
def f(n): return f(n + 1)
for _ in range(100):
    try: f(0)
    except RecursionError as error: print(type(error).__name__, 1 + 1)

# %% recursion without a bottom that is caught at every level: error RecursionError
def f(n):
    try: f(n + 1)
    except RecursionError: raise
f(0)

# %% repr of a deep list: timeout or error RecursionError
# (Slow: the interpreter looks for a circle at every level.)
x = []
for _ in range(10**5): x = [x]
repr(x)

# %% repr of a deep dictionary: ok
x = {}
for _ in range(4 * 10**4): x = {1: x}
repr(x)

# %% comparison of deep tuples: ok
x = y = None
for _ in range(10**5): x, y = (x,), (y,)
x == y

# %% hash of a deep tuple: ok
x = ()
for _ in range(10**5): x = (x,)
hash(x)

# %% deep copy of a deep list: error RecursionError
import copy
x = []
for _ in range(10**4): x = [x]
copy.deepcopy(x)

# %% JSON of a deep list: output_limit
# (The exception has a note for each level.)
import json
x = []
for _ in range(10**5): x = [x]
json.dumps(x)

# %% JSON text of a deep list: error JSONDecodeError RecursionError
import json
json.loads('[' * 10**5)

# %% pickle of a deep list: error RecursionError
import pickle
x = []
for _ in range(10**5): x = [x]
pickle.dumps(x)

# %% pickle in Python of a deep list: error RecursionError
import io, pickle
x = []
for _ in range(10**5): x = [x]
pickle._Pickler(io.BytesIO()).dump(x)

# %% marshal of a deep list: error ValueError
import marshal
x = []
for _ in range(10**5): x = [x]
marshal.dumps(x)

# %% marshalled text of a deep tuple: error ValueError EOFError
import marshal
marshal.loads(b'\xa9\x01' * 10**5)

# %% XML of deep elements: ok
import xml.etree.ElementTree as tree
tree.fromstring('<x>' * 10**4 + '</x>' * 10**4)

# %% XML text of deep elements: error RecursionError
import xml.etree.ElementTree as tree
tree.tostring(tree.fromstring('<x>' * 10**4 + '</x>' * 10**4))

# %% literal of a deep list: error MemoryError SyntaxError RecursionError or memory
import ast
ast.literal_eval('[' * 10**4 + ']' * 10**4)

# %% parser of parentheses: error MemoryError or error SyntaxError
eval('(' * 10**5 + ')' * 10**5)

# %% parser of brackets: error MemoryError or error SyntaxError
eval('[' * 150 + ']' * 150)

# %% parser of unary operators: error MemoryError or error RecursionError
eval('-' * 10**5 + '1')

# %% parser of negations: error MemoryError or error RecursionError
eval('not ' * 10**5 + '1')

# %% parser of powers: error MemoryError or error RecursionError
eval('**'.join(['1'] * 10**5))

# %% parser of lambdas: error MemoryError or error RecursionError
eval('lambda: ' * 10**5 + '1')

# %% parser of conditionals: error MemoryError or error RecursionError
eval('1 if 1 else ' * 10**5 + '1')

# %% parser of f-strings: error MemoryError
eval('f"{' * 200 + '1' + '}"' * 200)

# %% parser of indents: error IndentationError
exec('\n'.join(' ' * i + 'if 1:' for i in range(200)) + '\n' + ' ' * 200 + 'pass')

# %% parser of blocks: error SyntaxError
exec('\n'.join(' ' * i + 'for x in y:' for i in range(50)) + '\n' + ' ' * 50 + 'pass')

# %% parser of else clauses: error MemoryError or error RecursionError
exec('if 0: pass\n' + 'elif 0: pass\n' * 10**5)

# %% parser of patterns: error MemoryError or error SyntaxError
exec('match 1:\n case ' + '[' * 10**4 + 'x' + ']' * 10**4 + ': pass')

# %% parser of attributes: error RecursionError
eval('x' + '.x' * 10**5)

# %% parser of calls: error RecursionError
eval('x' + '()' * 10**5)

# %% compiler of sums: error RecursionError
eval('+'.join(['1'] * 10**5))

# %% compiler of comparisons: ok
eval('<'.join(map(str, range(10**4))))

# %% compiler of many arguments: ok
eval('(lambda *a: 0)(' + '1,' * 10**5 + ')')

# %% tree of unary operators: error RecursionError
import ast
x = ast.Constant(1, lineno=1, col_offset=0)
for _ in range(10**5): x = ast.UnaryOp(ast.USub(), x, lineno=1, col_offset=0)
compile(ast.Expression(x), 'f', 'eval')

# %% regex of groups: error RecursionError
import re
re.compile('(' * 10**5 + ')' * 10**5)

# %% regex of classes in repeats: error RecursionError PatternError
import re
re.compile('(?:' * 10**4 + 'x' + ')*' * 10**4)

# %% regex that matches deep: ok
import re
re.match('(x|y)*', 'x' * 10**6)

# %% format specifications in each other: error ValueError
'{:{:{}}}'.format(1, 2, 3)

# %% deep map: ok
x = [1]
for _ in range(10**5): x = map(int, x)
list(x)

# %% deep chain: ok
import itertools
x = iter([1])
for _ in range(10**5): x = itertools.chain(x)
list(x)

# %% deep zip: ok
x = iter([1])
for _ in range(10**5): x = zip(x)
next(x)

# %% deep enumerate: ok
x = iter([1])
for _ in range(10**5): x = enumerate(x)
next(x)

# %% deep generators: ok
def g(x): yield from x
x = iter([1])
for _ in range(10**4): x = g(x)
next(x)

# %% deep closures called: error RecursionError
f = lambda: 0
for _ in range(10**5): f = (lambda g: lambda: g())(f)
f()

# %% deep partial functions: ok
import functools
f = int
for _ in range(10**3): f = functools.partial(f)
f()

# %% deep methods: memory
import types
f = len
for _ in range(10**5): f = types.MethodType(f, f)
f()

# %% deep proxies: error KeyError
import types
x = {}
for _ in range(10**5): x = types.MappingProxyType(x)
x['a']

# %% deep unions: error RecursionError or ok
x = list[int]
for _ in range(10**4): x = list[x]
repr(x)

# %% deep class hierarchy: error AttributeError
class A: pass
for _ in range(300): A = type('A', (A,), {})
A().x

# %% deep instances compared: error RecursionError
import dataclasses
@dataclasses.dataclass
class A:
    x: object
a = b = None
for _ in range(10**5): a, b = A(a), A(b)
a == b

# %% deep sympy expression: error RecursionError
from sympy import *
e = symbols('x')
for _ in range(1000): e = sin(e)
print(e)

# %% deep sympy text: error SympifyError TokenError
from sympy import *
sympify('sin(' * 10**4 + '1' + ')' * 10**4)

# %% deep numpy list: error ValueError
import numpy
x = []
for _ in range(10**4): x = [x]
numpy.array(x)

# %% deep chain of exceptions: error ZeroDivisionError RecursionError
def f(n):
    try: raise ValueError(n)
    except ValueError:
        f(n - 1) if n else 1 / 0
f(500)

# %% deep chain of contexts shown: error ValueError
error = None
for i in range(10**3):
    new = ValueError(i)
    new.__context__ = error
    error = new
raise error

# %% death of deep instances: ok
class A:
    def __init__(self, n): self.n = n
x = None
for _ in range(10**6): x = A(x)
del x

# %% death of a deep list: ok
x = []
for _ in range(5 * 10**5): x = [x]
del x

# %% death of a deeper list: ok
x = []
for _ in range(3 * 10**6): x = [x]
del x

# %% death of a deep iterator: ok
import itertools
x = iter([])
for _ in range(10**6): x = itertools.chain(x)
del x

# %% death of deep maps in lists in tuples: ok
x = []
for _ in range(3 * 10**5): x = map(id, iter([(x,)]))
del x

# %% death of deep closures: ok
x = None
for _ in range(5 * 10**5): x = (lambda x: lambda: x)(x)
del x

# %% death of deep coroutines: ok
import warnings
warnings.simplefilter('ignore')
async def f(x): return x
x = None
for _ in range(5 * 10**5): x = f(x)
del x

# %% death of deep instances that say so: ok
class A:
    def __init__(self, x): self.x = x
    def __del__(self):
        global died
        died += 1
died = 0
x = None
for _ in range(5 * 10**5): x = A(x)
del x
assert died == 5 * 10**5

# %% death of deep numpy objects: crash
# CPython has no guard here: natively this ends the process.
import numpy
x = numpy.array([None], dtype=object)
for _ in range(10**5):
    y = numpy.empty(1, dtype=object)
    y[0] = x
    x = y
del x, y

# %% death of a deep list at exit: ok
x = []
for _ in range(10**6): x = [x]

# %% death of a deep circle: ok
import gc
x = y = []
for _ in range(10**6): x = [x]
y.append(x)
del x, y
gc.collect()

# %% death of a deep dictionary: ok
x = {}
for _ in range(3 * 10**5): x = {1: x}
del x

# %% death of linked lists: ok
class Node:
    __slots__ = ('next', 'back')
first = last = Node()
for _ in range(3 * 10**5):
    last.next = Node()
    last.next.back, last = last, last.next
del first, last

# %% death of deep generators: ok
def g(x):
    yield x
x = None
for _ in range(10**5):
    x = g(x)
    next(x)
del x

# %% death of deep weak references: ok
import weakref
class A: pass
x, keep = None, A()
for _ in range(10**5): x = weakref.ref(keep, (lambda x: lambda *a: x)(x))
del x

# %% death of a deep traceback: ok
import sys
sys.setrecursionlimit(10**6)
def f(n):
    if n == 0: raise ValueError
    f(n - 1)
try: f(10**5)
except (ValueError, RecursionError, MemoryError) as error: e = error
del e
