"""Playing problems into a file of groups, from wherever an earlier command was killed."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

from torl.errors import ToolUnavailableError
from torl.report.console import Console
from torl.rollout.episode import EpisodePlayer
from torl.rollout.grading import score_group
from torl.rollout.group_file import GroupFile
from torl.rollout.scheduler import play_groups
from torl.rollout.startup import Rollouts
from torl.types import Prompt


async def play_to_file(
    rollouts: Rollouts,
    prompts: Sequence[Prompt],
    output: GroupFile,
    console: Console,
    *,
    name: str,
    series: int | str,
    samples: int,
    player: EpisodePlayer | None = None,
) -> None:
    """Play and grade these prompts, and add each group to the file as it ends.

    Args:
        rollouts: the running parts.
        prompts: whose groups the file does not hold.
        output: the file.
        console: says how far it is.
        name: of what is played, for the console.
        series: what the episodes belong to; their seeds are made of it.
        samples: trajectories for each prompt.
        player: with settings of its own; that of the parts if none is given.

    Raises:
        ToolUnavailableError: tools spoilt episodes; the groups that lack one are not in the file.
        EngineError, SandboxError, RewardError: the host is broken.
        RecordError: the file cannot be written.
    """
    spoilt: list[ToolUnavailableError] = []
    with console.progress(name, len(prompts) * samples) as wait:
        groups = play_groups(
            player or rollouts.player,
            prompts,
            batch_id=series,
            samples_per_prompt=samples,
            on_episode=wait.advance,
            on_failure=spoilt.append,
        )
        async with aclosing(groups):
            async for group in groups:
                if len(group.trajectories) < samples:
                    continue
                scored = await score_group(rollouts.reward, group, rollouts.player.open_calls)
                await asyncio.to_thread(output.append, scored)
    if spoilt:
        raise ToolUnavailableError(
            f"{name}: tools spoilt {len(spoilt)} episodes; run the command again to play their problems. "
            f"The last: {spoilt[-1]}"
        ) from spoilt[-1]
