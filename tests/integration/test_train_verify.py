"""`torl.verify` on a real run: all of it agrees; and each planted bug is found, by the check that should find it."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli import ROOT, running

from torl.apps.audit.replay import ReplayContext
from torl.apps.audit.run import main
from torl.apps.audit.tokens import token_mismatch
from torl.config import TrainConfig
from torl.config.loading import load_config
from torl.paths import resolve_path
from torl.records.rows import decode_trajectory

DEMO = str(ROOT / "python" / "torl" / "presets" / "demo.toml")
OPTIONS = {
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


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two steps with the checkpoint between them."""
    directory = tmp_path_factory.mktemp("verify") / "run"
    words = [
        word for name, value in (OPTIONS | {"run.directory": str(directory)}).items() for word in (f"--{name}", value)
    ]
    with running("torl.train", DEMO, *words, log=directory.with_suffix(".log")) as command:
        assert command.wait(280) == 0, command.output()
    return directory


def verified(run: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    """The exit status and the checks by name."""
    status = main([str(run)])
    printed = capsys.readouterr()
    assert "%|" not in printed.err  # no progress bar
    return status, json.loads(printed.out.splitlines()[-1])


def test_a_run_agrees_with_its_records(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, checks = verified(run, capsys)
    assert status == 0, checks
    assert {name: check["compared"] for name, check in checks.items()} == {
        "tokens": 48,
        "versions": 48,
        "rewards": 48,
        "advantages": checks["advantages"]["compared"],
        "logprobs": 48,
    }
    assert checks["advantages"]["compared"] > 0
    assert checks["logprobs"]["note"] == "policy versions 0, 1"


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


def _mask(row: dict[str, Any]) -> bool:
    """An observation is learned from."""
    if not row["tool_calls"]:
        return False
    row["loss_mask"] = [[True, sum(length for _, length in row["loss_mask"])]]
    return True


def _turn(row: dict[str, Any]) -> bool:
    row["turns"][0]["stop"] -= 1
    return True


def _observation(row: dict[str, Any]) -> bool:
    """The model saw something else than the tool said."""
    if not row["tool_calls"] or row["tool_calls"][0]["stop"] - row["tool_calls"][0]["start"] < 2:
        return False
    row["token_ids"][row["tool_calls"][0]["start"]] += 1
    return True


def _code(row: dict[str, Any]) -> bool:
    """The code that ran is not the code that the model wrote."""
    if not row["tool_calls"] or row["tool_calls"][0]["arguments"] is None:
        return False
    row["tool_calls"][0]["arguments"]["code"] += " "
    return True


def _observed_logprob(row: dict[str, Any]) -> bool:
    """An observed token has a logprob, as if it had been sampled."""
    if not row["tool_calls"]:
        return False
    row["rollout_logprobs"][row["tool_calls"][0]["start"]] = -0.5
    return True


def _observed_version(row: dict[str, Any]) -> bool:
    """An observed token has a policy version, as if it had been sampled."""
    if not row["tool_calls"]:
        return False
    row["policy_versions"] = [[max(0, version), length] for version, length in row["policy_versions"]]
    return True


def _version(row: dict[str, Any]) -> bool:
    """A token of step 0 was sampled by a later policy."""
    row["policy_versions"][0][0] += 1
    return True


def _outcome(row: dict[str, Any]) -> bool:
    """The code printed something else than the model was shown."""
    if not row["tool_calls"] or row["tool_calls"][0]["status"] != "ok":
        return False
    row["tool_calls"][0]["text"] += "1"
    row["tool_calls"][0]["details"]["stdout"] += "1"
    return True


def _details(row: dict[str, Any]) -> bool:
    """The code printed something else than the outcome says."""
    if not row["tool_calls"] or row["tool_calls"][0]["status"] != "ok":
        return False
    row["tool_calls"][0]["details"]["stdout"] += "1"
    return True


def _turn_text(row: dict[str, Any]) -> bool:
    row["turns"][-1]["text"] += "."
    return True


def _turn_ending(row: dict[str, Any]) -> bool:
    if row["turns"][0]["stop_reason"] != "call":
        return False
    row["turns"][0]["stop_reason"] = "stop"
    return True


def _blocks(row: dict[str, Any]) -> bool:
    """A block that the scanner closed is not in the record."""
    if not row["turns"][0]["blocks"]:
        return False
    row["turns"][0]["blocks"].pop()
    return True


def _finish_reason(row: dict[str, Any]) -> bool:
    """The record claims a cut where the model ended it."""
    if row["finish_reason"] != "stop":
        return False
    row["finish_reason"] = row["turns"][-1]["stop_reason"] = "length"
    return True


def _reward(row: dict[str, Any]) -> bool:
    row["reward"] = -row["reward"]
    return True


def _part(row: dict[str, Any]) -> bool:
    """The reward is right, but its parts do not add up to it."""
    row["reward_parts"]["answer"] -= 0.25
    row["reward_parts"]["length"] = row["reward_parts"].get("length", 0.0) + 0.25
    return True


def _turn_reward(row: dict[str, Any]) -> bool:
    """A turn has a reward, and the reward function gives none."""
    row["turn_rewards"] = [0.0] * len(row["turns"])
    return True


def _advantage(row: dict[str, Any]) -> bool:
    if not row["advantage"]:
        return False
    row["advantage"] *= 1.01
    return True


def _logprob(row: dict[str, Any]) -> bool:
    row["rollout_logprobs"][0] -= 0.01
    return True


@pytest.mark.parametrize(
    ("plant", "check"),
    [
        (_mask, "tokens"),
        (_turn, "tokens"),
        (_observation, "tokens"),
        (_outcome, "tokens"),
        (_details, "tokens"),
        (_turn_text, "tokens"),
        (_finish_reason, "tokens"),
        (_version, "versions"),
        (_reward, "rewards"),
        (_part, "rewards"),
        (_turn_reward, "rewards"),
        (_advantage, "advantages"),
        (_logprob, "logprobs"),
    ],
)
def test_a_planted_bug_is_found(
    plant: Callable[[dict[str, Any]], bool],
    check: str,
    run: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    copy = tmp_path / "run"
    (copy / "trajectories").mkdir(parents=True)
    shutil.copyfile(run / "config.toml", copy / "config.toml")
    rows = [json.loads(line) for line in (run / "trajectories" / "step_000000.jsonl").read_text().splitlines()]
    assert any(plant(row) for row in rows)  # of the first that allows it
    (copy / "trajectories" / "step_000000.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    status, checks = verified(copy, capsys)
    assert status == 1
    assert checks[check]["wrong"] >= 1
    if check in ("tokens", "versions", "advantages"):
        assert checks[check]["wrong"] == 1
        assert len(checks[check]["examples"]) == 1


@pytest.mark.parametrize(
    ("plant", "problem"),
    [
        (_code, "the request of call 0 differs from the text of its turn"),
        (_observed_logprob, "an observation token has a logprob or a policy version"),
        (_observed_version, "an observation token has a logprob or a policy version"),
        (_details, "the outcome of call 0 is inconsistent: its text differs from the printed output"),
        (_turn_ending, "turn 0 ended by stop, expected call"),
        (_finish_reason, "the finish reason is length, but the last token does not match it"),
    ],
)
def test_token_mismatches_are_named(plant: Callable[[dict[str, Any]], bool], problem: str, run: Path) -> None:
    config = load_config(TrainConfig, run / "config.toml")
    rules = ReplayContext.from_config(config.rollout, resolve_path(config.model.path))
    files = sorted((run / "trajectories").glob("step_*.jsonl"))
    lines = [line for path in files for line in path.read_text().splitlines()]
    row = next(row for row in map(json.loads, lines) if plant(row))
    assert token_mismatch(decode_trajectory(row).trajectory, rules) == problem


def test_a_block_that_is_missing_is_named(run: Path) -> None:
    config = load_config(TrainConfig, run / "config.toml")
    rules = ReplayContext.from_config(config.rollout, resolve_path(config.model.path))
    lines = (run / "trajectories" / "step_000000.jsonl").read_text().splitlines()
    row = next(row for row in map(json.loads, lines) if _blocks(row))
    problem = token_mismatch(decode_trajectory(row).trajectory, rules)
    assert problem is not None
    assert problem.startswith("turn 0 has the blocks ")


def test_weights_of_another_step_are_found(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = tmp_path / "run"
    (copy / "trajectories").mkdir(parents=True)
    shutil.copyfile(run / "config.toml", copy / "config.toml")
    shutil.copyfile(run / "trajectories" / "step_000001.jsonl", copy / "trajectories" / "step_000001.jsonl")
    shutil.copytree(run / "checkpoints" / "step_000002", copy / "checkpoints" / "step_000001")
    status, checks = verified(copy, capsys)
    assert status == 1
    assert checks["logprobs"]["wrong"] >= 1
    assert not any(checks[name]["wrong"] for name in ("tokens", "versions", "rewards", "advantages"))


def test_directory_without_a_run_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 2
    assert "config.toml: cannot be read" in capsys.readouterr().err
