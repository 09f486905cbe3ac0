"""Laws of messages that make several calls: of several tools, some broken, some beyond the last, some cut."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any
from unittest.mock import patch

from hypothesis import example, given, settings
from hypothesis import strategies as st

import torl
from builders import asked, group
from chat_models import FAMILIES, ChatModel, message
from torl.base.types import FinishReason, Outcome, OutcomeStatus, ToolRequest
from torl.components.tools import BoundedTool, ToolLimits
from torl.recipes.artist import ArtistReward
from torl.rollout.grading import score_group
from torl.run.records.dynamics import training_dynamics
from torl_lab.audit.tokens import token_mismatch

SEVERAL = [family for family in FAMILIES if family not in ("llama3", "harmony")]
LONGEST = 30  # characters that the tool "echo" may say


class Echo(torl.Tool):
    """Returns its argument; the sooner, the later it is called."""

    description = "Says what it is told."
    parameters: Mapping[str, Any] = {"type": "object"}

    async def call(self, arguments: Mapping[str, Any]) -> Outcome:
        for _ in range(20 - 5 * int(arguments["code"][4])):
            await asyncio.sleep(0)
        return Outcome(OutcomeStatus.OK, arguments["code"])


@cache
def model(family: str) -> ChatModel:
    return ChatModel.of(family)


calls = st.tuples(
    st.sampled_from(["python", "echo", "absent"]),
    st.sampled_from(["", "x" * 40]),
    st.sampled_from([False, False, True]),
)


def expected(
    number: int, call: tuple[str, str, bool], calls_left: int
) -> tuple[ToolRequest | None, OutcomeStatus, str | None, str | None]:
    """The request of a call that is made, its status and error, and its text where a tool gave one."""
    tool, more, broken = call
    code = f"call{number}{more}"
    if broken:
        return None, OutcomeStatus.ERROR, "InvalidJSON", None
    if number >= calls_left:
        return None, OutcomeStatus.ERROR, "TooManyCalls", None
    request = ToolRequest(tool, {"code": code})
    if tool == "absent":
        return request, OutcomeStatus.ERROR, "UnknownTool", None
    text = code if len(code) <= LONGEST else f"{code[:LONGEST]}..."
    return request, OutcomeStatus.OK, None, f"{code}\n" if tool == "python" else text


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(FAMILIES),
    st.lists(calls, min_size=1, max_size=4),
    st.integers(1, 4),
    st.sampled_from([1, 1, 1, 0.3, 0.7, 0.95]),
    st.booleans(),
)
@example("kimi", [("echo", "", False), ("python", "", True), ("echo", "", False)], 2, 1, True)
def test_every_call_of_a_message_has_its_own_outcome_in_its_place(
    family: str, written: Sequence[tuple[str, str, bool]], calls_left: int, share: float, early: bool
) -> None:
    playing = model(family)
    written = written if family in SEVERAL else written[:1]
    texts = []
    for number, (tool, more, broken) in enumerate(written):
        text = message(family, f"call{number}{more}", said="", tool=tool).removesuffix(playing.end)
        texts.append(text.replace('"}', '"') if broken else text)
    said = "".join(texts) + playing.end
    length = len(playing.ids(said))
    limit = 4000 if share == 1 else int(length * share)
    player = playing.player([said, "."], calls=calls_left, limit=limit, speculative_execution=early)
    player.tools = {**player.tools, "echo": BoundedTool("echo", Echo(), ToolLimits())}
    with patch("torl.components.tools.wrappers.MAX_RESULT_CHARACTERS", LONGEST):
        played = asyncio.run(player.play(asked(token_ids=playing.ids("Q\n")), batch_id=0, sample=0))
    assert token_mismatch(played, playing.rules(calls=calls_left, limit=limit)) is None
    if limit < length:
        assert (played.finish_reason, played.tool_calls) == (FinishReason.LENGTH, ())
        return

    outcomes = [expected(number, call, calls_left) for number, call in enumerate(written)]
    made = played.tool_calls
    assert [(call.request, call.outcome.status, call.outcome.error) for call in made] == [each[:3] for each in outcomes]
    assert all(text in (None, call.outcome.text) for call, (*_, text) in zip(made, outcomes, strict=True))
    assert len({(call.start, call.stop, call.observation) for call in made}) == 1
    outputs = [f"call{number}" for number, (*_, text) in enumerate(outcomes) if text is not None]
    places = [made[0].observation.index(text) for text in outputs]
    assert places == sorted(places)

    (member,) = asyncio.run(score_group(ArtistReward(), group(played))).members
    assert member.grade.parts["tool"] == sum(text is not None for *_, text in outcomes) / len(outcomes)
    metrics = training_dynamics([asyncio.run(score_group(ArtistReward(), group(played)))])
    ran = [request for request, *_ in outcomes if request is not None]
    assert metrics["tool/unexecuted_calls"] == (len(outcomes) - len(ran)) / len(outcomes)
    assert ("tool/pass_ratio" in metrics) is bool(ran)
