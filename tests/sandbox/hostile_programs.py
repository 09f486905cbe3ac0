"""A grammar of hostile Python: statements that alone do harm, and rules that combine them into new programs.

Everything is text. A program need not make sense, or even compile; most do, because a program that ends at its first
line attacks nothing: many statements are wrapped so that what they raise is caught and the rest still runs.
"""

from hypothesis import strategies as st

Text = st.SearchStrategy[str]

NAMES = ["a", "b", "c", "f", "g", "K"]
# Names to remove, replace and call: the driver inside the guest, its libraries and the traceback need them.
BUILTINS = [
    "print", "len", "repr", "str", "int", "type", "isinstance", "id", "iter", "next", "super", "compile", "exec",
    "open", "__import__", "__build_class__", "BaseException", "Exception", "MemoryError", "SystemExit", "object",
    "dict", "list",
]  # fmt: skip
MODULES = {
    "sys": [
        "stdout", "stderr", "stdin", "modules", "path", "excepthook", "unraisablehook", "displayhook", "meta_path",
        "path_hooks", "path_importer_cache", "argv", "builtin_module_names", "flags", "exc_info", "getrecursionlimit",
    ],
    "gc": ["callbacks", "collect", "garbage", "get_objects", "freeze", "enable", "set_threshold"],
    "os": ["environ", "write", "read", "open", "close", "getcwd", "fspath", "stat", "chdir", "listdir", "_exit"],
    "traceback": ["TracebackException", "StackSummary", "print_exception", "sys"],
    "linecache": ["cache", "getline", "checkcache", "lazycache"],
    "types": ["ModuleType", "FunctionType", "SimpleNamespace"],
    "io": ["TextIOWrapper", "FileIO", "StringIO", "BytesIO"],
    "codecs": ["lookup", "register_error", "utf_8_encode"],
    "atexit": ["register", "unregister", "_run_exitfuncs", "_clear"],
    "random": ["seed", "random", "_inst"],
    "numpy": ["random", "ndarray", "array", "errstate"],
    "sympy": ["Symbol", "Integer", "core", "S"],
    "warnings": ["warn", "filters", "showwarning"],
    "threading": ["_main_thread", "Thread", "excepthook", "_shutdown"],
    "importlib": ["_bootstrap", "_bootstrap_external", "reload"],
    "ast": ["parse", "AST", "PyCF_ONLY_AST"],
    "_torl_driver": ["run", "_run", "_guard", "_finish", "_write", "_report_exception", "_session"],
    "builtins": BUILTINS,
    "__main__": ["__dict__", "__builtins__", "__loader__", "__file__"],
}  # fmt: skip
SPECIAL = [
    "__del__", "__repr__", "__str__", "__hash__", "__eq__", "__getattribute__", "__getattr__", "__call__", "__iter__",
    "__next__", "__len__", "__bool__", "__index__", "__format__", "__enter__", "__exit__", "__init_subclass__",
    "__instancecheck__", "__class_getitem__", "__set_name__", "__missing__", "__reduce__", "__buffer__", "__fspath__",
]  # fmt: skip
ENDINGS = [
    "SystemExit",
    "KeyboardInterrupt",
    "MemoryError",
    "RecursionError",
    "GeneratorExit",
    "BaseException",
    "OSError",
]
# By what makes a program large, long or deep.
SIZES = [0, 1, 7, 255, 4096, 10**5, 3 * 10**6, 10**8, 2**31 - 1, 2**31, 2**32, 10**18]
SNIPPETS = [
    "import time; time.sleep(10**6)",
    "import re; re.match(r'(a|aa)*$', 'a' * {n} + 'b')",
    "import re; re.sub(r'(?=(a+))a*b', '', 'a' * ({n} % 10**5))",
    "{v} = 'x' * {n}; {v} += {v}",
    "{v} = [[]] * {n}; {v}.append({v})",
    "{v} = bytearray({n}); {v}.extend({v})",
    "{v} = 7 ** ({n} % 10**7); str({v})",
    "import sys; sys.set_int_max_str_digits(0); print(9 ** ({n} % 10**5))",
    "{v} = (lambda n: n)(eval('(' * ({n} % 500) + '1' + ')' * ({n} % 500)))",
    "{v} = []\nfor _ in range({n} % 10**5): {v} = [{v}]",
    "{v} = ()\nfor _ in range({n} % 10**5): {v} = ({v},)",
    "{v} = {{}}\nfor _ in range({n} % 10**5): {v} = {{1: {v}}}",
    "{v} = None\nfor _ in range({n} % 10**5): {v} = (lambda x: lambda: x)({v})",
    "{v} = iter(())\nfor _ in range({n} % 10**5): {v} = map(id, {v})\nlist({v})",
    "import itertools; list(itertools.product(range(2), repeat={n} % 64))",
    "import itertools; {v} = sum(1 for _ in itertools.count())",
    "def {v}(n): return {v}(n + 1)\n{v}(0)",
    "def {v}():\n    try: {v}()\n    except BaseException: {v}()\n{v}()",
    "import functools; {v} = functools.cache(lambda n: {v}(n + 1)); {v}(0)",
    "import sys; sys.setrecursionlimit({n} % 2**31)",
    "import sys; sys.settrace(lambda *x: print(len(x)) or {w})",
    "import sys; sys.setprofile(lambda *x: {w})",
    "import sys; sys.stdout.write(chr(0xd800 + {n} % 2048))",
    "import sys; sys.stdout.buffer.write(bytes(range(256)) * ({n} % 1000))",
    "import sys; sys.stderr.write('\\0' * ({n} % 10**6))",
    "import sys; sys.stdout = sys.stderr",
    "import sys; sys.stdout.close()",
    "import sys; sys.stdout.reconfigure(encoding='utf-16', errors='strict')",
    "import sys; sys.modules.clear()",
    "import sys; sys.modules[{t!r}] = {w}",
    "import sys; sys._getframe().f_globals.clear()",
    "import sys; sys.exit({w})",
    "import sys; sys.excepthook = lambda *x: 1 / 0",
    "import sys; sys.unraisablehook = lambda x: {w}.append(x)",
    "import sys; sys.intern({t!r} * ({n} % 1000))",
    "import os; os.write(1, {t!r}.encode('utf-8', 'surrogatepass') * ({n} % 10**6))",
    "import os; os.write({n} % 1100, b'\\0\\0\\0\\0\\0')",
    "import os; os.read({n} % 1100, 10**6)",
    "import os; os.close({n} % 1100)",
    "import os; os._exit({n} % 256)",
    "import os; os.abort()",
    "import os; os.makedirs('/'.join(['d'] * ({n} % 200)))",
    "import os; [os.open(str(i), os.O_CREAT) for i in range({n} % 10**4)]",
    "import os; os.environ[{t!r}] = {t!r}",
    "import os; os.kill(0, 9)",
    "open({t!r}, 'w').write('x' * {n})",
    "open('/dev/null', 'w').write({t!r})",
    "f = open('x', 'w'); f.truncate({n})",
    "import shutil; shutil.rmtree('/', ignore_errors=True)",
    "import gc; gc.disable(); gc.set_threshold(1); gc.collect()",
    "import gc; {v} = gc.get_objects()",
    "import gc; gc.callbacks.append(lambda *x: {w})",
    "import gc; [x.clear() for x in gc.get_objects() if type(x) is dict and {t!r} in x]",
    "import gc; gc.unfreeze(); gc.collect()",
    "import ctypes; ctypes.string_at({n})",
    "import threading; threading.Thread(target=print).start()",
    "import subprocess; subprocess.run([{t!r}])",
    "import socket; socket.create_connection(('127.0.0.1', {n} % 65536))",
    "import multiprocessing; multiprocessing.Process(target=print).start()",
    "import signal; signal.alarm(1); signal.pause()",
    "import asyncio; asyncio.run(asyncio.sleep({n}))",
    "import pickle; pickle.loads(b'\\x80\\x04' + {t!r}.encode('utf-8', 'replace'))",
    "import marshal; marshal.loads(bytes({n} % 256 for _ in range(64)))",
    "import zlib; zlib.decompress(zlib.compress(bytes({n} % 10**8)) * 9)",
    "import json; json.loads('[' * ({n} % 10**6))",
    "import ast; ast.parse('-' * ({n} % 10**5) + '1')",
    "import copy; copy.deepcopy({w})",
    "import weakref; {v} = weakref.finalize(type('T', (), {{}})(), print, {t!r})",
    "import numpy; {v} = numpy.ones({n}, dtype='u1').cumsum()",
    "import numpy; numpy.lib.stride_tricks.as_strided(numpy.zeros(1), ({n},), (8,)).sum()",
    "import numpy; numpy.ndarray.__array_finalize__ = None",
    "import sympy; sympy.factorint(3 ** ({n} % 200) + 2)",
    "import sympy; sympy.expand((sympy.Symbol('x') + 1) ** ({n} % 3000))",
    "import decimal; decimal.getcontext().prec = {n}; print(decimal.Decimal(1) / 7)",
    "import ast; ast.literal_eval({t!r} * ({n} % 100))",
    "import _reactor; _reactor._run_turn = print",
    "(lambda: 0).__code__.replace(co_code=bytes([{n} % 256, 0] * 9))",
    "exec((lambda: 0).__code__.replace(co_stacksize={n} % 10**6))",
    "exec((lambda: 0).__code__.replace(co_consts=(), co_names=()))",
    "exec(compile({t!r}, {t!r}, 'exec'))",
    "{v} = type({t!r}, (int, ), {{'__slots__': ()}})({n})",
    "{v} = memoryview(bytearray({n} % 10**6)).cast('B', ({n} % 10**6,))",
    "{v} = (i for i in {v})\nnext({v})",
    "{v}.__class__ = type({w})",
    "{v}.__dict__.update({w}.__dict__)",
    "{v} = {w}, {v}",
    "print({v}, {w})",
    "print(repr({v})[:1000])",
    "print(id({v}), hash({w}))",
    "{v}.throw({w})",
    "import builtins; builtins.__dict__.clear()",
    "input({t!r})",
    "breakpoint()",
]

