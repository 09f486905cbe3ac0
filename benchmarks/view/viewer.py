"""The viewer (`torl view`) on a generated run: indexing, opening, filters, searches, single trajectories, memory.

    python -m benchmarks.view.viewer [--trajectories 20000] [--tokens 1000] [--directory DIRECTORY]
    python -m benchmarks.view.viewer --trajectories 1000000 --tokens 60        # 3.4 GB on disk, some minutes

The run has steps of 128 problems with 16 samples, as in ToRL, in files of `encode_trajectory`, with texts of the given
length. The index is built by `torl view --index-only`. A server is started on it, and requests go over HTTP, each
several times with other values. "open" is the time from the start of the process to the first page of trajectories.
CPU time of the server is given, too, because a busy machine stretches the other times. The last line is JSON: seconds,
milliseconds, and the largest resident memory of the server in MiB.
"""

import argparse
import http.client
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import numpy as np

from torl.base.paths import resolve_path
from torl.base.types import (
    Block,
    FinishReason,
    Grade,
    Outcome,
    OutcomeStatus,
    Problem,
    Prompt,
    StopReason,
    ToolCall,
    ToolRequest,
    Trajectory,
    Turn,
)
from torl.components.text.tokenizer import load_tokenizer
from torl.run.records.files import trajectory_file
from torl.run.records.rows import TrajectoryRecord, encode_trajectory
from torl_lab.view.sources import INDEX_FILE

PROMPTS, SAMPLES, PROBLEMS = 128, 16, 20_000
POOL = 400  # different responses
GOALS = {"open_s": 2.0, "filter_ms": 200.0, "trajectory_ms": 50.0, "memory_mib": 500.0}
SYLLABLES = [first + second for first in "bdfgklmnprst" for second in ("a", "e", "i", "o", "u", "an", "er", "il")]


