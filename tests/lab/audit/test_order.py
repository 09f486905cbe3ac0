"""The audit's checks of the order of problems and of the learner's counts, on steps with a scripted engine."""

import io
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from random import Random
from time import process_time
from types import SimpleNamespace
from typing import Any

import pytest

from scripted_run import ScriptedRun
from scripted_selections import SELECTIONS, written
from torl.base.errors import DataError, NotTrustedError, TorlError
from torl.components.data import CurriculumSampler, Sampler
from torl.learner.batch import carries_advantage, pack_batch
from torl.learner.optimizer_steps import mini_batches
from torl.run.config import DataConfig, TrainConfig
from torl.run.display.console import Console
from torl.training.samples import training_samples, with_advantages
from torl.training.step import StepPlayer
from torl.training.step_problems import StepProblems
from torl_lab.audit.batch import LearnedBatch
from torl_lab.audit.checks import Check
from torl_lab.audit.finetuning import ExampleUses
from torl_lab.audit.learning import batch_metrics
from torl_lab.audit.problem_sets import ProblemOrder


def order_of(
    run: ScriptedRun,
    sampler: str = "shuffled",
    *,
    seed: int = 0,
    rollout: Mapping[str, Any] | None = None,
    **options: Any,
) -> tuple[ProblemOrder, TrainConfig, Check]:
    """The order of a run's problems by a sampler, for the run's configuration with other settings of rollouts."""
    config = run.config.model_copy(
        update={
            "data": DataConfig.model_validate({"train": "", "sampler": {"name": sampler, **options}}),
            "run": run.config.run.model_copy(update={"seed": seed}),
            "rollout": run.config.rollout.model_copy(update=dict(rollout or {})),
        }
    )
    check = Check("prompts")
    order = ProblemOrder(check)
    prompts: Any = run.prompts
    order.open(config, prompts, 0, lambda: False)
    return order, config, check


@pytest.mark.parametrize("name", [name for name in SELECTIONS if name != "failed, dynamic"])
async def test_sampler_repeats_the_problems_of_each_kind_of_selection(name: str, tmp_path: Path) -> None:
    run = SELECTIONS[name](tmp_path)
    order, config, check = order_of(run)
    for step in range(3):
        run.version = step
        records, row = written(run, await run.step_player.play(step), step)
        failed = int(row["rollout/failed_episodes"])
        order.check_step(LearnedBatch(records, step, config), failed=failed, source_has_changed=lambda: False)
        assert order.positions[step + 1] == run.sampler.state_dict()
    assert (check.compared, check.examples) == (3, [])


@pytest.mark.parametrize(
    ("error", "has_changed", "wrong"), [(DataError, False, 1), (DataError, True, 0), (NotTrustedError, False, 0)]
)
async def test_an_order_that_cannot_be_drawn_is_a_mismatch_of_unchanged_problems(
    error: type[TorlError], has_changed: bool, wrong: int, tmp_path: Path
) -> None:
    """As with a limit that no prompt of the source is within."""
    run = SELECTIONS["all"](tmp_path)

    def refused(prompts: object, seed: int) -> Sampler:
        raise error("none of the 8 prompts has at most 1 tokens")

    data = SimpleNamespace(sampler=SimpleNamespace(make=refused, target=refused))
    check = Check("prompts")
    prompts: Any = run.prompts
    ProblemOrder(check).open(run.config.model_copy(update={"data": data}), prompts, 0, lambda: has_changed)
    assert check.wrong == wrong
    assert "none of the 8 prompts" in check.note


async def test_problems_of_another_seed_are_a_mismatch(tmp_path: Path) -> None:
    run = SELECTIONS["all"](tmp_path)
    records, _ = written(run, await run.step_player.play(0), 0)
    order, config, check = order_of(run, seed=1)
    order.check_step(LearnedBatch(records, 0, config), failed=0, source_has_changed=lambda: False)
    assert "expected the problem" in check.examples[0]
    order, config, check = order_of(run, seed=1)
    order.check_step(LearnedBatch(records, 0, config), failed=0, source_has_changed=lambda: True)
    assert (check.wrong, check.note) == (
        0,
        "the order of problems was not checked: data.train has changed since the run",
    )


