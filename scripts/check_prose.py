"""`check_prose.py [--count] [PATH ...]`: check the English of docstrings, comments, errors, names and documentation.

Without a path, checks all of `ROOTS`. Prints one line for each hit; exits with status 1 if there is any.
`# prose: ok` exempts its line (`// prose: ok` in Rust, `<!-- prose: ok -->` in Markdown). On the first or last line of
a docstring or string, it exempts the whole string.
"""

import argparse
import ast
import inspect
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
ROOTS = ("python", "demo_maker", "benchmarks", "scripts", "tests", "docs", "*.md", "rust", "crates")
# Programs for the sandbox, build outputs, hidden folders.
SKIPPED = re.compile(r"(^|/)(tests/sandbox/(attacks|programs)|target|generated|__pycache__|\.[^/]+)/")
EXEMPTION = "prose: ok"

TEXT = {"docstring", "comment", "error", "markdown"}

# Code, kind of passage ("text" for all of `TEXT`), regular expression, what to write instead. Expressions ignore case.
# A space in them matches any white space, so that phrases are found across line breaks.
# fmt: off
TABLE = (
    ("P1", "docstring", r"\A(what|that|those|these|such|itself|whose|whom|who|something|nobody|everything)\b",
     "an imperative verb (function) or a noun phrase (class, field)"),
    ("P2", "docstring", r"\A(of|by|between|beside|behind|among)\b", "a noun phrase"),
    ("P3", "docstring", r"\A(where|when|which|why|how)\b(?! (many|much|often))", "a noun phrase"),
    ("P4", "docstring", r"^\x20{4}\*{0,2}\w+: (of|in|by|to|with|where|that|whose|as|see|it|is)\b",
     "`name: Noun phrase.`"),
    ("P5", "docstring", r"^\x20{4}\w+Error(, \w+)*: (it|they|there|one|some|none|that|those)\b",
     "a full clause with its own subject"),
    ("P6", "docstring", r"\A(close|end|start|check|stop|make|open|run|call|ask|wrap) (it|them|both|all)\.?\Z",
     "the object by its name"),
    ("P7", "text", r"(?<!there\s)\b(is|are|was|were) no (?!longer|more)\w+", '"is not a", "has no"'),
    ("P8", "text", r"(^|[.,:;(] |\b(of|for|with|by|from|to|than|and|or|but|in) )what "
     r"(is|are|was|were|has|have|had|stands?|comes?|came|becomes?|became|cannot|no)\b",
     "a noun: the output, the error, the remainder"),
    ("P9", "text", r"\b(spoil(t|s)?|silenc(e|ed|es|ing))\b", "fail, drop; mask"),
    ("P10", "text", r"\b(go|goes|going|went) on\b(?! (the|a|an|disk)\b)", "continue, resume"),
    ("P11", "text", r"\b(beside|behind)\b(?! (HTTP|a (proxy|firewall)))", "next to, in addition to, with; after"),
    ("P12", "text", r"\b(lies|stands|stood|stand (in|at|on|beside|behind|below|between))\b(?! for\b)",
     "is, is stored, appears"),
    ("P13", "text", r"\bone's own\b", "custom, your own"),
    ("P14", "text", r"\b(nobody|somebody|whoever)\b", "no caller, another process, the user; or the passive"),
    ("P15", "text", r"\bso (many|much|long)\b(?! (that|as))", "this many, N, that long"),
    ("P16", "text", r"\btold\b|\btells? of\b", "receive, be given, be notified, report"),
    ("P17", "text", r"\bas (it|they) should be\b|\bcannot be had\b|\bin good order\b|\b(ended|ends?|went|ran) well\b",
     "valid; unavailable; succeeded"),
    ("P18", "text", r"\bin the place of\b|\btakes? (its|their|the) place\b", "instead of; replaces"),
    ("P19", "text", r"\bless (one|what|those)\b|\bnothing yet\b|\bwithout end\b|\bfor ever\b",
     "minus, except; drop it; indefinitely"),
    ("P20", "text", r"\b(doors?|shelf|obituary|blames?|falls? (asleep|silent)|hears? of|slow twins?|last words|"
     r"the face of|without a word)\b", "server, endpoint; shared state; output tail; naive implementation; silently"),
    ("P21", "text", r"\b(has|have|is|are) gone\b", "exited, was lost, disconnected, no longer exists"),
    ("P22", "text", r"(^|[.;] )(that|those) of\b", "the noun again"),
    ("P23", "text", r"\ba whole one\b|\bsee there\b", '"Example:"; the name of the reference'),
    ("P24", "text", r"\btime-outs?\b|\bdata sets?\b", "timeout, dataset"),
    ("P25", "text", r"\b(paid|pays)\b", "reward, is rewarded, score"),
    ("P26", "text", r"\b(a room|rooms|floors|house)\b", "package, layer"),
    ("P27", "text", r"\b(meanwhile|likewise)\b", "at the same time, also; or cut it"),
    ("P28", "text", r"\b(whatever|wherever)\b", "any, regardless of"),
    ("P29", "text", r"(?<!there\s)\b(is|are|was|were|has|have|had) (?-i:none)\b",
     "does not exist, is missing, is invalid, has no ..."),
    ("P30", "text", r"\b(is|are|was|were|be|been|being) given up\b", "cancelled, abandoned"),
    ("P31", "text", r"\bof (its|their|his|her|our|your|one's) own\b"
     r"(?=[.,:;)]|\Z| (that|in|on|for|and|or|by|with|from|to|as|is|are)\b)", "custom, your own, separate, dedicated"),
    ("P32", "text", r"\bnone where\b|\bwhere (nothing|there (is|are|was|were))\b", "if, when, unless"),
    ("P33", "text", r"\b(is|are|was|were) broken\b(?! (into|by))", "failed, unavailable, unusable"),
    ("P34", "text", r"\blie (in|at|on|with|beside|behind|under|by|from|there|together)\b", "are, are stored"),
    ("P35", "text", r"\bwalls?\b(?!-clock| (clock|time|seconds))", "isolation layer"),
    ("P36", "text", r"\b(is|are|was|were|be) said\b|\bsa(ys?|id) so\b", "is reported, fails with, logs"),
    ("P37", "text", r"\bbesides\b", "in addition to, also, except"),
    ("P38", "text", r"\b(lets?|letting) go\b", "release"),
    ("T1", "test", r"(\A|_)(nobody|whoever|whose|told|lies|stands|beside|behind|goes_on|spoils?|spoilt|silenced?|"
     r"(that|what)_is_no|of_its_own|says_so|is_said|pays|paid)(_|\Z)", "subject, verb, condition, in the code's terms"),
    ("T2", "test", r"\Atest_what_", "subject, verb, condition"),
    ("T3", "test", r"\A.{81,}", "at most 70 characters"),
    ("H1", "help", r"\A(of|as|what|where|such|to|in)\b", "a noun phrase or an imperative verb"),
    ("L1", "module", r"\A(\S*[^\s.!?]\s){25}\S", "a first sentence of at most 25 words"),
    ("N1", "name", r"\A_*(?-i:MOST|LONGEST|LARGEST|LEAST|FEWEST)_", "MAX_ or MIN_"),
    ("N2", "argument", r"\A(most|least|fewest)(_|\Z)", "max_ or min_"),
    ("N3", "file", r"\A(told|spoken|made|lent|elsewhere|everywhere)\Z", "a noun for the contents of the module"),
)
# fmt: on


