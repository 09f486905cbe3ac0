"""Functions of the recipes of 2026: what a self-teacher is shown, which examples a first stage has, similar code."""

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from builders import asked, call, failed, grade, scored_group, trajectory, turn
from torl.base.types import ALTERNATIVE, Block, ScoredTrajectory
from torl.components.algorithms.advantages import EstimatorInputs
from torl.components.algorithms.requirements import requirements_of
from torl.components.algorithms.reward_advantages import gtpo
from torl.components.algorithms.tool_advantages import gtpo_similar_code, similarity
from torl.components.text.tokenizer import load_tokenizer
from torl.recipes.aster import few_calls
from torl.recipes.rc_grpo import asked_examples
from torl.recipes.sdpo import with_answer, with_feedback
from torl.rollout.model_directory import ModelDirectory
from torl.run.config import FinetuneConfig, TrainConfig
from torl.run.config.loading import find_config, load_config
from torl.training.examples import Examples

PROMPT = asked("p", "7", question="What is 3 + 4?")


def member(correct: bool, code: str = "", *, error: str | None = None) -> ScoredTrajectory:
    text = f"```python\n{code}\n```\n```output"
    turns = [turn(text, blocks=[Block(f"{code}\n", 10, 11 + len(code), 1)])] if code else [turn("I guess.")]
    calls = [call(outcome=failed(error) if error else None)] if code else []
    played = trajectory(*turns, turn("so 7"), prompt=PROMPT, calls=calls) if code else trajectory(*turns, prompt=PROMPT)
    given = grade(correct)
    return ScoredTrajectory(played, given, given.reward)


def test_sdpo_shows_the_teacher_a_correct_response_and_the_last_error() -> None:
    wrong, right = member(False, "1/0", error="ZeroDivisionError: division by zero"), member(True, "print(3 + 4)")
    shown = with_feedback(wrong, scored_group(wrong, right))
    assert shown is not None
    question, solution_line, *rest = shown.question.split("\n")
    assert (question, solution_line) == ("What is 3 + 4?", "A correct solution of this problem:")
    assert "\n".join(rest) == (
        f"{right.trajectory.text}\nAn earlier attempt failed with:\nZeroDivisionError: division by zero"
    )
    assert (shown.id, shown.answer) == ("p", "7")
    assert with_feedback(right, scored_group(wrong, right)) is None  # nothing to show to the only correct response


def test_opsd_shows_the_teacher_the_answer() -> None:
    right = member(True)
    assert with_answer(right, scored_group(right)).question == "What is 3 + 4?\nThe answer is 7."
    either = replace(right.trajectory.prompt.problem, answer=ALTERNATIVE.join(["7", "seven"]))
    group = replace(scored_group(right), prompt=replace(right.trajectory.prompt, problem=either))
    assert with_answer(right, group).question.endswith("The answer is 7 or seven.")


@pytest.mark.parametrize(("calls", "masked"), [(9, True), (10, False)])
def test_aster_keeps_responses_with_many_calls(calls: int, masked: bool) -> None:
    played = trajectory(*["step"] * (calls + 1))
    assert few_calls(ScoredTrajectory(played, grade(), 1.0)) is masked


def inputs_of(*members: ScoredTrajectory) -> EstimatorInputs:
    masks = [each.trajectory.loss_mask_T for each in members]
    turns = [np.where(mask, np.cumsum(np.diff(mask.astype(int), prepend=0) == 1) - 1, -1) for mask in masks]
    return EstimatorInputs(
        rewards_N=np.array([each.total for each in members]),
        groups_N=["g"] * len(members),
        lengths_N=np.array([len(mask) for mask in masks], np.int64),
        mask_M=np.concatenate(masks),
        turns_M=np.concatenate(turns).astype(np.int32),
        members_N=members,
    )


