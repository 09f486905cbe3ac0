"""One attack for each test. Every snippet ends in an outcome, and the next run is right."""

import os
from collections.abc import Iterator

import pytest

from sandboxes import GUESTS, OVERSHOOT_SECONDS, busy_machine
from torl_sandbox import Execution, OutcomeStatus, SandboxPool

ENDED = {OutcomeStatus.OK, OutcomeStatus.ERROR}
STOPPED = {OutcomeStatus.TIMEOUT}
OUT_OF_MEMORY = {OutcomeStatus.MEMORY, OutcomeStatus.TIMEOUT}
ANY = set(OutcomeStatus)


@pytest.fixture(scope="module", params=GUESTS)
def pool(request: pytest.FixtureRequest) -> Iterator[SandboxPool]:
    limits = {"cpu_seconds": 0.3, "wall_seconds": 20, "memory_bytes": 256 << 20, "output_bytes": 1 << 20}
    with SandboxPool(1, **limits, **request.param) as pool:
        yield pool


def attack(pool: SandboxPool, code: str) -> Execution:
    """Runs `code`, then looks at whether the same worker still computes right, from a fresh state."""
    replaced = pool.stats()["workers_replaced"]
    outcome = pool.run(code)
    after = pool.run("import sys, sympy\nprint(sorted(vars()), sum(range(5)), sympy.factorint(12))")
    expected = "['__builtins__', '__doc__', '__file__', '__loader__', '__name__', '__package__', '__spec__', "
    assert after.stdout.startswith(expected), after
    assert after.stdout.endswith("10 {2: 2, 3: 1}\n"), after
    assert pool.stats()["workers_replaced"] == replaced, outcome
    return outcome


ENDLESS = {
    "loop": "while True: pass",
    "loop that catches everything": "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    "recursion that catches everything": "def f():\n    try: f()\n    except BaseException: f()\nf()",
    "power": "10**10**10",
    "factorial": "import math\nmath.factorial(10**8)",
    "str of a huge int": "import sys\nsys.set_int_max_str_digits(0)\nx = str(7**(10**7))",
    "regex": "import re\nre.match('(a+)+$', 'a' * 50 + 'b')",
    "iterator in C": "import itertools, collections\ncollections.deque(itertools.count(), maxlen=0)",
    "sum in C": "import itertools\nsum(itertools.repeat(1))",
    "sorting": "import random\nwhile True: sorted(range(10**5), key=lambda x: -x)",
    "copies of memory": "x = bytes(5 * 10**7)\nwhile True: y = bytearray(x)",
    "numpy": "import numpy\na = numpy.ones((300, 300))\nwhile True: a @ a",
    "sympy": "from sympy import *\nx = symbols('x')\nintegrate(exp(sin(x))*log(x+sqrt(x**7+1)), x)\nwhile True: expand((x+1)**200)",
    "sleep": "import time\nwhile True: time.sleep(1000)",
    "clock": "import time\nwhile time.time() > 0: pass",
    "randomness": "import os\nwhile True: os.urandom(10**6)",
    "reading the library": "while True: open('/usr/local/lib/python315.zip', 'rb').read(10**6)",
    "writing a file": "x = bytes(10**7)\nwhile True: open('x', 'wb').write(x)",
    "growing a file": "f = open('x', 'wb')\nwhile True:\n    f.truncate(60 << 20)\n    f.truncate(0)",
    "many files": "i = 0\nwhile True:\n    i += 1\n    try: open(str(i), 'w')\n    except OSError: pass",
    "listing many files": "import os\nfor i in range(2000): open(str(i), 'w').close()\nwhile True: os.listdir()",
    "renaming a deep tree": "import os\nos.makedirs('d' + '/d' * 100)\nwhile True:\n    os.rename('d', 'e')\n    os.rename('e', 'd')",
    "long paths": "import os\nwhile True: os.path.exists('../work/' * 500)",
    "renaming while listing": "import os\nopen('a', 'w')\nwhile True:\n    for e in os.scandir(): os.rename(e.name, e.name[:9] + 'x')",
    "writing nothing": "import os\nwhile True: os.write(1, b'')",
    "destructor": "class A:\n    def __del__(self):\n        while True: pass\na = A()\ndel a",
    "destructor at exit": "class A:\n    def __del__(self):\n        while True: pass\na = A()",
    "exit function": "import atexit\n@atexit.register\ndef f():\n    while True: pass",
    "trace function": "import sys\ndef f(*a):\n    while True: pass\nsys.settrace(f)\ndef g(): pass\ng()",
    "profile function": "import sys\ndef f(*a):\n    while True: pass\nsys.setprofile(f)\nlen('')",
    "exception hook": "import sys\ndef f(*a):\n    while True: pass\nsys.excepthook = f\n1/0",
    "display of the exception": "class E(Exception):\n    def __str__(self):\n        while True: pass\nraise E",
    "hash": "class A:\n    def __hash__(self):\n        while True: pass\n{A()}",
    "output stream": "import sys\nclass S:\n    def write(self, s): pass\n    def flush(self):\n        while True: pass\nsys.stdout = S()",
    "import hook": "import sys\nclass F:\n    def find_spec(*a):\n        while True: pass\nsys.meta_path.insert(0, F())\nimport nonsense",
    "eval": "eval('[' + 'x for x in iter(int, 1)' + ']') if False else eval('all(True for _ in iter(int, 1))')",
    "compile": "compile('x=1\\n' * 10**7, 'f', 'exec')",
    "gc callback": "import gc\ngc.callbacks.append(lambda *a: exec('while True: pass'))\ngc.collect()",
    "signal": "import signal\ntry:\n    signal.pause()\nexcept BaseException: pass\nwhile True: pass",
}


