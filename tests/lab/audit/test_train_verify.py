"""`torl verify` on a real run: all of it agrees, and each planted mistake is found by the check that should find it."""

import json
import shutil
import tomllib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import tomli_w
from safetensors.torch import load_file, save_file

from cli import ROOT, training
from killed import killed_before_each_change
from plants import BASE_MODEL, PLANTS, PRUNED, SEALED, SETTINGS, UNFINISHED, copy_of, metric, seal, start_again
from settings_of_a_run import APART, BY_WEIGHTS, OF_REWARDS, ONLY_ONE, SHOWN, UNSHOWN, with_values
from torl.base.component import RunContext
from torl.base.options import dotted_leaves
from torl.base.types import Grade, Group
from torl.components.rewards import Reward, make_reward
from torl.run.config import TrainConfig
from torl.run.config.loading import load_config
from torl.run.display.console import Console, ProgressLine
from torl.run.display.outcome import write_summary
from torl.run.records.receipt import end_receipt
from torl_lab.audit.checks import Check
from torl_lab.audit.one import TrajectoryAudit
from torl_lab.audit.receipt_records import check_receipt, check_records
from torl_lab.audit.run import main, verify_run

PROBLEMS = ROOT / "python" / "torl" / "demo" / "problems" / "train.jsonl"
OPTIONS = {
    "run.seed": "1",  # both steps have an update, and the second has a group without a signal
    "run.steps": "2",
    "rollout.prompts_per_step": "6",
    "rollout.samples_per_prompt": "4",
    "evaluation.max_problems": "2",
    "evaluation.samples_per_problem": "0",
    "evaluation.every_steps": "0",
    "checkpoint.every_steps": "1",
    "learner.learning_rate": "1e-3",  # so that the weights of a wrong version are found out
    "learner.zero_stage": "3",
    "learner.ranks": "2",
    "reward.parts.length.name": "overlong",
    "reward.parts.length.buffer": "40",
    "algorithm.normalize_advantages": "true",
    "rollout.temperature": "0.7",
    # Masked trajectories: responses cut off here, and so on.
    "rollout.max_response_tokens": "52",
    "selection.mask.void_turn": "{}",
    "selection.mask.wrong_truncated": "{}",
    "selection.mask.mismatched_code": "{}",
    "selection.mask.repetitive.above": "0.1",
    "selection.mask.undecided": "{}",
    "selection.mask.improbable.above": "1.2",
}
REFERENCE = "reference_model"
"""Name of the reference model's directory, next to the run: the base model with other weights."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two steps with the checkpoint between them."""
    directory = tmp_path_factory.mktemp("verify") / "run"
    problems = directory.with_name("problems.jsonl")
    problems.write_text("".join(f"{line}\n" for line in PROBLEMS.read_text().splitlines()[:200]))
    reference = directory.with_name(REFERENCE)
    shutil.copytree(BASE_MODEL, reference, copy_function=shutil.copyfile)
    weights = load_file(BASE_MODEL / "model.safetensors")
    save_file(
        {name: weight * 0.98 for name, weight in weights.items()}, reference / "model.safetensors", {"format": "pt"}
    )
    heldout = shutil.copyfile(PROBLEMS.with_name("heldout.jsonl"), directory.with_name("heldout.jsonl"))
    options = OPTIONS | {"run.directory": str(directory), "data.train": str(problems)}
    options["data.evaluation.heldout"] = str(heldout)
    options["algorithm.kl.reference"] = str(reference)
    with training(options, log=directory.with_suffix(".log")) as command:
        assert command.wait(280) == 0, command.output()
    return directory


class StartedReward(Reward):
    """A reward that stays started after an audit."""

    def __init__(self, started: Reward) -> None:
        self._started = started

    async def grade(self, group: Group) -> Sequence[Grade]:
        return await self._started.grade(group)


