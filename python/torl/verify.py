"""Audit a run, finished or running, from its own files.

    python -m torl.verify RUN [--logprobs 64]

What the records say is worked out again another way, and compared:

- tokens: turns, mask and observations, from the token ids alone; that the text is what they decode to, and that an
  observation is what the format makes of its code's outcome
- versions: that every token was sampled by a policy its step allows, none older than `rollout.max_staleness`
- rewards: by grading again
- advantages: by the formulas written out, one number at a time
- logprobs: with plain transformers, in float32, from the weights of the version that sampled (the model the run began
  with, and every checkpoint that is still there)

Exit status 0: all of it agrees; 1: something is off; 2: the run cannot be read. The last line is JSON.
"""

import argparse
import asyncio
import json
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torl.config import AlgorithmConfig, RolloutConfig, TrainConfig
from torl.errors import TorlError
from torl.settings import load_config
from torl.types import FinishReason, Outcome, Trajectory

if TYPE_CHECKING:
    from torl._core import Vocabulary
    from torl.metrics.records import TrajectoryRecord
    from torl.rollout.tokenizer import TextEncoder

# How far an engine may be from plain transformers in float32: mean and worst of |difference| over tokens, by the
# engine's precision. Rounding alone reaches a tenth of that; a mask or a position that is off by one, far more.
_LOGPROB_LIMITS = {"float32": (1e-5, 1e-3), "bfloat16": (5e-2, 2.0)}
_REWARD_TOLERANCE = 1e-6
_ADVANTAGE_TOLERANCE = 2e-5  # float32, beside a deviation that may be small
_SHOWN = 3  # examples of each kind


@dataclass(slots=True)
class Check:
    """One thing that was compared."""

    name: str
    compared: int = 0
    wrong: int = 0
    largest: float = 0.0  # difference
    mean: float | None = None
    note: str = ""
    examples: list[str] = field(default_factory=list)

    def add(self, right: bool, where: str, difference: float = 0.0) -> None:
        """Count one comparison."""
        self.compared += 1
        self.largest = max(self.largest, difference)
        if not right:
            self.wrong += 1
            if len(self.examples) < _SHOWN:
                self.examples.append(where)

    def __str__(self) -> str:
        verdict = "not checked" if not self.compared else "ok" if not self.wrong else "WRONG"
        mean = "" if self.mean is None else f", mean {self.mean:.2g}"
        line = (
            f"{self.name:<12} {verdict:<12} {self.wrong} of {self.compared} off, largest gap {self.largest:.2g}{mean}"
        )
        return "\n".join([line + (f" ({self.note})" if self.note else ""), *(f"    {text}" for text in self.examples)])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m torl.verify", description="Audit a run from its own files.")
    parser.add_argument("run", metavar="RUN", type=Path, help="directory of a run")
    parser.add_argument(
        "--logprobs", type=int, default=64, help="trajectories of each policy version to recompute logprobs of"
    )
    options = parser.parse_args(arguments)
    try:
        checks = asyncio.run(verify(options.run, options.logprobs))
    except TorlError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for check in checks:
        print(check)
    print(json.dumps({check.name: asdict(check) for check in checks}), flush=True)
    return int(any(check.wrong for check in checks))


