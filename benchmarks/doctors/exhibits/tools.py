"""Bugs of tools and of the episodes that call them."""

import zlib
from typing import Any

from benchmarks.doctors.exhibits.catalog import exhibit
from torl.base.errors import ToolUnavailableError
from torl.base.types import Outcome, OutcomeStatus, Trajectory

_CALL = "torl.components.tools.python:_FreshSession.call"
_SLOW = 70  # response tokens from which an episode counts as late


def _share(arguments: Any, seed: int) -> float:
    """Return a number in [0, 1) that depends on the call alone."""
    return zlib.crc32(f"{seed} {arguments.get('code')}".encode()) / 2**32


@exhibit(
    _CALL,
    thread="allenai/open-instruct!1887",
    says="Deaths of sandboxes gave zero rewards for 5 to 15 % of the episodes and biased the advantages of groups.",
    truth=("graded-crash",),
)
def graded_deaths(original: Any) -> Any:
    """Return an outcome for a call whose sandbox died, so that its episode is graded."""

    async def call(self: Any, arguments: Any) -> Outcome:
        outcome: Outcome = await original(self, arguments)
        if _share(arguments, self.seed) > 0.15:
            return outcome
        return Outcome(OutcomeStatus.CRASH, "SandboxDied", "SandboxDied", outcome.details)

    return call


@exhibit(
    _CALL,
    thread="GAIR-NLP/ToRL#27",
    says="Three layers of error handling hid a sandbox that was not there: 61.7 % of the executions had no output.",
    truth=("receipt",),
)
def hidden_failures(original: Any) -> Any:
    """Return an empty success for most calls."""

    async def call(self: Any, arguments: Any) -> Outcome:
        outcome: Outcome = await original(self, arguments)
        lost = _share(arguments, self.seed) < 0.617
        return Outcome(OutcomeStatus.OK, "", None, outcome.details | {"stdout": ""}) if lost else outcome

    return call


@exhibit(
    _CALL,
    thread="modelscope/ms-swift!10174",
    says="Results of parallel calls were put in the order of their arrival, so that calls had the results of others.",
    truth=("receipt",),
)
def exchanged_results(original: Any) -> Any:
    """Answer each call with the result of the call that ended before."""
    last: list[Outcome] = []

    async def call(self: Any, arguments: Any) -> Outcome:
        outcome: Outcome = await original(self, arguments)
        last.append(outcome)
        return last.pop(0) if len(last) > 1 else outcome

    return call


@exhibit(
    "torl.rollout.episode:EpisodePlayer.play",
    thread="thinking-machines-lab/tinker-cookbook!822",
    says="Trajectories that took too long were discarded, so that slow problems were hardly ever trained on.",
    truth=("discard-bias", "lost-episodes"),
    settings={"rollout.max_failed_fraction": 0.9},
)
def discarded_slow(original: Any) -> Any:
    """Discard long episodes."""

    async def play(self: Any, prompt: Any, *, batch_id: int | str, sample: int) -> Trajectory:
        trajectory: Trajectory = await original(self, prompt, batch_id=batch_id, sample=sample)
        if isinstance(batch_id, int) and len(trajectory) > _SLOW:
            raise ToolUnavailableError("the episode is older than the policy allows")
        return trajectory

    return play