@pytest_asyncio.fixture(scope="module")
async def graders(run: Path) -> AsyncIterator[Reward]:
    """The run's reward, started once: its graders take longer to start than all checks."""
    config = load_config(TrainConfig, run / "config.toml")
    reward = make_reward(config.reward)
    await reward.start(RunContext(seed=config.run.seed, directory=run))
    yield reward
    await reward.close()


@pytest.fixture
def started_graders(graders: Reward, monkeypatch: pytest.MonkeyPatch) -> None:
    """Audits of the test use graders that run already."""
    monkeypatch.setattr("torl_lab.audit.checks.make_reward", lambda _: StartedReward(graders))


def verified(run: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    """The exit status and the checks by name."""
    status = main([str(run)])
    printed = capsys.readouterr()
    assert "%|" not in printed.err  # no progress bar
    return status, json.loads(printed.out.splitlines()[-1])


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, float, float | None]]:
    """Progress lines that have ended: their description, what they completed, and of how many."""
    waits: list[tuple[str, float, float | None]] = []
    progress = Console.progress

    @contextmanager
    def recorded(console: Console, description: str, total: float | None = None) -> Iterator[ProgressLine]:
        with progress(console, description, total) as wait:
            yield wait
        waits.append((description, wait.completed, wait.total))

    monkeypatch.setattr(Console, "progress", recorded)
    return waits


def test_a_run_agrees_with_its_records(
    run: Path, waits: list[tuple[str, float, float | None]], capsys: pytest.CaptureFixture[str]
) -> None:
    status, checks = verified(run, capsys)
    assert status == 0, checks
    # Two steps of six groups with four trajectories, and two evaluations of two problems.
    assert {name: check["compared"] for name, check in checks.items()} == {
        "files": 4,
        "groups": 16,
        "prompts": 56,  # and the order of two steps, and the problems of two evaluations
        "tokens": 52,
        "versions": 52,
        "rewards": 52,
        "selection": 12,
        "advantages": checks["advantages"]["compared"],
        "metrics": checks["metrics"]["compared"],
        "updates": checks["updates"]["compared"],
        "checkpoints": checks["checkpoints"]["compared"],
        "logprobs": checks["logprobs"]["compared"],
        # Six rows, the configuration, four files of trajectories, two of tokens, two manifests, the summary and the
        # five files of the model; and the entries and the place of the start.
        "receipt": 58,
    }
    assert checks["advantages"]["compared"] > 0
    assert checks["metrics"]["compared"] > 100
    assert checks["updates"]["compared"] > 6  # the groups of both steps, and trajectories of at least two groups
    # Two steps and two evaluations by the engine, and trajectories that are not masked by the reference model.
    assert checks["logprobs"]["compared"] > 52
    assert checks["logprobs"]["note"] == f"policy versions 0, 1, 2; reference model {run.with_name(REFERENCE)}"
    compared = checks["logprobs"]["compared"]
    assert waits == [("checking steps and evaluations", 4, 4), ("comparing log-probabilities", compared, compared)]


def test_engine_and_learner_sample_and_learn_at_one_temperature(run: Path) -> None:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    gaps = [row["learner/logprob_gap_max"] for row in rows if "learner/logprob_gap_max" in row]
    assert len(gaps) == 2
    assert max(gaps) < 1e-4


