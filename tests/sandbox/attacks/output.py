# %% thirty megabytes at once: output_limit | 'x' * (LIMIT - 6)
print('x' * 30_000_000)

# %% thirty megabytes in small prints: output_limit | ('0123456789\n' * LIMIT)[:LIMIT - 6]
for _ in range(3_000_000): print('0123456789')

# %% thirty megabytes of text that is not ASCII: output_limit | 'é' * ((LIMIT - 6) // 2)
print('é' * 15_000_000)

# %% thirty megabytes of errors: output_limit
import sys
sys.stderr.write('x' * 30_000_000)

# %% thirty megabytes past the streams: output_limit | 'x' * (LIMIT - 6)
import os
os.write(1, b'x' * 30_000_000)

# %% both streams in turn: output_limit | 'o' * ((LIMIT - 6) // 2)
import sys
while True:
    sys.stdout.write('o')
    sys.stderr.write('e')

# %% an endless loop of prints that catches everything: output_limit | ('x\n' * LIMIT)[:LIMIT - 6]
while True:
    try: print('x')
    except BaseException: pass

# %% prints in a destructor: output_limit | ('x\n' * LIMIT)[:LIMIT - 6]
class A:
    def __del__(self):
        while True: print('x')
a = A()

# %% prints at exit: output_limit | ('x\n' * LIMIT)[:LIMIT - 6]
import atexit
@atexit.register
def f():
    while True: print('x')

# %% prints in the exception hook: output_limit | ('x\n' * LIMIT)[:LIMIT - 6]
import sys
def f(*a):
    while True: print('x')
sys.excepthook = f
1 / 0

# %% prints in a trace function: output_limit | ('x\n' * LIMIT)[:LIMIT - 6]
import sys
def f(*a):
    while True: print('x')
sys.settrace(f)
(lambda: 0)()

# %% traceback of megabytes: output_limit
raise ValueError('x' * 10_000_000)

# %% traceback of ten thousand chained exceptions: error ValueError
def f(n):
    error = None
    for i in range(n):
        new = ValueError(i)
        new.__cause__ = error
        error = new
    raise error
f(10_000)

# %% traceback of groups that double: error ExceptionGroup
e = [ValueError('x' * 100)]
for _ in range(8): e = [ExceptionGroup('g' * 100, e * 2)]
raise e[0]

# %% traceback with a long line: error ZeroDivisionError
exec(compile('x = ' + '(' * 50 + '1' + ')' * 50 + ' / 0 #' + '-' * 10**6, 'main.py', 'exec'))

# %% notes on the exception: error ValueError
e = ValueError('x')
for _ in range(10_000): e.add_note('note')
raise e

# %% exactly the limit: ok | 'x' * (LIMIT - 6)
print('x' * (1048576 - 6), end='')

# %% one byte more than the limit: output_limit | 'x' * (LIMIT - 6)
print('x' * (1048576 - 5), end='')

# %% a character cut by the limit: output_limit | 'x' * (LIMIT - 7) + '\ufffd'
print('x' * (1048576 - 7) + 'é')

# %% output before a time-out: timeout | 'a\nb'
print('a')
print('b', end='')
while True: pass

# %% output before memory runs out: memory | 'a'
import sys
sys.stdout.write('a')
bytes(10**9)

# %% output before an abort: crash | 'a'
# os.abort() is the interpreter's own request to trap.
import os
print('a', end='')
os.abort()

# %% output before os._exit: ok | 'a'
import os
print('a', end='')
os._exit(0)

# %% buffered output before os._exit is lost as everywhere: ok
import io, os, sys
stream = io.TextIOWrapper(io.BufferedWriter(sys.stdout.buffer if not hasattr(sys.stdout.buffer, 'raw') else sys.stdout.buffer.raw, 10**6))
stream.write('never')
os._exit(0)

# %% buffered output that nobody flushed: ok | 'late'
import io, sys
stream = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, 'w', closefd=False), 10**6))
stream.write('late')

