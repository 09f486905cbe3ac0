"""Programs that print: one to three filled templates of one area, with the imports they need."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

import language
import libraries
import numerics
from filling import fill


@dataclass(frozen=True, slots=True)
class Area:
    """The subject of a program: templates that may appear in one program, and how often it is drawn."""

    name: str
    templates: list[str]
    imports: str
    weight: int
    packages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Program:
    """A program, the name of its area, and the smaller programs that it is made of, if any."""

    area: str
    code: str
    parts: tuple[str, ...] = ()


def _templates(lines: str) -> list[str]:
    r"""Templates of a text with one on each line, in which `\n` is an end of line and `\\` a backslash."""
    return [line.replace("\\\\", "\0").replace("\\n", "\n").replace("\0", "\\") for line in lines.strip().splitlines()]


def _areas() -> Iterator[Area]:
    for name, lines, weight in (
        ("integers", language.INTEGERS, 12), ("floats", language.FLOATS, 8), ("texts", language.TEXTS, 8),
        ("containers", language.CONTAINERS, 8), ("programs", language.PROGRAMS, 16),
    ):  # fmt: skip
        yield Area(name, _templates(lines), "", weight)
    for name, text in libraries.LIBRARIES.items():
        yield Area(name, _templates(text), libraries.IMPORTS.get(name, f"import {name}"), 2)
    for name, text in numerics.NUMERICS.items():
        weight = {"numpy": 14, "scipy": 3, "pandas": 3, "sympy": 3, "networkx": 1}[name]
        packages = ("networkx", "scipy") if name == "networkx" else (name,)
        yield Area(name, _templates(text), numerics.IMPORTS[name], weight, packages)


AREAS = list(_areas())


def generate(random: Random, areas: list[Area]) -> Program:
    """One program about one of `areas`."""
    (area,) = random.choices(areas, [area.weight for area in areas])
    # A statement that ends a program early leaves nothing to compare after it, so few statements are better than many.
    bodies = [_some_prints(fill(random.choice(area.templates), random), random) for _ in range(_count(random))]
    parts = tuple(_with_imports(area, "\n".join([before, one])) for before, prints in bodies for one in prints)
    return Program(area.name, _with_imports(area, "\n".join("\n".join([b, *prints]) for b, prints in bodies)), parts)


def _count(random: Random) -> int:
    return random.choice([1, 1, 1, 2, 3])


def _with_imports(area: Area, body: str) -> str:
    return "\n".join([*_needed(area.imports, body), body.strip("\n")])


def _needed(imports: str, body: str) -> Iterator[str]:
    """The lines of `imports` with the names that `body` has; `import *` whole."""
    for line in imports.splitlines():
        before, found, names = line.rpartition("import ")
        if not found:
            yield line
            continue
        used = [name for name in names.split(", ") if name == "*" or name.split()[-1].rpartition(".")[2] in body]
        if used:
            yield f"{before}import {', '.join(used)}"


def _some_prints(code: str, random: Random) -> tuple[str, list[str]]:
    """For `print(a, b, c)` a print for one or two of the three, and the text before it.

    A short program says more when it differs.
    """
    before, _, last = code.rpartition("\n")
    if not last.startswith("print("):
        return "", [code]
    try:
        (statement,) = ast.parse(last).body
    except (SyntaxError, ValueError):
        return "", [code]
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or len(call.args) < 2 or call.keywords:
        return "", [code]
    chosen = [call.args[i] for i in sorted(random.sample(range(len(call.args)), random.choice([1, 1, 2])))]
    if any(isinstance(one, ast.Starred) for one in chosen):
        return "", [code]
    texts = (last.encode()[one.col_offset : one.end_col_offset].decode() for one in chosen)
    return before, [f"print({text})" for text in texts]
