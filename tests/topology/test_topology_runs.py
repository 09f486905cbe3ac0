"""Three steps of training in every arrangement: equal weights on both sides, equal logprobs, nothing left over.

Ranks, ZeRO stage and placement are tried in every combination: they decide what a rank holds, gathers and moves away.
Arrangements that are left out take the same path as the ones below:

- The stage is the learner's alone, tensor parallelism the engines': between them there are senders, receivers and
  buckets. So every number of ranks meets every number of workers, by each way, at one of the stages and placements.
- A way carries bytes and knows of no stage, placement or engine: it meets each of them once.
"""

import contextlib
import itertools
import json
import os
import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

import tiny_model
from cli import ROOT, running
from held_weights import FILE, expected_checksums
from torl.components.engine.vllm.options import VllmOptions
from torl.components.hub.shape import ModelShape
from torl.learner.checkpoint.directory import LEARNER, checkpoint_path
from torl.learner.checkpoint.shards import read_policy_weights
from torl_lab.audit.run import main as verify

STEPS = 3
SAMPLES = 4 * 4
MAX_GAP = 2e-5
SHARED_MEMORY = Path("/dev/shm")
PLACEMENTS = ("colocated", "split")
STAGES = (0, 2, 3)
WAYS = ("gloo", "shared_memory")


class Arrangement(NamedTuple):
    ranks: int
    zero_stage: int
    placement: str
    tensor_parallel: int
    way: str


ARRANGEMENTS = [
    Arrangement(1, 0, "colocated", 1, "gloo"),
    Arrangement(1, 0, "split", 2, "shared_memory"),
    Arrangement(1, 2, "colocated", 2, "shared_memory"),
    Arrangement(1, 2, "split", 1, "gloo"),
    Arrangement(1, 3, "colocated", 1, "shared_memory"),
    Arrangement(1, 3, "split", 2, "gloo"),
    Arrangement(2, 0, "colocated", 2, "gloo"),
    Arrangement(2, 0, "split", 1, "shared_memory"),
    Arrangement(2, 2, "colocated", 1, "shared_memory"),
    Arrangement(2, 2, "split", 2, "gloo"),
    Arrangement(2, 3, "colocated", 2, "shared_memory"),
    Arrangement(2, 3, "split", 1, "gloo"),
]
CONFIG = """
[run]
directory = "{directory}/run"
steps = {steps}

[model]
path = "{model}"

[data]
train = "{directory}/problems.jsonl"
template = "none"
max_prompt_tokens = 64

[rollout]
prompts_per_step = 4
samples_per_prompt = 4
max_response_tokens = 96
max_staleness = {staleness}

[rollout.tools.python]
workers = 1

[engine]
name = "held_weights:WatchedReplicas"
dtype = "float32"
replicas = 2
tensor_parallel = {tensor_parallel}
cpu_threads = 1
max_sequences = 32
sleep_while_learning = {colocated}

[algorithm]
entropy_bonus = 0.01
{correction}

[learner]
ranks = {ranks}
zero_stage = {zero_stage}
dtype = "float32"
learning_rate = 1e-3
max_row_tokens = 1024
weight_transfer = "{way}"
verify_weights = true
offload = "{moves}"

[checkpoint]
every_steps = 1
keep_last = {steps}
"""


def moves(arrangement: Arrangement) -> bool:
    """Whether the learner leaves its devices while the engines sample."""
    return arrangement.placement == "colocated" and arrangement.zero_stage >= 2


def config_of(arrangement: Arrangement, model: Path, directory: Path) -> str:
    colocated = arrangement.placement == "colocated"
    return CONFIG.format(
        directory=directory,
        model=model,
        steps=STEPS,
        staleness=0 if colocated else 1,  # split sides work at the same time
        correction="" if colocated else 'importance_correction = "tis"',
        colocated=str(colocated).lower(),
        moves="while_sampling" if moves(arrangement) else "none",
        **arrangement._asdict(),
    )


