"""The problems of steps that a checkpoint names: found again, and divided among the steps of a resumed run."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from builders import asked
from torl.base.errors import CheckpointError, ComponentError
from torl.base.types import Prompt
from torl.components.data import PromptSampler
from torl.components.text.prompts import PromptStream
from torl.training.step_problems import StepProblems, read_ahead

PROMPTS = [asked(f"p{number}") for number in range(5)]


def ids(prompts: list[Prompt]) -> list[str]:
    return [prompt.problem.id for prompt in prompts]


def test_problems_that_wait_come_first_and_those_of_a_take_are_distinct() -> None:
    """Two epochs meet in the problems that wait, and the steps of the resumed run want other numbers of them."""
    waiting = [PROMPTS[number] for number in (0, 1, 0, 2)]
    problems = StepProblems(PromptSampler(PROMPTS, 0), waiting)
    assert problems.position["ahead"] == ["p0", "p1", "p0", "p2"]
    assert ids(problems.take(0, 3)) == ["p0", "p1", "p2"]
    second = ids(problems.take(1, 4))
    assert (second[0], len(set(second))) == ("p0", 4)
    problems.end(0)
    assert problems.position["ahead"][:4] == second
    third = ids(problems.take(2, 5))
    drawn = PromptSampler(PROMPTS, 0)
    again = ids(drawn.take(4) + drawn.take(5))
    problems.end(1)
    problems.end(2)
    assert sorted(second + third + problems.position["ahead"]) == sorted(["p0", *again])


class SharedState(PromptSampler):
    """A sampler whose state is the list that it changes."""

    def __init__(self) -> None:
        super().__init__(PROMPTS, 0)
        self.drawn: list[str] = []

    def take(self, count: int) -> list[Prompt]:
        taken = super().take(count)
        self.drawn += ids(taken)
        return taken

    def state_dict(self) -> dict[str, Any]:
        return {"drawn": self.drawn}


def test_position_is_that_of_its_time() -> None:
    problems = StepProblems(SharedState())
    first = ids(problems.take(0, 2))
    problems.end(0)
    problems.take(1, 2)
    assert problems.position["sampler"] == {"drawn": first}


def test_state_that_is_not_json_is_the_sampler_s_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SharedState, "state_dict", lambda self: {"drawn": {1}})
    with pytest.raises(ComponentError, match=r"SharedState\) failed in state_dict\(\)"):
        StepProblems(SharedState())


def test_prompts_of_a_checkpoint_are_found_in_their_order(tmp_path: Path) -> None:
    tokenizer: Any = SimpleNamespace(encode=lambda text: list(map(ord, text)), eos_token_id=0)
    stream = PromptStream(lambda: (prompt.problem for prompt in PROMPTS), tokenizer, lambda problem: problem.id, 9)
    prompts = {prompt.problem.id: prompt for prompt in stream}
    state = tmp_path / "controller.json"
    state.write_text(json.dumps({"ahead": ["p3", "p1", "p3"]}))
    assert read_ahead(tmp_path, stream) == (prompts["p3"], prompts["p1"], prompts["p3"])
    state.write_text(json.dumps({"ahead": ["p3", "p7"]}))
    with pytest.raises(CheckpointError, match=r"written with other problems than data.train contains now"):
        read_ahead(tmp_path, stream)
