"""Speed of the advantage estimators, against vectorized torch and against the loops that verl ships.

    make peers && .venv/peers/bin/python -m benchmarks.learner.advantages

Ragged groups of 16 responses with observations in them, at several sizes. All sides start from arrays they like: torl
and vectorized torch from flat arrays, verl from padded ones (padding is not counted). Torch has one thread. Times are
the best of several; results are compared before anything is timed. The last line is JSON: `vs_vectorized_min` and
`vs_loops_min` are the smallest ratios of the other side's time to torl's, over all estimators and sizes.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from omegaconf import OmegaConf
from torch import Tensor
from verl.trainer.ppo import core_algos

from torl import _core
from torl.components.algorithms import ESTIMATORS
from torl.components.algorithms.advantages import EstimatorInputs

GROUP = 16
LAMBDA = 0.95
CHUNK = 64  # of the scan: within one a matrix product, from one to the next a loop


@dataclass(frozen=True)
class Batch:
    """N responses; flat arrays for torl and torch, padded ones for verl."""

    rewards: np.ndarray
    groups: list[int]
    lengths: np.ndarray
    mask: np.ndarray
    values: np.ndarray
    penalties: np.ndarray


@dataclass(frozen=True)
class Case:
    """An estimator, with or without a KL penalty at each token: without one some have a shorter way."""

    estimator: str
    penalty: bool = False

    def __str__(self) -> str:
        return self.estimator + (" with a penalty" if self.penalty else "")


CASES = (
    Case("grpo"),
    Case("dr_grpo"),
    Case("rloo"),
    Case("reinforce_plus_plus"),
    Case("reinforce_plus_plus", penalty=True),
    Case("reinforce_plus_plus_baseline"),
    Case("ppo"),
)


def make_batch(tokens: int, seed: int = 0) -> Batch:
    """Responses of some 500 tokens on average, 3,072 at most, with up to four observations of up to 64 tokens."""
    generator = np.random.default_rng(seed)
    masks: list[np.ndarray] = []
    while sum(map(len, masks)) < tokens or len(masks) % GROUP:
        mask = np.ones(int(np.clip(generator.lognormal(6.0, 0.7), 16, 3072)), dtype=np.bool_)
        for _ in range(generator.integers(0, 5)):
            start = int(generator.integers(1, len(mask)))
            mask[start : min(start + int(generator.integers(4, 65)), len(mask) - 1)] = False
        masks.append(mask)
    lengths = np.array([len(mask) for mask in masks], dtype=np.int64)
    values = generator.normal(0, 0.5, lengths.sum()).astype(np.float32)
    rewards = generator.choice([-1.0, 1.0], len(masks))
    penalties = -0.01 * generator.random(lengths.sum(), dtype=np.float32)
    groups = [index // GROUP for index in range(len(masks))]
    return Batch(rewards, groups, lengths, np.concatenate(masks), values, penalties)


def torl_side(case: Case, batch: Batch) -> Callable[[], np.ndarray]:
    """The function that a training step calls."""
    estimator = ESTIMATORS[case.estimator]
    penalties = batch.penalties if case.penalty else None

    def call() -> np.ndarray:
        rewards = EstimatorInputs(
            batch.rewards,
            batch.groups,
            batch.lengths,
            batch.mask,
            token_rewards_M=penalties,
            values_M=batch.values,
        )
        if case.estimator != "ppo":
            return estimator(rewards).advantages_M
        return _core.whiten(estimator(rewards, gae_lambda=LAMBDA).advantages_M, batch.lengths, batch.mask)

    return call


# --- vectorized torch: no loop over tokens or trajectories but the one over chunks of GAE ---------------------


def whiten(values: Tensor, mask: Tensor) -> Tensor:
    """Over the mask, 0 elsewhere."""
    count = mask.sum()
    mean = torch.where(mask, values, 0.0).sum() / count
    centred = torch.where(mask, values - mean, 0.0)
    return centred * torch.rsqrt(centred.square().sum() / (count - 1) + 1e-8)


def group_statistics(rewards: Tensor, groups: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and unbiased deviation of the group of each trajectory."""
    size = int(groups.max()) + 1
    count = torch.zeros(size).index_add_(0, groups, torch.ones_like(rewards))
    mean = torch.zeros(size).index_add_(0, groups, rewards) / count
    squares = torch.zeros(size).index_add_(0, groups, (rewards - mean[groups]).square())
    return mean[groups], (squares / (count - 1)).sqrt()[groups]


