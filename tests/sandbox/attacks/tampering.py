# %% builtins deleted: error NameError
import builtins
for name in list(vars(builtins)): delattr(builtins, name)

# %% builtins set to None: ok
import builtins
for name in list(vars(builtins)):
    if name != 'setattr': setattr(builtins, name, None)

# %% builtins deleted and code that fails: error NameError
import builtins
for name in list(vars(builtins)): delattr(builtins, name)
1 / 0

# %% builtins that the driver uses replaced: error ValueError
import builtins
builtins.type = builtins.len = builtins.isinstance = builtins.issubclass = builtins.str = builtins.int = None
raise ValueError

# %% builtins that lie: error ValueError
import builtins
builtins.isinstance = builtins.issubclass = lambda *a: True
raise ValueError

# %% exceptions replaced: error ZeroDivisionError
import builtins
builtins.BaseException = builtins.SystemExit = builtins.MemoryError = int
1 / 0

# %% import replaced: error ImportError
import builtins
def f(*a): raise ImportError
builtins.__import__ = f
import sys

# %% class building replaced: error TypeError
import builtins
builtins.__build_class__ = 7
class A: pass

# %% builtins of the main module replaced: error ImportError NameError
__builtins__ = {}
exec('print(1)', {'__builtins__': {}})

# %% driver cleared: ok or error
import _torl_driver
vars(_torl_driver).clear()

# %% driver cleared and code that fails: error
import _torl_driver
vars(_torl_driver).clear()
1 / 0

# %% driver's names set to None: ok or error
import _torl_driver
for name in list(vars(_torl_driver)): setattr(_torl_driver, name, None)

# %% driver's write replaced: error
import _torl_driver
_torl_driver._write = lambda *a: 1 / 0

# %% driver's write that swallows the report: error
import _torl_driver
_torl_driver._write = lambda *a: None

# %% driver's run replaced: ok
import _torl_driver
_torl_driver.run = lambda: 1 / 0

# %% driver's code replaced: ok
import _torl_driver
_torl_driver.run.__code__ = (lambda: 1 / 0).__code__

# %% driver's execution replaced while it runs: ok
import _torl_driver
_torl_driver._execute.__code__ = (lambda source, main: 1 / 0).__code__

# %% driver's last steps replaced: ok
import _torl_driver
_torl_driver._finish.__code__ = (lambda main: 1 / 0).__code__

# %% driver's report of exceptions replaced: error
import _torl_driver
_torl_driver._report_exception.__code__ = (lambda error: 7).__code__
1 / 0

# %% driver run inside the run: error
import _torl_driver
_torl_driver.run()
raise SystemExit(3)

# %% driver run again and again: error TypeError
import _torl_driver
def f():
    _torl_driver._execute(b'import _torl_driver\n_torl_driver._execute(source, main)', __import__('types').ModuleType('x'))
def g(): g(_torl_driver._guard(g))
g()

# %% driver's source asked for: error TypeError
import _torl_driver, inspect
inspect.getsource(_torl_driver)

# %% reactor cleared: ok
import _reactor
vars(_reactor).clear()

# %% reactor's turn replaced: ok
import _reactor
_reactor._run_turn = lambda *a: 1 / 0
_reactor.turn = None

# %% conditioning run again: ok
import _torl_conditioning
_torl_conditioning.fill_holes()

# %% conditioning's ballast freed: ok
import _torl_conditioning
_torl_conditioning._ballast.clear()

# %% conditioning's search run again: ok
import _torl_conditioning
_torl_conditioning.replace_next_run()

# %% warm-up run again: error TypeError
import _torl_warmup
_torl_warmup.SNIPPETS.clear()
_torl_warmup.warm_up()

# %% host called through the guest's own door: error *
import _host
_host.call('x', b'x')

# %% host's door inspected: ok
import _host
for name in dir(_host):
    for arguments in ((), ('x',), (b'x',), ('x', b'x'), (1, 2, 3), (b'x' * 10**6, b'y' * 10**6)):
        try: getattr(_host, name)(*arguments)
        except Exception: pass