async def verify(run: Path, logprobs: int) -> list[Check]:
    """All checks of a run; `logprobs` bounds the trajectories of each policy version whose logprobs are recomputed.

    Raises:
        TorlError: the configuration, the records or the model cannot be read, or the graders do not work.
    """
    from torl.data.paths import resolve_path
    from torl.metrics.records import CONFIG_FILE, read_trajectories, training_files
    from torl.rollout.tokenizer import TextEncoder, load_tokenizer
    from torl.rollout.vocabulary import build_vocabulary

    config = load_config(TrainConfig, run / CONFIG_FILE)
    model = resolve_path(config.model.path)
    tokenizer = load_tokenizer(model)
    vocabulary = build_vocabulary(tokenizer)
    encoder = TextEncoder(tokenizer, vocabulary)
    tokens, versions, rewards, advantages = (Check(name) for name in ("tokens", "versions", "rewards", "advantages"))
    by_version: defaultdict[int, list[TrajectoryRecord]] = defaultdict(list)
    for path in training_files(run):
        records = list(read_trajectories(path))
        for record in records:
            problem = token_problem(record.trajectory, config.rollout, vocabulary, encoder)
            tokens.add(problem is None, f"{_name(record)}: {problem}")
            problem = version_problem(record, config.rollout.max_staleness)
            versions.add(problem is None, f"{_name(record)}: {problem}")
        await _check_rewards(rewards, records, config)
        _check_advantages(advantages, records, config)
        for record in records:
            for version in {int(version) for version in record.trajectory.policy_versions_T if version >= 0}:
                if len(by_version[version]) < logprobs:
                    by_version[version].append(record)
    return [tokens, versions, rewards, advantages, _check_logprobs(run, model, by_version, config)]


def _name(record: "TrajectoryRecord") -> str:
    return f"step {record.step}, {record.trajectory.group}, sample {record.trajectory.sample}"


# --- tokens ---------------------------------------------------------------------------------------------------------


def token_problem(
    trajectory: Trajectory, rollout: RolloutConfig, vocabulary: "Vocabulary", encoder: "TextEncoder"
) -> str | None:
    """What does not fit in a trajectory's arrays; None if they are as the token ids and the tool calls say.

    Args:
        trajectory: as it was recorded.
        rollout: the run's format, calls and limit.
        vocabulary: of the model's tokenizer.
        encoder: that encoded the observations.
    """
    sampled = [False] * len(trajectory)
    turns: list[tuple[int, int]] = []
    for kind, start, stop, problem in _replay(trajectory, rollout, vocabulary, encoder):
        if problem:
            return problem
        if kind == "turn":
            turns.append((start, stop))
            sampled[start:stop] = [True] * (stop - start)
    if trajectory.loss_mask_T.tolist() != sampled:
        place = next(place for place, (a, b) in enumerate(zip(trajectory.loss_mask_T, sampled, strict=True)) if a != b)
        return f"the loss mask is {bool(trajectory.loss_mask_T[place])} at token {place}"
    if [(turn.start, turn.stop) for turn in trajectory.turns] != turns:
        return f"turns are {[(turn.start, turn.stop) for turn in trajectory.turns]}, not {turns}"
    observed = ~trajectory.loss_mask_T
    if trajectory.rollout_logprobs_T[observed].any() or (trajectory.policy_versions_T[observed] != -1).any():
        return "an observed token has a logprob or a policy version"
    if trajectory.text != vocabulary.decode(trajectory.token_ids_T.tolist()):
        return "the text is not that of the token ids"
    return None


def _replay(
    trajectory: Trajectory, rollout: RolloutConfig, vocabulary: "Vocabulary", encoder: "TextEncoder"
) -> Iterator[tuple[str, int, int, str | None]]:
    """(turn or observation, start, stop, problem) along the token ids, found by the scanner that episodes run on."""
    from torl.rollout.formats import make_format

    form = make_format(rollout, lambda text: len(encoder.encode(text)))
    ids = trajectory.token_ids_T.tolist()
    limit, place = rollout.max_response_tokens, 0
    at_line_start = vocabulary.decode(list(trajectory.prompt.token_ids)).endswith("\n")
    for number, call in enumerate(trajectory.tool_calls):
        turn_end = form.turn_end(number, at_line_start)
        if turn_end is None:
            yield "turn", place, place, f"call {number} is beyond the last that the run allows"
            return
        scan = turn_end.scanner(vocabulary).feed(ids[place:])
        stop = place + scan.consumed
        if scan.overshoot is None:
            yield "turn", place, stop, f"nothing asks for call {number}"
            return
        code = form.choose([block.code for block in scan.blocks]) or ""
        yield "turn", place, stop, None if code == call.code else f"call {number} ran other code than was written"
        expected = encoder.encode(call.observation)[: limit - stop]
        end = stop + len(expected)
        problem = None
        if ids[stop:end] != expected or (call.start, call.stop) != (stop, end):
            problem = f"the observation of call {number} is not where it should be"
        elif _is_whole(call.outcome) and form.answer(call.outcome, scan.overshoot) != call.observation:
            problem = f"the observation of call {number} is not what its code gave"
        yield "observation", stop, end, problem
        place, at_line_start = end, call.observation.endswith("\n")
    if place < len(ids):
        turn_end = form.turn_end(len(trajectory.tool_calls), at_line_start)
        asks = turn_end is not None and turn_end.scanner(vocabulary).feed(ids[place:]).overshoot is not None
        asked = asks and len(ids) < limit
        unanswered = asked and trajectory.finish_reason is not FinishReason.VOID
        yield "turn", place, len(ids), "a tool call was not answered" if unanswered else None


