"""Search-R1: its prompt template, its format, and its exact-match reward."""

import re
import string
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import ClassVar

from torl import (
    Format,
    Grade,
    Group,
    MalformedCall,
    ObservationText,
    Outcome,
    PositiveInt,
    Problem,
    Reward,
    Section,
    StopCondition,
    ToolRequest,
    Trajectory,
    Turn,
    find_tagged_answer,
    longest_prefix,
    render_outcome,
)

# Table 1, with the space that its code has (`scripts/data_process/nq_search.py`).
TEMPLATE = (
    "Answer the given question. You must conduct reasoning inside <think> and </think> first every time you get new "
    "information. After reasoning, if you find you lack some knowledge, you can call a search engine by <search> query "
    "</search> and it will return the top searched results between <information> and </information>. You can search as "
    "many times as your want. If you find no further external knowledge needed, you can directly provide the answer "
    "inside <answer> and </answer>, without detailed illustrations. For example, <answer> Beijing </answer>. "
    "Question: {problem}\n"
)
# `execute_predictions` in `search_r1/llm_agent/generation.py`.
INVALID = (
    "\nMy previous action is invalid. If I want to search, I should put the query between <search> and </search>. If I "
    "want to give the final answer, I should put the answer between <answer> and </answer>. Let me try again.\n"
)
NO_QUERY = MalformedCall("NoQuery", "there was no query between <search> and </search>")

_ARTICLE = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def template(problem: Problem) -> str:
    """Return Search-R1's prompt: thoughts in <think>, queries in <search>, the answer in <answer>."""
    return TEMPLATE.replace("{problem}", problem.question, 1)


class SearchR1Format(Format):
    """Search-R1's format (section 3.2): "</search>" runs the query, and <information> with the passages follows.

    An answer ends the response if `rollout.stop` holds "</answer>".
    """

    name: ClassVar[str] = "search_r1"
    tools = MappingProxyType({"search": "query"})
    result_tags = ("<information>", "</information>")
    result_line_ends = 2

    def __init__(self, max_observation_tokens: PositiveInt = 500) -> None:
        """Set the limit of an observation.

        Args:
            max_observation_tokens: Limit on the tokens of an observation, tags included. Passages are cut to it;
                Search-R1's code cuts the closing tag too.
        """
        self.max_observation_tokens = max_observation_tokens

    def stop_condition(self) -> StopCondition:
        return StopCondition.marker(b"</search>")

    def parse_calls(self, turn: Turn) -> Sequence[ToolRequest | MalformedCall]:
        query, closing, _ = turn.text.partition("<search>")[2].partition("</search>")
        return [ToolRequest("search", {"query": query.strip()}) if closing and query.strip() else NO_QUERY]

    def render_observation(self, turn: Turn, outcomes: Sequence[Outcome]) -> str:
        return INVALID if outcomes[0] == NO_QUERY.outcome else _information(_passages(outcomes[0]))

    def shorten_observation(
        self, turn: Turn, outcomes: Sequence[Outcome], fits: Callable[[ObservationText], bool]
    ) -> str:
        if outcomes[0] == NO_QUERY.outcome:
            return INVALID
        return _information(longest_prefix(_passages(outcomes[0]), lambda text: fits(_information(text))))


def _passages(outcome: Outcome) -> str:
    return render_outcome(outcome, max_characters=None).strip()


def _information(passages: str) -> str:
    return f"\n\n<information>{passages}</information>\n\n"


class ExactMatchOptions(Section):
    """Options of the reward "exact_match"."""

    correct: float = 1.0
    """Reward of an answer that equals a reference except for case, punctuation, articles and whitespace."""
    wrong: float = 0.0
    """Reward of any other answer, or of none."""


class ExactMatchReward(Reward):
    """Rewards the last <answer> of the sampled text (section 3.4).

    A reference of several lines, or of alternatives, is several answers, each of which is correct.
    """

    def __init__(self, options: ExactMatchOptions | None = None) -> None:
        self.options = options or ExactMatchOptions()

    async def grade(self, group: Group) -> list[Grade]:
        return [self._grade(trajectory) for trajectory in group.trajectories]

    def _grade(self, trajectory: Trajectory) -> Grade:
        answer = find_tagged_answer(trajectory.answer_text)
        correct = answer is not None and is_same_answer(answer, trajectory.prompt.problem.answer)
        return Grade(self.options.correct if correct else self.options.wrong, correct, answer)


def squad_normalize(text: str) -> str:
    """Return the text in lower case, without ASCII punctuation, articles and repeated whitespace.

    Source: the evaluation of SQuAD (Rajpurkar et al. 2016), as in Search-R1's `verl/utils/reward_score/qa_em.py`.
    """
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def is_same_answer(answer: str, reference: str) -> bool:
    """Whether the normalized answer equals a line of the reference.

    Texts of articles and punctuation alone, such as the choice A, keep them: Search-R1's code takes an empty answer.
    """
    return any(_compared(answer) == _compared(line) for line in reference.splitlines() or [""])


def _compared(text: str) -> str:
    return squad_normalize(text) or " ".join(text.lower().split())