# %% os.write deleted: error ZeroDivisionError
import os
del os.write, os.read
1 / 0

# %% all modules forgotten: ok
import sys
sys.modules.clear()

# %% all modules cleared: error AttributeError
import sys
for module in list(sys.modules.values()):
    if module is not None and module.__name__ not in ('sys', 'builtins'): vars(module).clear()

# %% all modules set to None: ok or error
import sys
for name in list(sys.modules): sys.modules[name] = None

# %% sys cleared: ok or error
import sys
vars(sys).clear()

# %% sys cleared and code that fails: error
import sys
vars(sys).clear()
1 / 0

# %% traceback module cleared: error ZeroDivisionError
import traceback
vars(traceback).clear()
1 / 0

# %% traceback classes broken: error ZeroDivisionError
import traceback
traceback.TracebackException.format = None
traceback.StackSummary.from_list = None
1 / 0

# %% linecache broken: error ZeroDivisionError
import linecache
linecache.cache = None
linecache.getlines = linecache.getline = linecache.checkcache = None
1 / 0

# %% linecache filled with lies: error ZeroDivisionError
import linecache
linecache.cache['main.py'] = (1, None, ['\ud800\0'] * 10**5, 7)
1 / 0

# %% codecs broken: error ZeroDivisionError
import codecs, encodings
vars(codecs).clear()
vars(encodings).clear()
1 / 0

# %% UTF-8 broken: error ZeroDivisionError UnicodeEncodeError or error
import codecs
codecs.register_error('replace', lambda e: 1 / 0)
codecs.register_error('strict', lambda e: 1 / 0)
codecs.register_error('backslashreplace', lambda e: 1 / 0)
raise ZeroDivisionError('\ud800')

# %% atexit broken: ok
import atexit
atexit._run_exitfuncs = None
atexit._clear()

# %% exit functions that raise: ok
import atexit
for _ in range(100): atexit.register(lambda: 1 / 0)

# %% random module broken: ok
import random
random.seed = random.random = None

# %% types module broken: ok
import types
types.ModuleType = None

# %% import machinery cleared: error ModuleNotFoundError
import sys
sys.meta_path.clear()
sys.path.clear()
sys.path_hooks.clear()
sys.path_importer_cache.clear()
import nonsense

# %% import machinery broken: error TypeError AttributeError
import sys
sys.meta_path = 7
import nonsense

# %% frozen import machinery cleared: error *
import sys
import importlib._bootstrap as b
vars(b).clear()
import nonsense

# %% library's archive closed: ok
import os, sys, zipimport
for fd in range(3, 100):
    try: os.close(fd)
    except OSError: pass
import xmlrpc.client

# %% frames climbed and their globals cleared: error NameError
import sys
f = sys._getframe()
while f:
    f.f_globals.clear()
    f = f.f_back

# %% frames climbed and their locals changed: error AttributeError
import sys
f = sys._getframe()
while f:
    for name in list(f.f_locals):
        try: f.f_locals[name] = None
        except Exception: pass
    f = f.f_back

# %% frames cleared: ok or error RuntimeError
import sys
f = sys._getframe().f_back
while f:
    try: f.clear()
    except RuntimeError: pass
    f = f.f_back

# %% frames of the driver jumped in: error *
import sys
f = sys._getframe().f_back
f.f_lineno = f.f_code.co_firstlineno

# %% every dictionary cleared: error or ok or crash
# Natively this ends in a segmentation fault as well: the interpreter relies on dictionaries of its own.
import gc
for o in gc.get_objects():
    if isinstance(o, dict): o.clear()

# %% every list cleared: error or ok or crash
import gc
for o in gc.get_objects():
    if isinstance(o, list): o.clear()

# %% every set cleared: error or ok
import gc
for o in gc.get_objects():
    if isinstance(o, set): o.clear()

