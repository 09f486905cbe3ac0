import numpy
class Window:
    def __init__(self, address, size, kind='|u1'):
        self.__array_interface__ = {'shape': (size,), 'typestr': kind, 'data': (address, False), 'version': 3}
def memory(address, size, kind='|u1'): return numpy.asarray(Window(address, size, kind))
# END, where memory ends, is defined by the test. Address 0 is no address to numpy.
FIRST = 8

# %% all of memory read: ok
sum(int(memory(page, 4096).sum()) for page in range(4096, END, 4096))

# %% every page written to with what it holds: ok
for page in range(4096, END, 4096): memory(page, 1)[0] = memory(page, 1)[0]

# %% every page changed and changed back: ok
for page in range(END - 4096, END - (20 << 20), -4096):
    memory(page, 1)[0] ^= 1
    memory(page, 1)[0] ^= 1

# %% beyond the end of memory read: crash
# Past the end of its memory there is nothing for the guest: a trap.
memory(0xf0000000, 10).sum()

# %% beyond the end of memory written: crash
# As above.
memory(END + 65536, 10)[:] = 1

# %% over the end of memory written: crash
# As above.
memory(END - 10, 1 << 20)[:] = 1

# %% last byte of memory: ok
memory(END - 1, 1)[0] = 7

# %% last byte of the address space: crash
# As above.
memory(2**32 - 1, 1)[0] = 7

# %% round the end of the address space: crash
# As above.
memory(2**32 - 8, 4096)[:] = 7

# %% addresses that are no addresses: error OverflowError TypeError ValueError
memory(2**64, 10)

# %% addresses below zero: error OverflowError TypeError ValueError or crash
# As above.
memory(-4096, 10).sum()

# %% sizes below zero: error ValueError
memory(0, -10)

# %% null: error ValueError
memory(0, 4096)[:] = 255

# %% all of memory zeroed: crash
# The interpreter has overwritten itself.
memory(FIRST, END - FIRST)[:] = 0

# %% all of memory set: crash
# As above.
memory(FIRST, END - FIRST)[:] = 255

# %% all of memory overwritten from behind: crash
# As above.
memory(FIRST, END - FIRST)[::-1][:] = 7

# %% all of memory shifted: crash
# As above.
memory(FIRST + 4, END - FIRST - 4)[:] = memory(FIRST, END - FIRST - 4)

# %% random words all over memory: crash or ok or error * or error or timeout or memory
# As above, if something that is used is hit.
import random
for _ in range(1000): memory(random.randrange(4, END, 4), 1, '<u4')[0] = random.getrandbits(32)

# %% random bits all over memory: crash or ok or error * or error or timeout or memory
# As above.
import random
for _ in range(300): memory(random.randrange(FIRST, END), 1)[0] ^= 1 << random.randrange(8)

# %% stack overwritten: crash or error * or error
# As above.
memory(FIRST, (16 << 20) - FIRST)[:] = 0

