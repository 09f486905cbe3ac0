"""From problems to the token ids of prompts."""

import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Any

from torl.base.errors import DataError
from torl.base.types import Markup, Problem, Prompt
from torl.base.types.problems import SOLUTIONS, TESTS
from torl.components.text.prompt_encoder import PromptEncoder, TextTokenizer, ToolSchemas
from torl.components.text.sources import SourceDigest, UnreadFields, WatchedFields
from torl.components.text.templates import PromptTemplate, PromptText


@dataclass(frozen=True, slots=True)
class EncodedPrompts:
    """The prompts of a problem set."""

    prompts: tuple[Prompt, ...]
    """Prompts within the limit, in the order of the problems."""
    too_long: tuple[str, ...]
    """Ids of the problems whose prompts are too long."""
    fields: UnreadFields = field(default_factory=UnreadFields)
    """Metadata of the problems that the template does not read."""
    source: Mapping[str, Any] = field(default_factory=dict)
    """Hash of the problems that were read (`SourceDigest.entry`)."""


def encode_prompts(
    problems: Iterable[Problem],
    tokenizer: TextTokenizer,
    template: PromptTemplate,
    max_prompt_tokens: int,
    tools: Callable[[], ToolSchemas] = tuple,
) -> EncodedPrompts:
    """Put each problem into the template and encode it. Prompts over `max_prompt_tokens` are left out.

    `tools` returns the tools for a chat template; it is called only if the template is the model's own.

    Raises:
        DataError: No prompt fits, a text has half of a surrogate pair, or the tokenizer ends every text with its
            end-of-sequence token, after which a model generates nothing.
    """
    too_long: list[str] = []
    stream = PromptStream(lambda: problems, tokenizer, template, max_prompt_tokens, tools, too_long.append)
    prompts = tuple(stream)
    return EncodedPrompts(prompts, tuple(too_long), stream.fields)


class PromptStream:
    """The prompts of problems, encoded one by one on each iteration and not kept."""

    def __init__(
        self,
        problems: Callable[[], Iterable[Problem]],
        tokenizer: TextTokenizer,
        template: PromptTemplate,
        max_prompt_tokens: int,
        tools: Callable[[], ToolSchemas] = tuple,
        on_drop: Callable[[str], object] = lambda _: None,
    ) -> None:
        """Configure the stream.

        Args:
            problems: Function that returns the problems from the first one, on each call.
            tokenizer: Tokenizer of the model.
            template: Prompt template.
            max_prompt_tokens: Limit on the tokens of a prompt.
            tools: Function that returns the tools for a chat template.
            on_drop: Function that is called with the id of each problem that is left out.
        """
        self._problems, self._on_drop = problems, on_drop
        self._tools = functools.cache(tools)
        self._encoder, self._template, self._max_prompt_tokens = PromptEncoder(tokenizer), template, max_prompt_tokens
        self._kept = self._dropped = 0
        self._ended = False
        self.source = SourceDigest()
        """The problems that the last iteration has read."""
        self.fields = UnreadFields(read={TESTS, SOLUTIONS})
        """Metadata of the problems that the template does not read."""

    def __iter__(self) -> Iterator[Prompt]:
        """Yield the prompts that fit; raises `DataError` like `encode_prompts`."""
        self._kept = self._dropped = 0
        self._ended = False
        self.fields = UnreadFields(read={TESTS, SOLUTIONS})
        shortest = sys.maxsize
        source = self.source = SourceDigest()
        for problem in source.problems(self._problems()):
            prompt = self.encode(problem)
            given = {name for name, value in problem.metadata.items() if value is not None}
            self.fields.add(given - self.fields.read)
            length = max(len(each.token_ids) for each in (prompt, *prompt.variants))
            shortest = min(shortest, length)
            if length > self._max_prompt_tokens:
                self._dropped += 1
                self._on_drop(problem.id)
            else:
                self._kept += 1
                yield prompt
        self._ended = True
        if not self._kept:
            raise DataError(
                f"none of the {self._dropped} prompts has at most {self._max_prompt_tokens} tokens (max_prompt_tokens)"
                + (f"; the shortest has {shortest}, descriptions of tools included" if self._dropped else "")
            )

    def find(self, ids: Set[str]) -> dict[str, Prompt]:
        """Return the prompts of the problems with these ids, by id. Unknown ids are left out."""
        found: dict[str, Prompt] = {}
        for problem in self._problems() if ids else ():
            if problem.id in ids and problem.id not in found:
                found[problem.id] = self.encode(problem)
                if len(found) == len(ids):
                    break
        return found

    def encode(self, problem: Problem) -> Prompt:
        """Put a problem into the template and encode it, regardless of the limit.

        Raises:
            DataError: A text has half of a surrogate pair.
        """
        escaped: list[str] = []
        shown = self._encoder.escaper.escape_problem(problem, escaped)
        output = self._template(replace(shown, metadata=WatchedFields(shown.metadata, self.fields.read)))
        if not isinstance(output, Mapping):
            return Prompt(problem, self._token_ids(problem, output, escaped))
        first, *others = (
            Prompt(problem, self._token_ids(problem, each.prompt, escaped), name, each.weight)
            for name, each in output.items()
        )
        return replace(first, variants=tuple(others))

    def _token_ids(self, problem: Problem, prompt: PromptText, escaped: list[str]) -> tuple[int, ...]:
        tools = () if isinstance(prompt, str | Markup) else self._tools()
        token_ids = self._encoder.encode(problem.id, prompt, escaped, tools)
        if token_ids and token_ids[-1] == self._encoder.tokenizer.eos_token_id:
            raise DataError(
                f"problem {problem.id}: its prompt ends with the end-of-sequence token, after which a model generates "
                "nothing: remove the token from data.template, or from the question"
            )
        return token_ids

    def __str__(self) -> str:
        """Return the counts of the last iteration: "12 problems, 1 too long and dropped"."""
        dropped = f", {self._dropped} too long and dropped" if self._dropped else ""
        return f"{self._kept} problem{'s' * (self._kept != 1)}{'' if self._ended else ' read so far'}{dropped}"
