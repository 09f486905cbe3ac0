"""The examples of a fine-tuning run: selection of trajectories, masks, limits, the order of steps."""

import json
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from torl.base.errors import CheckpointError, ConfigError, DataError
from torl.base.types import FinishReason, Grade, Problem, Prompt, TrainingSample, Trajectory
from torl.rollout.model_directory import ModelDirectory
from torl.run.config import FinetuneConfig
from torl.run.config.loading import find_config, load_config
from torl.run.records.rows import TrajectoryRecord, encode_trajectory
from torl.training import example_reader
from torl.training.examples import Example, Examples, batch_samples

RESPONSE = ("Let x be.\n```python\nprint(12)\n```output", "\n12\n```\n", "$\\boxed{12}$")


@pytest.fixture(scope="module")
def model() -> ModelDirectory:
    return ModelDirectory.open("torl:demo/base_model", {})


class Files:
    """Writes rows, and reads them as the examples of a configuration."""

    def __init__(self, directory: Path, model: ModelDirectory) -> None:
        self.directory, self.model, self.lines = directory, model, list[str]()
        self.path = directory

    def read(self, rows: list[dict[str, Any]], **settings: Any) -> Examples:
        """Read rows with these settings of `finetune`."""
        text = "".join(json.dumps(row) + "\n" for row in rows)
        self.path = path = self.directory / f"{zlib.crc32(text.encode())}.jsonl"
        path.write_text(text)
        overrides = {
            name if "." in name else f"finetune.{name}": value for name, value in {"batch_size": 1, **settings}.items()
        }
        config = load_config(
            FinetuneConfig,
            find_config("demo"),
            {"finetune.train": str(path), "run.directory": str(self.directory / "run"), **overrides},
        )
        return Examples.read(config, self.model, self.lines.append)

    def samples(self, rows: list[dict[str, Any]], **settings: Any) -> list[TrainingSample]:
        """The samples of all examples."""
        return batch_samples([*self.read(rows, **settings).train.values()])

    def trajectory(
        self, problem: str = "p", answer: str = RESPONSE[2], *, correct: bool = True, reward: float = 1.0
    ) -> TrajectoryRecord:
        """One with a call and its result, in the tokens of the demo's model."""
        tokenizer = self.model.tokenizer
        parts = [tokenizer.encode(text) for text in (*RESPONSE[:2], answer)]
        mask = np.repeat([True, False, True], [len(part) for part in parts])
        ids = np.concatenate(parts).astype(np.int32)
        question = f"Find 4 times 3 for {problem}."
        trajectory = Trajectory(
            prompt=Prompt(Problem(problem, question, "12"), tuple(tokenizer.encode(f"Examples. {question}"))),
            group_id=f"0/{problem}",
            sample_index=0,
            token_ids_T=ids,
            loss_mask_T=mask,
            rollout_logprobs_T=np.where(mask, -1, 0).astype(np.float32),
            policy_versions_T=np.where(mask, 0, -1).astype(np.int32),
            turns=(),
            tool_calls=(),
            finish_reason=FinishReason.STOP,
            text="".join((*RESPONSE[:2], answer)),
            seconds=1.0,
        )
        return TrajectoryRecord(0, trajectory, Grade(reward, correct, "12"))

    def text(self, sample: TrainingSample, mask: np.ndarray) -> str:
        """The text of the tokens under a mask."""
        return str(self.model.tokenizer.decode(sample.token_ids[mask]))


@pytest.fixture
def files(tmp_path: Path, model: ModelDirectory) -> Files:
    return Files(tmp_path, model)


def test_trajectory_keeps_its_tokens_and_mask(files: Files) -> None:
    record = files.trajectory()
    (sample,) = files.samples([encode_trajectory(record)])
    recorded = record.trajectory
    assert sample.token_ids.tolist() == [*recorded.prompt.token_ids, *recorded.token_ids_T.tolist()]
    assert files.text(sample, sample.loss_mask) == RESPONSE[0] + RESPONSE[2]
    assert sample.imitation_weights is None
    assert sample.advantages is not None
    assert set(sample.advantages[sample.loss_mask].tolist()) == {1.0}


def test_observations_get_their_weight_and_prompts_none(files: Files) -> None:
    (sample,) = files.samples([encode_trajectory(files.trajectory())], observation_weight=0.25)
    assert sample.imitation_weights is not None
    assert files.text(sample, sample.imitation_weights > 0) == RESPONSE[1]
    assert sample.imitation_weights.max() == 0.25


