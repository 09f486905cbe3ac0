"""Algorithms through a whole run, every part real: a critic, a reference policy, several updates, dynamic sampling."""

import json
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cli import training
from metrics_page import undefined_metrics
from plants import metric, scale_weights, seal
from torl.run.records.files import token_files, trajectory_file
from torl.run.records.reading import read_trajectories
from torl.run.records.tokens import read_token_numbers
from torl_lab.audit.run import main
from torl_lab.view.detail import trajectory_json
from torl_lab.view.rows import find_place
from viewed_runs import indexed

SMALL = {
    "run.steps": "3",
    "rollout.prompts_per_step": "4",
    "rollout.samples_per_prompt": "4",
    "evaluation.max_problems": "4",
    "evaluation.samples_per_problem": "0",
    "evaluation.every_steps": "0",
    "evaluation.before_training": "false",
    "checkpoint.every_steps": "0",
    "selection.groups.zero_variance": "false",
    "learner.ranks": "2",
}

PPO = {
    "run.steps": "4",
    "rollout.max_staleness": "2",
    "rollout.tools.python.interpreter_state": "episode",
    "algorithm.estimator": "ppo",
    "algorithm.estimator.gae_lambda": "0.95",
    "algorithm.normalize_rewards": "true",
    "algorithm.normalize_advantages": "true",
    "algorithm.importance_correction": "tis",
    "critic.learning_rate": "1e-3",
    "critic.epochs": "2",
    "critic.mini_batches": "2",
    "critic.pretrain_steps": "1",
    "checkpoint.every_steps": "2",
    "learner.zero_stage": "2",
}

REINFORCE = {
    "rollout.format": "zerotir",
    "rollout.format.error_style": "last_line",
    "rollout.max_tool_calls": "2",
    "evaluation.rollout.max_tool_calls": "0",
    "algorithm.estimator": "reinforce_plus_plus_baseline",
    "algorithm.kl.coefficient": "0.01",
    "algorithm.kl.estimator": "k1",
    "algorithm.kl.target": "reward",
    "algorithm.mini_batches": "2",
    "algorithm.importance_correction": "tis",
    "selection.groups.accuracy_outside": "{ range = [0.0, 1.0] }",
    "selection.max_rounds": "3",
    "selection.mask.wrong_truncated": "{}",
    "reward.parts.length.name": "overlong",
    "reward.parts.length.buffer": "20",
    "learner.zero_stage": "3",
}


def run(directory: Path, changes: dict[str, str]) -> list[dict[str, float]]:
    """The rows of the training steps, after a run that succeeded."""
    options = SMALL | changes | {"run.directory": str(directory)}
    with training(options, log=directory.with_suffix(".log")) as command:
        assert command.wait(280) == 0, command.output()
        command.assert_nothing_left()
    rows = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    assert undefined_metrics(name for row in rows for name in row) == set()
    return [row for row in rows if "time/step" in row]


def token_colors(directory: Path, step: int) -> dict[str, dict[str, Any]]:
    """The colors that the viewer has for the tokens of a trajectory that the learner recorded, by their names."""
    key = next(iter(read_token_numbers(directory, step)))
    records = list(read_trajectories(trajectory_file(directory, step)))
    line = [(each.trajectory.group_id, each.trajectory.sample_index) for each in records].index((key.group, key.sample))
    with closing(indexed(directory)) as reader:
        shown = trajectory_json(find_place(reader, f"step_{step:06d}", line))
    return {color["name"]: color for color in shown["sequence"]["tokens"]["colors"]}


