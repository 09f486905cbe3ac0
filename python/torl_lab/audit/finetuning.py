"""The checks of a fine-tuning run: examples and their order, tokens, and learning rates."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from torl.base.errors import NotTrustedError, RecordError, TorlError
from torl.base.types import Problem, Prompt
from torl.components.hub import resolve_model
from torl.components.text.sources import digest_examples, is_digest
from torl.components.text.tokenizer import load_tokenizer
from torl.learner.checkpoint.directory import checkpoint_path, checkpoint_steps, read_controller_state
from torl.rollout.model_directory import ModelDirectory
from torl.run.config import FinetuneConfig
from torl.run.records import metric_names as names
from torl.run.records.files import EXAMPLES_FILE, METRICS_FILE
from torl.run.records.reading import read_rows
from torl.training.examples import Example, Examples
from torl_lab.audit.checks import order_mismatch
from torl_lab.audit.evaluations import Checks
from torl_lab.audit.history import RunHistory
from torl_lab.audit.logprobs import check_losses
from torl_lab.audit.metric_rows import measured_metrics
from torl_lab.audit.metrics import check_row
from torl_lab.audit.naive.learner import naive_learning_rate
from torl_lab.audit.naive.samplers import NaiveShuffled

_SAMPLER = "the sampler (run.seed)"


def check_finetuning(
    config: FinetuneConfig,
    history: RunHistory,
    checks: Checks,
    steps: Sequence[int],
    evaluations: Sequence[int],
    positions: dict[int, Any],
) -> None:
    """Check the steps of a fine-tuning run, if its examples are available unchanged.

    Unchanged examples that the configuration leaves out are a mismatch: the run has trained on them. The states of the
    sampler after these steps are added to `positions`.

    Raises:
        TorlError: The model cannot be read.
    """
    path, rollout = resolve_model(config.model.path), config.rollout
    model = ModelDirectory(path, load_tokenizer(path), rollout.tools, rollout.environment)
    try:
        examples = Examples.read(config, model)
        start = examples.sampler.state_dict()
        for step in checkpoint_steps(history.directory)[-1:]:  # refused if the examples have changed since the run
            examples.sampler.load_state_dict(read_controller_state(checkpoint_path(history.directory, step))["sampler"])
        examples.sampler.load_state_dict(start)
    except (TorlError, LookupError) as error:
        changed = changed_sources(config, history)
        if changed == [] and not isinstance(error, NotTrustedError):
            checks.selection.add(False, f"the examples cannot be compared, although they are unchanged: {error}")
        earlier = "; an earlier version did not record which they were" if changed is None else ""
        checks.selection.add_note(f"the examples cannot be compared: {error}{earlier}")
        return
    audit = FinetuneAudit(config, history, checks, examples, positions)
    validation = dict.fromkeys(evaluations, examples.validation)
    check_losses(checks.logprobs, history, config, audit.check_steps(steps), validation)


def changed_sources(config: FinetuneConfig, history: RunHistory) -> list[str] | None:
    """Return the settings whose examples have changed since the run, or cannot be read; None if that is unknown."""
    found = []
    choices = {"finetune.train": config.finetune.train, "finetune.validation": config.finetune.validation}
    for name, choice in choices.items():
        recorded = history.source_of(config, name)
        if recorded is None and name == "finetune.train":
            return None
        try:
            same = recorded is None if choice is None else is_digest(digest_examples(choice.bind()()), recorded or {})
        except TorlError:
            same = False
        if not same:
            found.append(name)
    return found


class ExampleUses:
    """Counts the uses of examples. A step costs as much as it has examples, however many there are in all."""

    def __init__(self, examples: Iterable[str]) -> None:
        """Begin with no use of any of the examples."""
        self._uses = dict.fromkeys(examples, 0)
        self._examples = Counter(self._uses.values())  # number of examples by their number of uses

    def add(self, ids: Iterable[str]) -> None:
        """Add a use of each of these examples; unknown ones have no count."""
        for each in ids:
            if each in self._uses:
                self._examples[self._uses[each]] -= 1
                self._uses[each] += 1
                self._examples[self._uses[each]] += 1
        self._examples = +self._examples  # without numbers of uses that no example has

    @property
    def most(self) -> int:
        """Largest number of uses of an example."""
        return max(self._examples)

    @property
    def least(self) -> int:
        """Smallest number of uses of an example."""
        return min(self._examples)


@dataclass(frozen=True, slots=True)
class FinetuneAudit:
    """Compares the steps of a fine-tuning run with its examples and its weights."""

    config: FinetuneConfig
    history: RunHistory
    checks: Checks
    examples: Examples
    positions: dict[int, Any]
    """States of the sampler by the number of steps before, also of steps with earlier configurations."""
    drawn: dict[int, tuple[int, list[str]]] = field(default_factory=dict)
    """Epoch and examples of each step by the naive sampler."""

    def check_steps(self, steps: Sequence[int]) -> Mapping[int, Sequence[Example]]:
        """Check the examples and the tokens of steps, and return the examples of each."""
        recorded = self._recorded_examples()
        batches: dict[int, list[Example]] = {}
        uses = ExampleUses(self.examples.train)
        if steps:
            self._draw(steps)
        for step in range(max(steps, default=-1) + 1):
            ids = recorded.get(step)
            if ids is None:
                if step in steps and not self.history.may_lack_row(step):
                    self.checks.files.add(False, f"{EXAMPLES_FILE}: expected a row of step {step}, found none")
                continue
            uses.add(ids)
            if step in steps:
                self.checks.files.add(True, "")
                self._check_order(step, ids, uses)
                if all(each in self.examples.train for each in ids):
                    batches[step] = [self.examples.train[each] for each in ids]
        for step, batch in batches.items():
            row = self.history.rows.steps.get(step)
            if row is None:
                self.checks.metrics.add(
                    self.history.may_lack_row(step), f"{METRICS_FILE}: expected a row of step {step}, found none"
                )
            else:
                measured, counted = measured_metrics(self.config, learned=True)
                expected = self._expected(step, batch)
                check_row(self.checks.metrics, f"step {step}", expected, row, counted, measured)
        return batches

    def _draw(self, steps: Sequence[int]) -> None:
        """Draw the examples of steps again, after the steps of earlier configurations."""
        if (before := self.positions.get(steps[0])) is not None:
            self.examples.sampler.load_state_dict(before)
        elif steps[0] > 0:
            self.checks.selection.add_note("the order of examples is unknown")
            return
        # The run's own sampler is called a second time for its position, which checkpoints have.
        prompts = [Prompt(Problem(name, "", ""), ()) for name in self.examples.train]
        naive = NaiveShuffled(prompts, self.config.run.seed)
        for step in range(max(steps) + 1):
            config = self.history.config_at(step)
            assert isinstance(config, FinetuneConfig)  # a run does not change its command
            names_of_step = naive.take(config.finetune.batch_size)
            if step in steps:
                self.examples.next_batch(config.finetune.batch_size)
                self.positions[step + 1] = self.examples.position["sampler"]
                self.drawn[step] = naive.epoch, names_of_step

    def _recorded_examples(self) -> dict[int, list[str]]:
        try:
            rows = list(read_rows(self.history.directory / EXAMPLES_FILE))
            wanted = self.history.steps if self.history.finished else len(rows)
            right = [row["step"] for row in rows] == list(range(wanted))
            self.checks.files.add(
                right, f"{EXAMPLES_FILE}: expected one row for each of {wanted} steps, in their order"
            )
            if unknown := sorted({name for row in rows for name in row} - {"step", "examples"}):
                self.checks.files.add(False, f"{EXAMPLES_FILE}: expected no {', '.join(unknown)}")
            return {row["step"]: row["examples"] for row in rows}
        except (RecordError, LookupError, TypeError) as error:
            self.checks.files.add(False, f"{EXAMPLES_FILE}: cannot be read: {error}")
            return {}

    def _check_order(self, step: int, ids: Sequence[str], uses: ExampleUses) -> None:
        """Check that a step has distinct known examples, and that none is used twice more often than another."""
        check, size = self.checks.selection, self.config.finetune.batch_size
        check.expect(f"step {step}", f"{size} distinct examples", f"{len(set(ids))} distinct examples")
        unknown = sorted(set(ids) - self.examples.train.keys())
        check.add(not unknown, f"step {step}: the examples {unknown[:3]} are not in finetune.train")
        if step in self.drawn:
            _, drawn = self.drawn[step]
            check.add(list(ids) == drawn, f"step {step}: {order_mismatch(drawn, ids, _SAMPLER)}")
        most, least = uses.most, uses.least
        check.add(most - least <= 1, f"step {step}: an example was used {most} times, another {least} times")

    def _expected(self, step: int, batch: Sequence[Example]) -> dict[str, float]:
        samples = [sample for example in batch for sample in example.samples]
        observed = sum(
            int(np.count_nonzero(weights)) for each in samples if (weights := each.imitation_weights) is not None
        )
        return {
            names.SAMPLES: len(samples),
            **({names.EPOCH: self.drawn[step][0]} if step in self.drawn else {}),
            names.LEARNED_TOKENS: sum(map(len, samples)),
            names.TRAINED_TOKENS: sum(int(sample.loss_mask.sum()) for sample in samples),
            **({names.IMITATED_TOKENS: observed} if observed else {}),
            names.LEARNING_RATE: naive_learning_rate(step, self.config.total_steps, self.config.learner),
        }
