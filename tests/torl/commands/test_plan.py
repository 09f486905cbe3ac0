"""`python -m torl.commands.plan`: what it says of a run that fits, and of one that does not."""

import json
import re
from pathlib import Path

import pytest

from placement_models import QWEN_7B, QWEN_32B
from torl.commands.plan import main
from torl.components.hub.shape import ModelShape


@pytest.fixture
def model(tmp_path: Path) -> str:
    (tmp_path / "config.json").write_text(json.dumps(QWEN_7B))
    return str(tmp_path)


def test_a_run_that_fits_is_planned_in_bytes_and_a_roofline(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = [
        "--gpus",
        "8",
        "--gpu-memory",
        "79.6",
        "--host-memory",
        "1500",
        "--prompt-tokens",
        "150",
        "--response-tokens",
        "700",
    ]
    assert main(["torl_7b", "--model", model, *options]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("7.62 B parameters; colocated: learner on GPUs 0-7, engines on 0 + 1 + 2")
    stages = ["load", "sample", "update", "step", "wake", "sync", "checkpoint", "export"]
    assert [line.split()[0] for line in lines[2:10]] == stages
    plan = json.loads(last)
    assert plan["fits"]
    assert list(plan["stages"]) == stages
    assert all(len(stage["gpus"]) == 8 for stage in plan["stages"].values())
    update = plan["stages"]["update"]
    assert update["gpus"][0] == sum(update["learner"].values()) + sum(update["engine"].values())
    parameters, flops, memory = 7_615_616_512, 989e12, 3.35e12
    assert "rows of 9,216 tokens, activations kept" in lines
    # 2,048 samples of 850 tokens: 6 operations a parameter and token, on all GPUs.
    update_seconds = 2048 * 850 * 6 * parameters / (8 * flops)
    # Each engine has 256 of them, and room for all at once: 150 tokens of each are computed; for each of 700 more the
    # weights are read once, and the keys and values of 850 tokens, of 57,344 bytes each, for every sample.
    assert plan["cache_tokens"] > 256 * 850
    prompt_seconds = 2 * parameters * 256 * 150 / flops
    response_seconds = 700 * (2 * parameters + 256 * 850 * 57_344) / memory
    assert plan["roofline_seconds"] == pytest.approx(update_seconds + prompt_seconds + response_seconds)
    (line,) = [line for line in lines if " s with " in line]
    assert line == (
        f"a step takes at least {plan['roofline_seconds']:.1f} s with prompts of 150 and responses of 700 tokens: "
        "an unmeasured roofline estimate, from the data sheet of the H100"
    )


def test_the_time_of_a_larger_critic_is_its_own(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    critic = tmp_path / "critic"
    critic.mkdir()
    (critic / "config.json").write_text(json.dumps(QWEN_32B))
    options = ["torl_7b", "--model", model, "--gpus", "8", "--host-memory", "1500", "--response-tokens", "700"]
    options += ["--prompt-tokens", "150", "--algorithm.estimator", '{ name = "ppo" }', "--critic.learning_rate", "1e-6"]
    seconds = []
    for path in (model, str(critic)):
        main([*options, "--critic.path", path, "--learner.gradient_checkpointing", "false"])
        seconds.append(json.loads(capsys.readouterr().out.splitlines()[-1])["roofline_seconds"])
    own, larger = (ModelShape.from_config(each).trunk_parameters for each in (QWEN_7B, QWEN_32B))
    # 2,048 samples of 850 tokens: values once, 2 operations a parameter and token, and one update, 6.
    assert seconds[1] - seconds[0] == pytest.approx(2048 * 850 * 8 * (larger - own) / (8 * 989e12))


def test_a_run_on_cores_is_planned_without_a_roofline(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--model", model, "--model.lora.rank", "16", "--learner.max_row_tokens", "1024"]
    assert main(["demo", *options, "--host-memory", "128"]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("7.62 B parameters; colocated: learner on cores 0")
    stages = ["sample", "update", "step", "sync", "checkpoint", "export"]
    assert [line.split()[0] for line in lines[1:8]] == ["host", *stages]
    assert not any(" s with " in line or "warning" in line for line in lines)
    plan = json.loads(last)
    assert plan["fits"]
    assert plan["roofline_seconds"] is None
    assert list(plan["stages"]) == stages
    assert main(["demo", *options, "--host-memory", "48"]) == 1
    assert "host would need" in capsys.readouterr().out


def test_run_that_does_not_fit_gets_the_cheapest_change(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--gpus", "2", "--host-memory", "1500", "--learner.max_row_tokens", "8192"]
    assert main(["torl_7b", "--model", model, *options]) == 1
    *lines, last = capsys.readouterr().out.splitlines()
    assert any(line.startswith("update: GPU 0 would need 79.8 GiB and has 79.6 GiB") for line in lines)
    assert lines[-1].startswith("it would fit with --learner.")
    assert lines[-1].endswith("it fits on 4 such GPUs as it is")
    assert not json.loads(last)["fits"]


def test_override_of_a_preset_changes_its_plan(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--gpus", "8", "--model", model, "--host-memory", "1500"]
    split = ["--rollout.max_staleness", "1", "--algorithm.importance_correction.name", "tis"]
    assert main(["torl_7b", *options, *split]) == 0
    assert "split: learner on GPUs 0-3, engines on 4 + 5 + 6 + 7" in capsys.readouterr().out


def test_mistake_is_reported(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["torl_7b", "--model", str(tmp_path / "nowhere"), "--gpus", "8"]) == 2
    assert "cannot be read" in capsys.readouterr().err
    for option in ("--gpus", "--nodes", "--gpu-memory", "--prompt-tokens"):
        for value in ("0", "-1"):
            assert main(["torl_7b", "--model", model, "--gpus", "8", option, value]) == 2
            assert re.fullmatch(rf"error: {option} = {value}(\.0)? must be above 0\n", capsys.readouterr().err)
    assert main(["torl_7b", "--model", model, "--gpus", "8", "--engine.tensor_parallel", "3"]) == 2
    assert "28 attention heads (4 of keys and values): it can be 1, 2, 4, 28" in capsys.readouterr().err


def test_a_32b_preset_is_planned_for_eight_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(QWEN_32B))
    options = ["--gpus", "8", "--nodes", "8", "--model", str(tmp_path), "--host-memory", "1500"]
    assert main(["ztrl_reinforce_32b", *options]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("engines on 0-63 (32 x 2); of 8 nodes 0-7 have ranks, 0-7 engines")
    assert lines[1].split() == ["GPUs", "0-63", "hosts"]
    plan = json.loads(last)
    assert plan["fits"]
    assert len(plan["stages"]["update"]["gpus"]) == 64
