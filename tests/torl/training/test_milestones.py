"""Evaluation sets of a run: played together, and recorded each under its own name."""

import asyncio
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from transformers import GenerationConfig

from example_forms import TEMPLATE
from scripted_run import ScriptedRun
from tokenizers_for_tests import chat_tokenizer
from torl.base.errors import EngineError, LearnerError
from torl.components.text.prompts import EncodedPrompts
from torl.learner.checkpoint.directory import checkpoint_path, checkpoint_steps, open_checkpoint
from torl.learner.exporting import export_model
from torl.learner.learner import Learner
from torl.rollout.model_directory import ModelDirectory
from torl.rollout.startup import Rollouts
from torl.run.display.console import Console
from torl.run.placement.machine import Machine
from torl.run.placement.resolve import resolve
from torl.run.records.files import CONFIG_FILE, EXPORT_DIRECTORY, evaluation_files
from torl.run.records.reading import read_metrics, read_trajectories
from torl.run.records.writers import RunWriter
from torl.training.checkpoints import Checkpoints
from torl.training.components import RunComponents
from torl.training.milestones import Milestones
from torl.training.monitor import Monitors
from torl.training.policy_versions import write_model_files
from torl.training.startup import RunInputs
from torl_lab.report.page import ReportPage


def milestones(
    run: ScriptedRun, said: io.StringIO, learner: Any = None, checkpoint: Path | None = None, first_step: int = 0
) -> Milestones:
    """The milestones of a run whose evaluations have four problems and three."""
    sets = {
        "easy": EncodedPrompts(tuple(run.prompts[:4]), ()),
        "hard": EncodedPrompts(tuple(run.prompts[4:7]), ("p9",)),
    }
    model = ModelDirectory.open("torl:demo/base_model", {})
    resolved = resolve(run.config, Machine((), cores=2, host_bytes=10**11))
    components: RunComponents[Any] = RunComponents(
        RunInputs(model, run.sampler, sets, checkpoint, first_step, resolved),
        directory=run.config.run.directory,
        console=Console(said),
        playing=Rollouts(run.player, run.reward),
        learner=learner,
        writer=RunWriter(run.config.run.directory),
        checkpoints=Checkpoints(run.config.checkpoint, run.config.run.directory, learner),
    )
    monitors = Monitors([ReportPage])
    monitors.open(run.config, components.directory, 0)
    return Milestones(components, monitors)


def scripted(directory: Path) -> ScriptedRun:
    """The model solves the second sample of each easy problem; a greedy response is a first sample."""
    evaluation = {"greedy": True, "samples_per_problem": 2}
    return ScriptedRun(directory, lambda number: number < 4, steps=1, evaluation=evaluation)


async def test_sets_are_played_together_and_recorded_apart(tmp_path: Path) -> None:
    run, said = scripted(tmp_path), io.StringIO()
    await milestones(run, said).evaluate_if_due(0)
    assert run.engine.most_open == 21
    (row,) = read_metrics(tmp_path)
    found = {name: row[f"evaluation/{name}/reward/accuracy"] for name in ("easy", "hard")}
    assert found == {"easy": 0.5, "hard": 0.0}
    files = {name: files[0] for name, files in evaluation_files(tmp_path).items()}
    counts = {name: len(list(read_trajectories(path))) for name, path in files.items()}
    assert counts == {"easy": 8, "easy.greedy": 4, "hard": 6, "hard.greedy": 3}
    assert sorted(line.split(":")[0] for line in said.getvalue().splitlines()) == [
        "evaluation of easy at step 0",
        "evaluation of hard at step 0",
    ]


async def test_failed_export_leaves_the_last_checkpoint(tmp_path: Path) -> None:
    """Ranks that fail to export end at once, while they might still write."""

    class Saves:
        async def begin_checkpoint(self, directory: Path, state: dict[str, Any]) -> "asyncio.Task[None]":
            async def write() -> None:
                await asyncio.sleep(0.01)
                written.append(state["step"])

            return asyncio.create_task(write())

    async def export() -> None:
        assert written == [1]
        raise LearnerError("the disk is full")

    written: list[int] = []
    run = ScriptedRun(tmp_path, lambda number: number < 4, steps=1, evaluation={"every_steps": 0})
    (tmp_path / CONFIG_FILE).write_text(str(run.config), encoding="utf-8")
    found = milestones(run, io.StringIO(), Saves())
    with pytest.raises(LearnerError, match="the disk is full"):
        await found.finish({}, export)


async def test_run_that_resumed_after_its_last_step_writes_no_checkpoint(tmp_path: Path) -> None:
    """A kill while the checkpoint is replaced would cost it. The settings of `keep_last` may be new."""
    run = ScriptedRun(tmp_path, lambda number: number < 4, steps=1, evaluation={"every_steps": 0})
    (tmp_path / CONFIG_FILE).write_text(str(run.config), encoding="utf-8")
    for step in (0, 1, 2):
        with open_checkpoint(checkpoint_path(tmp_path, step), {}, {}):
            pass
    resumed = checkpoint_path(tmp_path, 1)
    found = milestones(run, io.StringIO(), checkpoint=resumed, first_step=1)  # without a learner to write one
    exported: list[bool] = []

    async def export() -> None:
        exported.append(True)

    await found.finish({}, export)
    assert exported
    assert checkpoint_steps(tmp_path) == [0, 1]


async def test_error_in_one_set_ends_the_evaluation(tmp_path: Path) -> None:
    run = scripted(tmp_path)
    run.engine.fail_on = "hard-sampled/p5/1/0"
    with pytest.raises(EngineError, match="the engine died"):
        await milestones(run, io.StringIO()).evaluate_if_due(0)
    assert (run.engine.open, run.player.slots.sampling) == (0, 0)
    assert not (tmp_path / "metrics.jsonl").exists() or not read_metrics(tmp_path)


async def test_model_of_a_training_run_stops_where_its_messages_end(tmp_path: Path) -> None:
    """`torl train` and `torl finetune` export here, `torl export` from the checkpoint: all with the format's ends."""

    class Exports:
        async def export(self, directory: Path, stop_token_ids: Sequence[int]) -> None:
            export_model([("weight", torch.zeros(2))], tmp_path / "base", directory, stop_token_ids)

    tokenizer = chat_tokenizer(TEMPLATE)
    assert tokenizer.eos_token_id != (end := tokenizer.convert_tokens_to_ids("<|im_end|>"))
    tokenizer.save_pretrained(tmp_path / "base")
    (tmp_path / "base/config.json").write_text(json.dumps({"eos_token_id": tokenizer.eos_token_id}))
    settings = {"model": {"path": str(tmp_path / "base")}, "rollout": {"format": "hermes"}}
    run = ScriptedRun(tmp_path / "run", steps=1, **settings)
    await milestones(run, io.StringIO()).export(cast(Learner, Exports()))
    write_model_files(run.config, tmp_path / "exported")
    for model in (tmp_path / "run" / EXPORT_DIRECTORY, tmp_path / "exported"):
        assert GenerationConfig.from_pretrained(model).eos_token_id == [tokenizer.eos_token_id, end]