def test_masked_trajectories_have_no_gradient(run: Path) -> None:
    """The learner's own counts: no token of it is in the loss. In the records its advantage is 0."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    masked = improbable = 0
    for step, row in enumerate(row for row in rows if "time/step" in row):
        lines = (run / "trajectories" / f"step_{step:06d}.jsonl").read_text().splitlines()
        batch = [record for record in map(json.loads, lines) if record["advantage"] is not None]
        cut = [record for record in batch if record["finish_reason"] == "length" and not record["correct"]]
        assert row["selection/masked/wrong_truncated"] == len(cut)
        assert all(record["advantage"] == 0 for record in cut)
        loud = [record for record in batch if record["advantage"] != 0]
        tokens = sum(length for record in loud for sampled, length in record["loss_mask"] if sampled)
        assert (row["learner/samples"], row["learner/sampled_tokens"]) == (len(loud), tokens)
        assert len(loud) >= len(batch) - sum(row[name] for name in row if name.startswith("selection/masked/"))
        masked += len(cut)
        improbable += row["selection/masked/improbable"]
    assert masked > 0
    assert improbable > 0


@pytest.mark.parametrize("name", PLANTS)
@pytest.mark.usefixtures("started_graders")
async def test_audit_finds_planted_mistake(name: str, run: Path, tmp_path: Path) -> None:
    plant = PLANTS[name]
    copy = copy_of(run, tmp_path / "run")
    plant.make(copy)
    assert check_receipt(copy).wrong or name in PRUNED  # the run itself removes checkpoints
    seal(copy)
    audit = await verify_run(copy, 64 if plant.logprobs else 0)
    assert not audit.ok
    assert any(plant.words in example for example in audit[plant.check].examples), str(audit)


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.usefixtures("started_graders")
async def test_a_setting_does_not_hide_a_mistake(name: str, run: Path, tmp_path: Path) -> None:
    """Alone it is found by the receipt; with a mistake and a receipt that fits, by the records themselves."""
    change, plant = SETTINGS[name]
    copy = copy_of(run, tmp_path / "run")
    change(copy)
    assert check_receipt(copy).examples == ["config.toml: has changed since it was written"]
    plant.make(copy)
    seal(copy)
    audit = await verify_run(copy, 64 if plant.logprobs else 0)
    assert any(plant.words in example for example in audit[plant.check].examples), str(audit)


def with_settings(run: Path, copy: Path, changes: dict[str, Any]) -> Path:
    """A copy of a run with other settings, and a receipt that fits."""
    copy_of(run, copy)
    text = (copy / "config.toml").read_text()
    changes = {
        key: str(run.with_name(REFERENCE)) if value == "{reference}" else value for key, value in changes.items()
    }
    first, settings = text.partition("\n")[0], with_values(tomllib.loads(text), changes)
    (copy / "config.toml").write_text(f"{first}\n{tomli_w.dumps(settings)}")
    seal(copy)
    return copy


def test_every_setting_of_a_run_is_shown_by_its_files_or_in_the_table_of_others(run: Path) -> None:
    tables = (SHOWN, BY_WEIGHTS, UNSHOWN, ONLY_ONE)
    classified = [key for table in tables for key in table]
    lines = [key for key, _ in dotted_leaves(tomllib.loads((run / "config.toml").read_text()))]
    assert sorted(classified) == sorted(lines)


@pytest.mark.slow
@pytest.mark.parametrize("key", [key for key in (*SHOWN, *BY_WEIGHTS) if key not in OF_REWARDS])
@pytest.mark.usefixtures("started_graders")
async def test_another_value_of_a_setting_is_a_mismatch(key: str, run: Path, tmp_path: Path) -> None:
    """Also if the receipt was written again."""
    copy = with_settings(run, tmp_path / "run", {key: {**SHOWN, **BY_WEIGHTS}[key]})
    assert not (await verify_run(copy, 0 if key in SHOWN else 16)).ok


@pytest.mark.slow
@pytest.mark.parametrize("key", OF_REWARDS)
async def test_another_value_of_a_setting_of_rewards_is_a_mismatch(key: str, run: Path, tmp_path: Path) -> None:
    audit = await verify_run(with_settings(run, tmp_path / "run", {key: SHOWN[key]}), 0)
    assert audit["rewards"].wrong, str(audit)


@pytest.mark.parametrize("apart", [False, True], ids=["together", "apart"])
@pytest.mark.usefixtures("started_graders")
async def test_settings_in_the_table_are_not_shown_by_the_files(apart: bool, run: Path, tmp_path: Path) -> None:
    """All of them at once, but for some that exclude each other: one that a check finds belongs to the others."""
    changes = {key: value for key, (value, _) in UNSHOWN.items() if (key in APART) == apart}
    audit = await verify_run(with_settings(run, tmp_path / "run", changes), 0)
    assert audit.ok, str(audit)


def test_every_changed_setting_is_a_mismatch(run: Path, tmp_path: Path) -> None:
    copy = copy_of(run, tmp_path / "run")
    text = (copy / "config.toml").read_text()
    lines = text.splitlines(keepends=True)
    settings = [number for number, line in enumerate(lines) if " = " in line]
    assert len(settings) > 100
    for number in settings:
        name = lines[number].partition(" = ")[0]
        (copy / "config.toml").write_text("".join([*lines[:number], f"{name} = 0\n", *lines[number + 1 :]]))
        changed = (copy / "config.toml").read_text() != text
        check = Check("receipt")
        check_records(check, copy, hash_checkpoints=False)
        assert (check.examples == ["config.toml: has changed since it was written"]) == changed, name


@pytest.mark.parametrize("name", SEALED)
@pytest.mark.usefixtures("started_graders")
async def test_audit_says_which_state_only_the_receipt_protects(name: str, run: Path, tmp_path: Path) -> None:
    copy = copy_of(run, tmp_path / "run")
    make, mismatch = SEALED[name]
    make(copy)
    audit = await verify_run(copy, 0)
    assert audit["receipt"].examples == [mismatch]
    assert "not recomputed: the optimizer's moments" in audit["checkpoints"].note


@pytest.mark.usefixtures("started_graders")
async def test_audit_accepts_the_copy_that_mistakes_are_planted_in(run: Path, tmp_path: Path) -> None:
    assert (await verify_run(copy_of(run, tmp_path / "run"), 0)).ok


@pytest.mark.parametrize("name", UNFINISHED)
@pytest.mark.usefixtures("started_graders")
async def test_audit_accepts_a_run_in_progress(name: str, run: Path, tmp_path: Path) -> None:
    copy = copy_of(run, tmp_path / "run")
    UNFINISHED[name](copy)
    seal(copy)
    audit = await verify_run(copy, 0)
    assert audit.ok, str(audit)


@pytest.mark.usefixtures("started_graders")
async def test_run_that_is_resumed_during_its_audit_is_audited_again(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resume removes the evaluation after the last step, which the audit had found in the metrics."""
    copy = copy_of(run, tmp_path / "run")
    progress, starts = Console.progress, []

    @contextmanager
    def resumed(console: Console, description: str, total: float | None = None) -> Iterator[ProgressLine]:
        if not starts:
            starts.append(description)
            start_again(copy, 2)
        with progress(console, description, total) as wait:
            yield wait

    monkeypatch.setattr(Console, "progress", resumed)
    audit = await verify_run(copy, 0)
    assert audit.ok, str(audit)
    assert audit["files"].note == "the run has not ended: 2 of 2 steps"
    assert starts == ["checking steps and evaluations"]