def write_problems(path: Path) -> None:
    pairs = [(first, 3 * first % 37 + 2) for first in range(3, 19)]
    rows = [
        {"id": f"{first}", "problem": tiny_model.prompt_text(first, second), "answer": str(first * second)}
        for first, second in pairs
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def abandoned(files: set[Path]) -> set[Path]:
    """Segments that no living process maps; other programs on this machine may make and use some at the same time."""
    mapped = ""
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            mapped += maps.read_text()
    return {path for path in files if path.exists() and str(path) not in mapped}


def test_omitted_arrangements_share_a_path_with_tested_ones() -> None:
    cases = [arrangement._asdict() for arrangement in ARRANGEMENTS]

    def met(*names: str) -> set[tuple[object, ...]]:
        return {tuple(case[name] for name in names) for case in cases}

    assert len(set(ARRANGEMENTS)) == len(ARRANGEMENTS)
    assert met("ranks", "zero_stage", "placement") == set(itertools.product((1, 2), STAGES, PLACEMENTS))
    assert met("ranks", "tensor_parallel", "way") == set(itertools.product((1, 2), (1, 2), WAYS))
    for values, name in [(STAGES, "zero_stage"), (PLACEMENTS, "placement")]:
        assert met(name, "way") == set(itertools.product(values, WAYS))
        assert met(name, "tensor_parallel") == set(itertools.product(values, (1, 2)))


@pytest.mark.parametrize("arrangement", ARRANGEMENTS, ids=lambda each: "-".join(map(str, each)))
def test_three_steps(
    arrangement: Arrangement,
    tiny_model_directory: Path,
    tmp_path: Path,
    temporary_directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run, shared = tmp_path / "run", set(SHARED_MEMORY.iterdir())
    (tmp_path / "run.toml").write_text(config_of(arrangement, tiny_model_directory, tmp_path))
    write_problems(tmp_path / "problems.jsonl")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'python'}{os.pathsep}{Path(__file__).parent}")
    monkeypatch.setenv("TMPDIR", str(temporary_directory))
    with running("torl.train", str(tmp_path / "run.toml"), log=tmp_path / "output.log") as command:
        assert command.wait() == 0, command.output()
        command.assert_nothing_left()
    assert f"placement: {arrangement.placement}: " in command.output()
    assert list(temporary_directory.iterdir()) == []  # sockets among others
    assert abandoned(abandoned(set(SHARED_MEMORY.iterdir()) - shared)) == set()  # another program may just make one

    # Each worker of each engine holds the weights that the learner had after each step.
    held = [json.loads(line) for line in (run / "logs" / FILE).read_text().splitlines()]
    assert [row["version"] for row in held] == [1, 2, 3]
    for row in held:
        weights = read_policy_weights(checkpoint_path(run, row["version"]) / LEARNER)
        assert len(row["engines"]) == 2
        for engine in row["engines"]:
            assert len(engine) == arrangement.tensor_parallel
            for number, worker in enumerate(engine):
                expected = expected_checksums(weights, number, arrangement.tensor_parallel)
                assert len(expected) == 1 + 2 * 2 + 1  # embedding, norms of two layers, the last norm
                assert {name: worker[name] for name in expected} == expected
    embeddings = {row["engines"][0][0]["dp0:pp0:pcp0:tp0:model.embed_tokens.weight"] for row in held}
    assert len(embeddings) == STEPS  # every step has changed them

    # The engines' logprobs are those of plain transformers with the same weights, on every token of every version.
    assert verify([str(run), "--trust", "--logprob-samples", str(STEPS * SAMPLES)]) == 0
    checks = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert checks["logprobs"]["compared"] >= STEPS * SAMPLES
    assert checks["logprobs"]["max_difference"] <= MAX_GAP

    # The plan's bytes of a cached token are vLLM's, also where two workers hold the same head of keys.
    options = VllmOptions(tensor_parallel=arrangement.tensor_parallel, dtype="float32")
    token_bytes = options.memory(ModelShape.read(tiny_model_directory), 0).token_bytes
    found = re.search(r"KV cache size: ([\d,]+) tokens", (run / "logs" / "engine_0.log").read_text())
    assert found is not None
    assert int(found[1].replace(",", "")) == pytest.approx(options.cpu_kv_cache_gib * 2**30 / token_bytes, rel=0.05)

    # On shared devices the learner makes room before each publication: it moves its state away, or frees only torch's
    # cache where the state must stay. State that moved comes back for each step and for the export at the end.
    commands = re.findall(r"(?m)^(offload|onload): ", (run / "logs" / "learner_rank_0.log").read_text())
    if moves(arrangement):
        assert Counter(commands) == {"offload": 2 * (1 + STEPS), "onload": STEPS + 1}
    else:
        assert commands == ["offload"] * STEPS * (arrangement.placement == "colocated")