@pytest.mark.parametrize("code", ENDLESS.values(), ids=ENDLESS.keys())
def test_endless_code_ends_in_time(pool: SandboxPool, code: str) -> None:
    outcome = attack(pool, "print('begun')\n" + code)
    assert (outcome.status, outcome.stdout) in [(OutcomeStatus.TIMEOUT, "begun\n"), (OutcomeStatus.MEMORY, "begun\n")]
    assert outcome.cpu_seconds < 0.3 + OVERSHOOT_SECONDS


def test_the_limit_on_cpu_time_holds_on_a_busy_machine() -> None:
    codes = [
        "while True: pass",
        "x = []\nwhile True: x.append(0); x.pop()",
        "while True:\n    try: 1 / 0\n    except: pass",
    ]
    with SandboxPool(1, cpu_seconds=0.1, wall_seconds=60) as pool, busy_machine():
        outcomes = pool.run_batch(codes * 5)
    assert {outcome.status for outcome in outcomes} == {OutcomeStatus.TIMEOUT}
    assert max(outcome.cpu_seconds for outcome in outcomes) < 0.1 + OVERSHOOT_SECONDS


HOGS = {
    "list": "x = []\nwhile True: x.append('x' * 10**6)",
    "one string": "x = 'x' * 10**9",
    "doubling": "x = b'x'\nwhile True: x += x",
    "nested lists": "x = []\nwhile True: x = [x, x]",
    "dictionary": "d = {}\ni = 0\nwhile True:\n    d[i] = i\n    i += 1",
    "numpy": "import numpy\nx = numpy.ones((10000, 10000))",
    "numpy many": "import numpy\nx = [numpy.ones(10**6) for _ in range(10**4)]",
    "format": "'%999999999d' % 1",
    "f-string width": "f'{1:>999999999}'",
    "range to list": "list(range(10**9))",
    "product": "import itertools\nlist(itertools.product(range(100), repeat=5))",
    "big integer": "x = 1 << (8 * 10**9)",
    "attributes": "class A: pass\nx = []\nwhile True:\n    a = A()\n    a.b = a\n    x.append(a)",
    "catching": "x = []\nwhile True:\n    try:\n        while True: x.append(bytes(10**6))\n    except MemoryError: pass",
    "decompression bomb": "import zlib\nd = zlib.compress(bytes(10**8))\nx = [zlib.decompress(d) for _ in range(100)]",
}