# %% bytes that are no text: ok | '\ufffd\0a\0\n'
import sys
sys.stdout.buffer.write(b'\xff\x00a')
sys.stdout.write('\x00\n')

# %% every byte there is: ok | bytes(range(256)).decode(errors='replace')
import os
os.write(1, bytes(range(256)))

# %% surrogates: error UnicodeEncodeError
print('\ud800')

# %% surrogates on the error stream: ok
import sys
sys.stderr.write('\ud800\udfff')

# %% surrogates let through: ok | '\ufffd\ufffd\ufffd'
import sys
sys.stdout.reconfigure(errors='surrogatepass')
sys.stdout.write('\ud800')

# %% terminal controls: ok | '\x1b[2J\x1b]0;title\x07\x08\r\x9b'
print('\x1b[2J\x1b]0;title\x07\x08\r\x9b', end='')

# %% another encoding: ok | 'x\0'
import sys
sys.stdout.reconfigure(encoding='utf-16')
sys.stdout.write('x')

# %% all line ends: ok | 'a\r\nb\rc\n\x0b\x0c\x1c\x85\u2028'
print('a\r\nb\rc\n\x0b\x0c\x1c\x85\u2028', end='')

# %% stdout closed: error ValueError
import sys
sys.stdout.close()
print(1)

# %% stdout closed and nothing said: ok
import sys
sys.stdout.close()

# %% stdout detached: error ValueError
import sys
buffer = sys.stdout.detach()
print(1)

# %% stdout deleted: error RuntimeError
import sys
del sys.stdout
print(1)

# %% stdout none: ok
import sys
sys.stdout = sys.stderr = None
print(1)

# %% stdout a number: error AttributeError
import sys
sys.stdout = 7
print(1)

# %% stdout a string buffer: ok
import io, sys
sys.stdout = io.StringIO()
print('never')

# %% stdout the error stream: ok
import sys
sys.stdout = sys.stderr
print('elsewhere')

# %% stderr a number: error ZeroDivisionError
import sys
sys.stderr = 7
1 / 0

# %% stderr that raises: error ZeroDivisionError
import sys
class S:
    def write(self, text): raise KeyboardInterrupt
    def flush(self): raise SystemExit(0)
sys.stderr = S()
1 / 0

# %% stdout that raises when it is flushed: ok
import sys
class S:
    def write(self, text): pass
    def flush(self): raise SystemExit(3)
sys.stdout = S()

# %% stdout that writes itself: error RecursionError
import sys
class S:
    def write(self, text): print(text)
    def flush(self): pass
sys.stdout = S()
print(1)

# %% stdout redirected and back: ok | 'out'
import contextlib, io
with contextlib.redirect_stdout(io.StringIO()): print('in')
print('out', end='')

# %% descriptors closed: error OSError
import os
os.close(1)
print(1)

# %% descriptors closed and code that fails: error ZeroDivisionError
import os
for fd in (1, 2):
    try: os.close(fd)
    except OSError: pass
1 / 0

# %% descriptors exchanged: error OSError
import os
os.dup2(2, 1)

# %% descriptor of stdin written to: error OSError
import os
os.write(0, b'x')

# %% descriptor opened anew: ok | 'x'
import os
with os.fdopen(1, 'wb', closefd=False) as f: f.write(b'x')

# %% logging: ok
import logging
logging.basicConfig(level=0)
for _ in range(1000): logging.critical('x')

# %% warnings: ok
import warnings
for i in range(1000): warnings.warn('x' * i)

# %% print that is replaced: ok
import builtins
builtins.print = lambda *a: None
print('never')

# %% stdin: error EOFError | 'a prompt'
input('a prompt')

# %% stdin read to its end: ok | "'' b''"
import sys
print(repr(sys.stdin.read() if sys.stdin else ''), repr(__import__('os').read(0, 10)), end='')
