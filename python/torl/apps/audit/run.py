"""Audit a run, finished or in progress, from its own files.

    torl verify RUN [--logprob-samples 64]

The records are recomputed independently and compared:

- tokens: turns, loss mask, calls and observations from the token ids alone; the decoded text; observations against the
  outcomes of their calls; for agent programs, the tokens between turns against the program's messages
- versions: the policy version of every token against `rollout.max_staleness`
- rewards: second grading with the run's reward, including parts and turn rewards
- advantages: naive implementations of the estimators
- logprobs: plain transformers in float32, with the weights of the initial model and of every checkpoint

Exit status: 0 without a mismatch, 1 with mismatches, 2 if the run cannot be read. The last line of the output is JSON.
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
from torl.apps.audit.checks import Check, check_rewards, version_mismatch
from torl.apps.audit.logprobs import check_logprobs, has_weights
from torl.apps.audit.replay import ReplayContext
from torl.apps.audit.tokens import token_mismatch
from torl.component import RunContext
from torl.config import TrainConfig
from torl.config.loading import load_config
from torl.errors import TorlError
from torl.hub import resolve_model
from torl.records.files import CONFIG_FILE, training_files
from torl.records.reading import read_trajectories
from torl.records.rows import TrajectoryRecord
from torl.rewards import Reward, make_reward
from torl.training.health import inexact_logprobs


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of an audit."""

    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether no check found a mismatch."""
        return not any(check.wrong for check in self.checks)

    def __getitem__(self, name: str) -> Check:
        """Return the check with the given name."""
        return next(check for check in self.checks if check.name == name)

    def __str__(self) -> str:
        return "\n".join(map(str, self.checks))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser(prog="torl verify", description="Audit a run from its own files.")
    parser.add_argument("run", metavar="RUN", type=Path, help="run directory")
    parser.add_argument(
        "--logprob-samples",
        metavar="COUNT",
        type=int,
        default=64,
        help="trajectories of each policy version whose log-probabilities are recomputed (default: %(default)s)",
    )
    options = parser.parse_args(arguments)
    try:
        audit = asyncio.run(verify_run(options.run, options.logprob_samples))
    except TorlError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(audit)
    print(json.dumps({check.name: asdict(check) for check in audit.checks}), flush=True)
    return int(not audit.ok)


async def verify_run(directory: Path, logprob_samples: int = 64) -> Audit:
    """Run all checks of a run without blocking the event loop.

    Args:
        directory: Run directory. The run may still be in progress.
        logprob_samples: Number of trajectories per policy version whose log-probabilities are recomputed.

    Raises:
        TorlError: The configuration, the records or the model cannot be read, or the reward failed.
    """
    config = await asyncio.to_thread(load_config, TrainConfig, directory / CONFIG_FILE)
    model = resolve_model(config.model.path)
    reward = make_reward(config.reward)
    async with _closing(reward):
        _, context = await asyncio.gather(
            reward.start(RunContext(seed=config.run.seed, directory=directory)),
            asyncio.to_thread(ReplayContext.from_config, config.rollout, model),
        )
        work = _AuditRun(config, context, directory, logprob_samples)
        for path in training_files(directory):
            records = await asyncio.to_thread(_read, path)
            # Graders run in worker processes, so both proceed in parallel.
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


class _AuditRun:
    """The checks of a run, and the trajectories that the check of log-probabilities needs."""

    def __init__(self, config: TrainConfig, context: ReplayContext, directory: Path, logprob_samples: int) -> None:
        self.config = config
        self.context = context
        self.directory = directory
        self.tokens, self.versions, self.rewards, self.advantages, self.logprobs = (
            Check(name) for name in ("tokens", "versions", "rewards", "advantages", "logprobs")
        )
        self._logprob_samples = logprob_samples
        self._by_version: defaultdict[int, list[TrajectoryRecord]] = defaultdict(list)
        self._has_weights: dict[int, bool] = {}

    def check_step(self, records: Sequence[TrajectoryRecord]) -> None:
        """Run the checks of a step that need neither graders nor weights."""
        for record in [each for episode in records for each in episode.episode_trajectories]:
            mismatch = token_mismatch if self.config.rollout.agent is None else agent_mismatch
            self.tokens.add_mismatch(record, mismatch(record.trajectory, self.context))
            self.versions.add_mismatch(record, version_mismatch(record, self.config.rollout.max_staleness))
            self._keep(record)
        check_advantages(self.advantages, records, self.config)

    def check_logprobs(self, model: Path) -> None:
        """Check the log-probabilities of the collected trajectories."""
        reason = inexact_logprobs(self.config)
        if reason is not None:
            self.logprobs.note = reason
            return
        check_logprobs(self.logprobs, self.directory, model, self._by_version, self.config)

    def _keep(self, record: TrajectoryRecord) -> None:
        """Collect the first trajectories of each policy version with weights."""
        for version in {int(version) for version in record.trajectory.policy_versions_T if version >= 0}:
            if version not in self._has_weights:
                self._has_weights[version] = has_weights(self.directory, version)
            if self._has_weights[version] and len(self._by_version[version]) < self._logprob_samples:
                self._by_version[version].append(record)