@pytest.mark.usefixtures("started_graders")
async def test_failed_episode_of_an_evaluation_is_not_missing(run: Path, tmp_path: Path) -> None:
    copy = copy_of(run, tmp_path / "run")
    PLANTS["evaluated trajectory removed"].make(copy)
    metric("evaluation/heldout/rollout/failed_episodes", 1)(copy)
    seal(copy)
    audit = await verify_run(copy, 0)
    assert [check.name for check in audit.checks if check.wrong] == ["files", "metrics"]
    # The first evaluation has all of its trajectories.
    assert audit["files"].examples == ["evaluation of heldout after step 0: expected 1 trajectories, found 2"]


@pytest.mark.usefixtures("started_graders")
@pytest.mark.parametrize(
    "change",
    [
        lambda lines: [line.replace('"problem": "', '"problem": "Please: ') for line in lines],
        lambda lines: lines[:100],
        lambda lines: [*PROBLEMS.read_text().splitlines(keepends=True)[:400]],
    ],
    ids=["changed", "cut", "appended to"],
)
async def test_changed_problem_file_is_a_note(
    change: Callable[[list[str]], list[str]], run: Path, tmp_path: Path
) -> None:
    """The receipt has a hash of the problems, so records are not blamed for a file that changed since."""
    copy = copy_of(run, tmp_path / "run")
    with changed_file(run.with_name("problems.jsonl"), change):
        audit = await verify_run(copy, 0)
        assert audit.ok, str(audit)
        assert "data.train has changed since the run" in audit["prompts"].note
        PLANTS["question"].make(copy)
        seal(copy)
        assert "expected prompt token" in (await verify_run(copy, 0))["prompts"].examples[0]