def spread(values: Tensor, lengths: Tensor, mask: Tensor) -> Tensor:
    """On the sampled tokens of each trajectory."""
    return torch.repeat_interleave(values, lengths, output_size=len(mask)) * mask


def torch_grpo(rewards: Tensor, groups: Tensor, lengths: Tensor, mask: Tensor, _: Tensor) -> Tensor:
    mean, deviation = group_statistics(rewards, groups)
    return spread((rewards - mean) / (deviation + 1e-6), lengths, mask)


def torch_dr_grpo(rewards: Tensor, groups: Tensor, lengths: Tensor, mask: Tensor, _: Tensor) -> Tensor:
    mean, _ = group_statistics(rewards, groups)
    return spread(rewards - mean, lengths, mask)


def torch_rloo(rewards: Tensor, groups: Tensor, lengths: Tensor, mask: Tensor, _: Tensor) -> Tensor:
    mean, _ = group_statistics(rewards, groups)
    return spread((rewards - mean) * (GROUP / (GROUP - 1)), lengths, mask)


def torch_reinforce(rewards: Tensor, groups: Tensor, lengths: Tensor, mask: Tensor, _: Tensor) -> Tensor:
    """Undiscounted and without penalties all tokens of a trajectory have one return: whitened as such."""
    rows = torch.repeat_interleave(torch.arange(len(lengths)), lengths, output_size=len(mask))
    counts = torch.zeros(len(lengths)).index_add_(0, rows, mask.float())
    count = counts.sum()
    mean = (rewards * counts).sum() / count
    variance = ((rewards - mean).square() * counts).sum() / (count - 1)
    return ((rewards - mean) * torch.rsqrt(variance + 1e-8))[rows] * mask


def torch_baseline(rewards: Tensor, groups: Tensor, lengths: Tensor, mask: Tensor, _: Tensor) -> Tensor:
    mean, _ = group_statistics(rewards, groups)
    return torch_reinforce(rewards - mean, groups, lengths, mask, _)


def torch_returns(rewards: Tensor, groups: Tensor, lengths: Tensor, mask: Tensor, penalties: Tensor) -> Tensor:
    """Undiscounted: the sum of all that comes later in the row, from one cumulative sum over the whole batch."""
    ends = lengths.cumsum(0)
    # The last sampled token of each row, found by a running maximum over sampled places.
    last = torch.where(mask, torch.arange(len(mask)), -1).cummax(0).values[ends - 1]
    arriving = torch.where(mask, penalties, 0.0).double()
    arriving[last] += rewards.double()
    total = arriving.cumsum(0)
    upto_end = torch.repeat_interleave(total[ends - 1], lengths, output_size=len(mask))
    return whiten((upto_end - total + arriving).float(), mask)


