"""The audit's checks of files, groups, selection, metrics and checkpoints, on steps with a scripted engine."""

import asyncio
import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from builders import call, printed, scored, trajectory, write_config
from places import ROOT
from scripted_run import ScriptedRun
from scripted_selections import SELECTIONS, failing, written
from torl.base.types import Outcome, OutcomeStatus
from torl.learner.checkpoint.directory import checkpoint_path, checkpoint_steps, open_checkpoint
from torl.run.config import CheckpointConfig, TrainConfig
from torl.run.config.loading import find_config, load_config
from torl.run.records import metric_names as names
from torl.run.records.files import trajectory_file
from torl.run.records.reading import read_metrics
from torl.run.records.row_types import MAX_OUTPUT_CHARACTERS
from torl.run.records.rows import (
    TrajectoryRecord,
    decode_trajectory,
    encode_row,
    encode_trajectory,
)
from torl.training.checkpoints import Checkpoints
from torl.training.policy_versions import write_model_files
from torl_lab.audit.batch import (
    LearnedBatch,
    check_groups,
    check_selection,
    expected_trajectories,
    scored_group,
)
from torl_lab.audit.checkpoints import ReplayedState, check_checkpoints
from torl_lab.audit.checks import Check, group_members
from torl_lab.audit.history import RunHistory, read_file
from torl_lab.audit.metric_rows import NOT_RECOMPUTED, MetricRows, measured_metrics
from torl_lab.audit.metrics import check_row, evaluation_metrics, step_metrics, unknown_metrics

METRIC = "evaluation/heldout/reward/accuracy"


def found(run: ScriptedRun, records: list[TrajectoryRecord], row: Mapping[str, float], step: int) -> dict[str, Check]:
    """The checks of a step that need no tokenizer."""
    checks = {name: Check(name) for name in ("files", "groups", "selection", "metrics")}
    batch, config = LearnedBatch(records, step, run.config), run.config
    count = expected_trajectories(config, row)
    checks["files"].expect("file", len(records) if count is None else count, len(records))
    samples, failed = config.rollout.samples_per_prompt, int(row["rollout/failed_episodes"])
    check_groups(checks["groups"], batch.groups, step=step, batch_id=step, samples=samples, failed=failed)
    check_selection(checks["selection"], batch)
    scored_groups = [scored_group(members) for members in batch.groups.values()]
    again = step_metrics(scored_groups, step, config, unknown_metrics(scored_groups, metadata=False))
    measured, counted = measured_metrics(config, learned=False)
    check_row(checks["metrics"], "step", again | dict(batch.selection.counts), row, counted, measured)
    return checks


@pytest.mark.parametrize("name", SELECTIONS)
async def test_audit_agrees_with_each_kind_of_selection(name: str, tmp_path: Path) -> None:
    run = SELECTIONS[name](tmp_path)
    for step in range(3):
        run.version = step
        records, row = written(run, await run.step_player.play(step), step)
        checks = found(run, records, row, step)
        assert not [example for check in checks.values() for example in check.examples]
        assert all(check.compared for check in checks.values())


@pytest.mark.parametrize(("name", "counted"), [("dynamic", {}), ("all", {"selection/zero_variance_groups": 0.0})])
async def test_audit_agrees_with_the_metrics_of_an_earlier_version(
    name: str, counted: dict[str, float], tmp_path: Path
) -> None:
    """Its metrics have a count for each of three filters, also for one that the run does not have."""
    run = SELECTIONS[name](tmp_path)
    records, row = written(run, await run.step_player.play(0), 0)
    now = {new: old for old, new in names.RENAMED.items()}
    before = {"selection/undecided_groups": 0.0, **counted, **{now.get(each, each): row[each] for each in row}}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(before) + "\n")
    row = read_metrics(tmp_path)[0]
    assert not [example for check in found(run, records, row, 0).values() for example in check.examples]
    name_of_none = names.dropped_groups("undecided")
    assert found(run, records, {**row, name_of_none: 1.0}, 0)["metrics"].examples