def _is_whole(outcome: Outcome) -> bool:
    """Whether nothing of it was left out of the record."""
    from torl.metrics.records import LONGEST_OUTPUT

    texts = (outcome.stdout, outcome.stderr, outcome.exception_line, outcome.traceback)
    return all(len(text or "") < LONGEST_OUTPUT for text in texts)


# --- versions -------------------------------------------------------------------------------------------------------


def version_problem(record: "TrajectoryRecord", max_staleness: int) -> str | None:
    """Which policy versions sampled a trajectory's tokens though its step does not allow them; None if none did.

    The learner's policy has version `step` when it learns from that step, and nothing older than
    `step - max_staleness` may have been sampled for it.
    """
    trajectory, oldest = record.trajectory, max(0, record.step - max_staleness)
    versions = {int(version) for version in trajectory.policy_versions_T[trajectory.loss_mask_T]}
    wrong = sorted(version for version in versions if not oldest <= version <= record.step)
    return f"sampled by policy versions {wrong}, outside {oldest} to {record.step}" if wrong else None


# --- rewards --------------------------------------------------------------------------------------------------------


async def _check_rewards(check: Check, records: Sequence["TrajectoryRecord"], config: TrainConfig) -> None:
    from torl.algorithms.rewards import overlong_punishment
    from torl.reward.grader import GraderPool

    reward = config.reward
    async with GraderPool.from_config(reward) as grader:
        grades = await grader.grade_batch([record.trajectory for record in records])
    lengths = [len(record.trajectory) for record in records]
    punishments = overlong_punishment(lengths, config.rollout.max_response_tokens, reward.overlong_buffer)
    for record, grade, punishment in zip(records, grades, punishments, strict=True):
        expected = grade.reward + reward.overlong_penalty * float(punishment)
        gap = abs(expected - record.grade.reward)
        right = (
            gap <= _REWARD_TOLERANCE and grade.correct == record.grade.correct and grade.answer == record.grade.answer
        )
        if record.grade.failure is None and grade.failure is None:
            check.add(right, f"{_name(record)}: reward {record.grade.reward}, again {expected}", gap)


# --- advantages -----------------------------------------------------------------------------------------------------


def _check_advantages(check: Check, records: Sequence["TrajectoryRecord"], config: TrainConfig) -> None:
    """Those of a step's batch: the records that have one. Token by token where the record holds them so."""
    if config.control.shuffle_rewards:
        check.note = "the records do not hold the shuffled rewards"
        return
    from torl.algorithms.selection import silenced

    algorithm = config.algorithm
    batch = [record for record in records if record.advantage is not None]
    silent = silenced([record.trajectory for record in batch], [record.grade for record in batch], config.selection)
    quiet = set().union(*silent.values())

    def sampled(index: int, name: str) -> list[float]:
        """A number of each sampled token that carries a loss."""
        record = batch[index]
        return [] if index in quiet else record.token_numbers[name][record.trajectory.loss_mask_T].tolist()

    token_rewards: list[list[float]] = []
    for index, record in enumerate(batch):
        if algorithm.penalizes_rewards:
            logprobs = zip(sampled(index, "old_logprobs"), sampled(index, "ref_logprobs"), strict=True)
            token_rewards.append([-algorithm.kl_coefficient * _kl(algorithm.kl_estimator, *pair) for pair in logprobs])
        else:
            token_rewards.append([0.0] * (0 if index in quiet else int(record.trajectory.loss_mask_T.sum())))
    values = None
    if algorithm.estimator == "ppo":
        values = [sampled(index, "values") for index in range(len(batch))]
    rewards = [record.grade.reward for record in batch]
    groups = [record.trajectory.group for record in batch]
    for index, expected in enumerate(slow_advantages(algorithm, rewards, groups, token_rewards, values)):
        record = batch[index]
        assert record.advantage is not None
        pairs = [(record.advantage, statistics.fmean(expected) if expected else 0.0)]
        if "advantages" in record.token_numbers:
            pairs += zip(sampled(index, "advantages"), expected, strict=True)
        gap = max(abs(found - again) for found, again in pairs)
        right = all(abs(found - again) <= _ADVANTAGE_TOLERANCE * max(1.0, abs(again)) for found, again in pairs)
        check.add(right, f"{_name(record)}: advantage {record.advantage}, again {pairs[0][1]}", gap)