@pytest.mark.parametrize("code", HOGS.values(), ids=HOGS.keys())
def test_memory_hogs_are_held(pool: SandboxPool, code: str) -> None:
    outcome = attack(pool, "print('begun')\n" + code)
    assert outcome.stdout == "begun\n"
    assert outcome.status in OUT_OF_MEMORY, outcome
    assert outcome.peak_memory_bytes <= 256 << 20


DEEP = {
    "recursion": "def f(n): return f(n + 1)\nf(0)",
    "recursion with a raised limit": "import sys\nsys.setrecursionlimit(10**9)\ndef f(n): return f(n + 1)\nf(0)",
    "cached recursion": "import functools\n@functools.cache\ndef f(n): return f(n + 1)\nf(0)",
    "repr": "x = []\nfor _ in range(10**5): x = [x]\nrepr(x)",
    "comparison": "x = y = None\nfor _ in range(10**5): x, y = (x,), (y,)\nx == y",
    "parser": "eval('(' * 10**5 + ')' * 10**5)",
    "compiler": "eval('+'.join(['1'] * 10**5))",
    "unary": "eval('-' * 10**5 + '1')",
    "attributes": "class A:\n    def __getattr__(self, n): return getattr(self, n + 'x')\nA().x",
    "json": "import json\njson.loads('[' * 10**5)",
    "pickle": "import pickle\nx = []\nfor _ in range(10**5): x = [x]\npickle.dumps(x)",
    "regex": "import re\nre.compile('(' * 10**5 + ')' * 10**5)",
    "destructors": "class A:\n    def __init__(self, n): self.n = n\nx = None\nfor _ in range(10**5): x = A(x)\ndel x",
    "generators": "def g(n): yield from g(n + 1)\nnext(g(0))",
    "deepcopy": "import copy\nx = []\nfor _ in range(10**4): x = [x]\ncopy.deepcopy(x)",
    "sympy": "from sympy import *\nx = symbols('x')\ne = x\nfor _ in range(3000): e = sin(e)\nprint(e)",
    "map": "x = [1]\nfor _ in range(10**5): x = map(int, x)\nlist(x)",
    "chained exceptions": "def f(n):\n    try: raise ValueError(n)\n    except ValueError:\n        f(n - 1) if n else 1/0\nf(500)",
}


@pytest.mark.parametrize("code", DEEP.values(), ids=DEEP.keys())
def test_deep_nesting_is_survived(pool: SandboxPool, code: str) -> None:
    outcome = attack(pool, "print('begun')\n" + code)
    assert outcome.stdout.startswith("begun\n"), outcome
    assert outcome.status in ANY


