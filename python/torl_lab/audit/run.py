"""Audit a run, finished or in progress, from its own files.

    torl verify RUN [--logprob-samples 64]
    torl verify RUN --receipt [--head HASH]

`docs/algorithms.md` says what each check compares. Of fine-tuning, there are the checks of evaluations and checkpoints,
and:

- files: the examples of every step
- selection: distinct examples in a step, and no example used twice more often than another
- metrics: token counts from the encoded examples, and learning rates
- logprobs: losses of steps and validations by torch's cross-entropy in float32, with the same weights

Of a file of trajectories, of torl or of another library (`torl verify FILE`): structure, groups, arrays against turns,
and a second grading of boxed answers. The other checks say what they lack.

Nothing that the run's files name is imported, started or connected to without --trust: what that leaves out is listed.

Exit status: 0 without a mismatch, 1 with mismatches, 2 if the run cannot be read, 3 without a mismatch but with
something that was not checked for lack of trust. The last line of the output is JSON.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from torl.base.errors import ConfigError, RecordError
from torl.base.trust import NOT_TRUSTED, add_trust_option, import_from_here, reading
from torl.commands.command import reports_errors
from torl.components.rewards import Reward
from torl.run.config import FinetuneConfig, TrainConfig
from torl.run.display.console import Console, ProgressLine
from torl.run.records.run_directory import has_only_started
from torl_lab.audit.checkpoints import ReplayedState, check_checkpoints
from torl_lab.audit.checks import COLUMNS, Check, started_reward
from torl_lab.audit.evaluations import Checks, EvaluationAudit
from torl_lab.audit.finetuning import check_finetuning
from torl_lab.audit.history import RunHistory
from torl_lab.audit.metrics import check_summary
from torl_lab.audit.one_file import verify_file
from torl_lab.audit.problem_sets import ProblemOrder
from torl_lab.audit.receipt import repeat_if_resumed, verify_receipt
from torl_lab.audit.receipt_records import check_records
from torl_lab.audit.sampled import SampledTrajectories
from torl_lab.audit.starts import check_starts
from torl_lab.audit.steps import StepAudit


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of an audit.

    Attributes:
        checks: Results of the checks.
        not_trusted: A line for each thing that the run's files name and that was left out for lack of trust.
    """

    checks: tuple[Check, ...]
    not_trusted: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether no check found a mismatch, and nothing was left out for lack of trust."""
        return not self.not_trusted and not any(check.wrong for check in self.checks)

    def __getitem__(self, name: str) -> Check:
        """Return the check with the given name."""
        return next(check for check in self.checks if check.name == name)

    def __str__(self) -> str:
        left_out = [f"not checked: {line}" for line in self.not_trusted]
        return "\n".join([COLUMNS, *map(str, self.checks), *left_out])


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser(prog="torl verify", description="Audit a run from its own files.")
    parser.add_argument("run", metavar="RUN", type=Path, help="run directory, or file of trajectories")
    parser.add_argument(
        "--logprob-samples",
        metavar="COUNT",
        type=int,
        default=64,
        help="trajectories of each policy version whose log-probabilities are recomputed (default: %(default)s)",
    )
    parser.add_argument(
        "--receipt", action="store_true", help="check the receipt, every recorded byte, and a hundredth of the calls"
    )
    parser.add_argument("--head", metavar="HASH", help="hash of the receipt, as printed at the end of the run")
    add_trust_option(parser)
    options = parser.parse_args(arguments)
    if options.trust:
        import_from_here()
    if options.receipt:
        receipt = asyncio.run(verify_receipt(options.run, options.head, trust=options.trust))
        print(receipt)
        return 1 if receipt.wrong else NOT_TRUSTED if receipt.not_trusted else 0
    audit = asyncio.run(verify_run(options.run, options.logprob_samples, trust=options.trust))
    print(audit)
    print(json.dumps({check.name: asdict(check) for check in audit.checks}), flush=True)
    return 0 if audit.ok else 1 if any(check.wrong for check in audit.checks) else NOT_TRUSTED


async def verify_run(directory: Path, logprob_samples: int = 64, *, trust: bool = False) -> Audit:
    """Run all checks of a run without blocking the event loop. Progress goes to standard error.

    Args:
        directory: Run directory, also of a run in progress, or file of trajectories.
        logprob_samples: Number of trajectories per policy version whose log-probabilities are recomputed.
        trust: Whether to import, start and connect to what the run's files name.

    Raises:
        TorlError: A configuration or the model cannot be read, the reward failed, or `logprob_samples` is negative.
        NotTrustedError: The run cannot be checked without trust: its format is a custom one.
    """

    async def attempt() -> Audit:
        with reading(trust=trust) as opened:
            audit = await _verify_run(directory, logprob_samples)
            return replace(audit, not_trusted=tuple(opened.lines()))

    if await asyncio.to_thread(directory.is_file):
        return await attempt()
    return await repeat_if_resumed(directory, attempt, lambda audit: not any(check.wrong for check in audit.checks))


async def _verify_run(directory: Path, logprob_samples: int) -> Audit:
    if logprob_samples < 0:
        raise ConfigError(f"logprob_samples = {logprob_samples} must be at least 0")
    if await asyncio.to_thread(directory.is_file):
        return Audit(tuple(await asyncio.to_thread(verify_file, directory)))
    if await asyncio.to_thread(has_only_started, directory):
        raise RecordError(f"{directory} has no records: the run has only started")
    checks = Checks()
    history = await asyncio.to_thread(RunHistory.read, directory, checks.metrics)
    sampled = SampledTrajectories(history, logprob_samples)
    with Console(sys.stderr) as console:
        replayed = await _check_records(history, checks, sampled, console)
        history.check_files(checks.files)
        # The files of checkpoints have another check.
        await asyncio.to_thread(check_records, checks.receipt, directory, hash_checkpoints=False)
        await asyncio.to_thread(check_starts, checks.receipt, history)
        await asyncio.to_thread(check_summary, checks.metrics, history)
        await asyncio.to_thread(check_checkpoints, checks.checkpoints, history, replayed)
        with console.progress("comparing log-probabilities", sampled.count) as progress:
            await asyncio.to_thread(sampled.check, checks.logprobs, checks.checkpoints, progress.advance)
    return Audit(tuple(vars(checks).values()))


async def _check_records(
    history: RunHistory, checks: Checks, sampled: SampledTrajectories, console: Console
) -> ReplayedState:
    """Check all steps and evaluations, collect samples of them, and return the state that the steps lead to."""
    order = ProblemOrder(checks.prompts)
    replayed = ReplayedState(order.positions, order.problems)
    with console.progress("checking steps and evaluations", history.steps + len(history.evaluations())) as progress:
        for _, config in history.configs:
            steps = [step for step in range(history.steps) if history.start_config_at(step) is config]
            evaluations = [step for step in history.evaluations() if history.start_config_at(step) is config]
            if not steps and not evaluations:
                continue  # the run was started again before a step was played with this configuration
            if isinstance(config, FinetuneConfig):
                await asyncio.to_thread(
                    check_finetuning, config, history, checks, steps, evaluations, replayed.positions
                )
                progress.advance(len(steps))
            if not config.plays_episodes:
                continue
            audit = await asyncio.to_thread(EvaluationAudit.open, config, history, checks, sampled)
            async with started_reward(config.reward, config, history.directory) as reward:
                if isinstance(config, TrainConfig) and steps:
                    step_audit = await asyncio.to_thread(
                        StepAudit.open, config, order, audit, steps[0], replayed.critic_steps
                    )
                    for step in steps:
                        await step_audit.check_step(step, reward)
                        progress.advance()
                if config.evaluation.reward is None:
                    await _check_evaluations(audit, evaluations, reward, progress)
            if config.evaluation.reward is not None:
                async with started_reward(config.evaluation.reward, config, history.directory) as reward:
                    await _check_evaluations(audit, evaluations, reward, progress)
    return replayed


async def _check_evaluations(
    audit: EvaluationAudit, steps: Sequence[int], reward: Reward, progress: ProgressLine
) -> None:
    for step in steps:
        await audit.check_evaluation(step, reward)
        progress.advance()