async def test_order_that_depends_on_earlier_accuracies_is_repeated(tmp_path: Path) -> None:
    """With staleness, the time at which they were known is not recorded."""
    run = ScriptedRun(tmp_path, lambda number: number % 2, problems=9)
    run.sampler = CurriculumSampler(run.prompts, 0, cooldown=(1, 1))
    run.step_player = StepPlayer(run.config, StepProblems(run.sampler), run.player, run.reward, Console(io.StringIO()))
    order, config, check = order_of(run, "curriculum", cooldown=[1, 1])
    for step in range(4):
        run.version = step
        records, _ = written(run, await run.step_player.play(step), step)
        order.check_step(LearnedBatch(records, step, config), failed=0, source_has_changed=lambda: False)
    assert (check.compared, check.wrong) == (4, 0)
    assert "max_staleness" in order_of(run, "curriculum", rollout={"max_staleness": 1})[2].note
    assert order_of(run, rollout={"max_staleness": 1})[2].note == ""


def test_order_ends_where_a_resumed_run_divides_problems_otherwise(tmp_path: Path) -> None:
    run = ScriptedRun(tmp_path)
    prompts: Any = run.prompts

    def note(max_staleness: int, dynamic: bool = False, **rollout: Any) -> str:
        order, config, check = order_of(run, rollout={"max_staleness": max_staleness})
        changed = config.rollout.model_copy(update={"max_staleness": 0, **rollout})
        selection = config.selection.model_copy(update={"max_rounds": 10 if dynamic else 1})
        order.open(config.model_copy(update={"rollout": changed, "selection": selection}), prompts, 3, lambda: False)
        assert (3 in order.positions) == (not check.note)
        return check.note

    assert [note(0), note(1), note(0, prompts_per_step=3), note(0, dynamic=True)] == [""] * 4
    assert "divided the problems" in note(1, prompts_per_step=3)
    assert "divided the problems" in note(2, dynamic=True)


# --- the learner's metrics --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "algorithm",
    [{}, {"epochs": 2, "mini_batches": 3}, {"aggregation": "sequence"}, {"kl": {"coefficient": 0.1}}],
    ids=["one step", "several steps", "sequence", "divergence"],
)
async def test_learned_counts_are_those_of_packed_batches(algorithm: dict[str, Any], tmp_path: Path) -> None:
    """The oracle: the batches that the learner packs, and their weights times advantages."""
    settings = {"algorithm": {"importance_correction": None} | algorithm}
    run = ScriptedRun(tmp_path, lambda number: number % 2, **settings)
    played = await run.step_player.play(0)
    records, _ = written(run, played, 0)
    members = [member for group in played.batch for member in group.members]
    samples = with_advantages(training_samples(members), played.batch, run.config.algorithm)
    batches = []
    for part in mini_batches(
        samples, run.config.algorithm.epochs, run.config.algorithm.mini_batches, (run.config.run.seed, 0, "policy")
    ):
        chosen = [samples[index] for index in part]
        without = run.config.algorithm.learns_without_advantage
        if without or any(map(carries_advantage, chosen)):
            aggregation = run.config.algorithm.aggregation.bind()
            batches.append(
                pack_batch(chosen, max_row_tokens=99, ranks=1, aggregation=aggregation, skip_zero_advantage=not without)
            )
    found = batch_metrics(LearnedBatch(records, 0, run.config))
    assert found["learner/updates"] == len(batches)
    for name in ("samples", "sampled_tokens", "tokens"):
        assert found[f"learner/{name}"] == sum(getattr(batch, name) for batch in batches)
    rows = [row for batch in batches for rank_rows in batch.rows for row in rank_rows]
    loss = -sum(float((row.weight_K * row.advantage_K).sum()) for row in rows if row.advantage_K is not None)
    assert found.get("learner/loss") == (
        pytest.approx(loss, abs=1e-7) if "epochs" not in algorithm and "kl" not in algorithm else None
    )


# --- examples of fine-tuning ------------------------------------------------------------------------------------------


def test_uses_of_examples_are_those_of_a_naive_count() -> None:
    chance, names = Random(0), [f"e{number}" for number in range(12)]
    uses, naive = ExampleUses(names), Counter[str]()
    for _ in range(200):
        ids = chance.choices([*names, "unknown"], k=chance.randint(0, 5))
        uses.add(ids)
        naive.update(ids)
        counts = [naive[name] for name in names]
        assert (uses.most, uses.least) == (max(counts), min(counts))


def test_a_step_of_many_examples_costs_no_more_than_its_own() -> None:
    names = [str(number) for number in range(100_000)]
    uses = ExampleUses(names)
    started = process_time()
    for step in range(3_000):
        uses.add(names[step * 32 : step * 32 + 32])
        assert uses.most - uses.least <= 1
    assert process_time() - started < 2  # a count of all examples at each step takes a minute
