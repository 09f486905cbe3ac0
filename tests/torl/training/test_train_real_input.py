"""Any causal language model directory on real problem files: a real-size vocabulary, two ranks, ZeRO-2."""

import json
from pathlib import Path

import pytest

from cli import ROOT, running
from models import PADDED_VOCABULARY, write_real_size_model

DATA = ROOT.parent / "shared" / "data"


@pytest.mark.slow
@pytest.mark.skipif(not DATA.is_dir(), reason=f"the benchmark files are not part of torl and not at {DATA}")
def test_two_steps_on_real_problems(tmp_path: Path) -> None:
    model = write_real_size_model(tmp_path / "model")
    config = tmp_path / "run.toml"
    config.write_text(f"""
[run]
directory = "{tmp_path / "run"}"
steps = 2
[model]
path = "{model}"
[data]
train = "{DATA / "math_level3to5_train.jsonl"}"
evaluation = {{ torl_test = "{DATA / "torl_test.parquet"}" }}
max_prompt_tokens = 512
[rollout]
prompts_per_step = 4
samples_per_prompt = 2
max_response_tokens = 48
[engine]
dtype = "float32"
max_sequences = 16
[algorithm]
entropy_bonus = 0.01
[learner]
ranks = 2
zero_stage = 2
dtype = "float32"
max_row_tokens = 1024
[evaluation]
max_problems = 4
""")
    with running("torl.train", str(config), log=tmp_path / "run.log") as command:
        assert command.wait(280) == 0, command.output()
        command.assert_nothing_left()
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    # ToRL's own test file holds three sets.
    sets = {name.split("/")[1] for row in rows for name in row if name.startswith("evaluation/")}
    assert sets == {"aime24", "aime25", "math500"}
    trained = [row for row in rows if "time/step" in row]
    assert [row["step"] for row in trained] == [0, 1]
    # A random model is never right, so every advantage is 0: what moves the policy is the entropy bonus alone.
    assert all(row["reward/mean"] == -1 for row in trained)
    assert all(row["learner/updates"] == 1 and row["learner/gradient_norm"] > 0 for row in trained)
    assert all(row["learner/logprob_gap_max"] < 1e-4 for row in trained)
    records = [json.loads(line) for line in (tmp_path / "run" / "trajectories" / "step_000000.jsonl").open()]
    assert max(max(record["token_ids"]) for record in records) > 2**16
    assert max(max(record["token_ids"]) for record in records) < PADDED_VOCABULARY
