"""A trial whose tools fail for some episodes."""

import io
from types import SimpleNamespace
from typing import Any

import pytest

from torl.base.errors import ToolUnavailableError
from torl.base.types import Problem, Prompt, ScoredGroup
from torl.run.display.console import Console
from torl.training import trial

PROMPTS = [Prompt(Problem(str(number), "1 + 1?", "2"), ()) for number in range(4)]


class Sampler:
    """The prompts in order."""

    def __len__(self) -> int:
        return len(PROMPTS)

    def take(self, count: int) -> list[Prompt]:
        return PROMPTS[:count]


async def play(monkeypatch: pytest.MonkeyPatch, finished: int) -> tuple[list[ScoredGroup], str]:
    """The groups that are measured and the console's text, if the groups after the first `finished` ones fail."""

    async def play_to_file(rollouts: Any, prompts: list[Prompt], output: Any, console: Console, **options: Any) -> None:
        for prompt in prompts[:finished]:
            output.append(ScoredGroup(prompt, ()))
        raise ToolUnavailableError("3 episodes failed") from ToolUnavailableError("search: no answer")

    monkeypatch.setattr(trial, "play_to_file", play_to_file)
    components: Any = SimpleNamespace(inputs=SimpleNamespace(sampler=Sampler()), rollouts=None)
    with Console(text := io.StringIO()) as console:
        return await trial._play(components, console, 8, 2), text.getvalue()


async def test_failed_groups_are_left_out_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    groups, text = await play(monkeypatch, 3)
    assert [group.prompt for group in groups] == PROMPTS[:3]
    assert "1 of 4 groups have a failed episode and are left out: search: no answer" in text


async def test_a_tool_that_fails_in_all_groups_ends_the_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ToolUnavailableError, match="3 episodes failed"):
        await play(monkeypatch, 0)
