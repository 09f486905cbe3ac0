"""Excerpts of a notebook cell's source for tracebacks in the form of IPython 8.

An excerpt consists of the pieces around a line within its function. A piece is a simple statement, or the head of a
compound one.
"""

import ast
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

_MAX_SOURCE = 16 << 10  # characters; untrusted source takes time to parse
_MAX_LINES = 6  # of a piece other than the current one; longer pieces are shortened
_FIRST, _LAST = 3, 2  # lines of a shortened piece
_GAP = "   (...)"
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SCOPES = (*_FUNCTIONS, ast.ClassDef)
_HOLDERS = (ast.stmt, ast.ExceptHandler, ast.match_case)


def lines_of(source: str) -> list[str]:
    """Return the lines of Python source with their ends. `str.splitlines` would also end them at form feeds."""
    return _LINE.findall(source)


@dataclass(frozen=True)
class Cell:
    """The source of a cell that compiles."""

    source: str

    @cached_property
    def lines(self) -> list[str]:
        """Lines without line ends."""
        return [line.rstrip("\r\n") for line in lines_of(self.source)]

    @cached_property
    def _tree(self) -> ast.Module:
        if len(self.source) > _MAX_SOURCE:
            raise ValueError(f"the cell has {len(self.source)} characters, at most {_MAX_SOURCE} are parsed")
        with warnings.catch_warnings():  # the guest has already reported them
            warnings.simplefilter("ignore")
            return ast.parse(self.source)

    @cached_property
    def _scopes(self) -> list[tuple[range, ast.AST]]:
        """Functions and classes with their lines, outer ones first."""
        nodes = (node for node in ast.walk(self._tree) if isinstance(node, (*_SCOPES, ast.Lambda)))
        return [(range(*_lines_of(node)), node) for node in nodes]

    @cached_property
    def _pieces(self) -> list[range]:
        pieces: list[range] = []
        for start, stop in self._split(self._tree, 1, len(self.lines) + 1):
            while start < stop and not self.lines[start - 1].strip():
                start += 1
            while start < stop and not self.lines[stop - 2].strip():
                stop -= 1
            if pieces and start < pieces[-1].stop:  # two statements in one line
                pieces[-1] = range(pieces[-1].start, max(stop, pieces[-1].stop))
            elif start < stop:
                pieces.append(range(start, stop))
        return pieces

    def _split(self, node: ast.AST, start: int, stop: int) -> Iterator[tuple[int, int]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, _HOLDERS):
                first, end = _lines_of(child)
                if start < first:
                    yield start, first
                yield from self._split(child, first, end)
                start = end
        if start < stop:
            yield start, stop

    def around(self, line: int, function: str, pieces_around: int) -> list[str]:
        """Return the numbered lines around a line in a function, with an arrow.

        Raises:
            SyntaxError, ValueError, RecursionError, MemoryError: The cell cannot be parsed.
        """
        scope = next((one for one in self._enclosing(line, function) if isinstance(one, _SCOPES)), None)
        first, end = (1, len(self.lines) + 1) if scope is None else _lines_of(scope)
        pieces = [piece for piece in self._pieces if first <= piece.start and piece.stop <= end]
        here = next((number for number, piece in enumerate(pieces) if line in piece), None)
        if here is None:
            return []
        numbers: list[int | None] = []
        for number in range(max(0, here - pieces_around), min(len(pieces), here + pieces_around + 1)):
            piece = list(pieces[number])
            is_complete = number == here or len(piece) <= _MAX_LINES
            numbers += piece if is_complete else [*piece[:_FIRST], None, *piece[-_LAST:]]
        texts = [self.lines[number - 1] for number in numbers if number is not None]
        indent = min(len(text) - len(text.lstrip()) for text in texts if text.strip())
        return [
            _GAP if number is None else _numbered(number, self.lines[number - 1][indent:], line) for number in numbers
        ]

    def signature(self, line: int, function: str) -> str:
        """Return the function around a line with its parameter names, such as `A.f(self, x)`."""
        enclosing = self._enclosing(line, function)
        if not enclosing:
            return f"{function}(.0)" if function.startswith("<") else f"{function}()"
        function_node = enclosing[0]
        names: list[str] = []
        for node in reversed(enclosing):
            name = getattr(node, "name", "<lambda>")
            names += [name] if node is function_node or isinstance(node, ast.ClassDef) else [name, "<locals>"]
        return f"{'.'.join(names)}({', '.join(_parameters(function_node))})"

    def _enclosing(self, line: int, function: str) -> list[ast.AST]:
        """Return the functions and classes around a line, from the function of the given name outwards."""
        found = [node for lines, node in reversed(self._scopes) if line in lines]
        named = (n for n, node in enumerate(found) if getattr(node, "name", "<lambda>") == function)
        start = next(named, None)
        return [] if start is None else found[start:]


def _lines_of(node: ast.AST) -> tuple[int, int]:
    """Return the first line of a node, including decorators, and the line after it."""
    if isinstance(node, ast.match_case):
        return node.pattern.lineno, _lines_of(node.body[-1])[1]
    decorators = [one.lineno for one in getattr(node, "decorator_list", [])]
    line: int = getattr(node, "lineno")  # noqa: B009
    end: int = getattr(node, "end_lineno")  # noqa: B009
    return min([line, *decorators]), end + 1


def _parameters(node: ast.AST) -> Iterator[str]:
    arguments = getattr(node, "args", None)
    if isinstance(arguments, ast.arguments):
        yield from (one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs))
        yield from ([f"*{arguments.vararg.arg}"] if arguments.vararg else [])
        yield from ([f"**{arguments.kwarg.arg}"] if arguments.kwarg else [])


def _numbered(number: int, text: str, current: int) -> str:
    arrow = "-" * (5 - len(str(number))) + "> " if number == current else " " * (7 - len(str(number)))
    return f"{arrow}{number} {text}"
