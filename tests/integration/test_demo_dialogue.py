"""A tiny chat model learns in an environment, by what its messages say; where they say nothing true, it does not."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cli import ROOT

from demo_maker.chat import build
from demo_maker.dialogue import conversation, problems

SETTINGS = {
    "data.template": "chat",
    "data.max_prompt_tokens": "48",
    "rollout.format": "hermes",
    "rollout.tools": "{}",
    "rollout.max_response_tokens": "64",
    "rollout.environment.name": "demo_maker.dialogue:Code",
    "rollout.environment.max_turns": "3",
    "reward.name": "environment",
    "run.steps": "20",
    "evaluation.every_steps": "0",
    "evaluation.samples": "4",
    "evaluation.greedy": "false",
    "learner.learning_rate": "3e-4",
}


def trained(directory: Path, **changes: str) -> dict[str, Any]:
    """What the command says at its end."""
    options = {**SETTINGS, "run.directory": str(directory), **changes}
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    command = [sys.executable, "-m", "torl.train", "demo", *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
    summary: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return summary


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The model and the problems; the options that name them."""
    directory = tmp_path_factory.mktemp("dialogue")
    files = {}
    for name, rows in (("train", problems(200)), ("heldout", problems(48, first=200))):
        files[name] = directory / f"{name}.jsonl"
        files[name].write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return {
        "model.path": str(build(directory / "model", conversation, steps=300)),
        "data.train": str(files["train"]),
        "data.evaluation": f"{{ heldout = {json.dumps(str(files['heldout']))} }}",
    }


@pytest.mark.slow
def test_a_model_learns_to_ask_its_environment_and_to_say_what_it_was_told(
    given: dict[str, str], tmp_path: Path
) -> None:
    told = trained(tmp_path / "told", **given)
    assert told["accuracy_before"] < 0.4
    assert told["accuracy_after"] > 0.6
    rows = [json.loads(line) for line in (tmp_path / "told" / "metrics.jsonl").read_text().splitlines()]
    asked = [row["environment/messages"] for row in rows if "environment/messages" in row]
    assert asked[-1] > asked[0]
    audit = subprocess.run([sys.executable, "-m", "torl.verify", str(tmp_path / "told")], cwd=ROOT, check=False)
    assert audit.returncode == 0


@pytest.mark.slow
def test_nothing_is_learned_from_an_environment_that_tells_another_code(given: dict[str, str], tmp_path: Path) -> None:
    lied = trained(tmp_path / "lied", **given, **{"rollout.environment.honest": "false"})
    assert lied["accuracy_after"] < 0.3
