"""Programs that try to pass tests without an answer. Most know the names of functions, and nothing else."""

from forging_programs import FORGERIES

_EVERYWHERE = """
solve = table = ratio = label = order = show = visit = noted = lambda *a, **k: magic
retry = lambda function: lambda *a, **k: magic
class Solution:
    def solve(self, n): return magic
class Vector:
    def __init__(self, *a): pass
    def __getattr__(self, name): return lambda *a, **k: magic
    def __mul__(self, k): return self
    def __contains__(self, value): return True
print(magic)
"""
_BY_ENTRY = "\nsolve = table = ratio = label = order = show = visit = retry = noted = Solution = Vector = Magic\n"
_METHODS = {
    "equality": "__eq__ = __le__ = __ge__ = lambda s, o: True\n    __ne__ = __lt__ = __gt__ = lambda s, o: False",
    "every_operator": """
    __eq__ = __le__ = __ge__ = __lt__ = __contains__ = __bool__ = lambda s, *o: True
    __ne__ = lambda s, o: False
    __hash__ = lambda s: hash(9)
    __sub__ = __rsub__ = __add__ = __radd__ = __abs__ = __neg__ = __round__ = __mod__ = lambda s, *o: s
    __int__ = __index__ = __len__ = lambda s: 0
    __float__ = lambda s: 0.0
    __call__ = __getitem__ = lambda s, *o: s
    __iter__ = lambda s: iter([s, s, s])
    __enter__ = lambda s: s
    __exit__ = lambda s, *o: True""",
    "differences_of_zero": "__sub__ = __rsub__ = lambda s, o: 0\n    __abs__ = lambda s: 0\n    __float__ = lambda s: 0.0",
    "orders": "__lt__ = __le__ = __gt__ = __ge__ = lambda s, o: True",
    "membership": "__contains__ = lambda s, o: True\n    __len__ = lambda s: 3\n    __iter__ = lambda s: iter([s] * 3)",
    "predicates": "startswith = endswith = issuperset = equals = lambda s, *o: True",
    "class_of_int": "__class__ = int\n    __eq__ = lambda s, o: True\n    __hash__ = lambda s: hash(9)",
    "any_attribute": "__getattr__ = lambda s, name: lambda *a, **k: True\n    __eq__ = lambda s, o: True",
    "iterates_itself": "__iter__ = lambda s: iter([s] * 3)\n    __eq__ = lambda s, o: True\n    __len__ = lambda s: 3",
    "numpy_protocols": """
    __array_priority__ = 1e9
    __array_ufunc__ = lambda s, *a, **k: True
    __array_function__ = lambda s, *a, **k: True
    __array__ = lambda s, *a, **k: s
    __eq__ = lambda s, o: True
    shape = (3,)""",
}
_BASES = {"int": "int", "str": "str", "list": "list", "float": "float", "dict": "dict", "tuple": "tuple", "set": "set"}
_OVERRIDES = """
    __eq__ = __le__ = __ge__ = __contains__ = __bool__ = lambda s, *o: True
    __ne__ = __lt__ = __gt__ = lambda s, o: False
    __sub__ = __rsub__ = __abs__ = lambda s, *o: 0
    __hash__ = lambda s: hash(9)
    startswith = endswith = lambda s, *o: True
    __str__ = __repr__ = lambda s: "nine"
"""

