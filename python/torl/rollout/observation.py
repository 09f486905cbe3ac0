"""What stands behind a turn, as tokens."""

import asyncio
from collections.abc import Sequence

from torl.formats import Format, require_chat_format
from torl.text.tokenizer import PlainTextEncoder
from torl.types import Outcome, Turn

LONG_OBSERVATION = 2000
"""Characters from which on a thread encodes: some milliseconds of work."""


async def observation_tokens(
    format: Format,
    encoder: PlainTextEncoder,
    turn: Turn,
    outcomes: Sequence[Outcome],
    overshoot: bytes,
    said: Sequence[str],
) -> tuple[list[int], str]:
    """The observation as tokens, and as the text that these have. A long one keeps no other episode waiting.

    Args:
        format: of the run.
        encoder: of the model.
        turn: that is answered.
        outcomes: of its calls.
        overshoot: what the model has sampled of the observation already.
        said: by the environment, where there is one.
    """

    def encode() -> tuple[list[int], str]:
        if said:
            return encoder.encode_observation(require_chat_format(format).render_reply(turn, outcomes, said))
        return encoder.encode_observation(format.render_observation(turn, outcomes, overshoot, encoder.fits))

    length = sum(len(each.text) + len(str(each.details.get("traceback", ""))) for each in outcomes)
    length += sum(map(len, said))
    return encode() if length < LONG_OBSERVATION else await asyncio.to_thread(encode)