class Passage(NamedTuple):
    """A text to check: its kind, which selects the patterns, and its first and last line."""

    kind: str
    text: str
    first: int
    last: int


class Hit(NamedTuple):
    """A match of a pattern in a file."""

    path: str
    line: int
    code: str
    match: str
    advice: str


PATTERNS = [
    (code, TEXT if kind == "text" else {kind}, re.compile(expression.replace(" ", r"\s+"), re.M | re.I), advice)
    for code, kind, expression, advice in TABLE
]


def literal(node: ast.AST) -> str | None:
    """Return the text of a string or f-string, with {} for each formatted value, or None for another node."""
    if isinstance(node, ast.JoinedStr):
        return "".join(literal(part) or "{}" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def strings(node: ast.AST) -> Iterator[tuple[str, int, int]]:
    """Yield the outermost strings of an expression, each with its first and last line."""
    if isinstance(node, ast.expr) and (text := literal(node)) is not None:
        yield text, node.lineno, node.end_lineno or node.lineno
    else:
        for child in ast.iter_child_nodes(node):
            yield from strings(child)


def comments(found: Sequence[tuple[int, int, str]]) -> Iterator[Passage]:
    """Join comments, given as (line, column, text), of adjacent lines that start in the same column."""
    lines: list[str] = []
    for index, (line, column, text) in enumerate(found):
        lines.append(text)
        if index + 1 == len(found) or found[index + 1][:2] != (line + 1, column):
            yield Passage("comment", "\n".join(lines), line - len(lines) + 1, line)
            lines = []


def python_passages(source: str) -> Iterator[Passage]:
    """Yield the passages of a Python module."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str() as text) as value):
                first = value.lineno + text[: len(text) - len(text.lstrip())].count("\n")
                kinds = ("docstring", "module") if tree.body[0] is node else ("docstring",)
                clean = inspect.cleandoc(text).rstrip()
                yield from (Passage(kind, clean, first, value.end_lineno or first) for kind in kinds)
            case ast.Raise(exc=ast.expr() as raised):
                yield from (Passage("error", *found) for found in strings(raised))
            case ast.keyword(arg="help", value=value):
                yield from (Passage("help", *found) for found in strings(value))
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if name.startswith("test_"):
                yield Passage("test", name, node.lineno, node.lineno)
            case ast.Name(id=name, ctx=ast.Store()):
                yield Passage("name", name, node.lineno, node.lineno)
            case ast.arg(arg=name):
                yield Passage("argument", name, node.lineno, node.lineno)
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    yield from comments(
        [(*token.start, token.string.lstrip("# ")) for token in tokens if token.type == tokenize.COMMENT]
    )


def rust_passages(source: str) -> Iterator[Passage]:
    """Yield the passages of a Rust file: `//` comments, names of tests, constants."""
    for kind, declaration in (
        ("test", r"#\[test\]\s+(?:#.*\s+)*fn (\w+)"),
        ("name", r"^\s*(?:pub(?:\(.*\))? )?(?:const|static) (\w+):"),
    ):
        for declared in re.finditer(declaration, source, re.MULTILINE):
            line = source.count("\n", 0, declared.start(1)) + 1
            yield Passage(kind, declared[1], line, line)
    found = [
        (number, match.start(1), match[2])
        for number, text in enumerate(source.splitlines(), 1)
        if (match := re.match(r"(?:.*[;{},(\])] )?\s*(//+!? ?)(.*)", text))
    ]
    yield from comments(found)


def markdown_passages(source: str) -> Iterator[Passage]:
    """Yield a Markdown file as one passage with its code fences blank."""
    blank = re.sub(r"^( *)(```+|~~~+).*?^\1\2 *$", lambda fence: "\n" * fence[0].count("\n"), source, flags=re.S | re.M)
    yield Passage("markdown", blank, 1, source.count("\n") + 1)


READERS = {".py": python_passages, ".pyi": python_passages, ".rs": rust_passages, ".md": markdown_passages}


def relative(path: Path) -> str:
    """Return a path relative to the repository if it is inside."""
    return (path.relative_to(ROOT) if path.is_relative_to(ROOT) else path).as_posix()


def check(path: Path) -> Iterator[Hit]:
    """Yield the hits in a file."""
    source = path.read_text(encoding="utf-8")
    lines = source.splitlines()
    module = path.parent.name if path.stem == "__init__" else path.stem
    for passage in (Passage("file", module, 1, 1), *READERS[path.suffix](source)):
        for code, kinds, pattern, advice in PATTERNS:
            for match in pattern.finditer(passage.text) if passage.kind in kinds else ():
                # An escaped line break in a string is not one of the file.
                start, end = (
                    min(passage.first + passage.text.count("\n", 0, position), passage.last)
                    for position in match.span()
                )
                whole = () if passage.kind in ("comment", "markdown") else (passage.first, passage.last)
                if not any(EXEMPTION in line for number in (start, *whole, end) for line in lines[number - 1 : number]):
                    yield Hit(relative(path), start, code, " ".join(match[0].split())[:60], advice)


def files(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield the files to check among files and folders."""
    for path in paths:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.suffix in READERS and not SKIPPED.search(relative(file)):
                yield file


def table(hits: Sequence[Hit]) -> str:
    """Return the number of hits for each pattern and folder."""
    counts: Counter[tuple[str, str]] = Counter()
    for hit in hits:
        folder = hit.path.partition("/")[0] if "/" in hit.path else "docs"
        counts.update([(hit.code, folder), (hit.code, "all"), ("all", folder), ("all", "all")])
    folders = [*sorted({folder for _, folder in counts} - {"all"}), "all"]
    rows = [(code, *(str(counts[code, folder]) for folder in folders)) for code in (*(row[0] for row in TABLE), "all")]
    return "\n".join("".join(cell.rjust(11) for cell in row) for row in (("", *folders), *rows))


def main(arguments: Sequence[str]) -> int:
    """Check files; returns 1 if there is a hit."""
    parser = argparse.ArgumentParser(description="Check the English of the code base.")
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATH", help="file or folder to check (default: all)")
    parser.add_argument("--count", action="store_true", help="print the number of hits per pattern and folder")
    options = parser.parse_args(arguments)
    paths = [path.resolve() for path in options.paths] or [path for name in ROOTS for path in sorted(ROOT.glob(name))]
    if missing := [str(path) for path in paths if not path.exists()]:
        parser.error(f"no such file or folder: {', '.join(missing)}")
    hits = [hit for file in files(paths) for hit in check(file)]
    if options.count:
        print(table(hits))
    else:
        for hit in hits:
            print(f'{hit.path}:{hit.line}: {hit.code}: "{hit.match}" — write {hit.advice}')
    return 1 if hits else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
