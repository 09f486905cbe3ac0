"""The examples of a fine-tuning run: read, encoded, filtered, and drawn for each step."""

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torl.base.errors import ConfigError, DataError
from torl.base.options import Choice
from torl.base.types import Problem, Prompt, TrainingSample
from torl.components.data import PromptSampler
from torl.components.data.example_files import ExampleSource
from torl.components.data.problems import MAX_INVALID_FRACTION
from torl.components.text.sources import SourceDigest
from torl.rollout.model_directory import ModelDirectory
from torl.run.config import FinetuneConfig
from torl.training.example_reader import DroppedExampleError, ExampleReader

_MAX_SHOWN = 5
_MIN_ROWS = 1_000  # before an early end because of invalid rows


@dataclass(frozen=True, slots=True)
class Example:
    """An example with its token sequences, several if the chat template changes earlier messages.

    Attributes:
        id: Id of the example, such as its location in a file.
        samples: Samples of the learner, complete for an update.
    """

    id: str
    samples: tuple[TrainingSample, ...]

    @property
    def digest(self) -> str:
        """Hash of the tokens and of their weights."""
        digest = hashlib.sha256()
        for sample in self.samples:
            for array in (sample.token_ids, sample.advantages, sample.imitation_weights):
                digest.update(b"-" if array is None else array.tobytes())
        return digest.hexdigest()

    @property
    def prompt(self) -> str:
        """Hash of the tokens before the first trained one, or the id of an example that is trained from its start."""
        first = self.samples[0]
        length = int(first.loss_mask.argmax())
        return hashlib.sha256(first.token_ids[:length].tobytes()).hexdigest() if length > 1 else self.id


class ExampleSampler(PromptSampler):
    """Shuffled epochs over examples, by their ids and the hashes of their tokens."""

    kind = "examples"
    contents = "examples than finetune.train contains"

    def __init__(self, examples: Sequence[Example], seed: int) -> None:
        """Start at the beginning of epoch 0."""
        super().__init__((Prompt(Problem(each.id, each.digest, ""), ()) for each in examples), seed)


class Examples:
    """The examples of a run, and the sampler of their order."""

    def __init__(
        self,
        train: Sequence[Example],
        validation: Sequence[Example],
        seed: int,
        sources: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """Start at the first epoch.

        Args:
            train: Examples to train on.
            validation: Examples whose loss is measured.
            seed: Random seed of the order.
            sources: Hash of the rows of each source (`SourceDigest.entry`), by its setting.
        """
        self.sources = sources or {}
        self.train, self.validation = {example.id: example for example in train}, tuple(validation)
        self.sampler = ExampleSampler(train, seed)

    @classmethod
    def read(
        cls, config: FinetuneConfig, model: ModelDirectory, report: Callable[[str], object] = lambda line: None
    ) -> "Examples":
        """Read and encode the examples of a configuration, and report their numbers.

        Raises:
            DataError: More than one row in a hundred is invalid, or no example remains.
            ConfigError: A step has more examples than there are.
        """
        options = config.finetune
        reader = ExampleReader(config, model)
        sources = {"finetune.train": SourceDigest()}
        train = list(_read("train", options.train, reader, report, sources["finetune.train"]))
        reader.start_source()
        validation: list[Example] = []
        if options.validation is not None:
            sources["finetune.validation"] = digest = SourceDigest()
            validation = list(_read("validation", options.validation, reader, report, digest))
        if options.validation_fraction:
            train, validation = _split(train, options.validation_fraction, config.run.seed)
            report(f"validation: {len(validation)} of them")
        if options.batch_size > len(train):
            raise ConfigError(f"finetune.batch_size = {options.batch_size} must be at most {len(train)}, the examples")
        return cls(train, validation, config.run.seed, {name: each.entry() for name, each in sources.items()})

    @property
    def position(self) -> dict[str, Any]:
        """State, as in a checkpoint, for a run that resumes here."""
        return {"sampler": self.sampler.state_dict()}

    def next_batch(self, count: int) -> list[Example]:
        """Return the next `count` examples."""
        return [self.train[prompt.problem.id] for prompt in self.sampler.take(count)]


def batch_samples(examples: Sequence[Example]) -> list[TrainingSample]:
    """Return the samples of a batch. The samples of an example form an episode."""
    return [replace(sample, episode=index) for index, example in enumerate(examples) for sample in example.samples]


def _read(
    name: str,
    source: Choice[ExampleSource],
    reader: ExampleReader,
    report: Callable[[str], object],
    digest: SourceDigest,
) -> Iterator[Example]:
    """Yield the examples of a source, and then print their number and the reasons of dropped ones."""
    dropped: Counter[str] = Counter()
    first_dropped = ""
    known: set[str] = set()
    invalid: list[DataError] = []
    tokens = trained = sequences = 0
    for location, row in digest.examples(source.bind()()):
        if location in known:
            raise DataError(f"{location}: the id of two examples of finetune.{name}")
        known.add(location)
        try:
            samples = reader.read(location, row)
        except DroppedExampleError as reason:
            dropped[str(reason)] += 1
            first_dropped = first_dropped or location
            continue
        except DataError as error:
            dropped["invalid and dropped"] += 1
            invalid.append(error)
            if len(known) >= _MIN_ROWS:
                _require_few(name, invalid, len(known))
            continue
        sequences += len(samples)
        tokens += sum(map(len, samples))
        trained += sum(int(sample.loss_mask.sum()) for sample in samples)
        yield Example(location, samples)
    _require_few(name, invalid, len(known))
    kept = len(known) - dropped.total()
    reasons = "".join(f", {count} {reason}" for reason, count in dropped.most_common())
    if not kept:
        raise DataError(
            f"finetune.{name}: none of {len(known)} examples can be trained on{reasons}; the first is {first_dropped}"
        )
    # A template that drops earlier thinking makes a sequence of each message: many times the tokens.
    parts = f" in {sequences:,} sequences" if sequences > kept else ""
    report(f"{name}: {kept} examples{parts}, {tokens:,} tokens, {trained:,} of them trained{reasons}")
    for markup, count in reader.unread.items():
        report(f"{name}: trained as they are: {count} texts {markup}")
    if reader.fields:
        report(f"{name}: {reader.fields}")
    if invalid:
        report(f"{name}: the first invalid one: {invalid[0]}")


def _require_few(name: str, invalid: Sequence[DataError], rows: int) -> None:
    """Raise DataError if more than one row in a hundred is invalid, which protects a run from a wrong file."""
    if len(invalid) > MAX_INVALID_FRACTION * rows:
        shown = "\n".join(map(str, invalid[:_MAX_SHOWN]))
        raise DataError(f"finetune.{name}: {len(invalid)} of the first {rows} examples are invalid:\n{shown}")


def _split(examples: Sequence[Example], fraction: float, seed: int) -> tuple[list[Example], list[Example]]:
    """Return the examples to train on, and those held out: responses to one prompt are on the same side."""

    def rank(prompt: str) -> bytes:
        return hashlib.blake2b(f"{seed}/validation/{prompt}".encode(), digest_size=16).digest()

    prompts = [example.prompt for example in examples]
    counts = Counter(prompts)
    wanted, held_out = math.ceil(fraction * len(examples)), set[str]()
    for prompt in sorted(counts, key=rank):
        if wanted <= 0:
            break
        held_out.add(prompt)
        wanted -= counts[prompt]
    sides: tuple[list[Example], list[Example]] = ([], [])
    for example, prompt in zip(examples, prompts, strict=True):
        sides[prompt in held_out].append(example)
    return sides