async def test_audit_counts_failed_episodes(tmp_path: Path) -> None:
    run = failing(tmp_path)
    records, row = written(run, await run.step_player.play(0), 0)
    assert (len(records), row["rollout/failed_episodes"]) == (13, 3)
    assert found(run, records[:-1], row, 0)["files"].examples == ["file: expected 13, found 12"]
    beyond = replace(records[-1].trajectory, sample_index=4)
    assert found(run, [*records[:-1], replace(records[-1], trajectory=beyond)], row, 0)["groups"].wrong == 1
    twice = found(run, [*records[:-1], records[-2]], row, 0)["groups"]
    assert twice.wrong == 1
    assert "expected samples [0, 1, 2, 3], found samples" in twice.examples[0]


async def test_audit_finds_a_group_removed_from_a_dynamic_step(tmp_path: Path) -> None:
    run = SELECTIONS["dynamic"](tmp_path)
    records, row = written(run, await run.step_player.play(0), 0)
    dropped = next(record.trajectory.group_id for record in records if record.advantage is None)
    checks = found(run, [record for record in records if record.trajectory.group_id != dropped], row, 0)
    assert checks["files"].wrong == 1
    assert any("zero_variance_groups" in example for example in checks["metrics"].examples)


def test_names_of_groups_and_branches_are_checked() -> None:
    branch = trajectory("b", group="0/other")
    played = replace(trajectory("m"), branches=(branch,))
    records = [TrajectoryRecord(0, played, scored().grade, branches=(TrajectoryRecord(0, branch, scored().grade),))]
    check = Check("groups")
    check_groups(check, group_members(records), step=0, batch_id=0, samples=1, failed=0)
    assert check.wrong == 1
    check_groups(check, group_members(records), step=0, batch_id="heldout-greedy", samples=1, failed=0)
    assert check.wrong == 2


# --- metrics ------------------------------------------------------------------------------------------------------


def test_metrics_of_truncated_outputs_are_left_out() -> None:
    """The last printed line, with which an answer is compared, may be missing in a record."""
    long = Outcome(OutcomeStatus.OK, "x\n" * MAX_OUTPUT_CHARACTERS + "1\n")
    config = load_config(TrainConfig, find_config("demo"))
    for outcome, compared in ((printed("1\n"), True), (long, False)):
        member = scored(trajectory("\\boxed{1}\n```python\n1\n```\n", "2", calls=[call("1\n", outcome)]))
        groups = [scored_group(_records(member))]
        metrics = step_metrics(groups, 0, config, unknown_metrics(groups, metadata=False))
        assert ("tool/cross_checked" in metrics) is compared
        assert "tool/pass_ratio" in metrics


def _records(member: Any) -> list[TrajectoryRecord]:
    record = TrajectoryRecord(0, member.trajectory, member.grade)
    return [decode_trajectory(json.loads(json.dumps(encode_trajectory(record))))]


@pytest.mark.parametrize("value", ["0.5", None, True])
def test_metric_that_is_not_a_number_is_a_mismatch(value: object) -> None:
    check = Check("metrics")
    check_row(check, "step 0", {"reward/mean": 1.0}, {"reward/mean": value})
    assert check.examples == [f"step 0, reward/mean: expected 1, found {value!r}"]


@pytest.mark.parametrize("prefix", ["", "evaluation/heldout/"])
def test_metric_that_trajectories_do_not_have_is_a_mismatch(prefix: str) -> None:
    check = Check("metrics")
    row = {
        f"{prefix}{name}": 0.5 for name in ("reward/part/bonus", "tool/correct_tool", "tool/speculated", "time/step")
    }
    check_row(check, "step 0", {}, row, ("tool/correct_tool",), ("tool/speculated", "time/step"))
    assert check.examples == [f"step 0, {prefix}reward/part/bonus: expected no value, found 0.5"]


def test_accuracy_of_an_evaluation_counts_prompts_that_are_too_long() -> None:
    config = load_config(TrainConfig, find_config("demo"))
    groups = [scored_group(_records(scored(correct=True))), scored_group(_records(scored(correct=False)))]
    left_out = unknown_metrics(groups, metadata=False)
    metrics = evaluation_metrics("heldout", groups, groups, config, too_long=2, problems=2, unknown=left_out)
    assert metrics[METRIC] == metrics["evaluation/heldout/reward/greedy_accuracy"] == 0.25
    unknown = evaluation_metrics("heldout", groups, groups, config, too_long=2, problems=None, unknown=left_out)
    assert METRIC not in unknown
    assert unknown["evaluation/heldout/reward/mean"] == 0.5