def test_code_that_resembles_correct_code_earns_a_share_of_its_reward() -> None:
    right, close, far = member(True, "print(3 + 4)"), member(False, "print(3 + 5)"), member(False, "import os")
    assert similarity("print(3 + 4)", "print(3 + 5)") == pytest.approx(22 / 24)  # 11 of 12 characters match
    inputs = inputs_of(right, close, far, member(False))
    likeness = [similarity(code, "print(3 + 4)\n") for code in ("print(3 + 5)\n", "import os\n", "")]
    expected = replace(inputs, rewards_N=np.array([1.0, *(0.5 * each for each in likeness)]))
    found = gtpo_similar_code(inputs, share=0.5, discount=1.0).advantages_M
    assert found == pytest.approx(gtpo(expected, discount=1.0).advantages_M)
    assert likeness[2] == 0
    plain = gtpo_similar_code(inputs, share=0.0, discount=1.0).advantages_M
    assert plain == pytest.approx(gtpo(inputs, discount=1.0).advantages_M)
    without_right = inputs_of(close, far)
    assert gtpo_similar_code(without_right).advantages_M.any() == np.False_


def test_the_first_stage_asks_for_the_reward_that_a_response_got(tmp_path: Path) -> None:
    rows = [{"question": "Q1", "correct": True}, {"question": "Q2", "correct": False}]
    file = tmp_path / "samples.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    found = list(asked_examples(str(file), lines=("good", "bad")))
    assert [row["question"] for _, row in found] == ["good\nQ1", "bad\nQ2"]
    assert found[1][0].endswith("samples.jsonl, line 2")


def test_the_first_stage_trains_sampled_tokens_after_the_prompt_with_its_line(tmp_path: Path) -> None:
    """A trajectory as torl samples it, through the reader of fine-tuning."""
    from torl.run.records.rows import encode_row, encode_trajectory, group_records

    directory = ModelDirectory.open("torl:demo/base_model", {}, None)
    tokenizer = load_tokenizer(directory.path)
    ids = tokenizer.encode("The answer is 7.")
    played = replace(trajectory("The answer is 7.", prompt=PROMPT, tokens=ids), text=tokenizer.decode(ids))
    group = scored_group(ScoredTrajectory(played, grade(), 1.0))
    file = tmp_path / "samples.jsonl"
    file.write_bytes(b"".join(encode_row(encode_trajectory(record)) for record in group_records(0, [group])))
    settings = {
        "finetune.train": {"name": "torl.recipes.rc_grpo:asked_examples", "path": str(file)},
        "finetune.prompts": "template",
        "finetune.correct_only": False,
        "finetune.batch_size": 1,
        "run.directory": str(tmp_path / "run"),
        "run.steps": 1,
    }
    config = load_config(FinetuneConfig, find_config("demo"), settings)
    (example,) = Examples.read(config, directory, lambda line: None).train.values()
    (sample,) = example.samples
    text = tokenizer.decode(sample.token_ids[~sample.loss_mask])
    assert "<|high_reward|>" in text
    assert "What is 3 + 4?" in text
    assert sample.token_ids[sample.loss_mask].tolist() == ids


@pytest.mark.parametrize(
    ("preset", "name"),
    [
        *itertools.product(("demo", "simpletir", "dapo", "torl_7b"), ("gtpo", "agent_prm", "sdpo", "opsd")),
        ("search_r1", "sdpo"),  # its reward has a KL penalty, and no parts
        ("search_r1", "opsd"),
    ],
)
def test_an_overlay_keeps_the_groups_that_its_estimator_learns_from(preset: str, name: str) -> None:
    config = load_config(TrainConfig, [find_config(preset), find_config(name)])
    assert requirements_of(config.algorithm.estimator.target).uniform_groups
    assert "zero_variance" not in config.selection.groups


@pytest.mark.parametrize("name", ["rstar2", "aster", "echo", "sdpo", "opsd"])
def test_an_overlay_is_a_valid_run(name: str) -> None:
    config = load_config(TrainConfig, [find_config("torl_7b"), find_config(name)])
    assert config.algorithm.unpublished_aggregation is None
    if name in ("sdpo", "opsd"):
        assert config.algorithm.needs_reference
        assert config.algorithm.needs_old_logprobs
