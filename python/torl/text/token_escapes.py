"""Control tokens that a text of others spells: they are held out of it while a template is filled, and stay text."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torl.types import Markup, Problem

# Stand around the number of what is put back when the template has been filled; of the private use area.
_BEFORE, _BEHIND = "\ue000", "\ue001"
_HELD = re.compile(f"{_BEFORE}(\\d+){_BEHIND}")


class ControlTokenEscaper:
    """The tokens that were added to a vocabulary, as texts spell them."""

    def __init__(self, tokenizer: Any) -> None:
        """Take those of a Hugging Face tokenizer; one without a fast backend has none."""
        backend = getattr(tokenizer, "backend_tokenizer", None)
        added = {} if backend is None else backend.get_added_tokens_decoder()
        spelled = {token.content for token in added.values()} | {_BEFORE, _BEHIND}
        self._starts = {token[:2] for token in spelled}  # are found sooner than all of them
        # The longest first: one may begin with another.
        self._spelled = re.compile("|".join(map(re.escape, sorted(spelled, key=lambda each: (-len(each), each)))))

    def escape(self, value: Any, escaped: list[str]) -> Any:
        """The value with a number in the place of each token that its texts spell; these are appended to `held`.

        Words that are the keys of a mapping are left: templates ask for them.
        """
        if isinstance(value, str):
            if not any(start in value for start in self._starts):
                return value
            return self._spelled.sub(lambda found: _number(found[0], escaped), value)
        if isinstance(value, Mapping):
            return {
                key if not isinstance(key, str) or key.isidentifier() else self.escape(key, escaped): self.escape(
                    member, escaped
                )
                for key, member in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.escape(member, escaped) for member in value]
        return value

    def escape_problem(self, problem: Problem, escaped: list[str]) -> Problem:
        """The problem with numbers in the place of what its texts spell; itself where they spell nothing."""
        before = len(escaped)
        question, answer, metadata = self.escape((problem.question, problem.answer, problem.metadata), escaped)
        return (
            problem if len(escaped) == before else replace(problem, question=question, answer=answer, metadata=metadata)
        )


def unescape(text: str, escaped: Sequence[str]) -> list[str | Markup]:
    """What a template made of values with numbers in them: its own texts are markup, what was held is text."""
    pieces = _HELD.split(text)
    return [escaped[int(piece)] if place % 2 else Markup(piece) for place, piece in enumerate(pieces)]


def _number(token: str, escaped: list[str]) -> str:
    escaped.append(token)
    return f"{_BEFORE}{len(escaped) - 1}{_BEHIND}"
