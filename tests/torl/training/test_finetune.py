"""Fine-tuning runs with forked ranks: losses against plain torch, resume bit for bit, export, audit."""

import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM

from learner_fixtures import distance_after_adamw, read_weights
from plants import seal
from saved_pages import content
from torl import Run
from torl.__main__ import main
from torl.base.errors import CheckpointError
from torl.base.paths import resolve_path
from torl.base.types import TrainingSample
from torl.components.text.tokenizer import load_tokenizer
from torl.rollout.model_directory import ModelDirectory
from torl.run.config import FinetuneConfig
from torl.run.config.loading import find_config, load_config
from torl.run.display.console import Console
from torl.run.records.receipt import read_receipt
from torl.training.examples import Examples, batch_samples
from torl.training.supervised_run import finetune
from torl_lab.audit.receipt_records import check_receipt
from torl_lab.audit.run import verify_run

pytestmark = pytest.mark.usefixtures("forked_ranks")

BASE = "torl:demo/base_model"
RATE, CLIP = 1e-3, 0.5
OBSERVED = 0.25


def rows(count: int) -> Iterator[dict[str, Any]]:
    """Ragged examples of several formats, a third of them with a result between two trained parts."""
    generator = np.random.default_rng(0)
    for number in range(count):
        digits = "1" * int(generator.integers(1, 30))
        if number % 3 == 0:
            yield {"problem": f"Find {digits} plus {number}.", "response": f"The answer is $\\boxed{{{digits}}}$."}
        elif number % 3 == 1:
            yield {"text": f"Let x be {digits}. Find x plus {number}."}
        else:
            texts = [
                f"Find {number}.",
                f"```python\nprint({digits})\n```output",
                f"\n{digits}\n```\n",
                f"$\\boxed{{{digits}}}$",
            ]
            yield {"segments": [{"label": place % 2 == 1, "text": text} for place, text in enumerate(texts)]}


@pytest.fixture(scope="module")
def examples_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("examples") / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows(12)))
    return path


def config_of(directory: Path, examples: Path, **changes: Any) -> FinetuneConfig:
    """The demo's model without evaluations; keywords are settings with `__` for the dot, None for the default."""
    settings = {
        "finetune.train": str(examples),
        "finetune.batch_size": 5,
        "finetune.validation_fraction": 0.1,
        "run.directory": str(directory),
        "run.steps": 3,
        "run.trackers": {},
        "data.evaluation": {},
        "learner.dtype": "float32",
        "learner.learning_rate": RATE,
        "learner.gradient_clip": CLIP,
        "learner.cpu_threads": 1,
        "evaluation.every_steps": 0,
        "checkpoint.every_steps": 2,
        **{name.replace("__", "."): value for name, value in changes.items()},
    }
    settings = {name: value for name, value in settings.items() if value is not None}
    return load_config(FinetuneConfig, find_config("demo"), settings)


async def tuned(config: FinetuneConfig) -> Run:
    with Console(io.StringIO()) as console:
        await finetune(config, console)
    return Run(config.run.directory)


