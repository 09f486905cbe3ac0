"""What formats share whose code stands between tags, and runs when the tag closes."""

from collections.abc import Callable, Sequence
from typing import ClassVar

from torl._core import StopCondition
from torl.formats.base import Format, strip_overshoot
from torl.formats.fenced import NO_CODE, run_block
from torl.formats.observation import ErrorStyle, render_outcome, truncate_middle
from torl.options import PositiveInt, Section
from torl.types import MalformedCall, Outcome, ToolRequest, Turn


class TaggedOptions(Section):
    """Options of the formats whose code stands between tags."""

    error_style: ErrorStyle = "traceback"
    """What the model sees of an error: its last line, what was printed before it (the last line if nothing was), the
    traceback, the traceback without names of files and carets, the last line in <error> tags, or nothing."""
    max_observation_characters: PositiveInt | None = None
    """Longer results keep their head and tail, half of this each, with "..." between; whole when unset."""


class TaggedFormat(Format):
    """Code between `tags` runs as soon as its tag closes; the result comes back between `result_tags`."""

    tags: ClassVar[tuple[str, str]]
    """What opens and closes the code."""
    result_tags: ClassVar[tuple[str, str]]
    """What stands around the result."""

    def __init__(self, options: TaggedOptions | None = None) -> None:
        """Take the options of a configuration, or the defaults."""
        self.options = options or TaggedOptions()

    def stop_condition(self) -> StopCondition:
        """The tag that closes the code."""
        opening, closing = self.tags
        return StopCondition.tagged(opening.encode(), closing.encode(), ends_turn=True)

    def parse_calls(self, turn: Turn) -> Sequence[ToolRequest | MalformedCall]:
        """The code that ended the turn."""
        return [self.speculative_call(turn.blocks[-1].code) if turn.blocks else NO_CODE]

    def speculative_call(self, code: str) -> ToolRequest:
        """The code begins to run before the turn has reached the controller."""
        return run_block(self.code_in(code))

    def code_in(self, text: str) -> str:
        """The code of what stands between the tags."""
        return text.strip()

    def render_observation(
        self, turn: Turn, outcomes: Sequence[Outcome], overshoot: bytes, fits_tokens: Callable[[str, int], bool]
    ) -> str:
        """The result between its tags, each on a line; a line break that the closing tag's token holds stays one."""
        result = render_outcome(outcomes[0], self.options.error_style, max_characters=None).strip()
        if self.options.max_observation_characters is not None:
            result = truncate_middle(result, self.options.max_observation_characters)
        opening, closing = self.result_tags
        return strip_overshoot(overshoot, f"\n{opening}\n{result}\n{closing}\n")
