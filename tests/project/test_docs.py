"""The documentation against the tree: the files, links, keys, metrics and commands that it names exist."""

import ast
import fnmatch
import importlib.util
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import custom_components
from torl.base.options import options_of
from torl.run.config import EvaluateConfig, FinetuneConfig, SampleConfig, TrainConfig
from torl.run.config.fields import choice_at, choice_of_field, fields_of
from torl.run.records.metric_names import FAMILIES, METRICS

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "python" / "torl"
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "crates/sandbox/README.md", "rust/README.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "evidence").glob("*.md")),
]
CONFIGS = (TrainConfig, SampleConfig, EvaluateConfig, FinetuneConfig)
SECTIONS = {name for config in CONFIGS for name in config.model_fields}
# Where a path may begin: a page about one package names its files from there.
BASES = [ROOT, PACKAGE.parent, PACKAGE, ROOT / "crates" / "sandbox" / "src"]
# A page names a test file without its folder.
TESTS = [ROOT / "tests", *(path for path in (ROOT / "tests").rglob("*") if path.is_dir())]
FILE = re.compile(r"[\w.*-]+(/[\w.*-]+)*(\.(py|pyi|rs|toml|md|svg|txt)|/|/[\w-]+\.\*)")
METRIC = re.compile(r"[a-z]+(/[a-z_*<>.]+)+")
FIELD = re.compile(rf"({'|'.join(sorted(SECTIONS))})(\.[a-z_*]+)+")


def pages(test: Callable[..., None]) -> Any:
    """A test of each page."""
    return pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: str(page.relative_to(ROOT)))(test)


def prose_of(page: Path) -> str:
    """Return a page without its fenced blocks."""
    return re.sub(r"^ *(`{3,}).*?^ *\1`*$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def spans_of(page: Path) -> list[str]:
    """Yield the text in backticks; a span ends within its paragraph, list item or line of a table."""
    blocks = re.split(r"\n\s*\n|\n(?=\s*[|-] ?)", prose_of(page))
    return [span.strip() for block in blocks for _, span in re.findall(r"(`+)(.+?)\1(?!`)", block, flags=re.DOTALL)]


def exists(path: str, bases: list[Path]) -> bool:
    return any(next(base.glob(path.rstrip("/")), None) is not None for base in bases)


@pages
def test_lines_are_at_most_120_characters(page: Path) -> None:
    """As those of the code. Tables and images cannot be broken."""
    lines = [line for line in prose_of(page).splitlines() if not re.match(r" *(\||!\[)", line)]
    assert [line for line in lines if len(line) > 120] == []


# --- files and links --------------------------------------------------------------------------------------------------


@pages
def test_every_file_of_the_repository_that_a_page_names_exists(page: Path) -> None:
    bases = [page.parent, page.parent / "src", *BASES, *TESTS]
    for span in spans_of(page):
        if not FILE.fullmatch(span) or span in ("main.py", "config.toml"):  # of a snippet, and of a run
            continue
        assert exists(span, bases), f"{page.name} names {span}"


@pages
def test_every_relative_link_resolves(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", prose_of(page)):
        assert "://" in target or (page.parent / target).exists(), f"{page.name} links to {target}"


# --- the configuration ------------------------------------------------------------------------------------------------


def fields() -> Iterator[tuple[str, bool]]:
    """(dotted name, whether any key may follow) of all fields and options of choices, with the custom reward's."""
    for config in CONFIGS:
        for name, info in fields_of(config):
            choice, table = choice_of_field(info), choice_at(config, [*name.split("."), "*"])
            yield name, "dict" in str(info.annotation)
            if choice is not None:
                yield f"{name}.name", False
                for options in choice.all_options().values():
                    yield from (
                        (f"{name}.{option}", "dict" in str(each.annotation)) for option, each in options.items()
                    )
            if table is not None:
                for key, options in table.all_options().items():
                    yield from ((f"{name}.{key}.{option}", False) for option in options)
    yield from ((f"reward.{option}", False) for option in options_of(custom_components.ShortAndTidy).model_fields)


FIELDS = dict(fields())


def is_field(name: str) -> bool:
    """A field, a section, a pattern that one of them meets, or a key of a field that is a table."""
    if name in FIELDS or any(fnmatch.fnmatch(field, name) or field.startswith(f"{name}.") for field in FIELDS):
        return True
    return any(free and name.startswith(f"{field}.") for field, free in FIELDS.items())


@pages
def test_every_key_of_the_configuration_that_a_page_names_is_one(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = set(re.findall(r"--([a-z]+\.[a-z_.]+[a-z])", text))
    for span in spans_of(page):
        name = span.removeprefix("--").split(" = ")[0]
        if FIELD.fullmatch(name) and not FILE.fullmatch(name):
            named.add(name)
    unknown = {name for name in named if not is_field(name)}
    assert not unknown


# --- metrics ----------------------------------------------------------------------------------------------------------

CONSTANTS = METRICS.keys()
PATTERNS = [re.sub("<[^>]+>", "*", family.pattern) for family in FAMILIES]
PREFIXES = {name.split("/")[0] for name in CONSTANTS}
LITERALS = {
    node.value
    for path in PACKAGE.rglob("*.py")
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    if isinstance(node, ast.Constant) and isinstance(node.value, str)
}


def is_metric(name: str) -> bool:
    """Whether a metric has a registered name, or is of a family whose last part the code or the page leaves open."""
    pattern = re.sub(r"<[a-z_]+>|\.\.\.", "*", name)
    if any(fnmatch.fnmatch(constant, pattern) for constant in CONSTANTS):
        return True
    last = pattern.split("/")[-1]
    of_family = any(fnmatch.fnmatch(pattern, each) and pattern.count("/") == each.count("/") for each in PATTERNS)
    return of_family and (last == "*" or any(fnmatch.fnmatch(literal, last) for literal in LITERALS))


@pages
def test_every_metric_that_a_page_names_is_defined(page: Path) -> None:
    named = {span for span in spans_of(page) if METRIC.fullmatch(span) and span.split("/")[0] in PREFIXES}
    unknown = {name for name in named if not is_metric(name) and not exists(name, BASES)}
    assert not unknown


# --- commands ---------------------------------------------------------------------------------------------------------


@pages
def test_every_command_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for module in re.findall(r"python -m ([\w.]+)", text):
        assert importlib.util.find_spec(module), f"{page.name} runs {module}"
    for script in re.findall(r"python ([\w/]+/\w+\.py)", text):
        assert (ROOT / script).is_file(), f"{page.name} runs {script}"
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    for target in re.findall(r"(?:`|^\$ )make ([a-z-]+)", text, flags=re.MULTILINE):
        assert target in targets, f"{page.name} makes {target}"
