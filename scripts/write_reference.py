"""`write_reference.py`: write docs/reference/settings.md and docs/reference/metrics.md from the code."""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

from torl.config import EvaluateConfig, FinetuneConfig, SampleConfig, TrainConfig
from torl.config.help import Setting, section_title, settings_of
from torl.records import metric_names

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "reference"
_NOTE = "<!-- Written by scripts/write_reference.py from the code; edit the docstrings there. -->"
_CONFIGS = ((TrainConfig, None), (FinetuneConfig, "finetune"), (SampleConfig, "sample"), (EvaluateConfig, "evaluate"))


def main() -> None:
    """Write the pages."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


def pages() -> dict[str, str]:
    """Return the text of each page by its file name."""
    return {"settings.md": "\n".join(_settings()) + "\n", "metrics.md": "\n".join(_metrics()) + "\n"}


def _settings() -> Iterator[str]:
    yield from ("# Settings", "", _NOTE, "")
    yield (
        "All settings of a configuration, by section. In TOML a section is a table, on the command line a setting is "
        '`--section.setting VALUE`, and in Python a section is a keyword: `rollout={"max_tool_calls": 2}`. Settings '
        "in bold are the first page of `torl train --help`. A name in brackets is the choice that has the option."
    )
    for config, only in _CONFIGS:
        sections: dict[str, list[Setting]] = {}
        for setting in settings_of(config):
            sections.setdefault(setting.name.split(".")[0], []).append(setting)
        for section, settings in sections.items():
            if only not in (None, section):
                continue
            yield from ("", f"## {section}", "")
            if title := section_title(config, section):
                yield from (_cell(title), "")
            yield from ("| setting | type | default | meaning |", "|---|---|---|---|")
            for setting in settings:
                name = f"`{setting.name}`"
                name = f"**{name}**" if setting.name in config.common_settings else name
                type, default = _code(setting.type), _code(setting.default)
                yield f"| {name} | {type} | {default} | {_cell(setting.meaning)} |"


def _metrics() -> Iterator[str]:
    yield from ("# Metrics", "", _NOTE, "")
    yield _cell((metric_names.__doc__ or "").partition("\n\n")[2])
    source = inspect.getsource(metric_names)
    lines, body = source.splitlines(), ast.parse(source).body
    title = None
    for node, after in zip(body, [*body[1:], None], strict=True):
        name = _metric(node)
        if name is None:
            continue
        above = next(line for line in reversed(lines[: node.lineno]) if line.startswith("# --- ") or line == lines[0])
        if above != title:
            title = above
            yield from ("", f"## {title.strip('# -')}", "", "| metric | meaning |", "|---|---|")
        document = _text(after)
        if isinstance(node, ast.FunctionDef):
            document = re.sub(r"^Return `[^`]*`: ", "", ast.get_docstring(node) or "")
        yield f"| `{name}` | {_cell(document or '')} |"


def _metric(node: ast.stmt) -> str | None:
    """Return the name of a metric that a constant holds or a function builds; None for other statements."""
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and not node.target.id.startswith("_"):
        value = getattr(metric_names, node.target.id)
        return value if isinstance(value, str) and not value.endswith("/") else None
    if isinstance(node, ast.FunctionDef) and (
        named := re.search(r"`([a-z]+/[^`]*<[^`]*)`", ast.get_docstring(node) or "")
    ):
        return named[1]
    return None


def _text(node: ast.stmt | None) -> str | None:
    """Return the docstring below a constant; None if the statement is another one."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return str(node.value.value)
    return None


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")


def _cell(text: str) -> str:
    pieces = re.split(r"(`[^`]*`)", " ".join(text.split()).replace("|", "\\|"))
    return "".join(piece if piece.startswith("`") else piece.replace("<", "&lt;") for piece in pieces)


if __name__ == "__main__":
    main()
