"""ZeroTIR: its prompt template, its format, the response format that it rewards, and its masks."""

import re
from collections.abc import Callable, Sequence
from typing import ClassVar

from torl import (
    ErrorStyle,
    FencedFormat,
    FenceStyle,
    ObservationText,
    Outcome,
    PositiveInt,
    Problem,
    ScoredTrajectory,
    Section,
    StopCondition,
    ToolRequest,
    Trajectory,
    Turn,
    find_answer,
    render_outcome,
    repetition,
    run_block,
)

# "ZERO_TIR" of its `template.py`. The model continues after <think>, in the middle of a line.
TEMPLATE = (
    "A conversation between User and Assistant. The User asks a question, and the Assistant solves it. "
    "The Assistant first thinks about the reasoning process in the mind and then provides the User with the answer. "
    "The reasoning process is enclosed within <think> </think> and answer is enclosed within <answer> </answer> tags, "
    "respectively, i.e., <think> reasoning process here </think> <answer> answer here </answer>. "
    "In your reasoning-process, You can use python-code to solve your problem. "
    "User: You must put your answer inside <answer> </answer> tags, i.e., <answer> answer here </answer>. "
    "And your final answer will be extracted automatically by the \\boxed{} tag.\n"
    "This is the problem:{problem}\n"
    "Assistant: <think>"
)
TOO_LONG = "The output of the code execution is too long, please check your code."
MAX_REPETITION = 0.2
MAX_REPEATED_TRIGRAMS = 0.6
"""Thresholds of `void_filter`: above either, a response without a valid format counts as repetitive."""

_TAGS = ("</think>", "<answer>", "</answer>")
_WORD_OR_MARK = re.compile(r"\w+|[^\w\s]")
_MAX_AFTER = 5
_CODE = re.compile(r"```python\n.*?```", re.DOTALL)
_OUTPUT = re.compile(r"```output\n.*?```", re.DOTALL)
# Each Chinese character is a word.
_WORD = re.compile(r"[\u4e00-\u9fff]|[^\s\u4e00-\u9fff]+")


def template(problem: Problem) -> str:
    """Return ZeroTIR's prompt: thoughts in <think>, Python allowed, the answer in <answer>."""
    return TEMPLATE.replace("{problem}", problem.question, 1)


class ZeroTIROptions(Section):
    """Options of the format "zerotir"."""

    error_style: ErrorStyle = "traceback"
    fences: FenceStyle = "lines"
    """Fences that count: alone on a line ("lines"), or as in ZeroTIR's code ("published") anywhere, with the code
    between them stripped."""
    max_observation_tokens: PositiveInt = 256
    """Limit on the tokens of an observation, fences included. A sentence replaces a longer one."""


class ZeroTIRFormat(FencedFormat):
    r"""ZeroTIR's format (section 3.2): a block runs when it closes, and "\n```output\n{result}\n```\n\n\n" follows.

    There is no marker: an output block that the model opens itself is text.
    """

    name: ClassVar[str] = "zerotir"
    result_line_ends = 3

    def __init__(self, options: ZeroTIROptions | None = None) -> None:
        self.options = options or ZeroTIROptions()
        self.fences = self.options.fences
        self.max_observation_tokens = self.options.max_observation_tokens

    def stop_condition(self) -> StopCondition:
        return StopCondition.block(fences="anywhere" if self.fences == "published" else "lines")

    def speculative_call(self, code: str) -> ToolRequest:
        return run_block(code.strip() if self.fences == "published" else code)

    def render_observation(self, turn: Turn, outcomes: Sequence[Outcome]) -> str:
        return _output_block(render_outcome(outcomes[0], self.options.error_style, max_characters=None))

    def shorten_observation(
        self, turn: Turn, outcomes: Sequence[Outcome], fits: Callable[[ObservationText], bool]
    ) -> str:
        return _output_block(TOO_LONG)


def _output_block(result: str) -> str:
    return f"\n```output\n{result}\n```\n\n\n"


def has_answer_format(text: str) -> bool:
    r"""Whether a response has ZeroTIR's format (`zero_tir_template_format_score_fn`).

    A box is between ``<answer>`` and ``</answer>``; ``</think>`` and each of these occur exactly once and in this order
    (text before ``</think>`` is not graded), and at most five words or marks follow, where ZeroTIR's code counts five
    tokens.
    """
    after = text.rpartition("</answer>")[2]
    if any(text.count(tag) != 1 for tag in _TAGS) or len(_WORD_OR_MARK.findall(after)) > _MAX_AFTER:
        return False
    _, _, rest = text.partition("</think>")[2].partition("<answer>")
    answer, closed, _ = rest.rpartition("</answer>")
    return bool(closed) and find_answer(answer) is not None


def mismatched_code(member: ScoredTrajectory) -> bool:
    """Mask responses whose code blocks, output blocks and calls differ in number, if credited or if code succeeded.

    `code_filter` of ZeroTIR's `math_tir_filter_fn_utils.py`. A response without credit counts if its format is valid
    and a call succeeded.
    """
    grade, calls = member.grade, member.trajectory.tool_calls
    some_succeeded = any(call.ran and call.outcome.ok for call in calls)
    return (grade.credited or (grade.valid_format and some_succeeded)) and mismatches_code(member.trajectory)


def mismatches_code(trajectory: Trajectory) -> bool:
    """Whether the text has different numbers of opened blocks, closed blocks, output blocks and calls that ran.

    Causes are a block after the last call, and an output block that the model wrote itself.
    """
    text = trajectory.text
    runs = sum(call.ran for call in trajectory.tool_calls)
    return len({text.count("```python\n"), len(_CODE.findall(text)), len(_OUTPUT.findall(text)), runs}) > 1


def invalid_repetitive(member: ScoredTrajectory) -> bool:
    """Mask responses without a valid format whose text repeats itself (`void_filter` of the same file)."""
    text = member.trajectory.text
    if member.grade.valid_format:
        return False
    return repeated_trigrams(text) > MAX_REPEATED_TRIGRAMS or repetition(text) > MAX_REPETITION


def repeated_trigrams(text: str) -> float:
    """Return the fraction of word trigrams that have occurred before; 0 for a text without trigrams."""
    words = _WORD.findall(text)
    triples = list(zip(words, words[1:], words[2:], strict=False))
    return 1 - len(set(triples)) / len(triples) if triples else 0.0