def slow_advantages(
    algorithm: AlgorithmConfig,
    rewards: Sequence[float],
    groups: Sequence[str],
    token_rewards: Sequence[Sequence[float]],
    values: Sequence[Sequence[float]] | None = None,
) -> list[list[float]]:
    """The advantage of each sampled token of each trajectory of a batch, by the formulas, one number at a time.

    Args:
        algorithm: estimator, discounts, normalisations.
        rewards: one for each trajectory.
        groups: the group of each.
        token_rewards: of each, further rewards at its sampled tokens with a loss; as many as there are tokens.
        values: of each, the critic's at these tokens ("ppo").
    """
    if algorithm.normalize_rewards and len(rewards) > 1:
        mean, deviation = statistics.fmean(rewards), statistics.stdev(rewards)
        rewards = [(reward - mean) / (deviation + 1e-6) for reward in rewards]
    elif algorithm.normalize_rewards:
        rewards = [0.0] * len(rewards)
    if algorithm.estimator in ("grpo", "dr_grpo", "rloo"):
        rewards = [reward + sum(extra) for reward, extra in zip(rewards, token_rewards, strict=True)]
    advantages: list[list[float]] = []
    for index, (reward, extra) in enumerate(zip(rewards, token_rewards, strict=True)):
        own = [other for other, group in zip(rewards, groups, strict=True) if group == groups[index]]
        mean = statistics.fmean(own) if len(own) > 1 else 0.0
        if algorithm.estimator == "ppo":
            assert values is not None
            advantages.append(_gae(algorithm, reward, extra, values[index]))
        elif algorithm.estimator == "reinforce_plus_plus":
            advantages.append(_returns(algorithm.discount, reward, extra))
        elif algorithm.estimator == "reinforce_plus_plus_baseline":
            advantages.append(_returns(algorithm.discount, reward - mean, extra))
        elif algorithm.estimator == "rloo":
            others = (sum(own) - reward) / (len(own) - 1) if len(own) > 1 else 0.0
            advantages.append([reward - others] * len(extra))
        else:
            deviation = (
                (statistics.stdev(own) if len(own) > 1 else 1.0) + 1e-6 if algorithm.estimator == "grpo" else 1.0
            )
            advantages.append([(reward - mean) / deviation] * len(extra))
    if algorithm.normalize_advantages or algorithm.estimator.startswith("reinforce"):
        everything = [value for row in advantages for value in row]
        mean = statistics.fmean(everything) if everything else 0.0
        variance = statistics.variance(everything) if len(everything) > 1 else 0.0
        advantages = [[(value - mean) / (variance + 1e-8) ** 0.5 for value in row] for row in advantages]
    return advantages


def _returns(discount: float, reward: float, token_rewards: Sequence[float]) -> list[float]:
    """What is still to come at each token; the reward comes with the last."""
    arriving = [*token_rewards]
    if arriving:
        arriving[-1] += reward
    for place in range(len(arriving) - 2, -1, -1):
        arriving[place] += discount * arriving[place + 1]
    return arriving


