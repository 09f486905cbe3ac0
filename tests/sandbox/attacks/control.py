# %% exit with nothing: ok
exit()

# %% exit with zero: ok
import sys
sys.exit(0)

# %% exit with false: ok
import sys
sys.exit(False)

# %% exit with a number: error SystemExit
import sys
sys.exit(3)

# %% exit with a string: error SystemExit
import sys
sys.exit('gave up')

# %% exit with a huge number: error SystemExit
import sys
sys.exit(10**100)

# %% exit with a number too long to print: error
import sys
sys.exit(1 << 10**5)

# %% exit with a float: error SystemExit
import sys
sys.exit(0.0)

# %% exit with an object that cannot be shown: error
import sys
class C:
    def __str__(self): raise ValueError
sys.exit(C())

# %% exit with an object that exits when it is shown: error
import sys
class C:
    def __str__(self): sys.exit(0)
sys.exit(C())

# %% exit with an integer that lies: error
class N(int):
    def __eq__(self, other): raise ValueError
    def __str__(self): raise ValueError
raise SystemExit(N(0))

# %% exit of a subclass: error SystemExit
class E(SystemExit): pass
raise E(5)

# %% exit whose code is a trap: error
class E(SystemExit):
    @property
    def code(self): raise ValueError
raise E

# %% exit in a destructor: ok
class A:
    def __del__(self): raise SystemExit(3)
a = A()

# %% exit in an exit function: ok
import atexit, sys
atexit.register(sys.exit, 3)

# %% exit in the exception hook: error ZeroDivisionError
import sys
sys.excepthook = lambda *a: sys.exit(0)
1 / 0

# %% exit in a comparison of a sort: error SystemExit
class A:
    def __lt__(self, other): raise SystemExit(2)
sorted([A(), A()])

# %% exit in a numpy callback: error SystemExit
import numpy
def f(x): raise SystemExit(2)
numpy.vectorize(f)([1])

# %% exit in a scipy callback: error SystemExit
import scipy.integrate
def f(x): raise SystemExit(2)
scipy.integrate.quad(f, 0, 1)

# %% os._exit: ok
import os
os._exit(0)

# %% os._exit with a number: error
import os
os._exit(4)

# %% os._exit with a negative number: error
import os
os._exit(-1)

# %% os._exit in a destructor: error
import os
class A:
    def __del__(self, leave=os._exit): leave(4)
a = A()

# %% os._exit at exit: error
import atexit, os
atexit.register(os._exit, 4)

# %% os._exit while memory is full: error
import os
x = []
try:
    while True: x.append(bytes(10**5))
except MemoryError: os._exit(4)

# %% os.abort: crash
# The interpreter's own request to trap.
import os
os.abort()

# %% fault on purpose: crash
# The interpreter's own request to trap.
import faulthandler
faulthandler._sigsegv()

# %% abort on purpose: crash
# The interpreter's own request to trap.
import faulthandler
faulthandler._sigabrt()

# %% division by zero in C: crash or error or ok
import faulthandler
faulthandler._sigfpe()

# %% signal to oneself: crash
import os, signal
os.kill(os.getpid(), signal.SIGKILL)

# %% signal raised: error or ok or crash
import signal
signal.raise_signal(signal.SIGTERM)

# %% interrupt raised: error KeyboardInterrupt
import signal
signal.raise_signal(signal.SIGINT)

# %% signal handler: error or ok | ''
import signal
signal.signal(signal.SIGINT, lambda *a: print('handled', end=''))

# %% interrupt from the main thread's tools: error KeyboardInterrupt
import _thread
_thread.interrupt_main()
while True: pass

# %% keyboard interrupt: error KeyboardInterrupt
raise KeyboardInterrupt

# %% generator exit: error GeneratorExit
raise GeneratorExit

# %% stop iteration: error StopIteration
raise StopIteration

# %% base exception: error E
class E(BaseException): pass
raise E

# %% something that is no exception: error TypeError
raise 7

# %% a class that makes no exception: error TypeError
class E(Exception):
    def __new__(cls): return 7
raise E

# %% exception whose text raises: error E
class E(Exception):
    def __str__(self): raise E
raise E

# %% exception whose text is no text: error E
class E(Exception):
    def __str__(self): return 7
