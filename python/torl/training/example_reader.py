"""Samples of the learner from rows of examples: encoding, and the selection of trajectories."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from torl._core import Vocabulary
from torl.base.errors import DataError
from torl.base.options import import_object
from torl.base.types import ScoredTrajectory, TrainingSample
from torl.components.data.examples import (
    Dialogue,
    ExampleContent,
    Passages,
    PromptCompletion,
    RecordedTrajectory,
    SolvedProblem,
    read_example,
)
from torl.components.data.rows import SkippedRowError, require_whole_question
from torl.components.formats import FORMATS
from torl.components.formats.results import split_results, unread_markup
from torl.components.text.example_encoder import ExampleEncoder, WeightedTokens
from torl.components.text.prompt_encoder import opening_ids
from torl.components.text.prompts import PromptStream
from torl.components.text.sources import UnreadFields
from torl.components.text.tokenizer import stop_token_ids
from torl.components.text.vocabulary import build_vocabulary
from torl.rollout.model_directory import ModelDirectory, context_window
from torl.run.config import FinetuneConfig
from torl.run.records.rows import TrajectoryRecord, decode_trajectory
from torl.training.samples import training_samples

Response: TypeAlias = tuple[str, bytes]
"""The id of a problem, and the tokens of a response to it."""


class DroppedExampleError(Exception):
    """An example that is not trained on. The message completes "3 ..."."""


class ExampleReader:
    """Encodes the rows of examples for a model."""

    def __init__(self, config: FinetuneConfig, model: ModelDirectory) -> None:
        """Configure the reader.

        Raises:
            DataError: The model has no end token.
        """
        self._options, self._model = config.finetune, model
        format = config.rollout.format.make()
        stops = stop_token_ids(model.path, model.tokenizer, format.end_tokens)
        self._format = format
        options = config.finetune
        variables = getattr(config.data.template.options, "variables", None)
        self._encoder = ExampleEncoder(model.tokenizer, stops, variables, self._split)
        self._limit = min(options.max_tokens, context_window(model.path) or options.max_tokens)
        template = config.data.template.bind()
        self._prompts = PromptStream(tuple, model.tokenizer, template, config.longest_sample, model.tool_schemas)
        self._drop = {name: mask.bind() for name, mask in config.finetune.drop.items()}
        self._vocabulary = cache(self._vocabulary_of_format)
        self._responses: set[Response] = set()
        self._of_problem: Counter[str] = Counter()
        self.unread: Counter[str] = Counter()
        """Numbers of texts with markup that the format does not read, which are trained as they are."""
        self.fields = UnreadFields()
        """Fields of the rows that are trained on, as far as they are not read."""

    def read(self, location: str, row: Mapping[str, Any] | DataError) -> tuple[TrainingSample, ...]:
        """Return the samples of a row.

        Raises:
            DataError: The row is invalid.
            DroppedExampleError: The example is not trained on.
        """
        if isinstance(row, DataError):
            raise row
        unread: set[str] = set()
        try:
            content = read_example(location, row, unread)
        except SkippedRowError as skipped:
            raise DroppedExampleError(skipped.reason.replace("_", " ")) from skipped
        try:
            samples, response = self._samples(location, content)
            unread = self._without_read(content, unread)
        except DataError as error:
            raise error if str(error).startswith(location) else DataError(f"{location}: {error}") from error
        if any(len(sample) > self._limit for sample in samples):
            raise DroppedExampleError("too long and dropped")
        samples = [sample for sample in samples if sample.loss_mask.any()]
        if not samples:
            raise DroppedExampleError(f"without a trained token{_reason(content)}")
        if response is not None:
            self._count(response)
        self.fields.add(unread)
        return tuple(samples)

    def start_source(self) -> None:
        """Count anew: `finetune.max_per_problem` is for each source."""
        self._of_problem.clear()
        self.unread.clear()
        self.fields = UnreadFields()

    def _split(self, text: str) -> Iterator[tuple[str, bool]]:
        """Split a text of the model into parts, each with whether it is a tool's result."""
        parts = [*split_results(text, self._format)]
        self.unread.update(
            {each for part, is_result in parts if not is_result for each in unread_markup(part, self._format)}
        )
        return iter(parts)

    def _count(self, response: Response) -> None:
        """Count a trajectory that is trained on."""
        if response in self._responses:
            raise DroppedExampleError("repeated")
        if self._of_problem[response[0]] == self._options.max_per_problem:
            raise DroppedExampleError("over max_per_problem")
        self._responses.add(response)
        self._of_problem[response[0]] += 1

    def _samples(self, location: str, content: ExampleContent) -> tuple[list[TrainingSample], Response | None]:
        """Return the samples of an example and, of a trajectory, what it responds to which problem."""
        match content:
            case Dialogue(messages, weights, tools):
                return [self._sample(each) for each in self._encoder.dialogue(messages, weights, tools)], None
            case Passages(texts, weights):
                return [self._sample(self._encoder.passages(texts, weights))], None
            case PromptCompletion(prompt, completion):
                opening = opening_ids(self._model.tokenizer, prompt)
                return [self._sample(self._encoder.response(opening, completion))], None
            case SolvedProblem(problem, response):
                return [self._sample(self._encoder.response(self._prompts.encode(problem).token_ids, response))], None
            case RecordedTrajectory(row):
                return self._trajectory(location, row)

    def _without_read(self, content: ExampleContent, unread: set[str]) -> set[str]:
        """Return the fields that are not read, without those that a template reads, and with those that it does not."""
        match content:
            case Dialogue(messages):
                return unread | {f"{name} of messages" for name in self._encoder.unread_fields(messages)}
            case SolvedProblem(problem):
                unread = unread - self._prompts.fields.read
                require_whole_question(problem.id, unread)
        return unread

    def _sample(self, sequence: WeightedTokens) -> TrainingSample:
        weights = np.array(sequence.weights, np.float32)
        return self._with_observations(
            TrainingSample(
                token_ids=np.array(sequence.token_ids, np.int32),
                loss_mask=weights > 0,
                rollout_logprobs=np.zeros(len(weights), np.float32),
                advantages=weights,
            ),
            np.array(sequence.observed, np.bool_),
        )

    def _trajectory(self, location: str, row: Mapping[str, Any]) -> tuple[list[TrainingSample], Response]:
        try:
            record = decode_trajectory(row)
        except ValueError as error:
            raise DataError(f"{location}: not a trajectory: {error}") from error
        self._require_tokenizer(record)
        self._select(record)
        trajectory = record.trajectory
        if self._options.prompts == "template":
            if trajectory.branches:
                raise DataError('a trajectory of several sequences has no other prompt; set prompts = "recorded"')
            prompt = self._prompts.encode(trajectory.prompt.problem)
            trajectory = replace(trajectory, prompt=prompt)
        scored = ScoredTrajectory(trajectory, replace(record.grade, turn_rewards=()), record.grade.reward)
        samples = []
        for each, sample in zip(scored.episode_trajectories, training_samples([scored]), strict=True):
            is_response = np.arange(len(sample)) >= len(each.trajectory.prompt.token_ids)
            plain = TrainingSample(
                token_ids=sample.token_ids,
                loss_mask=sample.loss_mask,
                rollout_logprobs=np.zeros(len(sample), np.float32),
                advantages=sample.loss_mask.astype(np.float32),
            )
            samples.append(self._with_observations(plain, is_response & ~sample.loss_mask))
        return samples, (trajectory.prompt.problem.id, trajectory.token_ids_T.tobytes())

    def _select(self, record: TrajectoryRecord) -> None:
        """Raise `DroppedExampleError` for a trajectory that is not imitated."""
        options, grade, trajectory = self._options, record.grade, record.trajectory
        if options.correct_only and not grade.correct:
            raise DroppedExampleError("with a wrong answer")
        member = ScoredTrajectory(trajectory, grade, grade.reward)
        for name, mask in self._drop.items():
            if mask(member):
                raise DroppedExampleError(f"dropped as {name}")

    def _with_observations(self, sample: TrainingSample, observed: Sequence[bool] | np.ndarray) -> TrainingSample:
        weight = self._options.observation_weight
        if not weight:
            return sample
        return replace(sample, imitation_weights=np.where(observed, weight, 0).astype(np.float32))

    def _require_tokenizer(self, record: TrajectoryRecord) -> None:
        """Raise `DataError` if the tokens of a trajectory do not spell its text: another model sampled it."""
        for each in record.episode_trajectories:
            ids = each.trajectory.token_ids_T.tolist()
            vocabulary = self._vocabulary(each.trajectory.format)
            known = len(self._model.tokenizer)
            if max((*ids, *each.trajectory.prompt.token_ids), default=0) >= known or (
                vocabulary is not None and vocabulary.decode(ids) != each.trajectory.text
            ):
                raise DataError(
                    f"its tokens do not spell its text in {self._model.path}: it was sampled by a model with another "
                    "tokenizer"
                )

    def _vocabulary_of_format(self, name: str) -> Vocabulary | None:
        """Return the vocabulary of a registered format; None for a custom one, whose visible tokens are unknown."""
        if name not in FORMATS:
            return None
        target = FORMATS[name]
        format_class: Any = import_object(target) if isinstance(target, str) else target
        return build_vocabulary(self._model.tokenizer, format_class.visible_tokens)


def _reason(content: ExampleContent) -> str:
    """Return why a conversation has no trained token, as the end of a sentence; other examples are just empty."""
    if not isinstance(content, Dialogue):
        return ""
    places = [place for place, message in enumerate(content.messages) if message["role"] == "assistant"]
    if not places:
        return " (no message of the model)"
    if not any(content.weights):
        return " (all messages of the model are empty or excluded)"
    return " (the model begins)" if not any(content.weights[1:]) else ""
