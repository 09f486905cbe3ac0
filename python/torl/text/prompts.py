"""From problems to the tokens the engine is given."""

import functools
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from torl.errors import DataError
from torl.text.prompt_encoder import PromptEncoder, TextTokenizer, ToolSchemas
from torl.text.reward_goal import RewardGoal
from torl.text.templates import PromptTemplate
from torl.types import Markup, Problem, Prompt


@dataclass(frozen=True, slots=True)
class EncodedPrompts:
    """The prompts of a problem set that fit, in its order, and the ids of the problems that did not."""

    prompts: tuple[Prompt, ...]
    too_long: tuple[str, ...]


def encode_prompts(
    problems: Iterable[Problem],
    tokenizer: TextTokenizer,
    template: PromptTemplate,
    max_prompt_tokens: int,
    tools: Callable[[], ToolSchemas] = tuple,
    goal: RewardGoal | None = None,
) -> EncodedPrompts:
    """Put each problem into the template and encode it; prompts over `max_prompt_tokens` are left out.

    `tools` gives what a chat template is told of the tools; it is asked where the template is the model's own. With a
    `goal` every prompt says which reward is wanted.

    Raises:
        DataError: no prompt fits; a text is none (half of a surrogate pair); the tokenizer ends every text with its
            end-of-sequence token, after which a model has nothing to say.
    """
    too_long: list[str] = []
    stream = PromptStream(lambda: problems, tokenizer, template, max_prompt_tokens, tools, too_long.append, goal)
    prompts = tuple(stream)
    return EncodedPrompts(prompts, tuple(too_long))


class PromptStream:
    """The prompts of problems, encoded one after the other each time that they are read, and none kept."""

    def __init__(
        self,
        problems: Callable[[], Iterable[Problem]],
        tokenizer: TextTokenizer,
        template: PromptTemplate,
        max_prompt_tokens: int,
        tools: Callable[[], ToolSchemas] = tuple,
        on_drop: Callable[[str], object] = lambda _: None,
        goal: RewardGoal | None = None,
    ) -> None:
        """Read nothing yet.

        Args:
            problems: gives the problems from the first on, each time that it is called.
            tokenizer: see `encode_prompts`.
            template: see there.
            max_prompt_tokens: see there.
            tools: see there.
            on_drop: is told the id of each problem that is left out.
            goal: see `encode_prompts`.
        """
        self._goal = goal
        self._problems, self._drop = problems, on_drop
        self._tools = functools.cache(tools)
        self._encoder, self._template, self._max_prompt_tokens = PromptEncoder(tokenizer), template, max_prompt_tokens
        self._kept = self._dropped = 0
        self._ended = False

    def __iter__(self) -> Iterator[Prompt]:
        """The prompts that fit; raises `DataError` as `encode_prompts`."""
        self._kept = self._dropped = 0
        self._ended = False
        shortest = sys.maxsize
        for problem in self._problems():
            prompt = self._prompt(problem)
            length = max(len(prompt.token_ids), len(prompt.low_reward_token_ids))
            shortest = min(shortest, length)
            if length > self._max_prompt_tokens:
                self._dropped += 1
                self._drop(problem.id)
            else:
                self._kept += 1
                yield prompt
        self._ended = True
        if not self._kept:
            raise DataError(
                f"none of the {self._dropped} prompts has at most {self._max_prompt_tokens} tokens (max_prompt_tokens)"
                + (f"; the shortest has {shortest}, with what it says of tools" if self._dropped else "")
            )

    def _prompt(self, problem: Problem) -> Prompt:
        goal = self._goal
        if goal is None or goal.high_fraction is None:
            return Prompt(problem, self._token_ids(problem))
        high, low = (self._token_ids(problem, f"{wanted}\n") for wanted in (goal.high, goal.low))
        return Prompt(problem, high, low, goal.high_fraction)

    def _token_ids(self, problem: Problem, before: str = "") -> tuple[int, ...]:
        held: list[str] = []
        plain = self._encoder.spelled.escape_problem(problem, held)
        told = self._template(replace(plain, question=before + plain.question) if before else plain)
        tools = () if isinstance(told, str | Markup) else self._tools()
        token_ids = self._encoder.encode(problem.id, told, held, tools)
        if token_ids and token_ids[-1] == self._encoder.tokenizer.eos_token_id:
            raise DataError(
                f"problem {problem.id}: the tokenizer ends prompts with its end-of-sequence token; "
                "turn that off in tokenizer_config.json (add_eos_token)"
            )
        return token_ids

    def __str__(self) -> str:
        """How many were read since reading began last: "12 problems, 1 too long and dropped"."""
        dropped = f", {self._dropped} too long and dropped" if self._dropped else ""
        return f"{self._kept} problems{'' if self._ended else ' read so far'}{dropped}"