@contextmanager
def changed_file(path: Path, change: Callable[[list[str]], list[str] | None]) -> Iterator[None]:
    """A file with other lines, or none, until the end of the block."""
    text = path.read_text()
    lines = change(text.splitlines(keepends=True))
    path.unlink()
    if lines is not None:
        path.write_text("".join(lines))
    yield
    path.write_text(text)


EVALUATED: dict[str, tuple[Callable[[list[str]], list[str] | None], str]] = {
    "removed": (lambda lines: None, "data.evaluation.heldout cannot be read: "),
    "cut": (lambda lines: lines[:1], "data.evaluation.heldout has changed since the run"),
    "changed": (
        lambda lines: [line.replace('"problem": "', '"problem": "Please: ') for line in lines],
        "data.evaluation.heldout has changed since the run",
    ),
    "other order": (lambda lines: lines[::-1], "data.evaluation.heldout has changed since the run"),
}


@pytest.mark.usefixtures("started_graders")
@pytest.mark.parametrize("name", EVALUATED)
async def test_changed_evaluation_file_is_a_note_and_hides_no_mistake(name: str, run: Path, tmp_path: Path) -> None:
    change, note = EVALUATED[name]
    copy = copy_of(run, tmp_path / "run")
    with changed_file(run.with_name("heldout.jsonl"), change):
        audit = await verify_run(copy, 0)
        assert audit.ok, str(audit)
        assert note in audit["prompts"].note
        for plant in ("evaluated question", "order of an evaluation"):
            other = copy_of(run, tmp_path / plant)
            PLANTS[plant].make(other)
            seal(other)
            audit = await verify_run(other, 0)
            assert any("that the start had read" in each for each in audit["prompts"].examples), str(audit)


@pytest.mark.usefixtures("started_graders")
@pytest.mark.parametrize("source", ["problems.jsonl", "heldout.jsonl"])
@pytest.mark.parametrize("exists", [False, True])
async def test_another_path_of_a_source_is_a_mismatch(source: str, exists: bool, run: Path, tmp_path: Path) -> None:
    """Alone it is found by the receipt; if that was changed as well, by the setting that the start has read."""
    copy = copy_of(run, tmp_path / "run")
    if exists:
        shutil.copyfile(run.with_name(source), tmp_path / source)
    config = (copy / "config.toml").read_text()
    (copy / "config.toml").write_text(config.replace(str(run.with_name(source)), f"{tmp_path}/{source}"))
    assert check_receipt(copy).examples == ["config.toml: has changed since it was written"]
    seal(copy)
    audit = await verify_run(copy, 0)
    assert [check.name for check in audit.checks if check.wrong] == ["receipt"], str(audit)
    assert "which the start of receipt.jsonl, line 1 has read: expected" in audit["receipt"].examples[0]


@pytest.mark.usefixtures("started_graders")
async def test_single_trajectories_agree_with_their_records(run: Path) -> None:
    async with TrajectoryAudit(run) as audit:
        for name in ("step_000001", "evaluation_000002_heldout"):
            path = run / "trajectories" / f"{name}.jsonl"
            for line in range(len(path.read_bytes().splitlines())):
                checks = await audit.verify(path, line)
                tokens, versions, rewards, advantages, updates = checks
                assert [(check.name, check.examples) for check in checks if check.wrong] == []
                assert (tokens.compared, versions.compared, rewards.compared) == (1, 1, 1)
                assert updates.compared or updates.note
                assert advantages.compared == 1 or advantages.note in (
                    "outside the batch",
                    "an evaluation has no advantages",
                )


