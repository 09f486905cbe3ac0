"""Values in the rows of problems with tests: solutions, limits, and LiveCodeBench's packed tests."""

import ast
import base64
import binascii
import json
import pickletools
import re
import sys
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from torl.components.programs.forms import InvalidTestsError, parse_tests, unreadable
from torl.components.programs.suites import TestSuite

MAX_SOLUTIONS = 3
"""Number of the solutions of a problem that are kept."""
_MAX_UNPACKED = 1 << 30  # bytes of the packed tests of a problem
_FENCED = re.compile(r"\s*```(?:python3?|py)?[ \t]*\n(.*?)\n?```\s*", re.DOTALL)
_SIZE = re.compile(r"\s*(\d+\.?\d*)\s*(\w*)")
_UNITS = {"s": 1.0, "ms": 1e-3, "b": 2.0**-20, "k": 2.0**-10, "m": 1.0, "g": 2.0**10}
SANDBOX_PACKAGES = frozenset(
    (
        *("PIL", "attr", "attrs", "bs4", "charset_normalizer", "cloudpickle", "contourpy", "cycler"),
        *("dateutil", "defusedxml", "et_xmlfile", "fontTools", "formulaic", "html5lib", "jinja2", "joblib"),
        *("kiwisolver", "lxml", "markupsafe", "matplotlib", "more_itertools", "mpmath", "narwhals"),
        *("networkx", "numpy", "openpyxl", "packaging", "pandas", "patsy", "pyparsing", "pypdf", "regex"),
        *("reportlab", "scipy", "seaborn", "six", "sklearn", "soupsieve", "statsmodels", "sympy", "tabulate"),
        *("threadpoolctl", "tlz", "tomli_w", "toolz", "tqdm", "typing_extensions", "tzdata", "webencodings"),
        *("wrapt", "xlrd", "xlsxwriter", "xmltodict", "yaml"),
    )
)
"""Packages that programs in the sandbox can import, in addition to the standard library."""

_TEXT_OPCODES = ("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "UNICODE")
_HARMLESS_OPCODES = ("PROTO", "FRAME", "MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT", "STOP")


def python_solutions(*values: Any) -> tuple[str, ...]:
    """Return the first different programs of texts, lists or JSON lists that are Python, without fences."""
    found: dict[str, None] = {}
    for value in values:
        if isinstance(value, str) and value.lstrip().startswith("["):
            try:
                value = json.loads(value)
            except (ValueError, RecursionError):
                continue
        for each in [value] if isinstance(value, str) else value if isinstance(value, list) else []:
            if len(found) < MAX_SOLUTIONS and isinstance(each, str) and each.strip():
                fenced = _FENCED.fullmatch(each)
                code = fenced[1] if fenced else each
                if _is_python(code):
                    found.setdefault(code)
    return tuple(found)


def _is_python(code: str) -> bool:
    try:
        ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def packed_records(value: Any) -> Sequence[Mapping[str, Any]]:
    """Return the records of LiveCodeBench: a list, its JSON, or base64 of zlib of a pickle of its JSON."""
    if isinstance(value, str) and not value.lstrip().startswith("["):
        value = _packed_text(value) if value.strip() else []
    found = parse_tests(value) if isinstance(value, str) else value or []
    if not isinstance(found, list) or not all(isinstance(each, Mapping) for each in found):
        raise unreadable("the test cases are not a list of objects")
    return found


def _packed_text(value: str) -> str:
    """Return the text in a pickle in zlib's format in base64. No pickle is executed: its one text is read from it."""
    try:
        unpacker = zlib.decompressobj()
        pickled = unpacker.decompress(base64.b64decode(value, validate=True), _MAX_UNPACKED)
        if unpacker.unconsumed_tail:
            raise unreadable(f"the private tests have more than {_MAX_UNPACKED >> 20} MiB")
        texts = []
        for opcode, argument, _ in pickletools.genops(pickled):
            if opcode.name in _TEXT_OPCODES:
                texts.append(str(argument))
            elif opcode.name not in _HARMLESS_OPCODES:
                raise unreadable(f"the private tests are a pickle of more than a text: it has {opcode.name}")
    except (binascii.Error, zlib.error, ValueError, UnicodeDecodeError) as error:
        raise unreadable(f"the private tests cannot be unpacked: {error}") from error
    if len(texts) != 1:
        raise unreadable("the private tests are not a pickle of one text")
    return texts[0]


def as_object(value: Any) -> Mapping[str, Any]:
    """Return an object, or the object of its JSON; empty for any other value."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, Mapping) else {}


def required_text(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    if not isinstance(value, str) or not value.strip():
        raise InvalidTestsError("no_tests", f"the column {name!r} is missing or empty")
    return value


def text_or_empty(value: Any) -> str:
    return value if isinstance(value, str) else ""


def read_limit(value: Any) -> float | None:
    """Return the seconds or mebibytes of a limit such as "2.0 seconds", "256 megabytes" or 2; None without one."""
    found = _SIZE.match(str(value)) if isinstance(value, str | int | float) and value else None
    if found is None:
        return None
    unit = found[2].lower()
    return float(found[1]) * _UNITS.get("ms" if unit.startswith(("ms", "milli")) else unit[:1], 1.0) or None


def is_importable(name: str) -> bool:
    """Whether programs in the sandbox can import a module, by the name of its package."""
    package = name.partition(".")[0]
    return package in SANDBOX_PACKAGES or package in sys.stdlib_module_names


def without_function(code: str, entry: str) -> str:
    """Return a prompt without the function that it asks for; empty if it is not Python."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError):
        return ""
    tree.body = [each for each in tree.body if getattr(each, "name", None) != entry]
    return ast.unparse(tree)


def with_starter(question: str, starter: str, suite: TestSuite | None = None) -> str:
    """Return a question with the code that the program begins with, or at least the name of its function."""
    if starter.strip():
        if starter.strip() in question:
            return question
        return f"{question.rstrip()}\n\nYour program starts like this:\n\n```python\n{starter.strip()}\n```"
    paths = [getattr(test, "function", "") for test in suite.tests[:1]] if suite else []
    if paths and paths[0] and paths[0].rpartition(".")[2] not in question:
        return f"{question.rstrip()}\n\nThe function is called `{paths[0]}`."
    return question