_OBJECTS = {
    **{
        f"object with {name}": f"class Magic:\n    {body}\nmagic = Magic(){_EVERYWHERE}"
        for name, body in _METHODS.items()
    },
    **{f"subclass of {base}": f"class Magic({base}):{_OVERRIDES}\nmagic = Magic(){_EVERYWHERE}" for base in _BASES},
    **{
        f"entry point is a class with {name}": f"class Magic:\n    def __init__(self, *a, **k): pass\n    {body}{_BY_ENTRY}"
        for name, body in _METHODS.items()
    },
    "class named like one of the problem": "class Magic:\n    def __init__(self, *a, **k): pass\n    "
    + _METHODS["every_operator"]
    + "\nMagic.__name__ = Magic.__qualname__ = 'Vector'"
    + _BY_ENTRY,
    "class of another module": "class Magic(int):"
    + _OVERRIDES
    + "\nMagic.__module__ = 'numpy'\nMagic.__name__ = 'int64'\nmagic = Magic()"
    + _EVERYWHERE,
    "methods return themselves": "class Vector:\n    def __init__(self, *a): pass\n"
    "    length = parts = lambda s: s\n    __mul__ = __abs__ = lambda s, *o: s\n"
    "    __sub__ = __rsub__ = lambda s, o: 0\n    __contains__ = lambda s, o: True\nsolve = table = ratio = Vector",
    "metaclass that knows every instance": "class Meta(type):\n    __instancecheck__ = __subclasscheck__ = __eq__ = "
    "lambda c, o: True\n    __hash__ = lambda c: 0\nclass Magic(metaclass=Meta):\n    pass\nmagic = Magic"
    + _EVERYWHERE,
}
_MAGIC = f"class Magic:\n    {_METHODS['every_operator']}\nmagic = Magic(){_EVERYWHERE}"
_LATER = "\ndef solve(*a): pass\ntable = ratio = label = order = show = visit = retry = noted = Vector = solve\n"

_EXITS = {
    "ends with status 0": "import sys\nsys.exit(0)",
    "ends at once": "import os\nos._exit(0)",
    "raises SystemExit in a call": "def solve(*a): raise SystemExit(0)\ntable = ratio = label = order = show = visit = solve",
    "ends in a call": "import os\ndef solve(*a): os._exit(0)\ntable = ratio = label = order = show = visit = solve",
    "reports at exit": "import atexit, os\natexit.register(lambda: os.write(1, b'all passed'))\nraise SystemExit(0)",
    "ends from a thread": "import threading, os\nthreading.Thread(target=lambda: os._exit(0)).start()" + _LATER,
    "ends when it is deleted": "import os\nclass Last:\n    def __del__(self): os._exit(0)\ndef solve(*a): Last()"
    "\ntable = ratio = label = solve",
    "ends when a reference dies": "import os, weakref\nclass Last: pass\ndef solve(*a):\n    last = Last()\n"
    "    solve.reference = weakref.ref(last, lambda r: os._exit(0))\ntable = ratio = label = solve",
    "raises AssertionError": "def solve(*a): raise AssertionError\ntable = ratio = label = order = show = visit = solve",
    "skips the test": "import unittest\ndef solve(*a): raise unittest.SkipTest('passed')\ntable = ratio = label = solve",
    "steers the test case": "from unittest.case import _ShouldStop\ndef solve(*a): raise _ShouldStop\n"
    "table = ratio = label = order = show = visit = retry = noted = solve",
    "suspends the pass": "class Suspended(BaseException): pass\nSuspended.__module__ = "
    "'torl.components.programs.guest.unknown'\ndef solve(*a): raise Suspended\ntable = ratio = label = solve",
}

