"""The shell and Python blocks of the pages: commands parse with their options, and all else is run or marked.

A block that no test runs has a comment above it, `<!-- not run: REASON -->`. Commands of torl need data and time: their
parsers read them. Of `make` and `pip`, the targets and the extras exist.
"""

import argparse
import ast
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from torl import __main__ as command_line

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "crates/sandbox/README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "evidence").glob("*.md")),
]
FENCED = re.compile(
    r"^(?:<!-- (?P<mark>[^\n]*) -->\n+)?(?P<indent> *)```(?P<tag>\w+)\n(?P<text>.*?)^ *```$", re.M | re.S
)
RUN_BY = {
    "README.md": "tests/project/test_readme.py",
    "crates/sandbox/README.md": "tests/sandbox/test_docs_sandbox.py",
    "docs/doctor.md": "tests/lab/doctor/test_other_packages.py",
    "docs/extending.md": "tests/torl/components/test_extending_page.py",
    "docs/sandbox.md": "tests/sandbox/test_docs_sandbox.py",
}
"""The test that runs the Python blocks of a page."""


class Block(NamedTuple):
    """A fenced block, without its indentation."""

    page: str
    mark: str | None
    tag: str
    text: str


def blocks(*tags: str) -> Iterator[Block]:
    for page in PAGES:
        name = str(page.relative_to(ROOT))
        for found in FENCED.finditer(page.read_text(encoding="utf-8")):
            if found["tag"] in tags:
                yield Block(name, found["mark"], found["tag"], re.sub(rf"(?m)^{found['indent']}", "", found["text"]))


def commands() -> Iterator[tuple[Block, list[str]]]:
    """Yield the commands of the shell blocks, as words without settings of the environment and redirections."""
    for block in blocks("console", "bash"):
        for line in block.text.replace("\\\n", " ").splitlines():
            if block.tag == "console" and not line.startswith("$ "):
                continue  # what the command before prints
            words = shlex.split(line.removeprefix("$ "), comments=True)
            while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
                del words[0]
            if "<" in words:
                del words[words.index("<") :]
            if words:
                yield block, words


def words_of_torl(words: list[str]) -> list[str] | None:
    """Return a command of torl as the words after `torl` or `python -m`; None for others."""
    if words[0] == "torl":
        return words[1:]
    if words[:3] == ["python", "-m", "torl_sandbox"]:
        return ["sandbox", *words[3:]]
    if words[:2] == ["python", "-m"] and words[2].startswith("torl."):
        return words[2:]
    return None


class _ParsedError(Exception):
    """A parser has read a whole command line."""


COMMANDS = [words for _, line in commands() if (words := words_of_torl(line)) is not None]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_parser_of_a_command_knows_its_options(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    parse = argparse.ArgumentParser.parse_known_args

    def parse_and_stop(parser: argparse.ArgumentParser, *arguments: Any, **options: Any) -> Any:
        _, unknown = parse(parser, *arguments, **options)
        raise _ParsedError(unknown)

    monkeypatch.setattr(argparse.ArgumentParser, "parse_known_args", parse_and_stop)
    with pytest.raises(_ParsedError) as parsed:
        command_line.main(words)
    assert parsed.value.args == ([],)


@pytest.mark.parametrize(
    "block", list(blocks("python", "py")), ids=lambda block: f"{block.page}: {block.text.splitlines()[0]}"
)
def test_a_python_block_is_run_by_a_test_or_marked(block: Block) -> None:
    compile(block.text, block.page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if block.mark is None:
        assert (ROOT / RUN_BY[block.page]).is_file()
    else:
        assert block.mark.startswith("not run: ")


OTHERS = [(block, words) for block, words in commands() if words_of_torl(words) is None]


@pytest.mark.parametrize(("block", "words"), OTHERS, ids=lambda value: value[0] if isinstance(value, list) else "")
def test_another_command_names_what_exists_or_is_marked(block: Block, words: list[str]) -> None:
    if block.mark is not None:
        assert block.mark.startswith("not run: ")
        return
    if words[0] == "make":
        targets = re.findall(r"(?m)^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"))
        assert set(words[1:]) <= set(targets)
    elif words[:2] == ["python", "-m"]:
        text = (ROOT / words[2].replace(".", "/")).with_suffix(".py").read_text(encoding="utf-8")
        assert [word for word in words if word.startswith("--") and f'"{word}"' not in text] == []
    else:
        assert words[:2] == ["pip", "install"]
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
            "optional-dependencies"
        ]
        named = {extra for word in words for found in re.findall(r"\[(.*)\]", word) for extra in found.split(",")}
        assert named <= extras.keys()
