"""Encode the observation that follows a turn."""

import asyncio
from collections.abc import Sequence

from torl.base.types import ObservationText, Outcome, Turn
from torl.components.formats import Format, require_chat_format
from torl.components.formats.observation import render_observation
from torl.components.text.tokenizer import PlainTextEncoder

LONG_OBSERVATION = 2000
"""Number of characters from which an observation is encoded in a thread: a few milliseconds of work."""


def observation_text(
    format: Format,
    encoder: PlainTextEncoder,
    turn: Turn,
    outcomes: Sequence[Outcome],
    overshoot: bytes = b"",
    user_messages: Sequence[str] = (),
) -> ObservationText:
    """Return the text that torl splices in after a turn.

    Args:
        format: Format of the run.
        encoder: Encoder of the model.
        turn: Turn that the observation follows.
        outcomes: Outcomes of its calls, in order.
        overshoot: Bytes of the turn's last token after the end of the turn.
        user_messages: Messages of the environment, which need the format of a chat model.
    """
    if not user_messages:
        return render_observation(format, turn, outcomes, overshoot, encoder.fits)
    return require_chat_format(format).render_reply(turn, outcomes, user_messages)


async def observation_tokens(
    format: Format,
    encoder: PlainTextEncoder,
    turn: Turn,
    outcomes: Sequence[Outcome],
    overshoot: bytes,
    user_messages: Sequence[str],
) -> tuple[list[int], str]:
    """Return the observation as tokens, and their text. A long one is encoded in a thread, so that no episode waits.

    The arguments are those of `observation_text`.
    """

    def encode() -> tuple[list[int], str]:
        return encoder.encode_observation(observation_text(format, encoder, turn, outcomes, overshoot, user_messages))

    length = sum(len(each.text) + len(str(each.details.get("traceback", ""))) for each in outcomes)
    length += sum(map(len, user_messages))
    return encode() if length < LONG_OBSERVATION else await asyncio.to_thread(encode)