def torch_ppo(rewards: Tensor, groups: Tensor, lengths: Tensor, mask: Tensor, values: Tensor) -> Tensor:
    """Sampled tokens alone, padded and reversed; A = scan of the errors by LAMBDA, chunk by chunk."""
    rows = torch.repeat_interleave(torch.arange(len(lengths)), lengths, output_size=len(mask))[mask]
    sampled = torch.zeros(len(lengths), dtype=torch.int64).index_add_(0, rows, torch.ones_like(rows))
    ends = sampled.cumsum(0)
    backward = ends[rows] - 1 - torch.arange(len(rows))  # 0 for the last sampled token of a row
    width = -(-int(sampled.max()) // CHUNK) * CHUNK
    padded = torch.zeros(len(lengths), width)
    padded[rows, backward] = values[mask]
    following = torch.nn.functional.pad(padded[:, :-1], (1, 0))
    errors = following - padded
    errors[:, 0] += rewards
    exponents = torch.arange(CHUNK)[None] - torch.arange(CHUNK)[:, None]
    decay = torch.where(exponents >= 0, torch.tensor(LAMBDA) ** exponents, 0.0)
    advantages = (errors.view(-1, CHUNK) @ decay).view(len(lengths), -1, CHUNK)
    carry = LAMBDA ** torch.arange(1, CHUNK + 1)
    for chunk in range(1, advantages.shape[1]):
        advantages[:, chunk] += advantages[:, chunk - 1, -1:] * carry
    found = torch.zeros(len(mask))
    found[mask] = advantages.view(len(lengths), -1)[rows, backward]
    return whiten(found, mask)


VECTORIZED = {
    Case("grpo"): torch_grpo,
    Case("dr_grpo"): torch_dr_grpo,
    Case("rloo"): torch_rloo,
    Case("reinforce_plus_plus"): torch_reinforce,
    Case("reinforce_plus_plus", penalty=True): torch_returns,
    Case("reinforce_plus_plus_baseline"): torch_baseline,
    Case("ppo"): torch_ppo,
}


def vectorized_side(case: Case, batch: Batch) -> Callable[[], np.ndarray]:
    """The same from the same flat arrays."""
    function = VECTORIZED[case]
    arguments = (
        torch.tensor(batch.rewards, dtype=torch.float32),
        torch.tensor(batch.groups),
        torch.tensor(batch.lengths),
        torch.tensor(batch.mask),
        torch.tensor(batch.penalties if case.penalty else batch.values),
    )
    return lambda: function(*arguments).numpy()


# --- verl ---------------------------------------------------------------------------------------------------


def pad(flat: np.ndarray, lengths: np.ndarray) -> Tensor:
    """One row for each trajectory."""
    return torch.nn.utils.rnn.pad_sequence(torch.tensor(flat).float().split(lengths.tolist()), batch_first=True)


def loop_side(case: Case, batch: Batch) -> Callable[[], np.ndarray]:
    """verl's own function for it, flattened for the comparison."""
    mask = pad(batch.mask, batch.lengths)
    last = (mask * torch.arange(mask.shape[1])).argmax(1)
    rewards = pad(batch.penalties, batch.lengths) * mask if case.penalty else torch.zeros_like(mask)
    rewards[torch.arange(len(mask)), last] += torch.tensor(batch.rewards, dtype=torch.float32)
    values = pad(batch.values, batch.lengths)
    index = np.array(batch.groups)
    config = OmegaConf.create({"gamma": 1.0})

    def call() -> Tensor:
        if case.estimator == "grpo":
            return core_algos.compute_grpo_outcome_advantage(rewards, mask, index)[0]
        if case.estimator == "dr_grpo":
            return core_algos.compute_grpo_outcome_advantage(rewards, mask, index, norm_adv_by_std_in_grpo=False)[0]
        if case.estimator == "rloo":
            return core_algos.compute_rloo_outcome_advantage(rewards, mask, index)[0]
        if case.estimator == "reinforce_plus_plus":
            return core_algos.compute_reinforce_plus_plus_outcome_advantage(rewards, mask, config=config)[0]
        if case.estimator == "reinforce_plus_plus_baseline":
            return core_algos.compute_reinforce_plus_plus_baseline_outcome_advantage(rewards, mask, index)[0]
        return core_algos.compute_gae_advantage_return(rewards, values, mask, 1.0, LAMBDA)[0] * mask

    return lambda: call().numpy()


def seconds(function: Callable[[], np.ndarray], budget: float) -> float:
    """The best time within a budget, of at least three calls."""
    best, spent, calls = float("inf"), 0.0, 0
    while calls < 3 or spent < budget:
        start = time.perf_counter()
        function()
        taken = time.perf_counter() - start
        best, spent, calls = min(best, taken), spent + taken, calls + 1
    return best


def main() -> None:
    """Print a line for each estimator and size, then the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--seconds", type=float, default=1.0, help="time spent on each measurement")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for tokens in arguments.tokens:
        batch = make_batch(tokens)
        places = np.concatenate([row * batch.lengths.max() + np.arange(n) for row, n in enumerate(batch.lengths)])
        for case in CASES:
            ours = torl_side(case, batch)
            vectorized = vectorized_side(case, batch)
            loops = loop_side(case, batch)
            np.testing.assert_allclose(vectorized(), ours(), rtol=1e-3, atol=1e-3)
            np.testing.assert_allclose(loops().reshape(-1)[places], ours(), rtol=1e-3, atol=1e-3)
            times = [seconds(side, arguments.seconds) for side in (ours, vectorized, loops)]
            rows.append(
                {
                    "case": str(case),
                    "tokens": int(batch.lengths.sum()),
                    "responses": len(batch.lengths),
                    "torl_ms": 1e3 * times[0],
                    "vectorized_ms": 1e3 * times[1],
                    "loops_ms": 1e3 * times[2],
                    "vs_vectorized": times[1] / times[0],
                    "vs_loops": times[2] / times[0],
                }
            )
            print({name: round(value, 3) if isinstance(value, float) else value for name, value in rows[-1].items()})
    result = {
        "vs_vectorized_min": min(row["vs_vectorized"] for row in rows),
        "vs_loops_min": min(row["vs_loops"] for row in rows),
        "sizes": rows,
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