REFUSED = {
    "password file": "open('/etc/passwd')",
    "proc": "open('/proc/self/environ')",
    "dot dot": "open('/usr/local/lib/../../../etc/passwd')",
    "relative": "open('../../../../etc/passwd')",
    "upwards from the run's directory": "import os\nos.chdir('/work/..')\nopen('../etc/passwd')",
    "the parent's directory": "import os\nos.listdir('/root')",
    "shared memory": "open('/dev/shm/x', 'w')",
    "a device": "open('/dev/mem', 'rb')",
    "the descriptors' directory": "open('/dev/fd/1000')",
    "a path with a NUL": "open('/etc/passwd\\0x')",
    "bytes path": "open(b'/etc/passwd', 'rb')",
    "path below a file": "open('x', 'w')\nopen('x/../../etc/passwd')",
    "open directory, upwards": "import os\nos.open('../etc/passwd', 0, dir_fd=3)",
    "open directory, absolute": "import os\nos.open('/etc/passwd', 0, dir_fd=4)",
    "directory in the library": "import os\nos.mkdir('/usr/local/lib/x')",
    "file in the library": "open('/usr/local/lib/x', 'w')",
    "file beside the library": "open('/usr/x', 'w')",
    "file among the devices": "open('/dev/x', 'w')",
    "renaming the library's directory": "import os\nos.rename('/usr', '/work/usr')",
    "renaming over the library": "import os\nopen('x', 'w')\nos.replace('x', '/usr/local/lib/python315.zip')",
    "cutting the library": "import os\nos.truncate('/usr/local/lib/python315.zip', 0)",
    "times of the library": "import os\nos.utime('/usr/local/lib/python315.zip')",
    "removing the library's directory": "import shutil\nshutil.rmtree('/usr')",
    "removing the root": "import os\nos.rmdir('/')",
    "a disk's worth of bytes": "with open('x', 'wb') as f:\n    while True: f.write(bytes(10**7))",
    "a hole of a disk's size": "import os\nopen('x', 'w')\nos.truncate('x', 1 << 40)",
    "a write far out": "import os\nos.pwrite(os.open('x', os.O_CREAT | os.O_RDWR), b'x', 1 << 62)",
    "a million files": "for i in range(10**6): open(str(i), 'w').close()",
    "a million descriptors": "x = [open('x', 'w') for i in range(10**6)]",
    "a deep tree": "import os\nfor i in range(1000):\n    os.mkdir('d')\n    os.chdir('d')",
    "a long name": "open('x' * 256, 'w')",
    "write to the library": "open('/usr/local/lib/python315.zip', 'r+b')",
    "append to the library": "open('/usr/local/lib/python315.zip', 'ab')",
    "removal": "import os\nos.remove('/usr/local/lib/python315.zip')",
    "renaming the library": "import os\nos.rename('/usr/local/lib/python315.zip', 'x')",
    "symbolic link": "import os\nos.symlink('/etc/passwd', 'x')",
    "hard link": "import os\nos.link('/usr/local/lib/python315.zip', 'x')",
    "archive with a path upwards": "import tarfile, io\nt = tarfile.open('t', 'w')\nt.addfile(tarfile.TarInfo('../../../../etc/x'), io.BytesIO())\nt.close()\ntarfile.open('t').extractall()\nopen('/etc/passwd')",
    "system": "import os\nos.system('id') and 1/0",
    "popen": "import os\nos.popen('id')",
    "subprocess": "import subprocess\nsubprocess.run(['id'])",
    "fork": "import os\nos.fork()",
    "exec": "import os\nos.execv('/bin/sh', ['sh'])",
    "kill": "import os\nos.kill(1, 9)",
    "socket": "import socket\nsocket.create_connection(('1.1.1.1', 80), 1)",
    "name resolution": "import socket\nsocket.gethostbyname('localhost')",
    "listening": "import socket\ns = socket.socket()\ns.bind(('', 0))",
    "http": "import urllib.request\nurllib.request.urlopen('http://example.org', timeout=1)",
    "ctypes": "import ctypes\nctypes.string_at(0)",
    "mmap": "import mmap\nmmap.mmap(3, 100)",
    "descriptor 3": "import os\nos.read(3, 10)",
    "descriptors": "import os\nfor fd in range(5, 1000): os.write(fd, b'x')",
    "closing the file system": "import os\nos.close(4)",
    "closing the code": "import os\nos.close(1000)",
    "user": "import pwd\npwd.getpwuid(0)",
}


@pytest.mark.parametrize("code", REFUSED.values(), ids=REFUSED.keys())
def test_the_outside_is_out_of_reach(pool: SandboxPool, code: str) -> None:
    outcome = attack(pool, code)
    assert outcome.status is OutcomeStatus.ERROR, outcome
    assert "root:" not in outcome.stdout + outcome.stderr


