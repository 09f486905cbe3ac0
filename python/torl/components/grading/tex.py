r"""Arguments of LaTeX commands, as TeX reads them: \frac a b is \frac{a}{b}, and \sqrt[4]5 is \sqrt[4]{5}."""

import re

_ARGUMENTS = {"frac": 2, "dfrac": 2, "tfrac": 2, "cfrac": 2, "binom": 2, "dbinom": 2, "tbinom": 2, "sqrt": 1}
_COMMAND = re.compile(r"\\([A-Za-z]+)")
_OPTION = re.compile(r"\s*(\[[^\[\]]*\])")
_TOKEN = re.compile(r"\s*(\\[A-Za-z]+|\\?[^\s{}\\])")
_SIZE = re.compile(r"\\(?:big|Big|bigg|Bigg)[lrm]?(?![A-Za-z])\s*")
_INVISIBLE = re.compile(r"\\[hv]?phantom\s*(?:\{[^{}]*\}|[^\s{}\\])")
_NAME = re.compile(r"\\operatorname\s*\{(a(?:sin|cos|tan|cot|sec|csc)h?)\}")
_CALL = re.compile(
    r"(\\(?:ln|log|exp|(?:arc)?(?:sin|cos|tan|cot|sec|csc)h?)(?![A-Za-z])\s*(?:[_^]\s*(?:\{[^{}]*\}|\w))?)\s*\{\s*\\left\("
)
_DECORATION = re.compile(r"\\begin\{equation(\*?)\}(.*)\\end\{equation\1\}", re.DOTALL)


def in_braces(text: str) -> str:
    r"""Return a formula with the arguments of fractions, roots and binomials in braces, brackets without sizes."""
    if decorated := _DECORATION.fullmatch(text.strip()):
        text = decorated[2]
    text = _INVISIBLE.sub("", _SIZE.sub("", text)).replace("{smallmatrix}", "{matrix}")
    text = _NAME.sub(lambda name: f"\\arc{name[1][1:]}", text)
    for found in reversed(list(_CALL.finditer(text))):
        text = _without_braces(text, found)
    for found in reversed(list(_COMMAND.finditer(text))):
        if found[1] in _ARGUMENTS:
            text = text[: found.start()] + _with_arguments(found[1], text[found.end() :])
    return text


def _without_braces(text: str, found: re.Match[str]) -> str:
    r"""Return a text with \ln(x) for a \ln{\left(x \right)} as SymPy prints it, whose end the parser would not see."""
    start = found.end(1)
    argument = _argument(text, start)
    if argument is None or not argument[0].rstrip().endswith("\\right)"):
        return text
    inside = argument[0].strip()
    if _argument("{" + inside[len("\\left(") : -len("\\right)")] + "}", 0) is None:
        return text
    return text[:start] + inside + text[argument[1] :]


def _with_arguments(name: str, rest: str) -> str:
    """Return a command with its arguments in braces, and the text after it. It stays as it is without an argument."""
    written, position = "\\" + name.removeprefix("t").removeprefix("d").removeprefix("c"), 0
    if name == "sqrt" and (option := _OPTION.match(rest)):
        written, position = written + option[1], option.end()
    for _ in range(_ARGUMENTS[name]):
        if (argument := _argument(rest, position)) is None:
            return f"\\{name}{rest}"
        written, position = f"{written}{{{argument[0]}}}", argument[1]
    return written + rest[position:]


def _argument(text: str, position: int) -> tuple[str, int] | None:
    """Return an argument without its braces and the position after it: a group, a command or a character."""
    start = position + len(text[position:]) - len(text[position:].lstrip())
    if not text.startswith("{", start):
        token = _TOKEN.match(text, position)
        if token is None or token[1] in "()[]^_+-=,&|" or token[1].startswith("\\right"):
            return None
        if (inner := _ARGUMENTS.get(token[1][1:])) is None:
            return token[1], token.end()
        end = token.end()  # a command whose arguments are in braces already
        if option := _OPTION.match(text, end):
            end = option.end()
        for _ in range(inner):
            if (argument := _argument(text, end)) is None:
                return None
            end = argument[1]
        return text[token.start(1) : end], end
    depth = 0
    for end in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[end], 0) * (text[end - 1] != "\\" or end == start)
        if depth == 0:
            return text[start + 1 : end], end + 1
    return None