def _gae(
    algorithm: AlgorithmConfig, reward: float, token_rewards: Sequence[float], values: Sequence[float]
) -> list[float]:
    """The temporal-difference errors, discounted by both."""
    following = [*values[1:], 0.0]
    errors = [
        extra + algorithm.discount * after - value
        for extra, after, value in zip(token_rewards, following, values, strict=True)
    ]
    return _returns(algorithm.discount * algorithm.gae_lambda, reward, errors)


def _kl(estimator: str, old_logprob: float, ref_logprob: float) -> float:
    """Schulman's three, the log ratio within +-20."""
    x = min(max(ref_logprob - old_logprob, -20.0), 20.0)
    return {"k1": -x, "k2": x * x / 2, "k3": math.exp(x) - x - 1}[estimator]


# --- logprobs -------------------------------------------------------------------------------------------------------


def _check_logprobs(
    run: Path, model: Path, by_version: dict[int, list["TrajectoryRecord"]], config: TrainConfig
) -> Check:
    import torch
    from transformers import AutoModelForCausalLM

    from torl.learner.checkpoint import LEARNER, checkpoint_path
    from torl.learner.state import read_policy_weights

    mean_limit, limit = _LOGPROB_LIMITS[config.engine.dtype]
    check = Check("logprobs")
    if config.rollout.top_p < 1:
        check.note = "top_p is below 1: the engine's are of a cut distribution"
        return check
    if config.rollout.max_staleness and config.engine.live_turns == "keep":
        check.note = "engine.live_turns is keep: the engine's are made with keys and values of older policies"
        return check
    gaps: list[float] = []
    versions: list[int] = []
    for version, records in sorted(by_version.items()):
        directory = checkpoint_path(run, version) / LEARNER
        if version > 0 and not directory.is_dir():
            continue
        policy: Any = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32, local_files_only=True).eval()
        if version > 0:
            _load_weights(policy, read_policy_weights(directory))
        versions.append(version)
        of_version: list[float] = []
        for record in records:
            difference = _logprob_gaps(policy, record.trajectory, version, config.rollout.temperature)
            worst = max(difference, default=0.0)
            check.add(worst <= limit, f"{_name(record)}: a logprob is {worst:.2g} off", worst)
            of_version += difference
        if of_version and (mean := statistics.fmean(of_version)) > mean_limit:
            check.add(False, f"policy version {version}: logprobs are {mean:.2g} off on average", mean)
        gaps += of_version
    check.mean = statistics.fmean(gaps) if gaps else None
    check.note = f"policy versions {', '.join(map(str, versions))}" if versions else "no weights are left"
    return check


def _load_weights(policy: Any, weights: dict[str, Any]) -> None:
    """Put `weights` into a model; a weight that is tied to another is there under one of its names."""
    missing, unexpected = policy.load_state_dict(weights, strict=False)
    loaded = {policy.get_parameter(name).data_ptr() for name in weights if name not in unexpected}
    absent = [name for name in missing if policy.get_parameter(name).data_ptr() not in loaded]
    if unexpected or absent:
        raise TorlError(f"a checkpoint's weights are not the model's: {absent + unexpected}")


def _logprob_gaps(policy: Any, trajectory: Trajectory, version: int, temperature: float) -> list[float]:
    """|engine - transformers| on every token that this version sampled, from one forward over the trajectory."""
    import torch

    prompt = trajectory.prompt.token_ids
    ids = torch.tensor([[*prompt, *trajectory.token_ids_T.tolist()]])
    with torch.no_grad():
        logits = policy(input_ids=ids).logits[0, len(prompt) - 1 : -1].float() / temperature
    logprobs = torch.log_softmax(logits, -1).gather(-1, ids[0, len(prompt) :, None]).squeeze(-1)
    gaps = (logprobs - torch.from_numpy(trajectory.rollout_logprobs_T)).abs()
    found: list[float] = gaps[torch.from_numpy(trajectory.policy_versions_T == version)].tolist()
    return found


if __name__ == "__main__":
    sys.exit(main())