# %% stack overwritten with small numbers: crash or error * or error
# As above.
memory(FIRST, (16 << 20) // 4 - FIRST // 4, '<u4')[:] = 16

# %% static data overwritten: ok
# As above.
memory(16 << 20, 1 << 20)[:] = 0

# %% heap overwritten: ok or crash
# By where the warm-up has put what: hit is what the interpreter still takes, or what nothing looks at any more.
memory(64 << 20, 32 << 20)[:] = 0xaa

# %% free memory overwritten: ok or crash
# As above, if the heap's own notes are hit.
x = bytearray(1 << 20)
memory(END - (4 << 20), 4 << 20)[:] = 0xaa

# %% heap's notes before a block: crash or ok or error *
# As above.
x = bytes(5000)
memory(id(x) - 8, 8)[:] = 0xff
del x
y = [bytes(5000) for _ in range(100)]

# %% heap's notes after a block: crash or ok or error *
# As above.
x = bytearray(5000)
numpy.lib.stride_tricks.as_strided(numpy.frombuffer(x, '|u1'), (6000,), (1,))[5000:] = 0
y = [bytes(5000) for _ in range(100)]

# %% freed twice: crash or ok or error *
# As above.
x = [bytes(5000)]
memory(id(x[0]), 1, '<u4')[0] = 1
y = x[0]
del y
y = x[0]
del y
z = [bytes(5000) for _ in range(100)]

# %% used after it was freed: crash or ok or error *
# As above.
x = [bytes(5000)]
memory(id(x[0]), 1, '<u4')[0] = 1
del x[0]
x = [bytearray(5000) for _ in range(100)]

# %% five made six: ok | '6 6'
memory(id(5) + 12, 1, '<u4')[0] = 6
print(5, 2 + 3, end='')

# %% true made false: ok or crash | 'False'
memory(id(True), 1, '<u4')[0] = memory(id(True), 1, '<u4')[0]
memory(id(True) + 8, 2, '<u4')[:] = memory(id(False) + 8, 2, '<u4')
print(bool(1) + 0 != 0, end='')

# %% None's type changed: ok | '0'
# As above.
memory(id(None) + 4, 1, '<u4')[0] = id(int)
print(None, end='')

# %% names of builtins changed: ok or error * or crash
# As above.
name = 'print'
memory(id(name) + 16, 24)[:] ^= 1
len([])

# %% characters changed: ok or error *
for c in 'abcdefghijklmnopqrstuvwxyz': memory(id(c) + 20, 4)[:] = 65

# %% empty tuple made long: crash or error * or ok or error
# As above.
memory(id(()) + 8, 1, '<u4')[0] = 1000
(lambda *a: a)()

# %% size of a string of bytes: crash or ok or error *
# As above.
x = bytes(100)
memory(id(x) + 8, 1, '<u4')[0] = 2**31 - 1
hash(x)

# %% size of a list: crash or ok or error *
# As above.
x = [1, 2, 3]
memory(id(x) + 8, 1, '<u4')[0] = 2**20
str(x)

# %% items of a list: crash or ok or error *
# As above.
x = [1, 2, 3]
memory(id(x) + 12, 1, '<u4')[0] = 0xdeadbeec
str(x)

# %% slots of a type: crash or error *
# As above.
class A:
    def __add__(self, other): return 1
memory(id(A) + 8, 200, '<u4')[:] = 0xffffffff
A() + 1

# %% slots of the integers' type: crash or error * or error
# As above.
memory(id(int) + 8, 100, '<u4')[8:] = 3
1 + 1

# %% slots of the integers' type zeroed: crash or error * or error
# As above.
memory(id(int), 200)[:] = 0
2 ** 3

# %% method table of the integers' type: crash or error * or ok or error
# As above.
memory(int(memory(id(int) + 48, 1, '<u4')[0]), 40, '<u4')[:] = 1
(5).bit_length(), 5 + 6, -5

# %% function of a built-in: crash or error *
# The table of functions checks the signature of what is called through it: another is a trap.
pointer = int(memory(id(len) + 8, 1, '<u4')[0])
memory(pointer + 4, 1, '<u4')[0] = 0xffffffff
len([])

# %% functions of a built-in of the same signature: ok or crash or error * or error or timeout or memory
# As above.
pointer = int(memory(id(len) + 8, 1, '<u4')[0])
for index in range(1, 3000, 7):
    memory(pointer + 4, 1, '<u4')[0] = index
    try: len([])
    except BaseException: pass

# %% calling convention of a built-in: crash or error * or ok
# As above.
pointer = int(memory(id(len) + 8, 1, '<u4')[0])
memory(pointer + 8, 1, '<u4')[0] = 0x0001
len([])

# %% code of the driver: crash or error * or error
# As above.
import _torl_driver
memory(id(_torl_driver._guard.__code__), 200)[:] = 0

# %% code of every function of the driver: crash or error * or error
# As above.
import _torl_driver, types
for f in list(vars(_torl_driver).values()):
    if isinstance(f, types.FunctionType): memory(id(f.__code__) + 60, 100)[:] = 9

# %% globals of the driver: crash or error * or error or ok
# As above.
import _torl_driver
memory(id(vars(_torl_driver)), 32)[:] = 0

# %% report of the driver: ok or error
import _torl_driver
for name in ('OK', 'ERROR', 'MEMORY'): memory(id(getattr(_torl_driver, name)) + 16, 1)[0] = 77

# %% random state of the run: ok
import random
memory(id(random._inst) + 16, 2500)[:] = 0

# %% guard against recursion switched off: memory or crash
# What the guard is for: the stack in memory ends at address 0, and below it there is nothing.
top = int(numpy.asarray(0)) or 16 << 20
words = memory(16 << 20, (END - (16 << 20)) // 4, '<u4')
for at in numpy.flatnonzero((words[:-2] - words[1:-1] == 3 << 20) & (words[1:-1] - words[2:] == 8 << 10)):
    words[at + 1:at + 3] = 0
import functools, sys
sys.setrecursionlimit(10**9)
@functools.cache
def f(n): return f(n + 1)
f(0)

# %% frame of a generator: crash or error * or ok
# As above.
def g(): yield 1
x = g()
next(x)
memory(id(x) + 8, 100)[:] = 0x55
next(x)

# %% writes that never end: timeout or crash
# As above.
x = bytearray(8 << 20)
while True: memory(END - (8 << 20), 4 << 20)[:] ^= 1

# %% strides past the end: error ValueError
# As above.
a = numpy.lib.stride_tricks.as_strided(numpy.zeros(1), (10**9,), (8,))
a[10**9 - 1]

# %% strides before the beginning: crash or ok
# As above.
a = numpy.lib.stride_tricks.as_strided(numpy.zeros(10), (10**6,), (-8,))
a[:] = 1

# %% strides over other objects: crash or error * or ok or error
# As above.
a = numpy.lib.stride_tricks.as_strided(numpy.zeros(1), (10**7,), (8,))
a[:] = 1

# %% strides of zero: ok
a = numpy.lib.stride_tricks.as_strided(numpy.zeros(1), (10**7,), (0,))
a[:] = 1

# %% strides that overflow: crash or ok or error *
# As above.
a = numpy.lib.stride_tricks.as_strided(numpy.zeros(1), (3, 3), (2**31 - 1, 2**31 - 1))
a.sum()

# %% object arrays of made-up objects: crash
# As above.
numpy.asarray(Window(id(numpy) & ~7, 100, '|O')).sum() if False else memory(64, 100, '<u4').view('u4').astype('u4').view(numpy.uint32)
x = numpy.empty(10, dtype=object)
memory(x.ctypes.data if hasattr(x, 'ctypes') and False else x.__array_interface__['data'][0], 10, '<u4')[:] = 0x12345678
str(x)

# %% an array of pointers by number: ok
Window(0, 10, '|O').__array_interface__['typestr']
numpy.asarray(Window(1024, 10, '|O'))

# %% ctypes of an array: error OSError
numpy.zeros(1).ctypes.data_as(None)

# %% a buffer that lies about itself: crash or error * or ok
# As above.
x = numpy.zeros(10)
memory(id(x) + 8, 1, '<u4')[0] = 0x80000000
x.sum()

# %% an array that frees what it does not own: crash or ok or error *
# As above.
x = numpy.zeros(1000)
memory(id(x) + 8, 1, '<u4')[0] = 1024
x.resize(0, refcheck=False) if False else None
del x