# --- history ------------------------------------------------------------------------------------------------------


def config_of(directory: Path, **settings: Any) -> TrainConfig:
    named = {name.replace("__", "."): value for name, value in settings.items()}
    return load_config(TrainConfig, find_config("demo"), {"run.directory": str(directory), **named})


def history_of(directory: Path, rows: list[dict[str, Any]], *, steps: int = 0) -> tuple[RunHistory, Check]:
    """The history of a directory with these rows of metrics and this number of empty files of steps."""
    (directory / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for step in range(steps):
        trajectory_file(directory, step).parent.mkdir(exist_ok=True)
        trajectory_file(directory, step).touch()
    check = Check("metrics")
    return RunHistory.read(directory, check), check


def test_each_step_has_the_configuration_that_it_was_played_with(tmp_path: Path) -> None:
    first, second, third = (config_of(tmp_path, rollout__samples_per_prompt=count) for count in (8, 4, 2))
    for config, step in ((first, 0), (second, 4), (third, 2)):  # resumed at an earlier checkpoint
        write_config(tmp_path, config, step)
    history, _ = history_of(tmp_path, [])
    assert [history.config_at(step) for step in (0, 1, 2, 5)] == [first, first, third, third]


def test_evaluations_are_required_at_their_interval(tmp_path: Path) -> None:
    write_config(tmp_path, config_of(tmp_path, run__steps=5, evaluation__every_steps=2))
    rows = [{"step": 0, "time/evaluation": 1.0}]
    assert history_of(tmp_path, rows, steps=4)[0].evaluations() == [0, 2]  # the one after step 4 may be in progress
    assert history_of(tmp_path, rows, steps=5)[0].evaluations() == [0, 2, 4]
    (tmp_path / "summary.json").touch()
    assert history_of(tmp_path, rows, steps=5)[0].evaluations() == [0, 2, 4, 5]
    config = config_of(tmp_path, run__steps=5, evaluation__every_steps=2, evaluation__before_training=False)
    write_config(tmp_path, config)
    assert history_of(tmp_path, [], steps=5)[0].evaluations() == [2, 4, 5]


def test_only_the_last_step_of_an_unfinished_run_may_lack_its_row(tmp_path: Path) -> None:
    write_config(tmp_path, config_of(tmp_path, run__steps=3))
    history, check = history_of(tmp_path, [{"step": 0, "time/step": 1.0}], steps=2)
    assert [history.may_lack_row(step) for step in range(2)] == [False, True]
    (tmp_path / "summary.json").touch()
    history, _ = history_of(tmp_path, [{"step": 0, "time/step": 1.0}], steps=2)
    assert history.steps == 3
    assert not any(map(history.may_lack_row, range(3)))
    assert check.wrong == 0


def test_damaged_metrics_are_mismatches(tmp_path: Path) -> None:
    write_config(tmp_path, config_of(tmp_path))
    _, check = history_of(tmp_path, [{"step": "0", "time/step": 1.0}, {"time/step": 1.0}])
    assert check.wrong == 2
    (tmp_path / "metrics.jsonl").write_text("{broken\n")
    assert RunHistory.read(tmp_path, check).steps == 0
    assert check.wrong == 3


@pytest.mark.parametrize(
    "row",
    [
        {"step": 0, "reward/mean": 0.9},
        {"step": 0, "time/step": 1.0, METRIC: 0.9},
        {"step": 0, "time/step": 1.0, "time/evaluation": 1.0},
        {"step": 0, "time/evaluation": 1.0, "reward/mean": 0.9},
        {"step": 1, "time/checkpoint": 1.0, "reward/mean": 0.9},
    ],
)
def test_row_that_no_part_of_a_run_writes_is_a_mismatch(row: dict[str, Any], tmp_path: Path) -> None:
    write_config(tmp_path, config_of(tmp_path))
    assert "a step, an evaluation or a checkpoint" in history_of(tmp_path, [row])[1].examples[0]


def test_evaluation_of_a_step_that_was_not_played_is_a_mismatch(tmp_path: Path) -> None:
    write_config(tmp_path, config_of(tmp_path))
    _, check = history_of(tmp_path, [{"step": 1, "time/evaluation": 1.0}, {"step": 2, "time/evaluation": 1.0}], steps=1)
    assert check.examples == ["metrics.jsonl: expected no evaluation after step 1, found step 2"]


def test_files_without_a_step_an_evaluation_or_a_configuration_are_mismatches(tmp_path: Path) -> None:
    write_config(tmp_path, config_of(tmp_path, run__steps=4, evaluation__every_steps=2), 1)
    trajectory_file(tmp_path, 0).parent.mkdir()
    for step, label in ((0, "heldout"), (1, "heldout"), (2, "heldout.greedy"), (2, "aime"), (3, "heldout")):
        trajectory_file(tmp_path, step, label).touch()
    history, _ = history_of(tmp_path, [], steps=3)
    trajectory_file(tmp_path, 3).touch()  # the run continues while it is audited
    check = Check("files")
    history.check_files(check)
    assert check.examples == [
        "expected a configuration of step 0, found configurations from step 1 on",
        "trajectories/evaluation_000001_heldout.jsonl: expected no such file",
        "trajectories/evaluation_000002_aime.jsonl: expected no such file",
    ]
    assert check.note == "the run has not ended: 3 of 4 steps"


@pytest.mark.parametrize(
    ("change", "mismatch"),
    [
        ({"sampled_text": "other"}, "sampled_text: expected 'x', found 'other'"),
        ({"new": 1}, "new: expected no value, found 1"),
        ({"turn_rewards": []}, "turn_rewards: expected no value, found []"),
        ({"rollout_logprobs": [-0.12345678901]}, "rollout_logprobs: expected [-0.12345679], found [-0.12345678901]"),
    ],
)
def test_row_that_is_not_written_so_is_a_mismatch(change: dict[str, Any], mismatch: str, tmp_path: Path) -> None:
    """Values that follow from others are not decoded, and would be lost."""
    row = encode_trajectory(TrajectoryRecord(0, trajectory("x"), scored().grade))
    assert len(row["token_ids"]) == 1
    path = tmp_path / "rows.jsonl"
    path.write_bytes(encode_row(row) + encode_row(row | change))
    check = Check("files")
    assert len(read_file(path, check, "trajectories") or ()) == 2
    assert check.examples == [f"rows.jsonl, line 2: {mismatch}"]


# --- checkpoints --------------------------------------------------------------------------------------------------


class _Learner:
    """A learner without ranks: the directories are real."""

    async def begin_checkpoint(self, directory: Path, state: dict[str, Any]) -> "asyncio.Task[None]":
        async def write() -> None:
            with open_checkpoint(directory, state, {}):
                pass

        return asyncio.create_task(write())


async def checkpointed(directory: Path, steps: int, values: Mapping[int, float], **settings: Any) -> RunHistory:
    """A run of `steps` steps that writes and removes checkpoints as in training, evaluated at the steps of `values`."""
    named = {f"checkpoint__{name}": value for name, value in settings.items()}
    write_config(directory, config_of(directory, run__steps=7, **named))
    learner: Any = _Learner()
    checkpoints = Checkpoints(CheckpointConfig(**settings), directory, learner)
    for step in range(1, steps + 1):
        if step == 7 or step % settings["every_steps"] == 0:
            await checkpoints.begin(step, {"step": step})
        if step in values:
            checkpoints.record_evaluation(step, {METRIC: values[step]})
    await checkpoints.wait()
    rows: list[dict[str, Any]] = [{"step": step, "time/step": 1.0} for step in range(steps)]
    rows += [{"step": step, "time/evaluation": 1.0, METRIC: value} for step, value in values.items()]
    return history_of(directory, rows)[0]


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({"every_steps": 2, "keep_last": 2}, [6, 7]),
        ({"every_steps": 2, "keep_last": 9}, [2, 4, 6, 7]),
        ({"every_steps": 2, "keep_last": 1, "keep_best": METRIC}, [4, 7]),
        ({"every_steps": 8, "keep_last": 1}, [7]),
    ],
)
async def test_kept_checkpoints_of_a_finished_run_must_exist(settings: Any, kept: list[int], tmp_path: Path) -> None:
    history = await checkpointed(tmp_path, 7, {2: 0.5, 4: 0.75, 6: 0.25}, **settings)
    history = replace(history, finished=True)
    write_model_files(history.configs[-1][1], tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").touch()
    assert examples(history) == []
    for step in kept:
        moved = checkpoint_path(tmp_path, step).rename(tmp_path / "moved")
        assert examples(history) == [f"checkpoints/step_{step:06d}: expected a checkpoint, found none"]
        moved.rename(checkpoint_path(tmp_path, step))


async def test_one_of_the_last_checkpoints_of_an_unfinished_run_must_exist(tmp_path: Path) -> None:
    history = await checkpointed(tmp_path, 4, {}, every_steps=1, keep_last=2)
    assert examples(history) == []
    # The one of step 5 is being written while step 5 is played, and the one of step 6 waits for it.
    assert examples(replace(history, steps=6)) == []
    shutil.rmtree(checkpoint_path(tmp_path, 4))
    assert examples(replace(history, steps=6)) == ["checkpoints/step_000004: expected a checkpoint, found none"]


async def test_checkpoints_that_a_run_removes_during_the_audit_are_not_missing(tmp_path: Path) -> None:
    history = await checkpointed(tmp_path, 5, {}, every_steps=1, keep_last=2)
    assert list(history.checkpoints) == [4, 5]
    (checkpoint_path(tmp_path, 5) / "manifest.json").unlink()
    assert examples(history, list_again=False) != []
    checkpoint_path(tmp_path, 4).rename(checkpoint_path(tmp_path, 6))  # the next one is complete
    assert examples(history, list_again=False) == []


def examples(history: RunHistory, *, list_again: bool = True) -> list[str]:
    if list_again:
        history = replace(history, checkpoints=checkpoint_steps(history.directory))
    check = Check("checkpoints")
    check_checkpoints(check, history, ReplayedState())
    return check.examples


@pytest.mark.parametrize("ahead", [0, 1, 2])
def test_sampler_of_a_checkpoint_has_drawn_the_steps_ahead_as_well(ahead: int, tmp_path: Path) -> None:
    config = ScriptedRun(tmp_path, staleness=2).config
    history = RunHistory(tmp_path, [(0, config)], 3, finished=False, rows=MetricRows(), checkpoints=[2])
    positions = {step: {"position": 4 * step} for step in range(4)}
    expected = "checkpoints/step_000002: expected the sampler's position after step {}, found another"
    for position, mismatches in ((8 + 4 * ahead, []), (3, [expected.format(2 + ahead)])):
        state = {"step": 2, "sampler": {"position": position}, "ahead": ["p"] * 4 * ahead}
        with open_checkpoint(checkpoint_path(tmp_path, 2), state, {}):
            pass
        check = Check("checkpoints")
        check_checkpoints(check, history, ReplayedState(positions))
        assert check.examples == (mismatches if ahead < 2 else [])  # the steps after the records are unknown


async def test_damaged_checkpoints_are_mismatches(tmp_path: Path) -> None:
    history = await checkpointed(tmp_path, 4, {}, every_steps=1, keep_last=2)
    (checkpoint_path(tmp_path, 4) / "controller.json").write_text('{"step": 3}')
    assert "controller.json has " in examples(history)[0]
    (checkpoint_path(tmp_path, 4) / "manifest.json").unlink()
    assert "manifest.json cannot be read" in examples(history)[0]


# --- documentation ------------------------------------------------------------------------------------------------


def test_the_page_lists_the_metrics_that_are_not_recomputed() -> None:
    page = (ROOT / "docs" / "reference" / "not_recomputed.md").read_text(encoding="utf-8")
    table = page.partition("| not recomputed | metrics |\n|---|---|\n")[2]
    rows = [f"| {kind} | {', '.join(f'`{name}`' for name in listed)} |" for kind, listed in NOT_RECOMPUTED.items()]
    assert table.splitlines() == rows