@pytest.mark.usefixtures("started_graders")
@pytest.mark.parametrize(
    ("check", "change"),
    [
        ("tokens", {"text": "other"}),
        ("versions", {"policy_versions": "9"}),
        ("rewards", {"correct": "turned"}),
        ("advantages", {"advantage": 77.0}),
    ],
)
async def test_change_of_one_trajectory_is_found_in_it_alone(
    run: Path, tmp_path: Path, check: str, change: dict[str, Any]
) -> None:
    directory = copy_of(run, tmp_path)
    path = directory / "trajectories" / "step_000001.jsonl"
    rows = [json.loads(line) for line in path.read_bytes().splitlines()]
    line = next(index for index, row in enumerate(rows) if row["advantage"] is not None)
    changed = rows[line]
    values = {"9": [[9 if version >= 0 else -1, count] for version, count in changed["policy_versions"]]}
    values["turned"] = not changed["correct"]
    changed |= {name: values.get(value, value) for name, value in change.items()}
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    async with TrajectoryAudit(directory) as audit:
        found = {each.name: each for each in await audit.verify(path, line)}
        assert found[check].wrong == 1
        assert len(found[check].examples) == 1
        other = next(index for index, row in enumerate(rows) if row["group"] != changed["group"])
        assert [each.name for each in await audit.verify(path, other) if each.wrong] == []


def test_negative_number_of_trajectories_is_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(run), "--logprob-samples", "-1"]) == 2
    assert "logprob_samples = -1 must be at least 0" in capsys.readouterr().err


@pytest.mark.usefixtures("started_graders")
@pytest.mark.parametrize("step", [1, 2])
async def test_audit_accepts_a_run_that_was_killed_anywhere_in_its_next_start(
    step: int, run: Path, tmp_path: Path
) -> None:
    """The start has other settings, to which earlier records do not fit."""

    def resume(directory: Path) -> None:
        start_again(directory, step, **{"rollout.samples_per_prompt": 2, "run.seed": 5})

    places = 0
    for directory in killed_before_each_change(resume, lambda number: copy_of(run, tmp_path / str(number))):
        audit = await verify_run(directory, 0)
        assert audit.ok, str(audit)
        (directory / "config.toml").write_text(f"{(directory / 'config.toml').read_text()}\n")
        assert "config.toml: has changed since it was written" in check_receipt(directory).examples
        places += 1
    assert places >= 8


@pytest.mark.usefixtures("started_graders")
async def test_audit_accepts_a_run_that_was_killed_before_its_summary(run: Path, tmp_path: Path) -> None:
    """The end of a run writes its summary and the last line of its receipt, after its model."""

    def without_end(number: int) -> Path:
        copy = copy_of(run, tmp_path / str(number))
        (copy / "receipt.jsonl").write_bytes(b"".join((run / "receipt.jsonl").read_bytes().splitlines(True)[:-1]))
        (copy / "summary.json").unlink()
        return copy

    def end(directory: Path) -> None:
        write_summary(directory)
        end_receipt(directory, 2)

    finished = []
    for directory in killed_before_each_change(end, without_end):
        audit = await verify_run(directory, 0)
        assert audit.ok, str(audit)
        assert check_receipt(directory).examples == []
        finished.append("the run has not ended: 2 of 2 steps" not in audit["files"].note)
    assert sorted(set(finished)) == [False, True]  # before the summary, and between it and the receipt's end


def test_run_that_has_only_started_is_an_error(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copyfile(run / "config.toml", tmp_path / "config.toml")
    assert main([str(tmp_path)]) == 2
    assert "has no records: the run has only started" in capsys.readouterr().err


def test_directory_without_a_run_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 2
    assert "config.toml: cannot be read" in capsys.readouterr().err
