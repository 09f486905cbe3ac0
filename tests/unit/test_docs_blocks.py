"""The shell and Python blocks of the pages: commands parse with their options, and all else is run or marked.

A block that no test runs has a comment above it, `<!-- not run: REASON -->`.
"""

import argparse
import ast
import re
import shlex
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from torl import __main__ as command_line
from torl.rewards import __main__ as rewards_command_line

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCED = re.compile(
    r"^(?:<!-- (?P<mark>[^\n]*) -->\n+)?(?P<indent> *)```(?P<tag>\w+)\n(?P<text>.*?)^ *```$", re.M | re.S
)
RUN_BY = {
    "README.md": "tests/integration/test_readme.py",
    "docs/extending.md": "tests/unit/test_extending_page.py",
    "docs/sandbox.md": "tests/integration/test_docs_sandbox.py",
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


def commands() -> Iterator[tuple[str, list[str]]]:
    """Yield each command of torl with its page, as words."""
    for block in blocks("console", "bash"):
        for line in block.text.replace("\\\n", " ").splitlines():
            words = shlex.split(line.removeprefix("$ "), comments=True)
            while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
                del words[0]
            if "<" in words:
                del words[words.index("<") :]
            if words[:1] == ["torl"]:
                yield block.page, words[1:]
            elif words[:2] == ["python", "-m"] and words[2].startswith("torl."):
                yield block.page, words[2:]


class _ParsedError(Exception):
    """A parser has read a whole command line."""


COMMANDS = list(commands())


@pytest.mark.parametrize(
    ("page", "words"), COMMANDS, ids=lambda value: " ".join(value) if isinstance(value, list) else value
)
def test_parser_of_a_command_knows_its_options(page: str, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    parse = argparse.ArgumentParser.parse_known_args

    def parse_and_stop(parser: argparse.ArgumentParser, *arguments: Any, **options: Any) -> Any:
        _, unknown = parse(parser, *arguments, **options)
        raise _ParsedError(unknown)

    monkeypatch.setattr(argparse.ArgumentParser, "parse_known_args", parse_and_stop)
    main = (
        partial(rewards_command_line.main, words[1:])
        if words[0] == "torl.rewards"
        else partial(command_line.main, words)
    )
    with pytest.raises(_ParsedError) as parsed:
        main()
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
