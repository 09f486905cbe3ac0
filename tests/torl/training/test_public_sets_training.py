"""From public sets by name to a table: prepared, measured, trained on and evaluated, by the commands of the docs."""

import json
from pathlib import Path

import pytest

from cli import running
from hub_server import COMMIT, serving
from public_set_rows import EVALUATION, TRAINING
from torl.components.data import load_problems
from torl.components.data.public_sets import public_sets

SETS = ("numina_math", "dapo_17k", "math500")


@pytest.mark.slow
def test_two_public_sets_are_trained_on_for_two_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = {}
    for name in SETS:
        address = public_sets()[name].address
        assert address is not None
        folders[address] = {**TRAINING, **EVALUATION}[name]().write(tmp_path / name)
    tested = EVALUATION["torl_test"]().write(tmp_path / "torl_test") / "test.parquet"
    clean, measured, run, table = (tmp_path / name for name in ("clean", "measured.jsonl", "run", "table"))
    small = ["--evaluation.max_problems", "2", "--engine.cpu_threads", "1"]
    with serving(folders) as (address, _):
        monkeypatch.setenv("HF_ENDPOINT", address)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        words = ["prepare", "numina_math", "dapo_17k", "--output", str(clean)]
        with running("torl", "data", *words, log=tmp_path / "prepare.log") as command:
            assert command.wait(1500) == 0, command.output()
        words = ["difficulty", "torl:demo/base_model", "--problems", str(clean / "problems.jsonl"), "--samples", "2"]
        words += ["--config", "demo", "--output", str(measured), "--engine.cpu_threads", "1"]
        with running("torl", "data", *words, log=tmp_path / "difficulty.log") as command:
            assert command.wait(1500) == 0, command.output()
            assert command.last_json()["problems"] == 18
        with running("torl", "data", *words, log=tmp_path / "again.log") as command:
            assert command.wait(1500) == 0, command.output()
            assert "18 problems were measured already" in command.output()
        sets = f'{{ math500 = "math500", torl_test = "torl_test={tested}" }}'
        words = ["demo", "--data.train", str(measured), "--data.evaluation", sets, "--run.directory", str(run)]
        words += ["--run.steps", "2", "--rollout.prompts_per_step", "4", "--rollout.samples_per_prompt", "2", *small]
        with running("torl.train", *words, log=tmp_path / "train.log") as command:
            assert command.wait(1500) == 0, command.output()
            command.assert_nothing_left()
        words = [str(run), "--suite", "math500", f"torl_test={tested}", "--output", str(table), *small]
        with running("torl", "evaluate", *words, log=tmp_path / "evaluate.log") as command:
            assert command.wait(1500) == 0, command.output()
    problems = load_problems(measured)
    assert {problem.id.partition("/")[0] for problem in problems} == {"numina_math", "dapo_17k"}
    assert all(problem.metadata["samples"] == 2 for problem in problems)
    assert not list(tmp_path.glob("*trajectories*"))
    assert f'path = "math500@{COMMIT}"' in (run / "config.toml").read_text()
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if "time/step" in row] == [0, 1]
    names = {name.split("/")[1] for row in rows for name in row if name.startswith("evaluation/")}
    assert names == {"math500", "aime24", "aime25", "torl_test-math500"}
    (first, *_) = json.loads((table / "results.json").read_text())["accuracy"]
    assert first["problems"] == {"aime24": 2, "aime25": 2, "math500": 2, "torl_test-math500": 2}