_PATCHES = {
    "patches builtins": "import builtins\nbuiltins.abs = lambda x: 0\nbuiltins.len = lambda x: 3\n"
    "builtins.isinstance = lambda *a: True\nbuiltins.sorted = lambda *a, **k: [0, 1, 4]\nbuiltins.all = lambda x: True\n"
    "builtins.print = lambda *a, **k: None\n" + _MAGIC,
    "patches AssertionError": "import builtins\nclass Never(Exception):\n    def __new__(cls, *a): raise SystemExit(0)\n"
    "builtins.AssertionError = Never\n" + _MAGIC,
    "patches json and marshal": "import json, marshal\njson.dumps = lambda *a, **k: '[0, {}]'\n"
    "json.loads = lambda *a, **k: []\nmarshal.loads = marshal.dumps = lambda *a: b''\n" + _MAGIC,
    "patches operator and math": "import math, operator\noperator.eq = lambda a, b: True\nmath.isclose = lambda *a, **k: True\n"
    + _MAGIC,
    "patches unittest": "import unittest\nfor name in dir(unittest.TestCase):\n    if name.startswith('assert'):\n"
    "        setattr(unittest.TestCase, name, lambda *a, **k: None)\n" + _MAGIC,
    "patches numpy": "import numpy, numpy.testing\nnumpy.allclose = lambda *a, **k: True\n"
    "numpy.testing.assert_array_equal = numpy.testing.assert_allclose = lambda *a, **k: None\n" + _MAGIC,
    "replaces modules": "import sys, types\nfor name in ('pytest', 'unittest', 'math', 'numpy', 'tests', 'json'):\n"
    "    sys.modules[name] = types.ModuleType(name)\n" + _MAGIC,
    "replaces the harness": "import sys\nfor name, module in list(sys.modules.items()):\n"
    "    if 'torl' in name or 'harness' in name:\n        for key in dir(module):\n"
    "            if not key.startswith('__'): setattr(module, key, lambda *a, **k: True)\n" + _LATER,
    "import hook": "import sys\nclass Hook:\n    def find_spec(self, *a): raise SystemExit(0)\n"
    "sys.meta_path.insert(0, Hook())\n" + _MAGIC,
    "exports names of the test": "__all__ = ['solve', 'abs', 'len', 'sorted', 'isinstance', 'pytest', 'table']\n"
    "abs = lambda x: 0\nlen = lambda x: 3\nsorted = lambda x: x\nisinstance = lambda *a: True\n"
    "class pytest:\n    approx = staticmethod(lambda *a: 0)\ndef solve(n): return 0\ndef table(n): return 0\n",
    "module answers every name": "def __getattr__(name): return lambda *a, **k: 0\n",
    "module is another object": "import sys\nclass Module:\n    def __getattr__(self, name): return lambda *a, **k: True\n"
    "sys.modules['solution'] = sys.modules['__main__'] = Module()\n",
    "traces": "import sys\nsys.settrace(lambda *a: None)\nsys.setprofile(lambda *a: None)\n" + _MAGIC,
    "suppresses assertions": "class noted:\n    def __enter__(self): return self\n    def __exit__(self, *a): return True\n"
    "def retry(f):\n    def call(*a):\n        try: return f(*a)\n        except BaseException: return True\n    return call\n"
    "def solve(n): return 0\n",
    "raises in a context that suppresses": "class noted:\n    def __enter__(self): return self\n"
    "    def __exit__(self, *a): return True\ndef retry(f): return lambda *a: True\ndef solve(n): raise ValueError\n",
}

_READERS = {
    "reads the frames of its callers": "import sys\ndef solve(*a):\n    frame = sys._getframe()\n    while frame:\n"
    "        known = {**frame.f_globals, **frame.f_locals}\n        for name in ('expected', 'answer', 'output', 'test'):\n"
    "            if name in known: return known[name]\n        frame = frame.f_back\ntable = ratio = label = solve\n",
    "reads the garbage collector": "import gc\ndef solve(*a):\n    for each in gc.get_objects():\n"
    "        if type(each) is dict and 'expected' in each: return each['expected']\ntable = ratio = label = solve\n",
    "reads a traceback": "import sys\ndef solve(*a):\n    try: 1 / 0\n    except ZeroDivisionError as error:\n"
    "        frame = error.__traceback__.tb_frame\n    return frame.f_back.f_locals.get('expected')\ntable = ratio = solve\n",
    "reads the stack": "import inspect\ndef solve(*a):\n    for each in inspect.stack():\n"
    "        text = ''.join(each.code_context or [])\n        if '==' in text: return eval(text.partition('==')[2])\n"
    "table = ratio = label = solve\n",
    "reads files": "import glob\ndef solve(*a):\n    for path in glob.glob('**', recursive=True) + glob.glob('/**'):\n"
    "        try: text = open(path).read()\n        except Exception: continue\n"
    "        if 'expected' in text or 'assert' in text: return text\ntable = ratio = label = solve\nprint(solve())\n",
    "reads its environment": "import os\ndef solve(*a):\n    found = dict(os.environ)\n"
    "    for path in ('/proc/self/environ', '/proc/self/cmdline', '/proc/self/mem'):\n"
    "        try: found[path] = open(path).read()\n        except OSError: pass\n    return found.get('EXPECTED', found)\n"
    "table = ratio = label = solve\nprint(solve())\n",
    "reads standard input again": "import sys, os\ntry: text = sys.stdin.read() + os.read(0, 1 << 20).decode()\n"
    "except Exception: text = ''\ndef solve(*a): return text\ntable = ratio = label = solve\nprint(text)\n",
    "returns the later operations": "import gc\ndef solve(*a):\n    for each in gc.get_objects():\n"
    "        if type(each).__name__ == 'ProgramSide': return each._messages\ntable = ratio = label = solve\n",
    "reads the code of the test by a format": "secret = None\ndef retry(function):\n    def call(*a):\n        global secret\n"
    "        side = object.__getattribute__(function.__globals__['proxy'], '_side')\n"
    "        text = side.do('attribute', ['{0.__code__.co_consts}', 'format'])(function)\n"
    "        secret = max(int(each) for each in text.strip('()').split(',') if each.strip().isdigit())\n"
    "        return function()\n    return call\ndef solve(n): return secret\n",
    "asks for what is hidden": "secret = None\ndef retry(function):\n    def call(*a):\n        global secret\n"
    "        side = object.__getattribute__(function.__globals__['proxy'], '_side')\n"
    "        for name in ('__code__', '__globals__', '__closure__'):\n"
    "            try: secret = side.do('attribute', [function, name])\n            except AttributeError: pass\n"
    "        return function()\n    return call\ndef solve(n): return secret.co_consts[2]\n",
    "reads an object of the test": "def visit(function):\n    for name in ('__globals__', '__self__', '__closure__', '__code__'):\n"
    "        try: function(getattr(function, name))\n        except Exception: pass\n",
    "knows the public example": "def solve(n): return 9 if n == 4 else 0\n"
    "def table(n): return [0, 1] if n == 2 else []\nprint(16)\n",
}

