"""What tools and environments say, as text that every tokenizer takes."""

from collections.abc import Sequence
from dataclasses import replace

from torl.text.templates import Messages
from torl.types import Outcome


def replace_surrogates(text: str) -> str:
    """`text` with U+FFFD for each half of a surrogate pair: JSON may hold one, and so may the name of a file."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def clean_outcome(outcome: Outcome) -> Outcome:
    """The outcome with all that a format may show of it whole."""
    details = {
        name: replace_surrogates(said) if isinstance(said, str) else said for name, said in outcome.details.items()
    }
    error = None if outcome.error is None else replace_surrogates(outcome.error)
    return replace(outcome, text=replace_surrogates(outcome.text), error=error, details=details)


def clean_messages(messages: Messages) -> Sequence[dict[str, str]]:
    """The messages with whole texts."""
    return [{name: replace_surrogates(said) for name, said in message.items()} for message in messages]