raise E

# %% exception whose text exits: error E
class E(Exception):
    def __str__(self): raise SystemExit(0)
raise E

# %% exception whose text is endless recursion: error E
class E(Exception):
    def __str__(self): return str(self)
raise E

# %% exception with an odd name: error *
E = type('E\n\0'.replace('\0', '\x7f'), (Exception,), {})
raise E('\ud800\0')

# %% exception with a name of a megabyte: error *
E = type('E' * 10**6, (Exception,), {})
raise E

# %% exception with an odd module: error E
class E(Exception): pass
E.__module__ = '\ud800' * 1000
raise E

# %% exception whose class lies about its module: error E
class E(Exception): __module__ = 7
raise E

# %% exception whose attributes raise: error E
class E(Exception):
    def __getattribute__(self, name): raise ValueError
raise E

# %% exception that is its own cause: error ValueError
e = ValueError()
e.__cause__ = e
raise e

# %% exception in a circle of contexts: error ValueError
a, b = ValueError('a'), ValueError('b')
a.__context__, b.__context__ = b, a
raise a

# %% exception whose notes are no notes: error ValueError
e = ValueError('x')
e.__notes__ = 7
raise e

# %% exception whose notes raise: error ValueError
class L(list):
    def __iter__(self): raise KeyboardInterrupt
e = ValueError('x')
e.__notes__ = L()
raise e

# %% exception with a traceback of another: error ValueError
try: 1 / 0
except ZeroDivisionError as error: t = error.__traceback__
raise ValueError().with_traceback(t)

# %% exception with a traceback without end: error ValueError
def f(n):
    if n: f(n - 1)
    raise ValueError
f(900)

# %% exception in a frame with an odd file name: error ValueError
exec(compile('raise ValueError', '<torl \ud800\0' + 'x' * 10**5, 'exec'))

# %% exception in a frame with an odd line number: error ValueError
exec(compile('raise ValueError', 'main.py', 'exec').replace(co_firstlineno=2**31 - 1))

# %% syntax error with odd attributes: error SyntaxError
raise SyntaxError('x', ('main.py', -5, 10**9, '\0' * 100, 'y', {}))

# %% syntax error with a line beyond the end: error SyntaxError
raise SyntaxError('x', ('main.py', 10**9, 10**9, None, 10**9, 10**9))

# %% name error with an odd name: error NameError
raise NameError('x', name=7)

# %% attribute error about an odd object: error AttributeError
class A:
    def __dir__(self): return [7, None, 'x' * 10**6]
raise AttributeError('x', name='y', obj=A())

# %% import error with an odd name: error ImportError
raise ImportError('x', name=7, path=8)

# %% unicode error with odd attributes: error UnicodeDecodeError
e = UnicodeDecodeError('x', b'y', 0, 1, 'z')
e.start = -10**9
e.end = 10**9
raise e

# %% stop iteration from a coroutine: error RuntimeError
async def f(): raise StopIteration
f().send(None)

# %% exception group of a thousand: error ExceptionGroup
raise ExceptionGroup('g', [ValueError(i) for i in range(1000)])

# %% exception groups in each other: error ExceptionGroup
e = ValueError()
for _ in range(500): e = ExceptionGroup('g', [e])
raise e

# %% exception hook a number: error ZeroDivisionError
import sys
sys.excepthook = 7
1 / 0

# %% exception hook deleted: error
import sys
del sys.excepthook
1 / 0

# %% exception hook that raises: error ZeroDivisionError
import sys
def f(*a): raise KeyboardInterrupt
sys.excepthook = f
1 / 0

# %% exception hook that recurses: memory or error ZeroDivisionError
import sys
def f(*a): f(*a)
sys.excepthook = f
1 / 0

# %% hook for exceptions nobody sees that raises: ok
import sys
def f(*a): raise KeyboardInterrupt
sys.unraisablehook = f
class A:
    def __del__(self): 1 / 0
A()

# %% hook for displays: ok
import sys
def f(*a): raise KeyboardInterrupt
sys.displayhook = f

# %% trace function that raises: error ValueError
import sys
def f(*a): raise ValueError
sys.settrace(f)
(lambda: 0)()

