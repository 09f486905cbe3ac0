"""Bugs of samplers and of groups."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

from benchmarks.doctors.exhibits.catalog import exhibit
from torl.base.errors import ToolUnavailableError
from torl.base.seeds import derive_seed
from torl.base.types import Problem, Trajectory
from torl.components.data.problems import load_problems


@exhibit(
    "torl.components.data.sampler:PromptSampler.take",
    thread="huggingface/trl#3675",
    says="The sampler repeated the same prompts for several steps.",
    truth=("verify:prompts",),
)
def repeated_prompts(original: Any) -> Any:
    """Take each set of prompts twice."""
    kept: list[Any] = []

    def take(self: Any, count: int) -> list[Any]:
        if kept:
            return kept.pop()
        taken: list[Any] = original(self, count)
        kept.append(taken)
        return taken

    return take


@exhibit(
    "torl.components.data.sampler:PromptSampler.load_state_dict",
    thread="allenai/open-instruct!1523",
    says="The state of the data was not restored from a checkpoint, so that a resumed run trained on seen prompts.",
    truth=("verify:prompts",),
    starts=2,
)
def replayed_data(original: Any) -> Any:
    """Begin with the first prompts again when a run is resumed."""

    def load(self: Any, state: Any) -> None:
        return None

    return load


@exhibit(
    "torl.training.samples:_estimator_inputs",
    thread="XU-YIJIE/grpo-flat#2",
    says="Mean and standard deviation of the rewards were those of the batch, not of the group.",
    truth=("advantage-without-reward", "verify:advantages"),
)
def batch_statistics(original: Any) -> Any:
    """Compare all trajectories of a step with each other."""

    def inputs(*arguments: Any) -> Any:
        made = original(*arguments)
        return replace(made, groups_N=[0] * len(made.groups_N))

    return inputs


@exhibit(
    "torl.training.samples:with_advantages",
    thread="axon-rl/gem!113",
    says="Advantages were normalized twice: in each group, then over all transitions.",
    truth=("advantage-without-reward", "verify:advantages"),
)
def double_normalization(original: Any) -> Any:
    """Normalize the advantages of the groups again, over the batch."""

    def advantages(samples: Any, groups: Any, algorithm: Any) -> Any:
        return original(samples, groups, algorithm.model_copy(update={"normalize_advantages": True}))

    return advantages


def _failing_play(original: Any) -> Any:
    """Fail one of 20 episodes, as a host may."""

    async def play(self: Any, prompt: Any, *, batch_id: int | str, sample: int) -> Trajectory:
        trajectory: Trajectory = await original(self, prompt, batch_id=batch_id, sample=sample)
        if isinstance(batch_id, int) and derive_seed(batch_id, prompt.problem.id, sample) % 20 == 0:
            raise ToolUnavailableError("the host of the episode was lost")
        return trajectory

    return play


@exhibit(
    "torl.training.samples:_estimator_inputs",
    thread="areal-project/AReaL#1419",
    says="Groups were cut from the batch by a fixed size, so that one missing response shifted all later groups.",
    truth=("advantage-without-reward", "verify:advantages"),
    settings={"rollout.max_failed_fraction": 0.9},
    also={"torl.rollout.episode:EpisodePlayer.play": _failing_play},
)
def groups_by_stride(original: Any) -> Any:
    """Cut groups by their intended size."""

    def inputs(samples: Any, groups: Any, algorithm: Any) -> Any:
        made = original(samples, groups, algorithm)
        size = max(len(group.members) for group in groups)
        return replace(made, groups_N=[index // size for index in range(len(made.groups_N))])

    return inputs


def few_problems(count: int = 8) -> Iterator[Problem]:
    """Yield the first problems of the demo, so that a step has the problems of the step before."""
    yield from islice(load_problems("torl:demo/problems/train.jsonl"), count)
