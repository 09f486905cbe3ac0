"""From problems to the tokens the engine is given."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from torl.errors import DataError
from torl.text.templates import PromptTemplate
from torl.types import Problem, Prompt


class TextTokenizer(Protocol):
    """What is needed of a tokenizer; every Hugging Face tokenizer has it."""

    eos_token_id: Any

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`, with the special tokens the model expects at the start of a document."""
        ...


@dataclass(frozen=True, slots=True)
class EncodedPrompts:
    """The prompts of a problem set that fit, in its order, and the ids of the problems that did not."""

    prompts: tuple[Prompt, ...]
    too_long: tuple[str, ...]


def encode_prompts(
    problems: Iterable[Problem], tokenizer: TextTokenizer, template: PromptTemplate, max_prompt_tokens: int
) -> EncodedPrompts:
    """Put each problem into the template and encode it; prompts over `max_prompt_tokens` are left out.

    Raises:
        DataError: no prompt fits; a text is none (half of a surrogate pair); the tokenizer ends every text with its
            end-of-sequence token, after which a model has nothing to say.
    """
    prompts: list[Prompt] = []
    too_long: list[str] = []
    for problem in problems:
        token_ids = _encode(tokenizer, problem, template(problem))
        if token_ids and token_ids[-1] == tokenizer.eos_token_id:
            raise DataError(
                f"problem {problem.id}: the tokenizer ends prompts with its end-of-sequence token; "
                "turn that off in tokenizer_config.json (add_eos_token)"
            )
        if len(token_ids) > max_prompt_tokens:
            too_long.append(problem.id)
        else:
            prompts.append(Prompt(problem, token_ids))
    if not prompts:
        raise DataError(
            f"none of the {len(too_long)} prompts has at most {max_prompt_tokens} tokens (max_prompt_tokens)"
        )
    return EncodedPrompts(tuple(prompts), tuple(too_long))


def _encode(tokenizer: TextTokenizer, problem: Problem, text: str) -> tuple[int, ...]:
    try:
        return tuple(tokenizer.encode(text))
    except (TypeError, UnicodeEncodeError) as error:
        raise DataError(f"problem {problem.id}: its prompt cannot be encoded: {error}") from error
