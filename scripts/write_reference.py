"""`write_reference.py`: write docs/reference from the code: settings, metrics, errors, checks and the API."""

import inspect
import re
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import torl
import torl.base.errors
import torl_lab
from torl.run.config import EvaluateConfig, FinetuneConfig, SampleConfig, TrainConfig
from torl.run.config.help import Setting, all_settings, section_title
from torl.run.records import metric_names
from torl_lab.doctor.registry import CHECKS

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "reference"
_NOTE = "<!-- Written by scripts/write_reference.py from the code; edit the docstrings there. -->"
_API = {
    "Calls": "train finetune sample evaluate Policy Run History SampledGroups SandboxPool Execution Grader JudgeClient",
    "Base classes of components": "Component RunContext Tool StatefulTool ToolSession Environment EnvironmentSession "
    "Message Reply Agent Format FencedFormat TaggedFormat TaggedOptions ChatFormat Reward Tracker Engine EngineOptions "
    "LocalEngineOptions EngineMemory ModelShape Installation EngineSetup",
    "Functions of a configuration": "ProblemSource PromptTemplate PromptVariant Estimator EstimatorInputs "
    "TokenAdvantages requires PolicyLoss LossInputs BatchTokens PolicyLossValues Aggregation "
    "ImportanceCorrection CorrectionInputs Imitation",
    "Values": "Problem Prompt Trajectory Turn Block StopReason FinishReason ToolRequest MalformedCall ToolCall Outcome "
    "OutcomeStatus Group Grade ScoredTrajectory ScoredGroup TrainingSample TurnRequest SamplingParameters SampledTurn "
    "StopCondition Scanner Markup",
    "Functions for components": "find_answer find_tagged_answer render_outcome truncate_middle longest_prefix "
    "run_block repetition chatml load_template load_object call_function",
    "Parts of a package that extends torl": "Command Files Monitor Verdict",
    "Types of options": "Section PositiveInt NonNegativeInt PositiveFloat NonNegativeFloat PositiveFraction ErrorStyle "
    "FenceStyle ObservationText",
    "Errors": "TorlError ConfigError RewardError ToolUnavailableError",
}
"""The public names by subject."""
_CONFIGS = (TrainConfig, FinetuneConfig, SampleConfig, EvaluateConfig)