variables = st.sampled_from(NAMES)
sizes = st.sampled_from(SIZES) | st.integers(0, 10**9)
texts = st.sampled_from(
    ["", "x", "\0", "\ud800", "\udcff", "é\U0001f600", "'\"\\\n", "{%s}", "../../etc", "9" * 5000, "__main__"]
) | st.text(max_size=8)
values = st.one_of(
    variables,
    st.sampled_from(
        ["None", "...", "0", "1j", "float('nan')", "b''", "''", "[]", "{}", "object()", "NotImplemented", "type"]
    ),
    st.sampled_from([f"{name}.{what}" for name in ("sys", "gc", "os") for what in MODULES[name]]),
    sizes.map(str),
    texts.map(ascii),
    st.sampled_from(BUILTINS),
    st.sampled_from(ENDINGS),
    variables.map(lambda name: f"lambda *x, **y: {name}"),
    st.tuples(variables, st.sampled_from(SPECIAL)).map(lambda pair: f"{pair[0]}.{pair[1]}"),
    st.tuples(variables, variables).map(lambda pair: f"{pair[0]}(*{pair[1]})"),
)


def snippets() -> Text:
    def filled(template: str, v: str, w: str, n: int, t: str) -> str:
        return template.format(v=v, w=w, n=n, t=t)

    return st.builds(filled, st.sampled_from(SNIPPETS), variables, values, sizes, texts)


