"""The check of the learner's numbers of tokens: what the learner's own objective computes passes, mistakes do not."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from builders import grade, trajectory
from torl.base.types import TrainingSample, UpdateNumbers
from torl.learner.batch import pack_batch
from torl.learner.objective import RowTensors, policy_objective
from torl.learner.optimizer_steps import combine_reports, mini_batches
from torl.learner.rows import TokenRecorder
from torl.run.config import TrainConfig
from torl.run.config.loading import find_config, load_config
from torl.run.records.rows import TrajectoryRecord
from torl.run.records.tokens import TokenKey, keyed, read_token_numbers, write_token_numbers
from torl.training.token_records import learns_from
from torl_lab.audit.batch import LearnedBatch
from torl_lab.audit.checks import Check
from torl_lab.audit.history import RunHistory
from torl_lab.audit.learning import check_learner_numbers
from torl_lab.audit.updates import check_updates

Found = dict[TokenKey, UpdateNumbers]
ALGORITHMS: dict[str, dict[str, Any]] = {
    "one update": {},
    "mini-batches": {
        "epochs": 2,
        "mini_batches": 2,
        "policy_loss": {"name": "clipped", "clip_high": 0.3, "dual_clip": 2},
    },
    "gspo": {"epochs": 2, "policy_loss": {"name": "gspo", "clip_low": 0.02, "clip_high": 0.03}},
    "cispo": {"epochs": 2, "policy_loss": "cispo", "importance_correction": "icepop"},
    "reinforce": {"policy_loss": "reinforce", "importance_correction": {"name": "tis", "high": 1.05}},
    "mis": {"epochs": 2, "importance_correction": {"name": "mis", "high": 1.5}},
}


def config(name: str, **settings: Any) -> TrainConfig:
    overrides = {f"algorithm.{key}": value for key, value in ALGORITHMS[name].items()}
    return load_config(TrainConfig, find_config("demo"), overrides | {"run.token_groups": "all"} | settings)


def records() -> list[TrajectoryRecord]:
    """Two groups of four, of which one is uniform, and a trajectory outside the batch."""
    random = np.random.default_rng(7)
    made = []
    for group, advantages in {"4/a": (1.0, -0.5, -0.5, 0.0), "4/b": (0.0,) * 4, "4/c": (0.8, 0.4, -1.2, 0.0)}.items():
        for sample, advantage in enumerate(advantages):
            tokens = list(range(1, 9 + sample))
            played = trajectory("\\boxed{1}", group=group, sample=sample, tokens=tokens, version=3 + sample % 2)
            logprobs = -random.uniform(0.2, 2, len(played)).astype(np.float32) * played.loss_mask_T
            played = replace(played, rollout_logprobs_T=logprobs.astype(np.float32))
            made.append(TrajectoryRecord(4, played, grade(), advantage))
    return [*made, TrajectoryRecord(4, trajectory("2", group="4/d"), grade())]


def computed(chosen: TrainConfig, of: list[TrajectoryRecord], reports: list[dict[str, float]] | None = None) -> Found:
    """The numbers of all mini-batches as the learner's objective has them, for a policy that moves at random.

    `reports` receives the metrics of each.
    """
    algorithm = chosen.algorithm
    batch = [(key, each) for key, each in keyed(of) if each.advantage is not None]
    random = np.random.default_rng(3)
    samples = []
    for number, (_, record) in enumerate(batch):
        played = record.trajectory
        prompt = len(played.prompt.token_ids) or 1
        mask = np.concatenate([np.zeros(prompt, np.bool_), played.loss_mask_T])
        rollout = np.concatenate([np.zeros(prompt, np.float32), played.rollout_logprobs_T])
        old = np.minimum(rollout + random.normal(0, 0.1, len(mask)).astype("f4"), 0) * mask
        samples.append(
            TrainingSample(
                token_ids=np.ones(len(mask), np.int32),
                loss_mask=mask,
                policy_versions=np.where(mask, played.policy_versions_T[0], -1).astype(np.int32),
                rollout_logprobs=rollout,
                advantages=np.float32(record.advantage or 0) * mask.astype(np.float32),
                old_logprobs=old.astype(np.float32) if algorithm.needs_old_logprobs else None,
                episode=number,
            )
        )
    found: Found = {}
    parts = mini_batches(samples, algorithm.epochs, algorithm.mini_batches, (chosen.run.seed, 4, "policy"))
    for number, part in enumerate(parts):
        learned = [samples[index] for index in part]
        if not any(learns_from(sample, chosen) for sample in learned):
            continue
        packed = pack_batch(learned, max_row_tokens=20, ranks=2, skip_zero_advantage=True, policy_version=4)
        objectives = []
        recorder = TokenRecorder(range(len(part)))
        for row in (row for rank in packed.rows for row in rank):
            tensors = RowTensors(row, torch.device("cpu"))
            start = tensors.rollout_logprob_K if tensors.old_logprob_K is None else tensors.old_logprob_K
            moved = torch.from_numpy(random.normal(0, 0.3, len(start)).astype("f4"))
            logprobs = (start + moved).clamp(max=-1e-3)
            objectives.append(policy_objective(logprobs, logprobs.abs(), tensors, algorithm))
            recorder.add(row, objectives[-1].tokens)
        if reports is not None:
            sums = {
                name: sum(float(each.sums[name]) for each in objectives) / packed.sampled_tokens
                for name in objectives[0].sums
            }
            reports.append(
                {**sums, "logprob_gap_max": max(float(each.maxima["logprob_gap_max"]) for each in objectives)}
            )
        found |= {batch[part[place]][0]: UpdateNumbers(number, each) for place, each in recorder.found.items()}
    return {key: found[key] for key, _ in batch if key in found}  # as `token_records` has them


def result(chosen: TrainConfig, found: Found) -> Check:
    check = Check("updates")
    check_updates(check, LearnedBatch(records(), 4, chosen, lambda: found))
    return check


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_learner_s_own_numbers_pass(name: str) -> None:
    chosen = config(name)
    found = computed(chosen, records())
    assert len(found) == 6  # those with an advantage
    check = result(chosen, found)
    assert (check.wrong, check.examples) == (0, [])
    assert check.compared == 7
    if name in ("mini-batches", "gspo", "cispo"):
        flags = np.concatenate([each.arrays["clipped"] for each in found.values()])
        assert 0 < flags.mean() < 1


def changed(name: str, change: Callable[[Any], Any], place: int = 2) -> Callable[[Found], Found]:
    """Change one token of the second trajectory."""

    def plant(found: Found) -> Found:
        key = list(found)[1]
        array = found[key].arrays[name].copy()
        array[place] = change(array[place])
        return found | {key: replace(found[key], arrays=dict(found[key].arrays) | {name: array})}

    return plant


def flipped(found: Found) -> Found:
    """Flip the flag of a token whose ratio is far from the clip range."""
    for key, each in found.items():
        ratios = each.arrays["learner_logprobs"] - each.arrays["old_logprobs"]
        if len(places := np.flatnonzero(np.abs(ratios) < 0.1)):
            flags = each.arrays["clipped"].copy()
            flags[places[0]] = 1.0
            return found | {key: replace(each, arrays=dict(each.arrays) | {"clipped": flags})}
    raise AssertionError("no such token")


def without_last_group(found: Found) -> Found:
    return {key: each for key, each in found.items() if key.group != "4/c"}


def renamed(found: Found) -> Found:
    key, *_ = found
    return {TokenKey("4/d", 0, 0) if each == key else each: value for each, value in found.items()}


def shorter(found: Found) -> Found:
    key, *_ = found
    return found | {key: replace(found[key], arrays={name: each[:-1] for name, each in found[key].arrays.items()})}


def other_update(found: Found) -> Found:
    key, *_ = found
    return found | {key: replace(found[key], update=found[key].update - 1)}


PLANTS: dict[str, tuple[str, Callable[[Found], Found], str]] = {
    "advantage": ("mini-batches", changed("advantages", lambda value: -value), "another advantage"),
    "nan": ("one update", changed("advantages", lambda _: np.nan), "another advantage"),
    "log-probability above 0": ("one update", changed("learner_logprobs", lambda _: 0.1), "a positive log-probability"),
    "negative entropy": ("one update", changed("entropies", lambda value: -value), "a negative entropy"),
    "weight": ("cispo", changed("importance_weights", lambda value: value + 0.01), "an importance weight"),
    "old log-probability": ("mis", changed("old_logprobs", lambda value: value - 0.3), "an importance weight"),
    "truncated weight": ("reinforce", changed("importance_weights", lambda _: 1.2), "an importance weight"),
    "clipping": ("mini-batches", flipped, "a clipping"),
    "missing group": ("one update", without_last_group, "recorded groups"),
    "trajectory outside the batch": ("one update", renamed, "is not in the batch"),
    "missing token": ("one update", shorter, "tokens have a loss"),
    "optimizer step": ("mini-batches", other_update, "the last with the trajectory"),
}


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_mistake_is_found(name: str) -> None:
    algorithm, plant, message = PLANTS[name]
    chosen = config(algorithm)
    check = result(chosen, plant(computed(chosen, records())))
    assert check.wrong >= 1
    assert any(message in example for example in check.examples)


def test_the_token_of_a_mistake_is_named() -> None:
    class Places(Check):
        def add(self, right: bool, example: str, difference: float = 0.0, tokens: Any = ()) -> None:
            found.extend(tokens)

    found: list[int] = []
    chosen = config("one update")
    plant = changed("advantages", lambda value: value + 1, place=3)
    numbers = plant(computed(chosen, records()))
    check_updates(Places("updates"), LearnedBatch(records(), 4, chosen, lambda: numbers))
    assert found == [3]


def test_groups_are_drawn_by_the_seed() -> None:
    """With a sample of one group, either may be recorded, the same in each run, and both in many steps."""
    drawn = set()
    for seed in range(8):
        chosen = config("one update", **{"run.token_groups": 1, "run.seed": seed})
        complete = computed(chosen, records())
        right = []
        for group in ("4/a", "4/c"):
            found = {key: each for key, each in complete.items() if key.group == group}
            if not result(chosen, found).wrong:
                right.append(group)
        assert len(right) == 1
        drawn.update(right)
    assert drawn == {"4/a", "4/c"}


def test_a_missing_trajectory_of_a_recorded_group_is_a_mismatch() -> None:
    chosen = config("one update")
    found = computed(chosen, records())
    del found[next(iter(found))]
    assert "expected numbers of its tokens, found none" in result(chosen, found).examples[0]


def test_another_order_of_the_trajectories_is_a_mismatch() -> None:
    chosen = config("one update")
    found = dict(reversed(computed(chosen, records()).items()))
    assert result(chosen, found).examples == ["step 4: expected the recorded trajectories in the order of the batch"]


# --- metrics --------------------------------------------------------------------------------------------------------


def row_of(reports: list[dict[str, float]]) -> dict[str, float]:
    """The row of a step with these metrics of its optimizer steps."""
    metrics = combine_reports(reports)
    metrics["logprob_gap_on_policy"] /= metrics["on_policy_fraction"]
    own = {"learning_rate": 1e-3, "gradient_norm": 1.0, "changed_weights": 0.9}
    return {f"learner/{name}": value for name, value in {**metrics, **own}.items()}


def bounded(chosen: TrainConfig, row: dict[str, float], found: Found) -> set[str]:
    """The metrics that are out of their bounds."""
    check = Check("metrics")
    batch = LearnedBatch(records(), 4, chosen, lambda: found)
    check.examples = Everything()
    check_learner_numbers(check, row, batch)
    assert check.compared >= 5
    return {example.split(", ")[1].split(":")[0] for example in check.examples}


class Everything(list[str]):
    """Examples without a limit."""

    def __len__(self) -> int:
        return 0


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("groups", [("4/a", "4/c"), ("4/a",), ()], ids=["all groups", "one group", "no group"])
def test_metrics_of_the_learner_are_within_the_bounds_of_its_tokens(name: str, groups: tuple[str, ...]) -> None:
    chosen, reports = config(name), list[dict[str, float]]()
    complete = computed(chosen, records(), reports)
    found = {key: each for key, each in complete.items() if key.group in groups}
    assert bounded(chosen, row_of(reports), found) == set()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_metrics_of_the_learner_follow_from_the_tokens_of_all_groups(name: str) -> None:
    chosen, reports = config(name), list[dict[str, float]]()
    found = computed(chosen, records(), reports)
    row = row_of(reports)
    values = ["logprob_gap_mean", "logprob_gap_max", "logprob_gap_on_policy"]
    values += ["entropy"] if chosen.algorithm.epochs == 1 else []
    values += ["importance_weight"] if chosen.algorithm.importance_correction else []
    for plain in values:
        for factor in (0.99, 1.01):
            changed = row | {f"learner/{plain}": row[f"learner/{plain}"] * factor}
            assert f"learner/{plain}" in bounded(chosen, changed, found), (plain, factor)


@pytest.mark.parametrize("groups", [("4/a",), ()], ids=["one group", "no group"])
@pytest.mark.parametrize(
    "change",
    [
        {"logprob_gap_mean": 9.0},
        {"logprob_gap_max": 90.0},
        {"logprob_gap_max": 1e-9},
        {"logprob_gap_mean": -0.1},
        {"logprob_gap_kl": 900.0},
        {"logprob_gap_on_policy": 9.0},
        {"entropy": -0.1},
        {"clip_fraction": 1.5},
        {"changed_weights": 0.0},
        {"changed_weights": 1.1},
        {"logprob_gap_mean": None},
    ],
    ids=str,
)
def test_impossible_metrics_of_the_learner_are_mismatches(change: dict[str, Any], groups: tuple[str, ...]) -> None:
    chosen, reports = config("one update"), list[dict[str, float]]()
    complete = computed(chosen, records(), reports)
    found = {key: each for key, each in complete.items() if key.group in groups}
    row = row_of(reports) | {f"learner/{name}": value for name, value in change.items()}
    assert bounded(chosen, row, found)


# --- files ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("others", [(), (2,), (5,)], ids=["no file", "an earlier one", "a later one"])
def test_a_missing_file_is_a_mismatch_unless_the_run_may_have_stopped(others: tuple[int, ...], tmp_path: Path) -> None:
    for step in others:
        write_token_numbers(tmp_path, step, {})
    history = RunHistory(tmp_path, [(0, config("one update"))], 5, False, {}, {})
    assert history.may_lack_numbers(4)  # the run may have stopped while it wrote the last step
    assert not replace(history, steps=6).may_lack_numbers(4)
    read = partial(read_token_numbers, tmp_path, 4)
    check = Check("updates")
    check_updates(check, LearnedBatch(records(), 4, config("one update"), read))
    assert check.wrong == 1
    assert "recorded groups: expected ['4/a', '4/c'], found []" in check.examples[0]
    none = Check("updates")
    check_updates(none, LearnedBatch(records(), 4, config("one update", **{"run.token_groups": 0}), read))
    assert (none.compared, none.wrong) == (1, 0)