def plain_steps(
    batches: Sequence[Sequence[TrainingSample]],
) -> tuple[list[float], dict[str, torch.Tensor]]:
    """The losses and final weights of the same steps in plain torch: one sample at a time, `cross_entropy`, AdamW."""
    policy: Any = AutoModelForCausalLM.from_pretrained(resolve_path(BASE), dtype=torch.float32).eval()
    optimizer = torch.optim.AdamW(policy.parameters(), lr=RATE, betas=(0.9, 0.95), weight_decay=0.0)
    losses = []
    for batch in batches:
        trained = sum(int(sample.loss_mask.sum()) for sample in batch)
        observed = sum(np.count_nonzero(sample.imitation_weights) for sample in batch)
        total = 0.0
        for sample in batch:
            ids = torch.from_numpy(sample.token_ids).long()
            per_token = cross_entropy(policy(input_ids=ids[None]).logits[0, :-1], ids[1:], reduction="none")
            weights = torch.from_numpy(sample.advantages)[1:] / trained
            if observed:
                weights = weights + torch.from_numpy(sample.imitation_weights)[1:] / observed
            loss = (weights * per_token).sum()
            loss.backward()
            total += float(loss.detach())
        losses.append(total)
        torch.nn.utils.clip_grad_norm_(policy.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad()
    return losses, {name: weight.detach().clone() for name, weight in policy.named_parameters()}


def batches_of(run: Run, config: FinetuneConfig) -> list[list[TrainingSample]]:
    """The samples of each recorded step."""
    examples = Examples.read(config, ModelDirectory.open(BASE, {}))
    lines = (run.directory / "examples.jsonl").read_text().splitlines()
    return [batch_samples([examples.train[each] for each in json.loads(line)["examples"]]) for line in lines]


@pytest.mark.parametrize(
    "layout",
    [
        {"learner__zero_stage": 0},
        {"learner__zero_stage": 2, "learner__ranks": 2, "learner__max_row_tokens": 60},
        {"learner__zero_stage": 3, "learner__ranks": 2, "learner__sequence_parallel": 2, "learner__max_row_tokens": 60},
    ],
    ids=["one rank", "two ranks, short rows", "sequence parallelism"],
)
async def test_losses_and_weights_equal_plain_torch(
    layout: dict[str, Any], examples_file: Path, tmp_path: Path
) -> None:
    layout = {"finetune__observation_weight": OBSERVED, **layout}
    config = config_of(tmp_path / "run", examples_file, **layout)
    run = await tuned(config)
    losses, weights = plain_steps(batches_of(run, config))
    assert run.metrics["learner/loss"] == pytest.approx(losses, abs=1e-5)
    assert distance_after_adamw(read_weights(run.directory / "model"), weights, 2 * 3 * RATE) < 1e-5
    before, after = run.metrics["validation/loss"]
    assert after < before


def plain_validation_loss(model: Any, config: FinetuneConfig) -> float:
    """The mean cross-entropy of the trained validation tokens in plain torch."""
    losses = []
    for sample in batch_samples(Examples.read(config, ModelDirectory.open(BASE, {})).validation):
        ids = torch.from_numpy(sample.token_ids).long()
        with torch.no_grad():
            per_token = cross_entropy(model(input_ids=ids[None]).logits[0, :-1], ids[1:], reduction="none")
        losses.append(per_token[torch.from_numpy(sample.loss_mask)[1:]])
    return float(torch.cat(losses).mean())


async def test_run_takes_one_epoch_by_default(
    examples_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The number of steps of the preset is that of reinforcement learning."""
    changes = {"checkpoint__every_steps": 1, "checkpoint__keep_last": 1, "checkpoint__keep_best": "validation/loss"}
    # Both steps make the model worse: the best checkpoint is not the last.
    changes |= {"evaluation__every_steps": 1, "learner__learning_rate": 0.5}
    config = config_of(tmp_path / "run", examples_file, run__steps=None, **changes)
    run = await tuned(config)
    assert run.metrics["data/epoch"] == [0, 0]  # 10 examples, five at a step
    assert run.config.total_steps == 2
    last = read_receipt(run.directory)[-1]
    assert (last["event"], last["step"]) == ("end", 2)
    assert (run.directory / "model" / "config.json").is_file()
    assert run.metrics["validation/loss"][1] < run.metrics["validation/loss"][2]
    assert {int(path.name[-6:]) for path in (run.directory / "checkpoints").iterdir()} == {1, 2}
    best, last = tmp_path / "best", tmp_path / "last"
    assert main(["export", str(run.directory), str(best)]) == 0
    assert main(["export", str(run.directory), str(last), "--step", "2"]) == 0
    capsys.readouterr()
    for arguments, message in (([best], "exists already"), ([tmp_path / "x", "--step", "3"], "after steps 1, 2")):
        assert main(["export", str(run.directory), *map(str, arguments)]) == 2
        assert message in capsys.readouterr().err
    weights, exported = read_weights(last), read_weights(run.directory / "model")
    assert weights.keys() == exported.keys()
    assert all(torch.equal(weights[name], exported[name]) for name in exported)
    model = AutoModelForCausalLM.from_pretrained(best, dtype=torch.float32).eval()
    assert plain_validation_loss(model, config) == pytest.approx(run.metrics["validation/loss"][1], abs=1e-5)
    assert load_tokenizer(best).get_vocab() == load_tokenizer(run.directory / "model").get_vocab()
    assert (await verify_run(run.directory)).ok


async def test_resumed_run_equals_the_uninterrupted_one_bit_for_bit(examples_file: Path, tmp_path: Path) -> None:
    whole = await tuned(config_of(tmp_path / "whole", examples_file, run__steps=4))
    await tuned(config_of(tmp_path / "stopped", examples_file, run__steps=2))
    resumed = await tuned(config_of(tmp_path / "stopped", examples_file, run__steps=4, run__resume=True))
    for metric in ("learner/loss", "learner/gradient_norm", "learner/tokens", "data/epoch"):
        assert resumed.metrics[metric] == whole.metrics[metric]
    assert resumed.metrics["validation/loss"] == whole.metrics["validation/loss"]
    texts = [(run.directory / "examples.jsonl").read_text() for run in (whole, resumed)]
    assert texts[0] == texts[1]
    first, second = (read_weights(run.directory / "model") for run in (whole, resumed))
    assert all(torch.equal(first[name], second[name]) for name in first)

    audit = await verify_run(resumed.directory)
    assert audit.ok, str(audit)
    assert audit["selection"].compared
    assert audit["checkpoints"].compared >= 2
    assert audit["logprobs"].compared == 4  # losses of steps 0 and 2, and validations after steps 0 and 4
    assert audit["logprobs"].max_difference < 1e-5
    assert isinstance(resumed.config, FinetuneConfig)
    report = content(resumed.directory / "report.html")
    assert "Mean cross-entropy of the trained tokens" in str(report["curves"])
    assert [(each["method"], each["steps"]) for each in report["runs"]] == [("fine-tuning", 4)]

    other = examples_file.with_name("other.jsonl")
    other.write_text(examples_file.read_text() + '{"text": "one more"}\n')
    with pytest.raises(CheckpointError, match=r"with other examples than finetune\.train contains now"):
        await tuned(config_of(tmp_path / "stopped", other, run__steps=5, run__resume=True))


async def test_audit_finds_changed_records(examples_file: Path, tmp_path: Path) -> None:
    run = await tuned(config_of(tmp_path / "run", examples_file, run__steps=2))
    metrics, examples = run.directory / "metrics.jsonl", run.directory / "examples.jsonl"
    recorded = metrics.read_text(), examples.read_text()

    async def wrong_checks() -> set[str]:
        """The checks that find something, without the receipt, which a forged run rewrites."""
        return {check.name for check in (await verify_run(run.directory)).checks if check.wrong} - {"receipt"}

    assert await wrong_checks() == set()
    changed = [json.loads(line) for line in recorded[0].splitlines()]
    for row in changed:
        if "learner/loss" in row:
            row["learner/loss"] += 0.01
    metrics.write_text("".join(json.dumps(row) + "\n" for row in changed))
    assert await wrong_checks() == {"logprobs"}
    metrics.write_text(recorded[0])
    first, second = (json.loads(line) for line in recorded[1].splitlines())
    second["examples"] = first["examples"]
    examples.write_text("".join(json.dumps(row) + "\n" for row in (first, second)))
    assert "selection" in await wrong_checks()
    assert check_receipt(run.directory).examples == ["examples.jsonl: the row of step 1 is missing or has changed"]
    examples.write_text(recorded[1].splitlines()[0] + "\n")
    assert await wrong_checks() == {"files"}
    examples.write_text(recorded[1])
    config_file = run.directory / "config.toml"
    config = config_file.read_text()
    for old, new in (
        ("max_tokens = 4096", "max_tokens = 40"),
        ("fraction = 0.1", "fraction = 0.4"),
        ("seed = ", "seed = 1"),
    ):
        assert old in config
        config_file.write_text(config.replace(old, new))
        seal(run.directory)
        assert "selection" in await wrong_checks(), new
    config_file.write_text(config)
    seal(run.directory)
    metrics.write_text(recorded[0].replace('"learner/samples": ', '"learner/samples": 1'))
    assert await wrong_checks() == {"metrics"}
    metrics.write_text(recorded[0].replace('"data/epoch": 0', '"data/epoch": 7'))
    assert await wrong_checks() == {"metrics"}
    metrics.write_text(recorded[0].replace('"data/epoch"', '"foo/bar": 1, "data/epoch"'))
    assert await wrong_checks() == {"metrics"}
    metrics.write_text(recorded[0])
    examples_file.rename(examples_file.with_suffix(".moved"))
    try:
        audit = await verify_run(run.directory)
        assert audit.ok
        assert "cannot be compared" in audit["selection"].note
    finally:
        examples_file.with_suffix(".moved").rename(examples_file)


async def test_bfloat16_and_adapters_start_at_the_loss_of_the_model(tmp_path: Path) -> None:
    """The adapters begin at zero, and rounding changes the loss little."""
    examples_file = tmp_path / "train.jsonl"
    # Without the twelfth row, whose loss bfloat16 changes by 0.2 in plain transformers too. Which rows are in the first
    # step depends on the file's name.
    examples_file.write_text("".join(json.dumps(row) + "\n" for row in rows(11)))
    exact_config = config_of(tmp_path / "exact", examples_file, run__steps=1)
    exact = (await tuned(exact_config)).metrics["learner/loss"][0]
    changes = {"model__lora__rank": 4, "run__steps": 6, "learner__learning_rate": 3e-3}
    adapted = await tuned(config_of(tmp_path / "lora", examples_file, **changes))
    losses = adapted.metrics["learner/loss"]
    assert losses[0] == pytest.approx(exact, abs=1e-5)
    assert adapted.metrics["validation/loss"][-1] < adapted.metrics["validation/loss"][0]
    assert (adapted.directory / "model/adapter/adapter_model.safetensors").is_file()
    assert (await verify_run(adapted.directory)).ok
    AutoModelForCausalLM.from_pretrained(adapted.directory / "model")
    assert main(["export", str(adapted.directory), str(tmp_path / "merged")]) == 0
    merged, exported = read_weights(tmp_path / "merged"), read_weights(adapted.directory / "model")
    assert all(torch.allclose(merged[name], exported[name], atol=1e-6, rtol=1e-5) for name in exported)

    rounded = await tuned(config_of(tmp_path / "bf16", examples_file, learner__dtype="bfloat16"))
    assert rounded.metrics["learner/loss"][0] == pytest.approx(exact, abs=2e-2)
    with safe_open(next((rounded.directory / "model").glob("*.safetensors")), "pt") as file:
        assert {file.get_tensor(name).dtype for name in file.keys()} == {torch.bfloat16}  # noqa: SIM118
    assert main(["export", str(rounded.directory), str(tmp_path / "rounded")]) == 0
    again, exported = read_weights(tmp_path / "rounded"), read_weights(rounded.directory / "model")
    assert all(torch.equal(again[name], exported[name]) for name in exported)
    assert (await verify_run(rounded.directory)).ok
