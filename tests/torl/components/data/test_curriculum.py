"""Laws of the curriculum: problems that rest and come back, and exact resumes."""

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torl.base.errors import CheckpointError, DataError
from torl.base.types import Problem, Prompt
from torl.components.data import PromptSampler
from torl.components.data.curriculum import CurriculumSampler
from torl.run.config import TrainConfig


def prompts(count: int, **metadata: list[float]) -> list[Prompt]:
    return [
        Prompt(Problem(f"p{number}", "q", "1", {name: values[number] for name, values in metadata.items()}), (number,))
        for number in range(count)
    ]


def ids(taken: list[Prompt]) -> list[str]:
    return [prompt.problem.id for prompt in taken]


@given(st.integers(1, 20), st.integers(0, 99), st.lists(st.floats(0, 1), max_size=12))
def test_a_curriculum_that_leaves_nothing_out_has_whole_epochs(count: int, seed: int, shares: list[float]) -> None:
    sampler = CurriculumSampler(prompts(count), seed)
    stream: list[str] = []
    for share in shares:
        taken = ids(sampler.take(round(share * count)))
        assert len(taken) == len(set(taken)) == round(share * count)
        stream += taken
    met = Counter({f"p{number}": 0 for number in range(count)})
    met.update(stream)
    assert max(met.values()) - min(met.values()) <= 2  # one epoch ahead, and one that is carried over its end


def test_a_window_keeps_the_pass_rates_in_it() -> None:
    given_ = prompts(4, pass_rate=[0.0, 0.25, 0.75, 1.0])
    assert sorted(ids(CurriculumSampler(given_, 0, pass_rate_range=(0.25, 0.75)).take(2))) == ["p1", "p2"]
    with pytest.raises(
        DataError, match=r"no number in 'pass_rate', which data.sampler requires; data.train.columns.pass"
    ):
        CurriculumSampler(prompts(2), 0, pass_rate_range=(0, 1))
    with pytest.raises(DataError, match="there are no problems"):
        CurriculumSampler(given_, 0, pass_rate_range=(0.4, 0.6))


def test_always_or_never_solved_problems_cool_down_and_return() -> None:
    sampler = CurriculumSampler(prompts(3), 0, cooldown=(2, 3))
    accuracies = {"p0": 1.0, "p1": 0.0, "p2": 0.5}
    by_epoch: list[set[str]] = [set() for _ in range(8)]
    while sampler.epoch < 8:
        (name,) = ids(sampler.take(1))
        if sampler.epoch < 8:
            by_epoch[sampler.epoch].add(name)
        sampler.record_accuracies({name: accuracies[name]})
    everyone = {"p0", "p1", "p2"}
    assert by_epoch == [everyone, everyone, {"p2"}, {"p2"}, {"p2"}, everyone, everyone, {"p2"}]


def test_one_group_that_teaches_something_ends_a_streak() -> None:
    sampler = CurriculumSampler(prompts(1), 0, cooldown=(3, 100))
    for accuracy in (1.0, 1.0, 0.5, 1.0, 1.0, 0.0, 0.0):
        sampler.record_accuracies({"p0": accuracy})
    assert sampler.state_dict()["curriculum"]["cooldowns"] == {}
    sampler.record_accuracies({"p0": 0.0})
    assert sampler.state_dict()["curriculum"]["cooldowns"] == {"p0": 101}


def test_a_step_is_never_short_though_all_rest() -> None:
    sampler = CurriculumSampler(prompts(5), 0, cooldown=(1, 1000))
    sampler.record_accuracies({f"p{number}": 0.0 for number in range(4)})
    assert sorted(ids(sampler.take(5))) == [f"p{number}" for number in range(5)]
    with pytest.raises(ValueError, match="cannot take 6 prompts at once: only 5 are available"):
        sampler.take(6)


@given(st.integers(2, 12), st.integers(0, 99), st.lists(st.integers(1, 5), max_size=8), st.integers(0, 8))
def test_resuming_is_exact(count: int, seed: int, takes: list[int], cut: int) -> None:
    def sampler() -> CurriculumSampler:
        return CurriculumSampler(prompts(count), seed, cooldown=(1, 2))

    def play(sampler: CurriculumSampler, takes: list[int]) -> list[list[str]]:
        steps = []
        for number in takes:
            steps.append(ids(sampler.take(min(number, count))))
            sampler.record_accuracies({name: float(len(name + str(number)) % 2) for name in steps[-1]})
        return steps

    whole, first, second = sampler(), sampler(), sampler()
    steps = play(whole, takes)
    before = play(first, takes[:cut])
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert before + play(second, takes[cut:]) == steps


def test_a_checkpoint_of_another_sampler_is_refused() -> None:
    plain, curriculum = PromptSampler(prompts(2), 0), CurriculumSampler(prompts(2), 0)
    with pytest.raises(CheckpointError, match=r"with data\.sampler shuffled, not curriculum"):
        curriculum.load_state_dict(plain.state_dict())
    with pytest.raises(CheckpointError, match=r"with data\.sampler curriculum, not shuffled"):
        plain.load_state_dict(curriculum.state_dict())
    damaged = CurriculumSampler(prompts(2), 0).state_dict()
    damaged["curriculum"]["cooldowns"] = {"stranger": 3}
    with pytest.raises(CheckpointError, match="curriculum is damaged"):
        CurriculumSampler(prompts(2), 0).load_state_dict(damaged)


def test_a_configuration_chooses_it() -> None:
    tree = {
        "run": {"directory": "x", "steps": 1},
        "model": {"path": "m"},
        "data": {
            "train": "t.jsonl",
            "sampler": {"name": "curriculum", "cooldown": [2, 1], "pass_rate_range": [0.1, 0.9]},
        },
    }
    sampler = TrainConfig.model_validate(tree).data.sampler.make(prompts(2, pass_rate=[0.5, 1.0]), 0)
    assert isinstance(sampler, CurriculumSampler)
    assert len(sampler) == 1