# %% trace function left behind: ok
import sys
def f(*a): return f
sys.settrace(f)
sys._getframe().f_trace = f

# %% trace function that jumps: ok | 'b'
import sys
def g():
    x = 1
    print('a', end='')
    print('b', end='')
def f(frame, event, arg):
    if event == 'line' and frame.f_lineno == 5: frame.f_lineno = 6
    return f
sys.settrace(f)
g()
sys.settrace(None)

# %% profile function left behind: ok
import sys
sys.setprofile(lambda *a: None)

# %% profile function that raises: error ValueError
import sys
def f(*a): raise ValueError
sys.setprofile(f)
len('')

# %% monitoring left behind: ok
import sys
m = sys.monitoring
m.use_tool_id(2, 'x')
m.set_events(2, m.events.LINE | m.events.PY_START | m.events.CALL | m.events.INSTRUCTION)
for event in (m.events.LINE, m.events.PY_START, m.events.CALL, m.events.INSTRUCTION):
    m.register_callback(2, event, lambda *a: None)

# %% monitoring that disables the driver: error
import sys
m = sys.monitoring
m.use_tool_id(2, 'x')
m.set_events(2, m.events.PY_START)
m.register_callback(2, m.events.PY_START, lambda *a: m.DISABLE)

# %% audit hook that refuses all: error or ok
import sys
def f(*a): raise ValueError
sys.addaudithook(f)

# %% garbage collector's callback left behind: ok
import gc
def f(*a): raise KeyboardInterrupt
gc.callbacks.append(f)
gc.collect()

# %% garbage collector's thresholds: ok
import gc
gc.set_threshold(1, 1, 1)
x = [[] for _ in range(1000)]

# %% garbage collector switched off: ok
import gc
gc.disable()
gc.freeze()

# %% garbage collector in debug mode: ok
import gc
gc.set_debug(gc.DEBUG_SAVEALL)
class A: pass
for _ in range(100):
    a = A()
    a.a = a
del a
gc.collect()

# %% recursion limit of five: error RecursionError ValueError
import sys
sys.setrecursionlimit(5)
raise ValueError

# %% recursion limit of one: error RecursionError
import sys
sys.setrecursionlimit(1)

# %% recursion limit of a billion: ok
import sys
sys.setrecursionlimit(10**9)

# %% recursion limit set at the bottom: error RecursionError
import sys
def f(n):
    if n == 0: sys.setrecursionlimit(10)
    f(n - 1)
f(500)

# %% switch interval: ok
import sys
sys.setswitchinterval(1e-9)

# %% integer digits without limit: ok
import sys
sys.set_int_max_str_digits(0)

# %% tracemalloc left on: ok
import tracemalloc
tracemalloc.start(50)
x = [[] for _ in range(1000)]

# %% fault handler left on: error RuntimeError
import faulthandler
faulthandler.enable()
faulthandler.dump_traceback_later(0.001) if hasattr(faulthandler, 'dump_traceback_later') else None

# %% warnings into errors: error UserWarning
import warnings
warnings.simplefilter('error')
warnings.warn('x')

# %% coroutine never awaited: ok
async def f(): pass
f()

# %% generator suspended in a finally clause: ok
def g():
    try: yield
    finally:
        yield
x = g()
next(x)

# %% context variables: ok
import contextvars
v = contextvars.ContextVar('v')
v.set(v)

# %% module that replaces itself: ok
import sys
sys.modules['__main__'] = 7

# %% main module deleted: ok
import sys
del sys.modules['__main__']

# %% main module's globals cleared: ok
globals().clear()

# %% main module's globals growing while they die: ok
class A:
    def __del__(self):
        for i in range(100): globals()[f'x{i}'] = A.__new__(A)
for i in range(100): globals()[f'y{i}'] = A()

# %% threads that run at once: ok
import threading
threading.Thread(target=int).start()

# %% waiting for a thread that cannot exist: error RuntimeError
import threading
threading.Event().wait()

# %% waiting with a time limit: ok
import threading
threading.Event().wait(1)

# %% lock taken twice: error RuntimeError
import threading
lock = threading.Lock()
lock.acquire()
lock.acquire()

# %% queue that stays empty: error RuntimeError
import queue
queue.Queue().get()
