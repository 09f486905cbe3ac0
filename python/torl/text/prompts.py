"""From problems to the tokens the engine is given."""

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

from torl.errors import DataError
from torl.text.chat_templates import Conversation
from torl.text.reward_goal import RewardGoal
from torl.text.templates import PromptTemplate
from torl.types import Problem, Prompt

ToolSchemas: TypeAlias = Sequence[Mapping[str, Any]]
"""What a chat template is told of each tool: a "function" with its name, description and parameters."""


class TextTokenizer(Protocol):
    """What is needed of a tokenizer; every Hugging Face tokenizer has it."""

    eos_token_id: Any

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`, with the special tokens the model expects at the start of a document."""
        ...

    def apply_chat_template(self, conversation: Any, /, **options: Any) -> Any:
        """Token ids of a conversation, where the tokenizer has a chat template."""
        ...


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
        drop: Callable[[str], object] = lambda _: None,
        goal: RewardGoal | None = None,
    ) -> None:
        """Read nothing yet.

        Args:
            problems: gives the problems from the first on, each time that it is called.
            tokenizer: see `encode_prompts`.
            template: see there.
            max_prompt_tokens: see there.
            tools: see there.
            drop: is told the id of each problem that is left out.
            goal: see `encode_prompts`.
        """
        self._goal = goal
        self._problems, self._drop = problems, drop
        self._tools = functools.cache(tools)
        self._tokenizer, self._template, self._max_prompt_tokens = tokenizer, template, max_prompt_tokens
        self._kept = self._dropped = 0
        self._ended = False

    def __iter__(self) -> Iterator[Prompt]:
        """The prompts that fit; raises `DataError` as `encode_prompts`."""
        self._kept = self._dropped = 0
        self._ended = False
        for problem in self._problems():
            prompt = self._prompt(problem)
            if max(len(prompt.token_ids), len(prompt.low_reward_token_ids)) > self._max_prompt_tokens:
                self._dropped += 1
                self._drop(problem.id)
            else:
                self._kept += 1
                yield prompt
        self._ended = True
        if not self._kept:
            raise DataError(
                f"none of the {self._dropped} prompts has at most {self._max_prompt_tokens} tokens (max_prompt_tokens)"
            )

    def _prompt(self, problem: Problem) -> Prompt:
        goal = self._goal
        if goal is None or goal.high_share is None:
            return Prompt(problem, self._token_ids(problem))
        asked = [replace(problem, question=f"{wanted}\n{problem.question}") for wanted in (goal.high, goal.low)]
        high, low = map(self._token_ids, asked)
        return Prompt(problem, high, low, goal.high_share)

    def _token_ids(self, problem: Problem) -> tuple[int, ...]:
        prompt = self._template(problem)
        if isinstance(prompt, str):
            token_ids = _encode(self._tokenizer, problem, prompt)
        else:
            conversation = prompt if isinstance(prompt, Conversation) else Conversation(prompt)
            token_ids = encode_conversation(self._tokenizer, problem, conversation, self._tools())
        if token_ids and token_ids[-1] == self._tokenizer.eos_token_id:
            raise DataError(
                f"problem {problem.id}: the tokenizer ends prompts with its end-of-sequence token; "
                "turn that off in tokenizer_config.json (add_eos_token)"
            )
        return token_ids

    def __str__(self) -> str:
        """How many were read since reading began last: "12 problems, 1 too long and dropped"."""
        dropped = f", {self._dropped} too long and dropped" if self._dropped else ""
        return f"{self._kept} problems{'' if self._ended else ' read so far'}{dropped}"


def encode_conversation(
    tokenizer: TextTokenizer, problem: Problem, conversation: Conversation, tools: ToolSchemas
) -> tuple[int, ...]:
    """The ids of a problem's conversation in the model's chat template, where the model answers next.

    Raises:
        DataError: there is no chat template, or it refuses them.
    """
    from jinja2 import TemplateError

    template = getattr(tokenizer, "chat_template", None)
    if not template:
        raise DataError(
            "the model's tokenizer has no chat template, which data.template asks for: put the chat_template.jinja of "
            'its family beside the tokenizer, or choose a template with a text of its own, "chatml" for example'
        )
    if unknown := [name for name in conversation.variables if not re.search(rf"\b{re.escape(name)}\b", str(template))]:
        raise DataError(f"the model's chat template has no variable {unknown[0]!r} (data.template.variables)")
    options = {"tools": [*tools] or None, "add_generation_prompt": True, "return_dict": False}
    messages = [dict(message) for message in conversation.messages]
    try:
        return tuple(tokenizer.apply_chat_template(messages, **options, **conversation.variables))
    except (TypeError, UnicodeEncodeError, TemplateError) as error:
        raise DataError(f"problem {problem.id}: the model's chat template refuses it: {error}") from error


def _encode(tokenizer: TextTokenizer, problem: Problem, text: str) -> tuple[int, ...]:
    try:
        return tuple(tokenizer.encode(text))
    except (TypeError, UnicodeEncodeError) as error:
        raise DataError(f"problem {problem.id}: its prompt cannot be encoded: {error}") from error