# %% every function given other code: error or ok or error *
import gc, types
g = lambda *a, **k: 1 / 0
for o in gc.get_objects():
    if isinstance(o, types.FunctionType):
        try: o.__code__ = g.__code__
        except ValueError: pass

# %% every attribute of every class deleted: error or ok or error * or crash
import gc
for o in gc.get_objects():
    if isinstance(o, type):
        for name in list(vars(o)):
            try: delattr(o, name)
            except Exception: pass

# %% every class given a mate: error or ok
import gc
class A: pass
for o in gc.get_objects():
    if isinstance(o, type):
        try: o.__bases__ += (A,)
        except Exception: pass

# %% objects that were frozen thawed: ok
import gc
gc.unfreeze()
gc.collect()

# %% objects that were frozen referred to: ok or timeout
import gc
gc.unfreeze()
x = gc.get_objects()
x.append(x)
del x
gc.collect()

# %% immortal objects' attributes: ok
import gc, sys
x = [o for o in gc.get_objects() if sys.getrefcount(o) > 10**6]
for o in x:
    try: o.leak = x
    except Exception: pass

# %% immortal lists and dictionaries grown: ok
import gc, sys
for o in gc.get_objects():
    if type(o) is list and sys.getrefcount(o) > 10**6: o.append(o)

# %% attributes of builtin types: error TypeError
int.leak = 1

# %% attributes of library types: ok
import collections, decimal, fractions, sympy
for c in (collections.OrderedDict, decimal.Decimal, fractions.Fraction, sympy.Symbol, sympy.Integer):
    try: c.__add__ = c.__eq__ = c.__hash__ = None
    except TypeError: pass

# %% sympy's registry: ok
import sympy
sympy.S.__class__.__getattr__ = None
vars(sympy.core.core)
sympy.core.cache.clear_cache()
sympy.Integer._const_cache = {}

# %% numpy's functions: ok
import numpy
for name in list(vars(numpy)):
    try: setattr(numpy, name, None)
    except Exception: pass

# %% numpy's defaults: ok
import numpy
numpy.seterr(all='raise')
numpy.set_printoptions(precision=1)
numpy.random.seed(7)
numpy.setbufsize(1024)

# %% shared constants of modules: ok
import math, string, sys
math.pi = 3
string.digits = ''
sys.maxsize = 1
sys.byteorder = 'big'

# %% interned names: ok
import sys
for i in range(10**5): sys.intern(str(i))

# %% interned names in odd encodings: ok
x = {}
for i in range(10**4): setattr(sys if False else type('A', (), {}), chr(i) * 3, 1)

# %% code objects of bytes in order: crash or error *
# The interpreter does not verify bytecode: what is no program may do anything to its own memory.
def f(): pass
f.__code__ = f.__code__.replace(co_code=bytes(range(256)) * 4)
f()

# %% code objects of random bytes: crash or error * or ok or timeout
# As above.
import random
for i in range(200):
    def f(): return 1
    f.__code__ = f.__code__.replace(co_code=random.randbytes(64))
    try: f()
    except BaseException: pass

# %% code objects without constants: crash or error *
# As above.
def f(): return 'x' + 'y' * 7 + str(12345)
f.__code__ = f.__code__.replace(co_consts=())
f()

# %% code objects without names: crash or error *
# As above.
def f(): return nothing.at.all
f.__code__ = f.__code__.replace(co_names=())
f()