def found_by(check: str, directory: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The mismatches that a check finds in a run, whose receipt is made to fit."""
    seal(directory)
    assert main([str(directory), "--logprob-samples", "4"]) == 1
    checks = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert not checks["receipt"]["wrong"]
    return "\n".join(checks[check]["examples"])


def test_ppo_with_a_critic_and_rollouts_ahead_of_the_learner(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "run"
    rows = run(directory, PPO)
    assert [row["learner/updates"] for row in rows] == [0, 1, 1, 1]  # the critic learns alone first
    assert "learner/loss" not in rows[0]
    assert all(row["learner/critic_loss"] > 0 and row["learner/critic_gradient_norm"] > 0 for row in rows)
    assert all(row["learner/critic_samples"] == 2 * 16 for row in rows)  # two epochs
    assert rows[-1]["learner/critic_value_mean"] != 0
    assert rows[0]["rollout/staleness_max"] == 0
    assert 0 < max(row["rollout/staleness_max"] for row in rows) <= 2
    assert all(row["time/wait_for_rollout"] < row["time/step"] for row in rows)
    # After each transfer engine and learner agree, independent of the critic.
    assert max(row["learner/logprob_gap_probe"] for row in rows[1:]) < 2e-6
    for number in range(4):
        records = [json.loads(line) for line in trajectory_file(directory, number).read_text().splitlines()]
        assert len(records) == 16
        for record in records:
            versions = {version for version, _ in record["policy_versions"] if version >= 0}
            assert number - 2 <= min(versions) <= max(versions) <= number
        assert len({record["advantage"] for record in records}) > 4  # token by token: no two have the same mean
    assert main([str(directory)]) == 0
    checks = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert checks["advantages"]["compared"] == 4 * 16
    assert checks["updates"]["compared"] > 0
    # The gap stays at rounding for every version whose weights are left, also where a response spans several.
    assert checks["logprobs"]["compared"] >= 16
    colors = token_colors(directory, 3)
    assert colors["value"]["range"] != [0, 0]
    assert len(set(colors["advantage"]["values"])) > 2  # token by token
    assert colors["entropy"]["range"][1] > 0
    assert not token_files(directory).get(0) or not read_token_numbers(directory, 0)  # the critic alone
    learner = directory / "checkpoints" / "step_000004" / "learner"
    assert {file.name for file in learner.glob("critic_*")} == {
        f"critic_rank_{rank:05d}.safetensors" for rank in (0, 1)
    }
    # Mistakes in what belongs to the critic, in a run whose receipt fits.
    recorded = (directory / "metrics.jsonl").read_bytes()
    for name in ("learning_rate", "samples", "tokens", "sampled_tokens"):
        metric(f"learner/critic_{name}", 9)(directory)
        assert f"learner/critic_{name}: expected" in found_by("metrics", directory, capsys)
        (directory / "metrics.jsonl").write_bytes(recorded)
    config = (directory / "config.toml").read_text()
    changed, count = re.subn(r"(\[critic\]\n(?:.+\n)*?learning_rate = )0\.001\n", r"\g<1>0.5\n", config)
    assert count == 1
    (directory / "config.toml").write_text(changed)
    assert "learner/critic_learning_rate: expected 0.5, found 0.001" in found_by("metrics", directory, capsys)
    (directory / "config.toml").write_text(config)
    scale_weights(directory / "checkpoints" / "step_000002", "critic")
    assert "a value of the critic differs" in found_by("logprobs", directory, capsys)


@pytest.mark.slow
def test_reinforce_with_a_reference_policy_and_dynamic_sampling(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = run(tmp_path / "run", REINFORCE)
    for number, row in enumerate(rows):
        if row["data/trained_groups"] == 0:
            continue
        assert row["learner/updates"] in (1, 2)
        assert row["learner/importance_weight"] == pytest.approx(1, abs=1e-3)
        assert abs(row["learner/reference_kl"]) < 1e-3 if number == 0 else row["learner/reference_kl"] != 0
        assert 1 <= row["selection/rounds"] <= 3
        assert row["data/trained_groups"] + row["selection/missing_groups"] == 4
        lines = (tmp_path / "run" / "trajectories" / f"step_{number:06d}.jsonl").read_text().splitlines()
        records = [json.loads(line) for line in lines]
        learned = {record["group"] for record in records if record["advantage"] is not None}
        assert len(learned) == row["data/trained_groups"]
        mixed = {record["group"] for record in records if record["correct"]}
        mixed &= {record["group"] for record in records if not record["correct"]}
        assert learned <= mixed
    assert any(row["data/trained_groups"] for row in rows)
    assert main([str(tmp_path / "run")]) == 0
    checks = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert checks["advantages"]["compared"] == 4 * sum(row["data/trained_groups"] for row in rows)


ECHO = {"algorithm.imitation": "observations", "algorithm.imitation.weight": "0.1"}


@pytest.mark.slow
def test_imitation_of_observations_keeps_the_numbers_of_sampled_tokens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = run(tmp_path / "run", ECHO)
    step = next(number for number, row in enumerate(rows) if row.get("learner/imitated_tokens"))
    assert main([str(tmp_path / "run")]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["updates"]["compared"] > 0
    colors = token_colors(tmp_path / "run", step)
    sampled = [value == 1 for value in colors["mask"]["values"]]
    assert [value is not None for value in colors["entropy"]["values"]] == sampled
    assert colors["value"]["missing"] == "the run has no critic"


ADAPTERS = {
    "model.lora.rank": "8",
    "model.lora.alpha": "16",
    "learner.learning_rate": "3e-3",
    "learner.zero_stage": "3",
    "algorithm.kl.coefficient": "0.01",
    "checkpoint.every_steps": "1",
    "checkpoint.keep_last": "3",
}


@pytest.mark.slow
def test_adapters_leave_trainer_and_engine_as_close_as_all_weights_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = run(tmp_path / "run", ADAPTERS)
    assert sum(row["learner/updates"] for row in rows) >= 2
    assert max(row["learner/logprob_gap_mean"] for row in rows if "learner/logprob_gap_mean" in row) < 2e-6
    assert main([str(tmp_path / "run")]) == 0
    checks = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert checks["logprobs"]["compared"] > 0
    assert (tmp_path / "run" / "model" / "adapter" / "adapter_model.safetensors").is_file()
