"""Environment classes of TRL's kind, without TRL: their methods as tools, their instances, their rewards."""

import asyncio
import json
import threading
from typing import Any

import pytest

from builders import asked
from chat_models import ChatModel
from scripted_environment import in_environment
from torl.base.errors import ConfigError, SandboxError, ToolUnavailableError
from torl.base.types import FinishReason, Problem, Prompt, Trajectory
from torl.components.interop.trl import TrlEnvironment
from torl_lab.audit.tokens import token_mismatch


class Counter:
    """Counts; the class that TRL would be given."""

    made: list["Counter"] = []  # noqa: RUF012  # of the tests

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.total = 0
        self.thread = threading.current_thread()
        self.made.append(self)

    def reset(self, **row: Any) -> str | None:
        self.rows.append(row)
        self.total = 0
        return f" Begin at {row['first']}." if "first" in row else None

    def add(self, number: int, times: int = 1) -> str:
        """Add a number.

        Args:
            number: The summand.
            times: How often.
        """
        if number < 0:
            raise ValueError("only up")
        if number > 100:
            raise SandboxError("the abacus broke")
        self.total += number * times
        return f"It is {self.total}."

    async def where(self) -> str:
        """Say where it runs."""
        return threading.current_thread().name

    def _hidden(self) -> None: ...

    def get_reward(self) -> float:
        return float(self.total)


class Untyped(Counter):
    def add(self, number, times=1):  # type: ignore[no-untyped-def]
        """Add."""


PLACE = f"{__name__}:Counter"


def called(*calls: tuple[str, dict[str, Any]]) -> str:
    written = [json.dumps({"name": name, "arguments": arguments}) for name, arguments in calls]
    return "".join(f"<tool_call>\n{call}\n</tool_call>" for call in written) + "<|im_end|>"


def play(environment: TrlEnvironment, *turns: str, **metadata: Any) -> Trajectory:
    model = ChatModel.of("hermes")
    player = in_environment(model.player([*turns, "Done.<|im_end|>"]), model, environment)
    prompt = Prompt(Problem("p", "Count.", "7", metadata), asked().token_ids)
    played = asyncio.run(player.play(prompt, batch_id=0, sample=0))
    assert token_mismatch(played, model.rules(environment={"trl": PLACE})) is None
    return played


def test_methods_are_tools_and_return_results() -> None:
    environment = TrlEnvironment(PLACE)
    assert list(environment.tools) == ["add", "where"]
    schema = environment.tools["add"]
    assert schema.description == "Add a number."
    assert schema.parameters["required"] == ["number"]
    assert schema.parameters["properties"]["times"]["description"] == "How often."
    first, second = ("add", {"number": 2}), ("add", {"number": 3, "times": 2})
    played = play(environment, called(first, second), called(("where", {})))
    assert [call.outcome.text for call in played.tool_calls] == ["It is 2.", "It is 8.", threading.main_thread().name]
    assert played.environment_rewards == {"Counter": 8.0}
    assert (played.finish_reason, len(played.turns)) == (FinishReason.STOP, 3)


def test_method_errors_and_invalid_arguments_are_shown_to_the_model() -> None:
    played = play(TrlEnvironment(PLACE), called(("add", {"number": -1}), ("add", {"by": 1})))
    negative, unknown = (call.outcome for call in played.tool_calls)
    assert (negative.text, negative.error) == ("{'error': 'only up'}", "ValueError")
    assert "unexpected keyword argument 'by'" in unknown.text


def test_reset_receives_problem_and_result_ends_last_message() -> None:
    environment = TrlEnvironment(PLACE)
    played = play(environment, first=3)
    row = Counter.made[-1].rows[-1]
    assert row == {
        "id": "p", "question": "Count.", "answer": "7", "first": 3, "prompt": [{"role": "user", "content": "Count."}]
    }  # fmt: skip
    assert "Count. Begin at 3.<|im_end|>" in ChatModel.of("hermes").tokenizer.decode(played.prompt.token_ids)


def test_an_instance_is_used_again_unless_its_episode_failed() -> None:
    made = len(Counter.made)
    environment = TrlEnvironment(PLACE)
    play(environment, called(("add", {"number": 1})))
    play(environment, called(("add", {"number": 1})))
    assert (len(Counter.made) - made, Counter.made[-1].total, len(Counter.made[-1].rows)) == (1, 1, 2)
    with pytest.raises(SandboxError, match="the abacus broke"):
        play(environment, called(("add", {"number": 101})))
    play(environment)
    assert len(Counter.made) - made == 2


async def test_instance_is_created_off_the_event_loop() -> None:
    environment = TrlEnvironment(PLACE)
    sessions = [environment.session(asked().problem, 0) for _ in range(2)]
    await asyncio.gather(*(session.reset([{"role": "user", "content": "?"}]) for session in sessions))
    first, second = Counter.made[-2:]
    assert first.thread is threading.main_thread()
    assert second.thread is not threading.main_thread()


def test_unreadable_reward_fails_the_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Counter, "get_reward", lambda self: None)
    with pytest.raises(
        ToolUnavailableError, match=r"the environment \(.*TrlSession\) failed in rewards\(None\)\nTypeError"
    ):
        play(TrlEnvironment(PLACE))


def test_a_class_that_cannot_be_an_environment_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"the environment 'nowhere:X'.*nowhere cannot be imported"):
        TrlEnvironment("nowhere:X")
    with pytest.raises(ConfigError, match="its instances have no reset"):
        TrlEnvironment("builtins:dict")
    with pytest.raises(ConfigError, match=r"the parameter 'number' has no type hint"):
        TrlEnvironment(f"{__name__}:Untyped")