@st.composite
def tampering(draw: st.DrawFn) -> str:
    """One thing of the interpreter's own taken away, replaced or called."""
    module = draw(st.sampled_from(sorted(MODULES)))
    name = draw(st.sampled_from(MODULES[module]))
    action = draw(
        st.sampled_from(
            [
                "del {m}.{a}", "{m}.{a} = {w}", "{m}.{a}()", "{m}.{a}({w})", "{v} = {m}.{a}", "{m}.__dict__.pop({a!r})",
                "setattr(type({m}.{a}), {a!r}, {w})", "for x in {m}.{a}: {v} = x", "{m}.{a}.clear()",
                "{m}.__class__ = {w}",
            ]
        )
    )  # fmt: skip
    filled = action.format(m=module, a=name, v=draw(variables), w=draw(values))
    return f"import {module}\n{filled}"


def indented(body: str) -> str:
    return "".join(f"    {line}\n" for line in body.splitlines() or ["pass"])


@st.composite
def compound(draw: st.DrawFn, statements: Text) -> str:
    """Other statements where they are not expected: in destructors, hooks, handlers, generators, generated code."""
    body = indented(draw(statements))
    name, value = draw(variables), draw(values)
    special, ending = draw(st.sampled_from(SPECIAL)), draw(st.sampled_from(ENDINGS))
    templates = [
        "try:\n{b}except BaseException as e:\n    {v} = e\n",
        "try:\n{b}except BaseException as e: print(type(e).__name__)\n",
        "try:\n{b}finally:\n    {v} = {w}\n",
        "try:\n    raise {e}\nexcept {e}:\n{b}",
        "try:\n    raise {e}\nfinally:\n{b}",
        "try:\n{b}except* {e}: pass\n",
        "while True:\n{b}",
        "for {v} in range(50):\n{b}",
        "with {w} as {v}:\n{b}",
        "def {v}(*x, **y):\n{b}",
        "def {v}(*x, **y):\n{b}    yield {w}\n{v} = {v}()\nnext({v})\n",
        "async def {v}(*x):\n{b}    await {w}\n{v}().send(None)\n",
        "class K:\n    def {s}(self, *x):\n    {i}\n{v} = K()\n",
        "class K(int):\n    def {s}(self, *x):\n    {i}\n{v} = K()\n",
        "class K(type):\n    def {s}(self, *x):\n    {i}\n{v} = K('T', (), {{}})\n",
        "class K(BaseException):\n    def {s}(self, *x):\n    {i}\nraise K\n",
        "class K(dict):\n    def {s}(self, *x):\n    {i}\nexec('x', K())\n",
        "class K:\n{b}",
        "import atexit\ndef {v}():\n{b}atexit.register({v})\n",
        "import sys\ndef {v}(*x):\n{b}sys.excepthook = {v}\nraise {e}\n",
        "import sys\ndef {v}(*x):\n{b}sys.unraisablehook = {v}\n",
        "import sys\ndef {v}(*x):\n{b}    return {v}\nsys.settrace({v})\n",
        "import gc\ndef {v}(*x):\n{b}gc.callbacks.append({v})\ngc.collect()\n",
        "import weakref\ndef {v}(*x):\n{b}class K: pass\nc = K(); d = weakref.ref(c, {v}); del c\n",
        "import sys, io\nclass K(io.StringIO):\n    def write(self, *x):\n    {i}\nsys.stdout = K()\n",
        "import sys, io\nclass K(io.StringIO):\n    def flush(self, *x):\n    {i}\nsys.stderr = K()\n",
        "import codecs\ndef {v}(*x):\n{b}codecs.register_error('strict', {v})\nprint('\\ud800')\n",
        "import warnings, builtins\ndef {v}(*x, **y):\n{b}builtins.{n} = {v}\n",
        "exec({q})\n",
        "{v} = eval('lambda *x: exec(' + repr({q}) + ')')\n{v}()\n",
        "import threading\ndef {v}():\n{b}threading.Thread(target={v}).start()\n",
        "import functools\n@functools.lru_cache\ndef {v}(n):\n{b}    return {v}(n + 1)\n{v}(0)\n",
        "match {w}:\n    case {v}:\n    {i}\n",
        "{v} = [exec({q}) for _ in range(9)]\n",
    ]  # fmt: skip
    return draw(st.sampled_from(templates)).format(
        b=body,
        i=body.replace("\n", "\n    ").rstrip(" "),
        q=ascii(body.replace("    ", "", 1) if body.count("\n") == 1 else f"if 1:\n{body}"),
        v=name,
        w=value,
        s=special,
        e=ending,
        n=draw(st.sampled_from(BUILTINS)),
    )


def caught(statement: str) -> str:
    return f"try:\n{indented(statement)}except Exception as e: print(type(e).__name__)\n"


# Something for every name, so that fewer programs end at a NameError.
PRELUDE = """import gc, os, sys
a, b, c, f, g, K = [1, 2], {"x": 1}, "text", print, (i for i in range(9)), type("K", (), {})
"""

assignments = st.builds("{} = {}".format, variables, values)
simple: Text = st.one_of(snippets(), snippets(), tampering(), assignments)
statements: Text = st.recursive(simple, compound, max_leaves=4)
programs: Text = st.lists(statements | statements.map(caught), min_size=1, max_size=8).map(
    lambda parts: PRELUDE + "\n".join(parts)
)