def main() -> None:
    """Write the pages."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


def pages() -> dict[str, str]:
    """Return the text of each page by its file name."""
    lines = {
        "settings": _settings(),
        "metrics": _metrics(),
        "errors": _errors(),
        "api": _api(),
        "checks": _checks(),
    }
    return {f"{name}.md": "\n".join(page) + "\n" for name, page in lines.items()}


def _settings() -> Iterator[str]:
    yield from ("# Settings", "", _NOTE, "")
    yield (
        "All settings of a configuration, by section. In TOML a section is a table, on the command line a setting is "
        '`--section.setting VALUE`, and in Python a section is a keyword: `rollout={"max_tool_calls": 2}`. Settings '
        "in bold are the first page of `torl train --help`. A name in brackets is the choice that has the option."
    )
    sections: dict[str, list[Setting]] = {}
    for setting in all_settings(_CONFIGS).values():
        sections.setdefault(setting.name.split(".")[0], []).append(setting)
    for section, settings in sections.items():
        config = next(each for each in _CONFIGS if section in each.model_fields)
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
    meanings = {metric: metric.meaning for metric in metric_names.METRICS.values()}
    sections: dict[str, dict[str, str]] = {}
    for name, meaning in [*meanings.items(), *((family.pattern, family.meaning) for family in metric_names.FAMILIES)]:
        sections.setdefault(name.partition("/")[0], {})[name] = meaning
    for section, metrics in sections.items():
        yield from ("", f"## {section}", "", "| metric | meaning |", "|---|---|")
        yield from (f"| `{name}` | {_cell(meaning)} |" for name, meaning in metrics.items())


def _errors() -> Iterator[str]:
    yield from ("# Errors", "", _NOTE, "", _cell(inspect.getdoc(torl.base.errors) or ""), "")
    yield "A command prints the message and exits with status 1, or 2 for a mistake on its command line."
    yield from ("", "| error | base | meaning |", "|---|---|---|")
    for name, error in vars(torl.base.errors).items():
        if inspect.isclass(error):
            bases = ", ".join(f"`{base.__name__}`" for base in error.__bases__)
            yield f"| `{name}` | {bases} | {_cell(inspect.getdoc(error) or '')} |"


def _checks() -> Iterator[str]:
    yield from ("# Checks of runs", "", _NOTE, "")
    yield "The checks of [the doctor](../doctor.md). A threshold without a published source is marked torl."
    yield from ("", "| check | finding | measure | threshold (source) | change |", "|---|---|---|---|---|")
    for each in CHECKS.values():
        cells = (each.sentence, each.metric, each.thresholds, each.fix)
        yield f"| `{each.id}` | " + " | ".join(map(_cell, cells)) + " |"


def _api() -> Iterator[str]:
    yield from ("# Python API", "", _NOTE, "")
    yield (
        "The names of `torl` and of its laboratory, by subject. `help(torl.NAME)` shows the same text, and all of a "
        "method's. A module of yours needs no other import, as the recipes show."
    )
    for title, names in _API.items():
        yield from ("", f"## {title}")
        for name in names.split():
            yield from ("", f"### {name}", "", *_documented(name, getattr(torl, name)))
    yield from ("", "## torl_lab")
    for name in torl_lab.__all__:
        yield from ("", f"### torl_lab.{name}", "", *_documented(name, getattr(torl_lab, name)))


def _documented(name: str, value: Any) -> Iterator[str]:
    is_class = inspect.isclass(value)
    if not is_class and not inspect.isroutine(value):
        yield f"`{_annotation(value)}`"
        return
    if (not is_class or ("__init__" in vars(value) and not inspect.isabstract(value))) and (
        signature := _signature(value)
    ):
        yield from ("```py", f"{name}{signature}", "```", "")
    yield from _markdown(inspect.getdoc(value) or "")
    if is_class and issubclass(value, torl.Section) and value.model_fields:
        yield from ("", "*Options*", "")
        for option, field in value.model_fields.items():
            yield f"- `{option}`: {_cell(field.description or '')}"
    for member, method in vars(value).items() if is_class else ():
        if member.startswith("_") or not getattr(method, "__doc__", None):
            continue  # an override has the docstring of its base
        if isinstance(method, property):
            yield from ("", f"**`{member}`**: {_first(method)}")
        elif callable(getattr(value, member)):
            yield from ("", f"**`{member}{_signature(getattr(value, member))}`**: {_first(getattr(value, member))}")


def _signature(function: Callable[..., Any]) -> str:
    """Return the signature of a function with short types, or an empty text without one."""
    try:
        signature = inspect.signature(function)
    except ValueError:
        return ""
    parameters = [_short(each) for each in signature.parameters.values() if each.name not in ("self", "cls")]
    returned = signature.return_annotation
    result = "" if returned in (inspect.Signature.empty, None) else f" -> {_annotation(returned)}"
    return str(inspect.Signature(parameters)) + result


def _short(parameter: inspect.Parameter) -> inspect.Parameter:
    empty, default = inspect.Parameter.empty, parameter.default
    annotation = empty if parameter.annotation is empty else _Text(_annotation(parameter.annotation))
    if callable(default) or isinstance(default, Path) or "<factory>" in repr(default):
        default = empty if default is empty else _Text("...")  # its repr has an address
    return parameter.replace(annotation=annotation, default=default)


class _Text:
    """Text in a signature."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _annotation(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if isinstance(annotation, str):
        return annotation
    if annotation is types.NoneType or annotation is None:
        return "None"
    if origin is Annotated:
        limits = [repr(limit) for limit in getattr(annotation.__metadata__[0], "metadata", ())]
        return f"{_annotation(arguments[0])}{f' ({chr(44).join(limits)})' if limits else ''}"
    if origin in (Union, types.UnionType):
        return " | ".join(map(_annotation, arguments))
    if origin is Literal:
        return " | ".join(map(repr, arguments))
    if isinstance(annotation, TypeVar):
        return annotation.__name__
    name = getattr(origin or annotation, "__name__", str(annotation))
    if name == "ndarray":
        return f"ndarray[{get_args(arguments[1])[0].__name__}]"
    inner = [
        _list(each) if isinstance(each, list) else "..." if each is ... else _annotation(each) for each in arguments
    ]
    return f"{name}[{', '.join(inner)}]" if inner else name


def _list(arguments: list[Any]) -> str:
    return f"[{', '.join(map(_annotation, arguments))}]"


def _markdown(document: str) -> Iterator[str]:
    """Yield a docstring with its examples as blocks of code, and with lists of arguments, attributes and errors."""
    section = False
    for line in document.splitlines():
        if line in ("Args:", "Attributes:", "Raises:", "Returns:"):
            section = True
            yield from (f"*{line.removesuffix(':')}*", "")
        elif section and (field := re.match(r"    (\*{0,2}[\w.]+): (.*)", line)):
            yield f"- `{field[1]}`: {_cell(field[2])}"
        elif section and line.startswith("    "):
            yield f"  {_cell(line)}"
        else:
            section = section and not line.strip()
            yield line if line.startswith("    ") else _cell(line)


def _first(member: object) -> str:
    return _cell((inspect.getdoc(member) or "").partition("\n\n")[0])


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")


def _cell(text: str) -> str:
    pieces = re.split(r"(`[^`]*`)", " ".join(text.split()).replace("|", "\\|"))
    return "".join(piece if piece.startswith("`") else piece.replace("<", "&lt;") for piece in pieces)


if __name__ == "__main__":
    main()
