"""The list of trajectories in Chromium: `torl view`, and Inspect View on the same trajectories.

    python -m benchmarks.view.pages [--trajectories 20000] [--tokens 300] [--directory DIRECTORY] [--inspect PYTHON]

PYTHON is the interpreter of an environment with inspect-ai, which writes the same responses as one .eval log. Each page
is opened several times in new tabs, with the server running and the index built. "rows_s" is the time from the address
to the first visible rows, "script_s" the time of scripts until then, which depends less on other load; "received_mib"
all that the first opening loads, "heap_mib" the memory of its scripts, "server_mib" the largest resident memory of the
server. "filter_s" is the time from a click on "right" (torl) until the list has changed. The last line is JSON.
"""

import argparse
import asyncio
import json
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

from benchmarks.view.viewer import write_run
from tests.browser.chromium import Browser, open_browser

REPEATS = 5
HAS_ROWS = r"/Compute\s+the\s+quantity/.test(document.body.innerText)"  # the questions of the run
INSPECT_PORT = 7917
INSPECT_LOG = """
import json, sys
from collections import Counter
from pathlib import Path
from inspect_ai.log import EvalConfig, EvalDataset, EvalLog, EvalSample, EvalSpec, EvalStats, write_eval_log
from inspect_ai.model import ChatMessageAssistant, ChatMessageTool, ChatMessageUser, ModelOutput
from inspect_ai.scorer import Score
from inspect_ai.tool import ToolCall

seen, samples = Counter(), []
for path in sorted(Path(sys.argv[1]).glob("trajectories/*.jsonl")):
    for row in map(json.loads, path.open(encoding="utf-8")):
        messages, calls = [ChatMessageUser(content=row["question"])], iter(row["tool_calls"])
        for turn in row["turns"]:
            call = next(calls, None) if turn["stop_reason"] == "call" else None
            made = [ToolCall(id="a", function="python", arguments=call["arguments"])] if call else None
            messages.append(ChatMessageAssistant(content=turn["text"], tool_calls=made))
            if call:
                messages.append(ChatMessageTool(content=call["text"], tool_call_id="a", function="python"))
        identity = f"{row['problem']}-{row['step']}"
        seen[identity] += 1
        score = Score(value="C" if row["correct"] else "I", answer=row["answer"])
        output = ModelOutput.from_content("m", row["turns"][-1]["text"])
        samples.append(EvalSample(id=identity, epoch=seen[identity], input=row["question"], messages=messages,
                                  target=row["reference_answer"], output=output, scores={"match": score}))
data = EvalDataset(name="sums", samples=len(samples))
spec = EvalSpec(created="2026-01-01T00:00:00+00:00", task="sums", dataset=data, model="m", config=EvalConfig())
write_eval_log(EvalLog(status="success", eval=spec, samples=samples, stats=EvalStats()), sys.argv[2])
"""


@contextmanager
def serving(command: list[str], ready: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start a server; yield its process and the line of its output that contains `ready`."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, next(line for line in process.stdout if ready in line)
        finally:
            process.terminate()


async def measure(browser: Browser, process: subprocess.Popen[str], address: str, click: str = "") -> dict[str, Any]:
    """Open a page several times and return the medians, and the sizes of the last one."""
    found: dict[str, list[float]] = {}
    for _ in range(REPEATS):
        async with browser.page() as page:
            await page.resize(1280)
            await page.send("Performance.enable")
            started = time.perf_counter()
            await page.open(address)
            await page.wait_for(HAS_ROWS)
            found.setdefault("rows_s", []).append(time.perf_counter() - started)
            metrics = {each["name"]: each["value"] for each in (await page.send("Performance.getMetrics"))["metrics"]}
            found.setdefault("script_s", []).append(metrics["ScriptDuration"])
            found.setdefault("heap_mib", []).append(metrics["JSHeapUsedSize"] / 2**20)
            sizes = "performance.getEntriesByType('resource').reduce((sum, each) => sum + each.transferSize, 0)"
            found.setdefault("received_mib", []).append(await page.evaluate(sizes) / 2**20)
            if click:
                count = "document.querySelector('.count').innerText"
                before = await page.evaluate(count)
                started = time.perf_counter()
                await page.click(click)
                await page.wait_for(f"{count} !== {json.dumps(before)}")
                found.setdefault("filter_s", []).append(time.perf_counter() - started)
            await page.open("about:blank")
    result = {name: round(statistics.median(values), 3) for name, values in found.items()}
    first = {"received_mib": round(found["received_mib"][0], 3)}  # the browser keeps the page's files
    return result | first | {"server_mib": largest_memory(process)}


def largest_memory(process: subprocess.Popen[str]) -> int:
    """Return the largest resident memory of a process, in MiB."""
    status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024


async def measure_torl(directory: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "torl", "view", str(directory), "--port", "0"]
    with serving(command, "listening on ") as (process, line):
        async with open_browser() as browser:
            address = line.split()[-1].rstrip("/")
            return await measure(browser, process, f"{address}/#/trajectories", ".facet .value")


async def measure_inspect(log: Path, python: Path) -> dict[str, Any]:
    options = ["view", "start", "--log-dir", str(log.parent), "--port", str(INSPECT_PORT)]
    with serving([str(python.with_name("inspect")), *options], "Running on ") as (process, _):
        async with open_browser() as browser:
            return await measure(browser, process, f"http://127.0.0.1:{INSPECT_PORT}/#/logs/{log.name}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trajectories", type=int, default=20_000)
    parser.add_argument("--tokens", type=int, default=300, help="mean length of a response")
    parser.add_argument("--directory", type=Path, help="keep the run here, and use it if it exists")
    parser.add_argument("--inspect", type=Path, metavar="PYTHON", help="interpreter with inspect-ai")
    options = parser.parse_args()
    directory = options.directory or Path(tempfile.mkdtemp(prefix="torl-view-")) / "run"
    try:
        if not directory.exists():
            write_run(directory, options.trajectories, options.tokens)
        subprocess.run([sys.executable, "-m", "torl", "view", str(directory), "--index-only"], check=True)
        result = {"torl view": asyncio.run(measure_torl(directory))}
        if options.inspect is not None:
            with tempfile.TemporaryDirectory() as logs:
                log = Path(logs) / "sums.eval"
                subprocess.run([options.inspect, "-c", INSPECT_LOG, directory, log], check=True)
                result["Inspect View"] = asyncio.run(measure_inspect(log, options.inspect))
        for name, values in result.items():
            print(f"{name:<14} {values}")
        print(json.dumps({"trajectories": options.trajectories, "tokens": options.tokens} | result))
    finally:
        if options.directory is None:
            shutil.rmtree(directory.parent)


if __name__ == "__main__":
    main()
