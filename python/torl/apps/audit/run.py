"""Audit a run, finished or running, from its own files.

    python -m torl.verify RUN [--logprobs 64]

What the records say is worked out again another way, and compared:

- tokens: turns with what was found in them, mask, calls and observations, from the token ids alone; that the text is
  what they decode to, and that an observation is what the format makes of its call's outcome; of agent programs that
  what stands between two turns is what the program said
- versions: that every token was sampled by a policy its step allows, none older than `rollout.max_staleness`
- rewards: by grading again with the run's reward, part by part and turn by turn
- advantages: by the formulas written out, one number at a time
- logprobs: with plain transformers, in float32, from the weights of the version that sampled (the model the run began
  with, and every checkpoint that is still there)

Exit status 0: all of it agrees; 1: something is off; 2: the run cannot be read. The last line is JSON.
"""

import argparse
import asyncio
import json
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from torl.apps.audit.advantages import check_advantages
from torl.apps.audit.agents import agent_mismatch
from torl.apps.audit.check import Check
from torl.apps.audit.logprobs import check_logprobs, has_weights, skip_reason
from torl.apps.audit.rewards import check_rewards
from torl.apps.audit.rules import ReplayContext
from torl.apps.audit.tokens import token_mismatch
from torl.apps.audit.versions import version_mismatch
from torl.component import RunContext
from torl.config import TrainConfig
from torl.config.command_line import load_config
from torl.errors import TorlError
from torl.hub import resolve_model
from torl.records.layout import CONFIG_FILE, training_files
from torl.records.reading import read_trajectories
from torl.records.rows import TrajectoryRecord
from torl.rewards import Reward, make_reward


@dataclass(frozen=True, slots=True)
class Audit:
    """What was compared in a run."""

    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is off."""
        return not any(check.wrong for check in self.checks)

    def __getitem__(self, name: str) -> Check:
        """The check of that name."""
        return next(check for check in self.checks if check.name == name)

    def __str__(self) -> str:
        return "\n".join(map(str, self.checks))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m torl.verify", description="Audit a run from its own files.")
    parser.add_argument("run", metavar="RUN", type=Path, help="directory of a run")
    parser.add_argument(
        "--logprobs", type=int, default=64, help="trajectories of each policy version to recompute logprobs of"
    )
    options = parser.parse_args(arguments)
    try:
        audit = asyncio.run(verify_run(options.run, options.logprobs))
    except TorlError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(audit)
    print(json.dumps({check.name: asdict(check) for check in audit.checks}), flush=True)
    return int(not audit.ok)


async def verify_run(directory: Path, logprobs: int = 64) -> Audit:
    """All checks of a run; the event loop stays free.

    Args:
        directory: of the run, finished or running.
        logprobs: trajectories of each policy version whose logprobs are computed again.

    Raises:
        TorlError: the configuration, the records or the model cannot be read, or the reward does not work.
    """
    config = await asyncio.to_thread(load_config, TrainConfig, directory / CONFIG_FILE)
    model = resolve_model(config.model.path)
    reward = make_reward(config.reward)
    async with _closing(reward):
        _, rules = await asyncio.gather(
            reward.start(RunContext(seed=config.run.seed, directory=directory)),
            asyncio.to_thread(ReplayContext.from_config, config.rollout, model),
        )
        work = _Work(config, rules, directory, logprobs)
        for path in training_files(directory):
            records = await asyncio.to_thread(_read, path)
            # The graders work in processes of their own, beside the thread.
            await asyncio.gather(
                check_rewards(work.rewards, records, reward, config.rollout.max_response_tokens),
                asyncio.to_thread(work.check_step, records),
            )
    await asyncio.to_thread(work.check_logprobs, model)
    return Audit((work.tokens, work.versions, work.rewards, work.advantages, work.logprobs))


def _read(path: Path) -> list[TrajectoryRecord]:
    return list(read_trajectories(path))


@asynccontextmanager
async def _closing(reward: Reward) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await reward.close()


class _Work:
    """The checks of a run, and the trajectories kept for the last of them."""

    def __init__(self, config: TrainConfig, rules: ReplayContext, directory: Path, logprobs: int) -> None:
        self.config = config
        self.rules = rules
        self.directory = directory
        self.tokens, self.versions, self.rewards, self.advantages, self.logprobs = (
            Check(name) for name in ("tokens", "versions", "rewards", "advantages", "logprobs")
        )
        self._wanted = logprobs
        self._by_version: defaultdict[int, list[TrajectoryRecord]] = defaultdict(list)
        self._weights_left: dict[int, bool] = {}

    def check_step(self, records: Sequence[TrajectoryRecord]) -> None:
        """Everything about a step that needs neither graders nor weights."""
        for record in [each for episode in records for each in episode.episode_trajectories]:
            problem = token_mismatch if self.config.rollout.agent is None else agent_mismatch
            self.tokens.add_mismatch(record, problem(record.trajectory, self.rules))
            self.versions.add_mismatch(record, version_mismatch(record, self.config.rollout.max_staleness))
            self._keep(record)
        check_advantages(self.advantages, records, self.config)

    def check_logprobs(self, model: Path) -> None:
        """Compare the log-probabilities of the trajectories that were kept."""
        reason = skip_reason(self.config)
        if reason is not None:
            self.logprobs.note = reason
            return
        check_logprobs(self.logprobs, self.directory, model, self._by_version, self.config)

    def _keep(self, record: TrajectoryRecord) -> None:
        """Keep the first trajectories of each version whose weights are left."""
        for version in {int(version) for version in record.trajectory.policy_versions_T if version >= 0}:
            if version not in self._weights_left:
                self._weights_left[version] = has_weights(self.directory, version)
            if self._weights_left[version] and len(self._by_version[version]) < self._wanted:
                self._by_version[version].append(record)