@pytest.mark.parametrize("field", ["problem", "prompt"])
def test_results_in_a_written_response_are_observations(files: Files, field: str) -> None:
    record = files.trajectory()
    rows = [{field: "Q", "response": record.trajectory.text}]
    (sample,) = files.samples(rows, observation_weight=0.25)
    length = len(record.trajectory)
    assert sample.token_ids[-length - 1 : -1].tolist() == record.trajectory.token_ids_T.tolist()
    assert sample.loss_mask[-length - 1 : -1].tolist() == record.trajectory.loss_mask_T.tolist()
    assert sample.imitation_weights is not None
    assert files.text(sample, sample.imitation_weights > 0) == RESPONSE[1]


def test_results_of_other_formats_are_reported(files: Files) -> None:
    other = "<code>1</code>\n<interpreter>\n1\n</interpreter> and <output>"
    files.read([{"prompt": "Q", "response": text} for text in (other, other + "!", files.trajectory().trajectory.text)])
    assert files.lines[-1] == (
        "train: trained as they are: 2 texts with results between <interpreter> and </interpreter>, "
        "as rollout.format = 'retool' reads them"
    )
    files.read([{"prompt": "Q", "response": "1"}])
    assert files.lines[-1].startswith("train: 1 examples, ")


def test_recorded_prompt_can_be_replaced_by_the_template(files: Files) -> None:
    record = files.trajectory()
    (sample,) = files.samples([encode_trajectory(record)], prompts="template")
    prompt = sample.token_ids[: -len(record.trajectory)].tolist()
    question = record.trajectory.prompt.problem.question
    problems = [{"problem": question, "response": "x"}]
    (solved,) = files.samples(problems)
    assert prompt == solved.token_ids[: len(prompt)].tolist()
    assert "Examples." not in files.model.tokenizer.decode(prompt)


def test_rejection_sampling_keeps_correct_and_distinct_trajectories(files: Files) -> None:
    def row(*arguments: Any, **options: Any) -> dict[str, Any]:
        return encode_trajectory(files.trajectory(*arguments, **options))

    rows = [row("a"), row("a"), row("a", "$\\boxed{12}$ "), row("a", correct=False), row("b", reward=0.5)]
    assert len(files.read(rows).train) == 3
    assert files.lines[-1].endswith((" 1 with a wrong answer, 1 repeated", " 1 repeated, 1 with a wrong answer"))
    assert len(files.read(rows, correct_only=False).train) == 3  # the wrong one has the same tokens
    assert [*files.read(rows, max_per_problem=1).train] == [location(files, 1), location(files, 5)]
    short = {"short": {"name": "torl.components.algorithms.masks:repetitive", "above": 0.0}}
    with pytest.raises(DataError, match="none of 5 examples can be trained on, 4 dropped as short, 1 with a wrong"):
        files.read(rows, drop=short)


def test_dropped_trajectories_leave_their_place_to_others(files: Files) -> None:
    long, short, other = (
        files.trajectory("a", "$\\boxed{12}$" + " " * 200),
        files.trajectory("a"),
        files.trajectory("b"),
    )
    tokens = len(short.trajectory.prompt.token_ids) + len(short.trajectory)
    for order, kept in (((long, short, other), (2, 3)), ((short, long, other), (1, 3))):
        rows = [encode_trajectory(record) for record in order]
        found = files.read(rows, max_per_problem=1, max_tokens=tokens).train
        assert [*found] == [location(files, line) for line in kept]
        assert files.lines[-1].endswith(", 1 too long and dropped")


def test_each_source_has_its_own_number_of_trajectories(files: Files) -> None:
    """Two responses to one problem, of which one is for validation."""
    validation = files.directory / "validation.jsonl"
    validation.write_text(json.dumps(encode_trajectory(files.trajectory("a", "$\\boxed{12}$ "))) + "\n")
    found = files.read([encode_trajectory(files.trajectory("a"))], max_per_problem=1, validation=str(validation))
    assert (len(found.train), len(found.validation)) == (1, 1)


def location(files: Files, line: int) -> str:
    return f"{files.path.name}, line {line}"


