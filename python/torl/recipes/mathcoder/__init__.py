"""MathCoder: its prompt template and its format."""

from collections.abc import Sequence
from types import MappingProxyType
from typing import ClassVar

from torl import (
    Format,
    MalformedCall,
    Markup,
    ObservationText,
    Outcome,
    Problem,
    StopCondition,
    ToolRequest,
    Turn,
    render_outcome,
    run_block,
)

CODE, CLOSED = "<|code|>", "<|endofblock|>"
NOTHING_PRINTED = "<empty_execution>"


def template(problem: Problem, system: str = "") -> str:
    """Return MathCoder's prompt (`code_generation` in its `src/inference.py`).

    Args:
        system: System message. MathCoder's code leaves it empty by default.
    """
    before = f"<|system|><|text|>{system}<|endofblock|><|endofmessage|>"
    return f"{before}<|user|><|text|>{problem.question}\n<|endofblock|><|endofmessage|><|assistant|>"


class MathCoderFormat(Format):
    """MathCoder's format (`src/inference.py`): `<|code|>` to `<|endofblock|>` runs, and `<|execution|>` follows.

    A block of `<|text|>` closes in the same way, and the message continues. An error is shown with its traceback.
    MathCoder runs a notebook: `rollout.tools.python.interpreter_state = "episode"` keeps variables. The value of a
    last line without `print` is not shown here, and sampled numbers with more than six decimals are not rewritten.
    """

    name: ClassVar[str] = "mathcoder"
    tools = MappingProxyType({"python": "code"})
    end_tokens = ("<|endofmessage|>",)
    control_tokens = (CODE, "<|execution|>", CLOSED, "<|endofmessage|>")
    visible_tokens = (CODE, CLOSED)

    def stop_condition(self) -> StopCondition:
        return StopCondition.tagged(CODE.encode(), CLOSED.encode(), ends_turn=True)

    def parse_calls(self, turn: Turn) -> Sequence[ToolRequest | MalformedCall]:
        return [run_block(block.code) for block in turn.blocks]

    def render_observation(self, turn: Turn, outcomes: Sequence[Outcome]) -> ObservationText:
        (outcome,) = outcomes
        text = render_outcome(outcome, "traceback", max_characters=None).strip()
        if outcome.ok and not outcome.text.strip():
            text = NOTHING_PRINTED
        return [Markup("<|execution|>"), text, Markup(CLOSED)]