TAMPERING = {
    "builtins": "import builtins\nfor name in list(vars(builtins)):\n    delattr(builtins, name)",
    "type": "import builtins\nbuiltins.type = builtins.len = builtins.isinstance = builtins.str = None\nraise ValueError",
    "driver": "import _torl_driver\nvars(_torl_driver).clear()",
    "driver's write": "import _torl_driver\n_torl_driver._write = lambda *a: 1/0",
    "os.write": "import os\nos.write = None",
    "forged report": "import os\nos.write(1001, b'\\x07' * 10**6)",
    "endless report": "import os\nwhile True: os.write(1001, b'x' * 10**6)",
    "all modules": "import sys\nsys.modules.clear()",
    "stdout": "import sys\nsys.stdout = sys.stderr = None\nprint(1)\n1/0",
    "closed stdout": "import sys\nsys.stdout.close()\nprint(1)",
    "closed descriptors": "import os\nos.close(1)\nprint(1)",
    "excepthook": "import sys\nsys.excepthook = 7\n1/0",
    "traceback": "import traceback\ntraceback.TracebackException = None\n1/0",
    "cleared traceback module": "import traceback\nvars(traceback).clear()\n1/0",
    "frames": "import sys\nf = sys._getframe()\nwhile f:\n    f.f_globals.clear()\n    f = f.f_back",
    "gc": "import gc\nfor o in gc.get_objects():\n    if isinstance(o, dict): o.clear()",
    "unfreeze": "import gc\ngc.unfreeze()\ngc.collect()",
    "code objects": "def f(): pass\nf.__code__ = f.__code__.replace(co_code=bytes(range(256)) * 4)\nf()",
    "garbage bytecode": "import random, types\nfor i in range(200):\n    def f(): return 1\n    f.__code__ = f.__code__.replace(co_code=random.randbytes(64))\n    try: f()\n    except BaseException: pass",
    "bad pickle": "import pickle\npickle.loads(b'cos\\nsystem\\n(S\"id\"\\ntR.')",
    "marshal": "import marshal, random\nfor i in range(1000):\n    try: exec(marshal.loads(b'\\xe3' + random.randbytes(100)))\n    except BaseException: pass",
    "import system": "import sys\nsys.meta_path.clear()\nsys.path.clear()\nimport nonsense",
    "main module": "import sys\ndel sys.modules['__main__']",
    "recursion limit": "import sys\nsys.setrecursionlimit(5)\nraise ValueError",
    "interning": "import sys\nfor i in range(10**5): sys.intern(str(i))",
    "abort": "import os\nos.abort()",
    "faulthandler": "import faulthandler\nfaulthandler._sigsegv()",
    "audit hook": "import sys\nsys.addaudithook(lambda *a: 1/0)",
    "exception that cannot be shown": "class E(Exception):\n    def __str__(self): raise E\nraise E",
    "exception with an odd name": "E = type('E\\n\\ud800', (Exception,), {})\nraise E('\\ud800\\0')",
    "exception of exceptions": "raise ExceptionGroup('g', [ValueError(i) for i in range(1000)])",
    "huge message": "raise ValueError('x' * 10**7)",
    "generator exit": "raise GeneratorExit",
    "stop iteration": "raise StopIteration",
    "exit in a destructor": "class A:\n    def __del__(self): raise SystemExit(3)\na = A()",
    "exit with an odd code": "import sys\nclass C:\n    def __str__(self): raise ValueError\nsys.exit(C())",
    "waiting for a thread that cannot exist": "import threading\nthreading.Event().wait()",
    "exit with a huge code": "import sys\nsys.exit(10**100)",
    "tasks": "import asyncio\nasync def main():\n    asyncio.create_task(asyncio.sleep(10**6))\nasyncio.run(main())",
    "decimal traps": "import decimal\ndecimal.getcontext().prec = decimal.MAX_PREC\ndecimal.Decimal(1) / 3",
    "array overflow": "import array\na = array.array('b', [0])\na *= 2**31",
    "memoryview": "m = memoryview(bytearray(10))\nm.release()\nm[0]",
    "numpy strides": "import numpy as np\na = np.lib.stride_tricks.as_strided(np.zeros(1), (10**9,), (8,))\nprint(a[10**9 - 1])",
    "numpy wild write": "import numpy as np\na = np.lib.stride_tricks.as_strided(np.zeros(1), (10**7,), (8,))\na[:] = 1",
}


@pytest.mark.parametrize("code", TAMPERING.values(), ids=TAMPERING.keys())
def test_tampering_harms_only_oneself(pool: SandboxPool, code: str) -> None:
    outcome = attack(pool, "print('begun')\n" + code)
    assert outcome.stdout.startswith("begun\n") or outcome.status is not OutcomeStatus.OK, outcome


def test_nothing_of_the_environment_is_seen(pool: SandboxPool) -> None:
    outcome = attack(pool, "import os, sys, platform\nprint(dict(os.environ), sys.argv, platform.node())")
    for secret in (os.uname().nodename, os.environ.get("HOME", "/root"), str(os.getpid())):
        assert secret not in outcome.stdout
    assert "['main.py']" in outcome.stdout