def test_trajectory_of_another_tokenizer_is_refused(files: Files) -> None:
    record = files.trajectory()
    other = replace(record, trajectory=replace(record.trajectory, text="something else"))
    with pytest.raises(DataError, match=r"line 2: its tokens do not spell its text in .*base_model"):
        files.read([encode_trajectory(record), encode_trajectory(other)])
    ids = record.trajectory.token_ids_T.copy()
    ids[0] = 10**6
    unknown = replace(record, trajectory=replace(record.trajectory, token_ids_T=ids))
    with pytest.raises(DataError, match="line 1: its tokens do not spell"):
        files.read([encode_trajectory(unknown)])
    with pytest.raises(DataError, match="line 1: not a trajectory: step is missing"):
        files.read([{"prompt_token_ids": [1], "token_ids": [1], "loss_mask": [[True, 1]]}])


def test_long_and_empty_examples_are_dropped_or_truncated(files: Files) -> None:
    rows = [
        {"prompt": "Find x.", "completion": " 1" * 50},
        {"prompt": "Find x.", "completion": " 1"},
        {"prompt": "Find x" + "." * 100, "completion": " 1"},
        {"text": ""},
        {"segments": [{"label": False, "text": "x"}]},
    ]
    kept = files.read(rows, max_tokens=40)
    assert [*kept.train] == [location(files, 2)]
    assert files.lines[-1].startswith("train: 1 examples, ")
    assert files.lines[-1].endswith(", 2 too long and dropped, 2 without a trained token")


