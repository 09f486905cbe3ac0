"""The dialogue demo in a server of OpenEnv's: the model learns there as in the environment itself. A minute."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.demo import dialogue
from cli import ROOT
from openenv_servers import serving
from torl.base.trust import NOT_TRUSTED

SERVER = Path(__file__).with_name("openenv_color.py")


@pytest.mark.timeout(900)
def test_a_model_learns_in_an_environment_of_openenvs(tmp_path: Path) -> None:
    with serving(SERVER) as (url, _):
        options = {**dialogue.prepare(tmp_path), **dialogue.SETTINGS, "run.steps": dialogue.STEPS}
        del options["rollout.environment.name"]
        options |= {
            "rollout.environment.openenv": url,
            "rollout.environment.text_field": "message",
            "rollout.environment.visible_fields": json.dumps(["text"]),
        }
        run = tmp_path / "run"
        dialogue.train(run, options)
        found = dialogue.measured(run)
        assert found["accuracy"][1] > found["accuracy"][0] + 0.2
        assert found["asks"][1] > 0.75
        audits = [["--trust"], []]
        commands = ([sys.executable, "-m", "torl", "verify", str(run), *words] for words in audits)
        statuses = [subprocess.run(command, cwd=ROOT, check=False).returncode for command in commands]
    assert statuses == [0, NOT_TRUSTED]