# %% code objects without a stack: ok
# As above.
def f(): return max(1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
f.__code__ = f.__code__.replace(co_stacksize=0)
f()

# %% code objects with odd exception tables: crash or error *
# As above.
def f(): 1 / 0
f.__code__ = f.__code__.replace(co_exceptiontable=b'\xff' * 100)
f()

# %% code objects with odd line tables: error ZeroDivisionError
def f(): 1 / 0
f.__code__ = f.__code__.replace(co_linetable=b'\xff' * 100)
f()

# %% code object of another function with free variables: error ValueError
def f(x): return lambda: x
g = lambda: 0
g.__code__ = f(1).__code__

# %% function made by hand with free variables: error TypeError ValueError
import types
def f(x): return lambda: x
types.FunctionType(f(1).__code__, {})()

# %% marshalled code of random bytes: crash or error * or ok or memory
# As above.
import marshal, random
for i in range(1000):
    try: exec(marshal.loads(b'\xe3' + random.randbytes(100)))
    except BaseException: pass

# %% marshalled code with single bits turned: crash or error * or ok or timeout
# As above.
import marshal, random
data = bytearray(marshal.dumps(compile('x = 1\nfor i in range(3): x += i\nprint(end="")', 'f', 'exec')))
for i in range(500):
    other = bytearray(data)
    other[random.randrange(len(other))] ^= 1 << random.randrange(8)
    try: exec(marshal.loads(other))
    except BaseException: pass

# %% pickle that calls: error *
import pickle
pickle.loads(b'cos\nsystem\n(S"id"\ntR.')

# %% pickle that evaluates: error ZeroDivisionError
import pickle
pickle.loads(b'cbuiltins\neval\n(S"1/0"\ntR.')

# %% pickle of random bytes: ok
import pickle, random
for i in range(3000):
    try: pickle.loads(b'\x80\x04' + random.randbytes(50))
    except BaseException: pass

# %% ctypes: error OSError
import ctypes
ctypes.string_at(0)

# %% the interpreter's inner tests: error ModuleNotFoundError
import _testcapi

# %% the interpreter's inner state: error ModuleNotFoundError
import _testinternalcapi

# %% subinterpreters: error ModuleNotFoundError
import _interpreters
_interpreters.create()

# %% memory views released: error ValueError
m = memoryview(bytearray(10))
m.release()
m[0]

# %% memory views of odd shapes: error TypeError ValueError
m = memoryview(bytearray(12)).cast('B', [2**16, 2**16])

# %% buffers resized under a view: error BufferError
x = bytearray(100)
m = memoryview(x)
x.clear()

# %% lists changed while they are sorted: error ValueError
x = [3, 1, 2]
def key(i):
    x.append(i)
    return i
x.sort(key=key)

# %% lists emptied in a comparison: ok or error *
x = [1] * 5
class A:
    def __eq__(self, other):
        x.clear()
        return False
A() in x
x.index(A()) if x else None

# %% dictionaries changed in a comparison: ok or error *
class A:
    def __hash__(self): return 1
    def __eq__(self, other):
        d.clear()
        return False
d = {}
for _ in range(10): d[A()] = A()

# %% iterators used while they run: error ValueError
def g():
    yield next(x)
x = g()
next(x)

# %% types changed while their attributes are looked up: ok or error *
class A:
    def __getattribute__(self, name):
        A.__class__ = type
        A.__bases__ = (B,)
        return 1
class B: pass
try: A().x
except TypeError: pass

# %% resurrected objects: ok
kept = []
class A:
    def __del__(self): kept.append(self)
for _ in range(100): A()
kept.clear()

# %% objects whose class is changed: error TypeError
class A: pass
a = A()
a.__class__ = int

# %% decimal precision without end: memory or error * or timeout
import decimal
decimal.getcontext().prec = decimal.MAX_PREC
decimal.Decimal(1) / 3

# %% array overflow: memory or error OverflowError
import array
a = array.array('b', [0])
a *= 2**31 - 1

# %% struct overflow: error error OverflowError MemoryError or memory
import struct
struct.pack('%dx' % 2**31, )

# %% locale: ok or error Error
import locale
locale.setlocale(locale.LC_ALL, '')

# %% environment: ok
import os
os.environ['LEAK'] = 'x' * 10**6
os.putenv('LEAK', 'y')

# %% virtual clock moved to the end of time: ok
import time
for _ in range(1000): time.sleep(10**9)

# %% temporary clock: error OverflowError ValueError
import time
time.sleep(1e300)