def test_messages_are_rendered_with_the_variables_of_the_template(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = (
        "{% for each in messages %}{{ manner + each.content + (eos_token if each.role == 'assistant' else '') }}"
        "{% endfor %}{{ manner if add_generation_prompt }}"
    )
    monkeypatch.setattr(files.model.tokenizer, "chat_template", template)
    rows = [{"messages": [{"role": "user", "content": "1?"}, {"role": "assistant", "content": "2"}]}]
    for manner in ("a:", "b:"):
        chat = {"name": "chat", "variables": {"manner": manner}}
        (sample,) = files.samples(rows, **{"data.template": chat})
        assert files.text(sample, sample.loss_mask | True).startswith(f"{manner}1?{manner}2")


def test_examples_fit_the_context_of_the_model(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """The default of max_tokens is more than some models have positions for."""
    rows = [{"prompt": "Find x.", "completion": " 1" * count} for count in (10, 50)]
    monkeypatch.setattr(example_reader, "context_window", lambda path: 40)
    assert [*files.read(rows).train] == [location(files, 1)]
    monkeypatch.setattr(example_reader, "context_window", lambda path: None)
    assert len(files.read(rows).train) == 2


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"messages": [{"role": "user", "content": "a"}]}, "none of 1 examples can be trained on, 1 without a trained"),
        (
            {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]},
            "line 1: the model's tokenizer has no chat template",
        ),
        ({"prompt": "a", "completion": "\ud800"}, "line 1: has a lone surrogate"),
        ({"problem": "\ud800", "response": "a"}, "line 1: has a lone surrogate"),
    ],
)
def test_invalid_row_is_named(files: Files, row: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        files.read([row])


def documents(count: int) -> list[dict[str, str]]:
    return [{"text": f"Find {number} plus {number}."} for number in range(count)]


def test_validation_examples_are_held_out_by_the_seed(files: Files) -> None:
    rows = documents(10)
    split = files.read(rows, validation_fraction=0.25)
    held_out = {example.id for example in split.validation}
    assert (len(split.train), len(held_out)) == (7, 3)
    assert held_out.isdisjoint(split.train)
    assert files.lines[-1] == "validation: 3 of them"
    separate = files.read(rows, validation=str(files.path))
    assert (len(separate.train), len(separate.validation)) == (10, 10)
    with pytest.raises(ConfigError, match="validation and validation_fraction cannot be combined"):
        files.read(rows, validation="x.jsonl", validation_fraction=0.1)
    with pytest.raises(ConfigError, match=r"finetune\.batch_size = 11 must be at most 10"):
        files.read(rows, batch_size=11)


def test_responses_to_one_prompt_are_on_one_side(files: Files) -> None:
    rows = [{"problem": f"Find {number}.", "response": f"{number} {sample}"} for number in range(6) for sample in "abc"]
    split = files.read(rows, validation_fraction=0.2)
    assert len(split.validation) == 6  # 4, rounded up to whole prompts
    prompts = [{example.prompt for example in side} for side in (split.train.values(), split.validation)]
    assert [len(each) for each in prompts] == [4, 2]
    assert prompts[0].isdisjoint(prompts[1])


def test_order_and_split_do_not_depend_on_the_directory(files: Files, tmp_path: Path) -> None:
    rows = documents(8)
    first = files.read(rows, validation_fraction=0.25)
    files.directory = tmp_path / "moved"
    files.directory.mkdir()
    second = files.read(rows, validation_fraction=0.25)
    assert [example.id for example in first.validation] == [example.id for example in second.validation]
    second.sampler.load_state_dict(first.sampler.state_dict())


def test_one_invalid_row_in_a_hundred_is_dropped(files: Files) -> None:
    rows: list[dict[str, Any]] = [*documents(99), {"messages": None}]
    assert len(files.read(rows).train) == 99
    assert files.lines[-2].endswith(", 1 invalid and dropped")
    assert files.lines[-1].startswith(f"train: the first invalid one: {location(files, 100)}: not a known format")
    with pytest.raises(
        DataError, match=r"finetune\.train: 2 of the first 101 examples are invalid:\n(.*, line 10.*\n?){2}"
    ):
        files.read([*rows, {}])


def test_wrong_file_is_refused_before_its_end(files: Files) -> None:
    with pytest.raises(DataError, match=r"11 of the first 1011 examples are invalid"):
        files.read([*documents(1000), *[{"a": 1}] * 5000])


def test_every_epoch_has_every_example_once_and_resumes_at_its_place(files: Files) -> None:
    rows = documents(7)
    examples = files.read(rows)
    steps = [[example.id for example in examples.next_batch(3)] for _ in range(14)]
    drawn = [each for step in steps for each in step]
    assert all(len(set(step)) == 3 for step in steps)
    assert all(drawn.count(each) == 6 for each in examples.train)
    stopped, resumed = files.read(rows), files.read(rows)
    for _ in range(5):
        stopped.next_batch(3)
    position = stopped.sampler.state_dict()
    resumed.sampler.load_state_dict(position)
    assert [[example.id for example in resumed.next_batch(3)] for _ in range(9)] == steps[5:]
    with pytest.raises(CheckpointError, match=r"with other examples than finetune\.train contains now"):
        files.read(documents(8)).sampler.load_state_dict(position)


def test_steps_follow_from_epochs(files: Files) -> None:
    config = load_config(FinetuneConfig, None, minimal(files, {"finetune.batch_size": 4}))
    assert config.with_steps(10).total_steps == 3
    half = load_config(FinetuneConfig, None, minimal(files, {"finetune.epochs": 0.5, "run.steps": 99}))
    assert half.with_steps(100).total_steps == 2
    fixed = load_config(FinetuneConfig, None, minimal(files, {"run.steps": 5}))
    assert fixed.with_steps(100).total_steps == 5
    assert fixed.policy_temperature == 1.0
    assert not fixed.plays_episodes


def minimal(files: Files, changes: dict[str, Any]) -> dict[str, Any]:
    directory = str(files.directory)
    return {"model.path": "m", "finetune.train": "t.jsonl", "run.directory": directory, **changes}


def test_digest_depends_on_tokens_and_weights() -> None:
    def example(ids: list[int], weights: list[float], observed: list[float] | None = None) -> str:
        sample = TrainingSample(
            token_ids=np.array(ids, np.int32),
            loss_mask=np.array(weights) > 0,
            rollout_logprobs=np.zeros(len(ids), np.float32),
            advantages=np.array(weights, np.float32),
            imitation_weights=None if observed is None else np.array(observed, np.float32),
        )
        return Example("x", (sample,)).digest

    digests = [
        example([1, 2], [0, 1]),
        example([1, 3], [0, 1]),
        example([1, 2], [0, 0.5]),
        example([1, 2], [0, 1], [0, 1]),
    ]
    assert len(set(digests)) == 4
    assert digests[0] == example([1, 2], [0, 1])


def test_the_hash_of_a_source_does_not_depend_on_the_settings(files: Files) -> None:
    """It shows whether a setting or the file has changed since the run."""
    texts = [{"text": f"Find {number} plus {'1' * number}."} for number in range(1, 20)]
    recorded = files.read(texts).sources
    assert recorded["finetune.train"]["rows"] == 19
    assert files.read(texts, max_tokens=20).sources == recorded
    assert files.read(texts, validation_fraction=0.4).sources == recorded
    assert files.read([*texts[:-1], {"text": "Find 2."}]).sources != recorded
    assert files.read(texts[:-1]).sources != recorded
    assert files.read(texts, validation=str(files.path)).sources.keys() == {"finetune.train", "finetune.validation"}
