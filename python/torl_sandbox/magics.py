"""Translation of IPython's magics and shell commands in a notebook cell to Python, as IPython 8 translates them."""

import ast
import re
import warnings

_LINE = re.compile(r"(?m)^[^\S\n]*+([%!?]|[\w.]+\?|[\w.,\[\] ]+=\s*[%!])")
_CELL_MAGIC = re.compile(r"%%(\w+) ?([^\n]*)\n?(.*)", re.DOTALL)
_MAGIC = re.compile(r"(\s*+)((?:[\w.,\[\] ]+=\s*)?)%(%?\w+) ?(.*)")
_COMMAND = re.compile(r"(\s*)(!!?)(.*)")
_HELP = re.compile(r"(\s*)(?:(\?\??)([\w.]+)|([\w.]+)(\?\??))")
_OUTPUT = re.compile(r"(\s*+[\w.,\[\] ]+=\s*)!(.*)")

# Characters. Untrusted source takes time to parse, and it blocks the event loop.
_MAX_SOURCE = 16 << 10
_MAX_PARSED = 4 * _MAX_SOURCE
_LEXED_PER_PARSED = 8  # the text after an error is only split into tokens


def python_source(cell: str) -> str:
    """Return the cell with calls of `get_ipython()` where it has magics and shell commands.

    Lines are translated only where the cell is not Python without it: `% 3` may continue an expression. In a long block
    with many of them, the last ones stay as they are.
    """
    if found := _CELL_MAGIC.fullmatch(cell):
        body = found[3] if found[3].endswith("\n") else f"{found[3]}\n"
        return f"get_ipython().run_cell_magic({found[1]!r}, {found[2]!r}, {body!r})\n"
    if len(cell) > _MAX_SOURCE or not _LINE.search(cell):
        return cell
    done, lines = list[str](), cell.split("\n")
    parsed = 0
    while parsed < _MAX_PARSED:
        count = _count_commands(lines)
        done, lines = [*done, *map(_translated, lines[:count])], lines[count:]
        number = _line_of_syntax_error(lines)
        if number is None or not 0 < number <= len(lines):
            break
        parsed += _cost(lines, number)
        before, line = lines[: number - 1], lines[number - 1]
        lines[number - 1] = translated = _translated(line)
        if translated == line:
            break
        # Complete statements before the line are not parsed again for the next one.
        if not line[:1].isspace() and _line_of_syntax_error(before) is None:
            parsed += _cost(before, len(before))
            done, lines = [*done, *before, translated], lines[number:]
    return "\n".join([*done, *lines])


def _count_commands(lines: list[str]) -> int:
    """Return the number of lines at the start that no parser has to judge: no statement begins like a command."""
    for number, line in enumerate(lines):
        if line.strip() and (line[0].isspace() or _translated(line) == line):
            return number
    return len(lines)


def _line_of_syntax_error(lines: list[str]) -> int | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile("\n".join(lines), "", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    except SyntaxError as error:
        return error.lineno
    except (MemoryError, RecursionError, ValueError):
        return None
    return None


def _cost(lines: list[str], number: int) -> int:
    """Return the number of characters that take as long to parse as the lines with a syntax error in this one."""
    before, after = (sum(len(line) + 1 for line in part) for part in (lines[:number], lines[number:]))
    return before + after // _LEXED_PER_PARSED


def _translated(line: str) -> str:
    if found := _MAGIC.fullmatch(line):
        return f"{found[1]}{found[2]}get_ipython().run_line_magic({found[3]!r}, {found[4]!r})"
    if found := _OUTPUT.fullmatch(line):
        return f"{found[1]}get_ipython().getoutput({found[2]!r})"
    if found := _HELP.fullmatch(line.rstrip()):
        magic = "pinfo2" if len(found[2] or found[5]) > 1 else "pinfo"
        return f"{found[1]}get_ipython().run_line_magic({magic!r}, {found[3] or found[4]!r})"
    if found := _COMMAND.fullmatch(line):
        return f"{found[1]}get_ipython().{'system' if found[2] == '!' else 'getoutput'}({found[3]!r})"
    return line