def responses(tokens: int, chooser: random.Random) -> Iterator[Trajectory]:
    """Yield responses of about this many tokens, three in four of them with a tool call."""
    tokenizer = load_tokenizer(resolve_path("torl:demo/base_model"))
    encode = lambda text: tokenizer.encode(text, add_special_tokens=False)  # noqa: E731
    vocabulary = ["".join(chooser.choices(SYLLABLES, k=chooser.randint(1, 3))) for _ in range(4000)]
    for number in range(POOL):
        code = f"total = sum(n ** 2 for n in range({number}))\nprint(total)\n"
        opening = f"Let me compute {number} with Python.\n```python\n{code}```\n```output"
        observation, status = f"\n{number * 7}\n```\n", OutcomeStatus.ERROR if number % 5 == 0 else OutcomeStatus.OK
        ending = f"The answer is $\\boxed{{{number}}}$."
        size = max(1, int(tokens * chooser.uniform(0.5, 1.5)) - 90)
        prose, words = "", []
        while len(encode(prose)) < size:
            words += chooser.choices(vocabulary, k=max(1, size // 6))
            prose = " ".join(words) + "\n"
        parts = [encode(prose + opening), encode(observation), encode(ending)]
        has_call = number % 4 > 0
        ids = [each for part in parts for each in part] if has_call else [*parts[0][:size], *parts[2]]
        mask = np.ones(len(ids), np.bool_)
        first, second = len(parts[0]), len(parts[0]) + len(parts[1])
        turns: tuple[Turn, ...] = (Turn(0, len(ids), prose + ending, StopReason.STOP, (), 0),)
        calls: tuple[ToolCall, ...] = ()
        text = prose + ending
        if has_call:
            mask[first:second] = False
            start = len(prose) + opening.index(code)
            block = Block(code, start, start + len(code), len(encode((prose + opening)[:start])))
            turns = (
                Turn(0, first, prose + opening, StopReason.CALL, (block,), 0),
                Turn(second, len(ids), ending, StopReason.STOP, (), first),
            )
            error = "ValueError" if status is OutcomeStatus.ERROR else None
            outcome = Outcome(status, f"{number * 7}\n", error, {"stdout": f"{number * 7}\n", "cpu_seconds": 0.001})
            calls = (ToolCall(ToolRequest("python", {"code": code}), outcome, observation, first, second, 0.01),)
            text = prose + opening + observation + ending
        logprobs = np.where(mask, -np.random.default_rng(number).exponential(0.4, len(ids)), 0).astype(np.float32)
        yield Trajectory(
            prompt=Prompt(Problem("p", f"Compute the quantity {number}.", str(number)), tuple(range(80))),
            group_id="0/p",
            sample_index=0,
            token_ids_T=np.array(ids, np.int32),
            loss_mask_T=mask,
            rollout_logprobs_T=logprobs,
            policy_versions_T=np.where(mask, 0, -1).astype(np.int32),
            turns=turns,
            tool_calls=calls,
            finish_reason=FinishReason.LENGTH if number % 17 == 0 else FinishReason.STOP,
            text=text,
            seconds=1.5,
        )


def write_run(directory: Path, trajectories: int, tokens: int) -> int:
    """Write the run and return its size in bytes."""
    chooser = random.Random(0)
    pool = []
    for trajectory in responses(tokens, chooser):
        row = encode_trajectory(TrajectoryRecord(0, trajectory, Grade(0.0, False, "1"), 0.0))
        for name in ("step", "group", "sample", "problem", "question", "reference_answer"):
            del row[name]
        grade = {name: row.pop(name) for name in ("answer", "correct", "grader_failure", "valid_format", "reward")}
        del row["advantage"], row["policy_versions"]
        # The members that all rows share, without their braces; a row joins them with its own.
        pool.append((grade, json.dumps(row, ensure_ascii=False)[1:-1].encode(), len(trajectory)))
    (directory / "trajectories").mkdir(parents=True)
    (directory / "config.toml").write_text("[run]\nsteps = 1000\n", encoding="utf-8")
    written = size = 0
    with (directory / "metrics.jsonl").open("w", encoding="utf-8") as metrics:
        for step in range(-(-trajectories // (PROMPTS * SAMPLES))):
            with trajectory_file(directory, step).open("wb") as file:
                for prompt in range(PROMPTS):
                    problem = (step * PROMPTS + prompt) % PROBLEMS
                    skill = min(0.9, 0.1 + step / 600) * chooser.uniform(0.5, 1.1)
                    rights = [chooser.random() < skill for _ in range(SAMPLES)]
                    mean = sum(rights) / SAMPLES
                    for sample, right in enumerate(rights[: trajectories - written]):
                        grade, rest, length = chooser.choice(pool)
                        own = {"step": step, "group": f"{step}/train-{problem:05d}", "sample": sample}
                        own |= {"problem": f"train-{problem:05d}", "question": f"Compute the quantity {problem}."}
                        own |= {"reference_answer": str(problem)} | grade
                        own |= {"correct": right, "reward": float(right) * 2 - 1, "advantage": 2 * (right - mean)}
                        own["policy_versions"] = [[step, length]]
                        size += file.write(json.dumps(own)[:-1].encode() + b", " + rest + b"}\n")
                        written += 1
            row = {"step": step, "time": 1.7e9 + 90 * step, "reward/accuracy": min(0.9, 0.1 + step / 600)}
            metrics.write(json.dumps(row | {"time/step": 90.0, "response/tokens": tokens + step}) + "\n")
    return size


class Client:
    """One connection to the server."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)

    def get(self, path: str, **parameters: Any) -> tuple[float, Any]:
        """Return the seconds until the whole answer arrived, and the answer."""
        started = time.perf_counter()
        query = urlencode(parameters, doseq=True, quote_via=quote)
        self._connection.request("GET", f"{path}?{query}" if query else path)
        response = self._connection.getresponse()
        body = response.read()
        seconds = time.perf_counter() - started
        if response.status != 200:
            raise SystemExit(f"{path} {parameters}: status {response.status}: {body[:500]!r}")
        return seconds, [json.loads(line) for line in body.splitlines()] if "search" in path else json.loads(body)


@contextmanager
def server(directory: Path) -> Iterator[tuple[subprocess.Popen[str], Client, float]]:
    """Start the viewer; yield its process, a client, and the seconds until it answered with the first page."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "torl", "view", str(directory), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        client = Client(int(line.strip().rstrip("/").rpartition(":")[2]))
        while client.get("/api/trajectories", limit=60)[1]["total"] == 0:
            time.sleep(0.01)
        yield process, client, time.perf_counter() - started
    finally:
        process.terminate()
        process.wait(timeout=30)


def cpu_seconds(process: subprocess.Popen[str]) -> float:
    """Return the CPU time of a process, without its children. It does not depend on the load of the machine."""
    fields = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def filters(chooser: random.Random, steps: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield queries of each kind, with other values each time."""
    for _ in range(6):
        step = chooser.randrange(steps)
        yield "all", {}
        yield "right", {"correct": 1}
        yield "step", {"step": step}
        yield "steps, wrong, error", {"step": f"{step}..{step + 50}", "correct": 0, "status": "error"}
        yield "advantage", {"sign": "positive", "advantage": f"{chooser.uniform(0.2, 1):.3f}..", "sort": "advantage"}
        yield "tokens, by reward", {"tokens": f"{chooser.randrange(10, 60)}..", "sort": "reward", "order": "asc"}
        yield "problem", {"problem": f"train-{chooser.randrange(min(PROBLEMS, steps * PROMPTS)):05d}"}
        yield "cut at the limit", {"finish": "length", "calls": "1.."}


def milliseconds(times: list[float]) -> dict[str, float]:
    return {"median": round(1000 * statistics.median(times), 1), "max": round(1000 * max(times), 1)}


def measure(directory: Path, trajectories: int) -> dict[str, Any]:
    chooser = random.Random(1)
    steps = -(-trajectories // (PROMPTS * SAMPLES))
    started = time.perf_counter()
    subprocess.run([sys.executable, "-m", "torl", "view", str(directory), "--index-only"], check=True)
    result: dict[str, Any] = {"index_s": round(time.perf_counter() - started, 1)}
    result["index_rows_per_s"] = round(trajectories / result["index_s"])
    result["index_mib"] = round((directory / INDEX_FILE).stat().st_size / 2**20, 1)
    opened, cpu = [], []
    for _ in range(3):
        with server(directory) as (process, _, seconds):
            opened.append(round(seconds, 2))
            cpu.append(round(cpu_seconds(process), 2))
    result["open_s"], result["open_cpu_s"] = opened, cpu
    with server(directory) as (process, client, _):
        times: dict[str, list[float]] = {}
        before = cpu_seconds(process)
        for name, query in filters(chooser, steps):
            times.setdefault(name, []).append(client.get("/api/trajectories", limit=60, **query)[0])
        requests = sum(map(len, times.values()))
        result["filter_cpu_ms"] = round(1000 * (cpu_seconds(process) - before) / requests, 1)
        result["filter_ms"] = {name: milliseconds(each) for name, each in times.items()}
        found = []
        for word in ("boxed", "compute 123", "tolaner", "per*"):
            seconds, page = client.get("/api/trajectories", limit=60, words=word)
            found.append({"words": word, "rows": page["total"], "ms": round(1000 * seconds, 1)})
        result["words"] = found
        seconds, lines = client.get("/api/search", pattern=r"boxed\{39[89]\}", step=f"0..{min(steps, 20)}")
        searched = max(line.get("searched", 0) for line in lines)
        result["pattern_rows_per_s"] = round(searched / seconds)
        one, group = [], []
        for _ in range(40):
            place = {"run": directory.name, "file": f"step_{chooser.randrange(steps):06d}", "line": 3}
            one.append(client.get("/api/trajectory", **place)[0])
            group.append(client.get("/api/compare", **place)[0])
        result["trajectory_ms"], result["group_ms"] = milliseconds(one), milliseconds(group)
        result["overview_ms"] = milliseconds([client.get("/api/overview")[0] for _ in range(3)])
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
        result["memory_mib"] = int(status.partition("VmHWM:")[2].split()[0]) // 1024
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trajectories", type=int, default=20_000)
    parser.add_argument("--tokens", type=int, default=1000, help="mean length of a response")
    parser.add_argument("--directory", type=Path, help="keep the run here, and use it if it exists")
    options = parser.parse_args()
    directory = options.directory or Path(tempfile.mkdtemp(prefix="torl-view-")) / "run"
    try:
        if not directory.exists():
            write_run(directory, options.trajectories, options.tokens)
        size = sum(file.stat().st_size for file in directory.glob("trajectories/*"))
        result = {"trajectories": options.trajectories, "tokens": options.tokens, "run_mib": round(size / 2**20)}
        result |= {"load": round(os.getloadavg()[0], 1), **measure(directory, options.trajectories)}
        worst = max(each["max"] for each in result["filter_ms"].values())
        reached = {"open_s": max(result["open_s"]), "filter_ms": worst}
        reached |= {"trajectory_ms": result["trajectory_ms"]["median"], "memory_mib": result["memory_mib"]}
        result["met"] = {name: reached[name] < goal for name, goal in GOALS.items()}
        for name, value in result.items():
            print(f"{name:<20} {value}")
        print(json.dumps(result))
    finally:
        if options.directory is None:
            shutil.rmtree(directory.parent)


if __name__ == "__main__":
    main()