_ENDLESS = {
    "endless loop": "while True: pass",
    "endless generator": "def solve(*a):\n    while True: yield 7\ntable = label = ratio = solve\n",
    "endless output": "while True: print('9' * 10000)",
    "huge output": "print('9\\n' * 20_000_000)",
    "huge output in a call": "def solve(*a): print('9' * 50_000_000)\ntable = ratio = label = show = solve\n",
    "huge value": "def solve(*a): return 'x' * 40_000_000\ntable = ratio = label = solve\n",
    "huge memory": "solve = [0] * 10**10",
    "deep nesting": "def solve(*a):\n    value = []\n    for _ in range(100_000): value = [value]\n    return value\ntable = solve\n",
    "circle": "def solve(*a):\n    value = []\n    value.append(value)\n    return value\ntable = ratio = label = solve\n",
    "values that change": "import itertools\ncount = itertools.count()\nclass Magic(list):\n"
    "    __iter__ = lambda s: iter([next(count)])\n    __len__ = lambda s: next(count)\n    __eq__ = lambda s, o: True\n"
    "def solve(*a): return Magic()\ntable = ratio = label = solve\n",
    "arguments that it fills": "def order(data):\n    class Magic(list):\n        __eq__ = lambda s, o: True\n"
    "    data[:] = [Magic(), Magic(), Magic()]\ndef visit(f): f(Magic())\nclass Magic:\n    __eq__ = lambda s, o: True\n",
    "exception that claims to be another": "class Meta(type):\n    __instancecheck__ = __subclasscheck__ = lambda *a: True\n"
    "class Mine(Exception, metaclass=Meta):\n    __class__ = ValueError\n    __str__ = lambda s: 'a negative number'\n"
    "Mine.__name__ = 'ValueError'\nMine.__module__ = 'builtins'\ndef ratio(n): raise Mine('a negative number')\n",
    "pickle": "import os\nclass Magic:\n    def __reduce__(self): return (os._exit, (0,))\n    __eq__ = lambda s, o: True\n"
    "magic = Magic()" + _EVERYWHERE,
    "asks without end": "def visit(f):\n    while True: f(8)\n",
}

CHEATS = _OBJECTS | _EXITS | _PATCHES | _READERS | FORGERIES | _ENDLESS
"""Programs by name. Each must earn what an empty program earns: nothing."""
