"""The presets against the tables of published numbers in their recipes, field by field, in both directions."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from places import ROOT
from torl.run.config import TrainConfig
from torl.run.config.fields import choice_at
from torl.run.config.loading import find_config, load_config, overlays, presets

PRESETS = {name: path for name, path in sorted(presets().items()) if name != "demo"}
# Settings for the number of machines, places of files, and frequency of measurements: not part of the publication.
OURS = re.compile(
    r"(run|model|engine|checkpoint)\..*"
    r"|evaluation\.(every_steps|max_problems)"
    r"|data\.train(\..*)?|data\.evaluation\..*"
    r"|rollout\.tools\.[a-z_]+\.url"
    r"|learner\.(ranks|zero_stage|dtype|max_row_tokens|max_stored_logits|gradient_checkpointing|offload_.*)"
)

DEMANDED = {
    "learner.learning_rate",
    "learner.weight_decay",
    "algorithm.estimator.name",
    "algorithm.aggregation.name",
    "algorithm.policy_loss.dual_clip",
    "algorithm.epochs",
    "algorithm.mini_batches",
    "rollout.stop",
    "rollout.max_tool_calls",
    "data.template.name",
    "data.evaluation",
    "evaluation.greedy",
    "evaluation.samples_per_problem",
    "evaluation.rollout.max_response_tokens",
}
DEMANDED_OF_SAMPLES = {"evaluation.rollout.temperature", "evaluation.rollout.top_p"}


def published() -> dict[str, dict[str, Any]]:
    """For each preset the numbers of its table."""
    found: dict[str, dict[str, Any]] = {}
    for readme in sorted((ROOT / "python" / "torl" / "recipes").glob("*/README.md")):
        table: dict[str, Any] = {}
        for line in readme.read_text(encoding="utf-8").splitlines():
            if line.startswith("## "):
                table = found.setdefault(line.removeprefix("## ").strip(), {})
                own = set[str]()
            elif base := re.fullmatch(r"As `(\S+)`, but:", line):
                table |= found[base[1]]
            elif row := re.fullmatch(r"\| `([a-z_.]+)` \| `(.+)` \| .+ \|", line):
                assert row[1] not in own, f"{line} appears twice"
                own.add(row[1])
                table[row[1]] = None if row[2] == "none" else tomllib.loads(f"value = {row[2]}")["value"]
    return found


def leaves(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted names and values of a tree."""
    found: dict[str, Any] = {}
    for name, value in tree.items():
        found |= leaves(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return found


def held(*files: Path) -> dict[str, Any]:
    """Every value of the configuration that a preset and its overlays make, defaults included."""
    config = load_config(TrainConfig, list(files))
    return leaves(config.model_dump(mode="json")) | {"data.evaluation": sorted(config.data.evaluation)}


def written(path: Path) -> set[str]:
    """The contents of a preset; a text that chooses something by its name is that name."""
    tree = tomllib.loads(path.read_text(encoding="utf-8"))
    names = leaves(tree)
    base = names.pop("extends", None)
    whole = held(path)
    own = {name if name in whole or f"{name}.name" not in whole else f"{name}.name" for name in names}
    return own if base is None else own | written(PRESETS[base])


@pytest.mark.parametrize("name", overlays())
def test_an_overlay_changes_what_it_names_and_nothing_else(name: str) -> None:
    text = overlays()[name].read_text(encoding="utf-8")
    tree = leaves(tomllib.loads(text.replace("= {}", "= { name = '' }")))
    before = held(PRESETS["torl_7b"])
    after = held(PRESETS["torl_7b"], find_config(name))
    changed = {field for field in before.keys() | after.keys() if before.get(field) != after.get(field)}
    assert changed
    assert all(any(f"{field}.".startswith(f"{prefix(each)}.") for each in tree) for field in changed)


def prefix(name: str) -> str:
    """The choice that an option belongs to, whose name also decides its other options; else the setting itself."""
    choice = name.rpartition(".")[0]
    return choice if choice_at(TrainConfig, choice.split(".")) is not None else name


def test_every_recipe_has_a_configuration_and_a_readme_with_its_deviations() -> None:
    shipped = {file.parent.name for file in (presets() | overlays()).values()}
    recipes = {folder.parent.name: folder.parent for folder in (ROOT / "python/torl/recipes").glob("*/__init__.py")}
    assert recipes.keys() <= shipped
    for folder in recipes.values():
        assert "\nDeviations" in (folder / "README.md").read_text(encoding="utf-8"), folder.name


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_asks_for_no_package_that_is_not_installed_with_torl(name: str) -> None:
    installed = (ROOT / "requirements" / "gpu.txt").read_text(encoding="utf-8")
    needed = {"flash_attention_2": "flash-attn=="}.get(load_config(TrainConfig, PRESETS[name]).model.attention)
    assert needed is None or needed in installed


@pytest.mark.parametrize("name", PRESETS)
def test_no_default_replaces_a_published_number(name: str) -> None:
    """Settings that change results most quietly if left out are in every table, with the source's value."""
    table = published()[name]
    demanded = set(DEMANDED)
    if table["rollout.max_tool_calls"]:
        tools = load_config(TrainConfig, PRESETS[name]).rollout.tools
        programs = {f"rollout.tools.{key}.cpu_seconds" for key, tool in tools.items() if tool.name == "python"}
        demanded |= programs | {"rollout.format.error_style"} if programs else set()
    if table["evaluation.samples_per_problem"]:
        demanded |= DEMANDED_OF_SAMPLES
    assert not demanded - table.keys()


def test_evaluation_sets_are_those_of_the_paper() -> None:
    """ToRL's table has five."""
    for name in ("torl_1.5b", "torl_7b"):
        sets = load_config(TrainConfig, find_config(name)).data.evaluation
        assert set(sets) == {"aime24", "aime25", "math500", "olympiadbench", "amc23"}


def test_every_preset_has_a_table() -> None:
    assert set(published()) == set(PRESETS)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_holds_the_published_numbers(name: str) -> None:
    table = published()[name]
    values = held(PRESETS[name])
    assert len(table) > 15
    for field, value in table.items():
        assert (values[field] if value is not None else values.get(field)) == value, field


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_holds_no_number_without_a_source(name: str) -> None:
    fields = written(PRESETS[name])
    assert len(fields) > 20
    unexplained = {field for field in fields if not OURS.fullmatch(field)} - set(published()[name])
    assert not unexplained


def kept() -> dict[str, dict[str, tuple[int, int, int]]]:
    """For each preset the problems of each set that training and evaluation keep, and the longest prompt's tokens.

    As `benchmarks/data/prompt_lengths.py` measured them; `limits` are the presets' own, without a third number.
    """
    lines = (ROOT / "docs" / "evidence" / "data.md").read_text(encoding="utf-8").splitlines()
    names = next(re.findall(r"`(\w+)`", line) for line in lines if line.startswith("| set | problems |"))
    rows = [re.findall(r"(\d+) / (\d+) / (\d+|-)", line) for line in lines if line.count(" / ") == 2 * len(names)]
    sets = [line.split("|")[1].strip() for line in lines if line.count(" / ") == 2 * len(names)]
    return {
        name: {
            label: tuple(int(n.replace("-", "0")) for n in row[place]) for label, row in zip(sets, rows, strict=True)
        }
        for place, name in enumerate(names)
    }


@pytest.mark.parametrize("name", kept())
def test_evaluation_plays_every_problem_within_the_papers_limits(name: str) -> None:
    """Measured with Qwen's vocabulary: a preset whose limit is changed has to be measured again."""
    table, config = kept()[name], load_config(TrainConfig, find_config(name))
    sizes = {"aime24": 30, "aime25": 30, "math500": 500, "olympiadbench": 675, "amc23": 40}
    limits = config.data.max_prompt_tokens, config.evaluation.longest_prompt(config.data)
    assert table.pop("limits")[:2] == limits
    assert table.keys() == sizes.keys()
    for label, (trained, evaluated, longest) in table.items():
        assert trained <= evaluated <= sizes[label]
        assert [trained == sizes[label], evaluated == sizes[label]] == [longest <= limit for limit in limits]
        assert sizes[label] - evaluated <= (2 if label == "olympiadbench" else 0)
