"""ReTool: its prompt template, its format, and the bonus for calls of verl's recipe."""

import re
from dataclasses import replace
from typing import ClassVar

from torl import Grade, Group, NonNegativeInt, Problem, Reward, TaggedFormat, Trajectory, chatml

# Figure 7, as in its data (JoeYing/ReTool-SFT).
_ENDING = "<answer>\n\\boxed{'The final answer goes here.'}\n</answer>"
TEMPLATE = (
    "Solve the following problem step by step. You now have the ability to selectively write executable Python code to "
    "enhance your reasoning process. The Python code will be executed by an external sandbox, and the output (wrapped "
    "in `<interpreter>output_str</interpreter>`) can be returned to aid your reasoning and help you arrive at the "
    "final answer. The Python code should be complete scripts, including necessary imports. \nEach code snippet is "
    "wrapped with `<code>\n```python\ncode snippet\n```\n</code>`.\nThe last part of your response should be in the "
    f"following format:\n{_ENDING}\n\n*user question:*\n{{problem}}\n\nRemember to place the final answer in "
    f"the last part using the format: \n{_ENDING}"
)

_FENCED = re.compile(r"```python(.*?)```", re.DOTALL)


def template(problem: Problem, system: str = "") -> str:
    """Return ReTool's prompt in ChatML: code in <code>, its output in <interpreter>, the boxed answer in <answer>.

    Args:
        system: System message; none if empty.
    """
    return chatml(replace(problem, question=TEMPLATE.replace("{problem}", problem.question, 1)), system)


class ReToolFormat(TaggedFormat):
    """ReTool's format (section 2.3): code runs at `</code>`, and its result, errors too, follows in `<interpreter>`.

    A fenced block within the tags is the code, as in ReTool's data (`retool_sft_preprocess.py` of verl's recipe). The
    line breaks around the tags of the result are torl's: the paper does not give them.
    """

    name: ClassVar[str] = "retool"
    tags = ("<code>", "</code>")
    result_tags = ("<interpreter>", "</interpreter>")

    def extract_code(self, text: str) -> str:
        fenced = _FENCED.search(text)
        return (fenced[1] if fenced else text).strip()


class CallBonus(Reward):
    """Rewards calls in responses without credit, so that calls are tried before anything succeeds (`retool.py`).

    A part that follows the part that grades the answer. Its value is the number of turns with a call.
    """

    def __init__(self, max_calls: NonNegativeInt = 4) -> None:
        """Set the limit.

        Args:
            max_calls: Limit on the turns that count.
        """
        self.max_calls = max_calls

    async def grade(self, group: Group) -> list[Grade]:
        graded = zip(group.trajectories, group.grades, strict=True)
        return [Grade(0.0 if grade.credited else self._calls(trajectory)) for trajectory, grade in graded]

    def _calls(self, trajectory: Trajectory) -> float:
        return float(min(self.max_calls, sum(bool(trajectory.calls_in(turn)) for turn in trajectory.turns)))
