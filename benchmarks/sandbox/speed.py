"""Speed of the sandbox and its peers in the same call: every round runs all of them, so that load hits all alike.

    python -m benchmarks.sandbox.speed [--peers DIR] [--peers-python PYTHON] [--sandboxfusion CHECKOUT] [--rounds 15]

When DIR (`~/.cache/torl/peers`) is not there, it gets a virtual environment with sympy, numpy and scipy, in which
`python -c`, the fork server and pyeryx run; pyeryx needs PYTHON to be 3.12 or later. CHECKOUT is SandboxFusion's
source. Engines that cannot be measured are listed with the reason. Prints tables in Markdown and, on the last line, all
results as JSON.

Times are medians as the caller sees them, with fresh state for every run and nothing answered from memory
(`result_cache_bytes=0`). Rates are those of batches on all cores.

**unseen_ratio** shows how much worse off a snippet is that the warm-up never ran: imports, tables and caches it is the
first to need, pages that were never written before. For each snippet

    slowdown = CPU time of a fresh run / (CPU time of an empty fresh run + CPU time without isolation),

where a fresh run is measured over the whole worker process, putting its memory back included, in a mix with all other
snippets; and "without isolation" is what the snippet costs inside one interpreter that lives on and has run its
kind before (the additional CPU time of more of them in one run). The numbers in a snippet differ from run to run on
both sides, so no cache of results answers. Slowdown 1 means: isolation costs its fixed price and nothing else.
unseen_ratio is the geometric mean of the slowdowns of `UNSEEN` over that of `SEEN`, whose kinds the warm-up ran eight
times each; both are reported. It is CPU time and not time, so that it holds on a busy machine too.
"""

import argparse
import json
import os
import platform
import random
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks import ROOT
from benchmarks.sandbox.peers import Engine, Program, Torl, engines
from benchmarks.sandbox.snippets import EXCEPTION, PROGRAMS, SEEN, SNIPPETS, UNSEEN
from torl_sandbox import SandboxPool

TRANSCRIPTS = ROOT.parent / "shared" / "data" / "tora_gsm8k_transcripts.jsonl"
BLOCK = re.compile(r"```python\n(.*?)\n```\n```output\n", re.DOTALL)
TORL, FRESH = "torl", "torl, new guests"

ROUND_SECONDS = 0.03  # of one snippet on one engine in one round
MAX_RUNS = 50
BATCH_SECONDS = 0.7
SLOW_SECONDS = 0.010  # an engine that takes longer for `print` is asked for every 20th transcript only
KIND_RUNS_BEFORE = range(41, 47)  # the numbers with which an interpreter that lives on gets to know a snippet
KIND_RUNS = range(11, 31)  # and those with which it is measured
EMPTY = "empty"
FLOOR_ROUNDS = 3
PROGRAM_ROUNDS = 5
OVERSHOT_SECONDS = 0.1

# On two quiet cores. Lower is better, but for the rates.
GOALS = {
    "print_p50_ms": 0.25,
    "sympy_p50_ms": 3.0,
    "exception_p50_ms": 0.8,
    "print_per_s": 8000,
    "sympy_per_s": 700,
    "unseen_ratio": 1.3,
    "worker_private_mb": 80,
    "overshoot_ms": 20,
    "cpu_vs_native n-body": 2.0,
    "cpu_vs_native sieve": 2.0,
    "cpu_vs_native bare loop": 3.0,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--peers", type=Path, default=Path.home() / ".cache" / "torl" / "peers")
    parser.add_argument("--peers-python", default=sys.executable, help="interpreter of the peers' environment")
    parser.add_argument("--sandboxfusion", type=Path, help="a checkout of SandboxFusion")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--transcripts", type=Path, default=TRANSCRIPTS)
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    results: dict[str, Any] = {"machine": machine(cores), "load_before": os.getloadavg()[0]}
    own = [
        Torl(TORL, "a guest is kept and its memory put back"),
        Torl(FRESH, "reuse_guest=False: a new guest for every run", reuse_guest=False),
    ]
    if not own[0].pool.reuses_guest:
        print("this system does not let workers keep a guest: both rows of torl are new guests", file=sys.stderr)
    if options.no_peers:
        measure(results, own, own, options)
    else:
        with engines(options.peers, options.peers_python, options.sandboxfusion, cores) as (peers, missing):
            results["not_measured"] = missing
            measure(results, [*own, *peers], own, options)
    results |= unseen()
    results["worker_private_mb"], results["run_private_mb"] = memory(own[0].pool)
    results["new_guests_worker_private_mb"], results["new_guests_run_private_mb"] = memory(own[1].pool)
    for engine in own:
        engine.pool.close()
    results["cpu_vs_native"] = programs(options)
    results["overshoot_ms"] = overshoot(cores)
    results["load_after"] = os.getloadavg()[0]
    results["goals"] = goals(results)
    show(results)
    print(json.dumps(results))


def machine(cores: int) -> dict[str, Any]:
    names = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout
    return {
        "processor": names[0] if names else platform.machine(),
        "cores": cores,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "commit": commit.strip(),
    }


# --- the snippets -----------------------------------------------------------------------------------------


def measure(results: dict[str, Any], all_engines: Sequence[Engine], own: Sequence[Torl], options: Any) -> None:
    """Latency and rates of all engines, and the transcripts; fills in the keys of both."""
    seconds: dict[str, dict[str, list[float]]] = {}
    unsupported: dict[str, dict[str, str]] = {}
    repeats: dict[tuple[str, str], int] = {}
    for engine in all_engines:
        seconds[engine.name], unsupported[engine.name] = {}, {}
        for name, (code, expected) in SNIPPETS.items():
            first = engine.run(code, 2)
            last_line = first.text.strip().rpartition("\n")[2]
            if last_line != (EXCEPTION if expected is None else expected):
                unsupported[engine.name][name] = last_line[:200]
                continue
            seconds[engine.name][name] = []
            repeats[engine.name, name] = max(1, min(MAX_RUNS, round(ROUND_SECONDS / first.seconds[-1])))
    for number in range(options.rounds):
        say(f"round {number + 1} of {options.rounds}")
        for name, (code, _) in SNIPPETS.items():
            for engine in all_engines:
                if name in seconds[engine.name]:
                    seconds[engine.name][name] += engine.run(code, repeats[engine.name, name]).seconds
    rates = batches(all_engines, seconds)
    measured: dict[str, dict[str, Any]] = {
        engine.name: {
            "about": engine.about,
            **{f"{name}_p50_ms": median_ms(found) for name, found in seconds[engine.name].items()},
            **{f"{name}_per_s": round(rate, 1) for name, rate in rates[engine.name].items()},
            "unsupported": unsupported[engine.name],
        }
        for engine in all_engines
    }
    transcripts(measured, all_engines, options.transcripts)
    results |= {key: value for key, value in measured[TORL].items() if key.endswith(("_p50_ms", "_per_s"))}
    results["engines"] = measured
    if "fork" in measured:
        for name in ("print", "sympy"):
            ratio = measured["fork"][f"{name}_p50_ms"] / measured[TORL][f"{name}_p50_ms"]
            results[f"{name}_vs_fork"] = round(ratio, 2)


def batches(
    all_engines: Sequence[Engine], seconds: dict[str, dict[str, list[float]]], rounds: int = 5
) -> dict[str, dict[str, float]]:
    """Runs in a second of `print` and of `sympy`, all cores busy; the median of some batches."""
    found: dict[str, dict[str, list[float]]] = {engine.name: {} for engine in all_engines}
    for number in range(rounds):
        say(f"batch {number + 1} of {rounds}")
        for name in ("print", "sympy"):
            for engine in all_engines:
                if name in seconds[engine.name]:
                    count = max(4, round(BATCH_SECONDS / statistics.median(seconds[engine.name][name])))
                    found[engine.name].setdefault(name, []).append(engine.rate(SNIPPETS[name][0], count))
    return {
        engine: {name: statistics.median(rates) for name, rates in by_name.items()} for engine, by_name in found.items()
    }


def transcripts(measured: dict[str, dict[str, Any]], all_engines: Sequence[Engine], path: Path) -> None:
    """The code that a real model wrote, in order: one caller for the latencies, then all cores for the rate."""
    if not path.is_file():
        say(f"{path} is not there: no transcripts")
        return
    lines = path.read_text(encoding="utf-8").splitlines()
    blocks = [code for line in lines for code in BLOCK.findall(json.loads(line)["transcript"])]
    for engine in all_engines:
        say(f"transcripts on {engine.name}")
        slow = measured[engine.name]["print_p50_ms"] > SLOW_SECONDS * 1e3
        mine = blocks[::20] if slow else blocks
        seconds = [engine.run(code, 1).seconds[0] for code in mine]
        if isinstance(engine, Torl):
            started = time.perf_counter()
            engine.pool.run_batch(mine)
            rate = len(mine) / (time.perf_counter() - started)
        else:
            rate = rate_of_lanes(engine, mine)
        measured[engine.name]["transcripts"] = {
            "blocks": len(mine),
            "p50_ms": median_ms(seconds),
            "p99_ms": round(statistics.quantiles(seconds, n=100)[98] * 1e3, 3),
            "per_s": round(rate, 1),
        }


def rate_of_lanes(engine: Engine, codes: Sequence[str]) -> float:
    lanes = getattr(engine, "lanes", 1)
    with ThreadPoolExecutor(lanes) as threads:
        started = time.perf_counter()
        list(threads.map(lambda lane: [engine.run(code, 1, lane) for code in codes[lane::lanes]], range(lanes)))
        return len(codes) / (time.perf_counter() - started)


# --- what the warm-up never saw -----------------------------------------------------------------------------


def unseen() -> dict[str, Any]:
    """The keys about snippets that the warm-up has not run; see the module's docstring."""
    snippets = {("", EMPTY): ""}
    snippets |= {("seen", name): code for name, code in SEEN.items()}
    snippets |= {("unseen", name): code for name, code in UNSEEN.items()}
    cpu_seconds: dict[tuple[str, str], list[float]] = {key: [] for key in snippets}
    order = random.Random(0)
    with SandboxPool(1, result_cache_bytes=0, verify_every=0) as pool:
        (worker,) = pool.processes()

        # What a worker does after its reply, it does before the next run: an empty run brings it to its end.
        def after_empty_run() -> float:
            pool.run("")
            return process_cpu_seconds(worker)

        for number in (*KIND_RUNS_BEFORE, *KIND_RUNS):
            say(f"unseen: {number}")
            for key in order.sample(list(snippets), len(snippets)):
                before = after_empty_run()
                pool.run(with_number(snippets[key], number))
                after = after_empty_run()
                if number in KIND_RUNS:
                    cpu_seconds[key].append(after - before)
    typical = {key: statistics.median(found) for key, found in cpu_seconds.items()}
    price = typical.pop(("", EMPTY)) / 2  # two empty runs
    tables: dict[str, dict[str, dict[str, float]]] = {"seen": {}, "unseen": {}}
    with SandboxPool(1, result_cache_bytes=0, cpu_seconds=120, wall_seconds=600) as pool:
        for (group, name), found in typical.items():
            say(f"without isolation: {name}")
            floor = without_isolation(pool, snippets[group, name])
            tables[group][name] = {
                "cpu_ms": round((found - price) * 1e3, 3),
                "without_isolation_ms": round(floor * 1e3, 3),
                "slowdown": round((found - price) / (price + floor), 3),
            }
    means = {
        group: statistics.geometric_mean(one["slowdown"] for one in rows.values()) for group, rows in tables.items()
    }
    return {
        "unseen_ratio": round(means["unseen"] / means["seen"], 3),
        "seen_slowdown": round(means["seen"], 3),
        "unseen_slowdown": round(means["unseen"], 3),
        "empty_run_cpu_ms": round(price * 1e3, 4),
        "snippets": tables,
    }


def without_isolation(pool: SandboxPool, code: str) -> float:
    """CPU seconds of one more execution of `code` in an interpreter that has executed its kind before."""
    before = [with_number(code, number) for number in KIND_RUNS_BEFORE]
    measured = [with_number(code, number) for number in KIND_RUNS]
    differences = []
    for _ in range(FLOOR_ROUNDS):
        short, long = (pool.run(IN_ONE_INTERPRETER.format(codes=codes)) for codes in (before, before + measured))
        if not (short.ok and long.ok):
            raise RuntimeError(f"{code!r} does not run repeatedly: {long}")
        differences.append((long.cpu_seconds - short.cpu_seconds) / len(measured))
    return max(statistics.median(differences), 0.0)


# As a run does it, down to the traceback.
IN_ONE_INTERPRETER = """\
import traceback
for code in {codes!r}:
    try:
        exec(compile(code, "main.py", "exec"), {{"__name__": "__main__"}})
    except Exception:
        traceback.print_exc()
"""


def with_number(code: str, number: int) -> str:
    return code.replace("<n>", str(number))


def process_cpu_seconds(process: int) -> float:
    """CPU time of all threads of another process: clock ids of the kernel's `CPUCLOCK_SCHED`."""
    return time.clock_gettime((~process << 3) | 2)


# --- the code itself, and memory ------------------------------------------------------------------------------


def programs(options: argparse.Namespace) -> dict[str, Any]:
    """CPU time of CPU-bound programs over that in native interpreters; start-up cancels out."""
    natives = {platform.python_version(): sys.executable}
    peers = options.peers / "environment" / "bin" / "python"
    if not options.no_peers and peers.exists():
        version = subprocess.run([peers, "-V"], capture_output=True, text=True, check=True).stdout.split()[1]
        natives.setdefault(version, str(peers))
    running = {version: Program("native", version, python, options.peers, 1) for version, python in natives.items()}
    ratios: dict[str, dict[str, list[float]]] = {version: {name: [] for name in PROGRAMS} for version in natives}
    milliseconds: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    with SandboxPool(1, result_cache_bytes=0, cpu_seconds=60, wall_seconds=600) as pool:
        for number in range(PROGRAM_ROUNDS):
            say(f"programs: {number + 1} of {PROGRAM_ROUNDS}")
            for name, (code, work) in PROGRAMS.items():
                once, twice = with_number(code, work), with_number(code, 2 * work)
                guest = pool.run(twice).cpu_seconds - pool.run(once).cpu_seconds
                milliseconds[name].append(guest)
                for version, program in running.items():
                    long, short = (program.ask(each, 1)["cpu_seconds"][0] for each in (twice, once))
                    ratios[version][name].append(guest / (long - short))
    for program in running.values():
        program.close()
    by_version = {
        version: {name: round(statistics.median(found), 2) for name, found in by_name.items()}
        for version, by_name in ratios.items()
    }
    return {
        **by_version[platform.python_version()],
        "native": f"CPython {platform.python_version()}",
        "sandbox_ms": {name: median_ms(found) for name, found in milliseconds.items()},
        "others": {version: found for version, found in by_version.items() if version != platform.python_version()},
    }


def memory(pool: SandboxPool) -> tuple[float, float]:
    """Private memory in MB: of the worker that has most when all are idle, and of one in the middle of a run."""
    idle = max(private_mb(process) for process in pool.processes())
    busy = pool.submit(SNIPPETS["sympy"][0] + "for i in range(10**7):\n    pass\n")
    live = 0.0
    while not busy.done():
        live = max(live, *(private_mb(process) for process in pool.processes()))
        time.sleep(0.02)
    return round(idle, 1), round(live, 1)


def overshoot(cores: int) -> float:
    """CPU time in ms by which endless loops exceed their limit, at most, with two busy processes for each core."""
    codes = [
        "while True: pass",
        "x = []\nwhile True: x.append(0); x.pop()",
        "while True:\n    try: 1 / 0\n    except: pass",
    ]
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * cores)]
    try:
        with SandboxPool(1, cpu_seconds=OVERSHOT_SECONDS, wall_seconds=60) as pool:
            outcomes = pool.run_batch(codes * 5)
    finally:
        for other in others:
            other.kill()
            other.wait()
    return round(max(outcome.cpu_seconds - OVERSHOT_SECONDS for outcome in outcomes) * 1e3, 1)


def private_mb(process: int) -> float:
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    kilobytes = sum(int(line.split()[1]) for line in lines if line.startswith(("Private_Clean", "Private_Dirty")))
    return kilobytes * 1024 / 1e6


# --- results --------------------------------------------------------------------------------------------------


def goals(results: dict[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for key, goal in GOALS.items():
        key, _, part = key.partition(" ")
        value = results[key][part] if part else results[key]
        met = value >= goal if key.endswith("_per_s") else value <= goal
        rows.append({"key": f"{key} {part}".strip(), "goal": goal, "measured": value, "met": met})
    return rows


def show(results: dict[str, Any]) -> None:
    """Tables in Markdown."""
    host = results["machine"]
    print(f"\n{host['processor']}, {host['cores']} cores, Linux {host['kernel']}, commit {host['commit']}; ", end="")
    print(f"load {results['load_before']:.1f} before, {results['load_after']:.1f} after\n")
    columns = [f"{name}_p50_ms" for name in SNIPPETS] + ["print_per_s", "sympy_per_s"]
    titles = [f"{name}, ms" for name in SNIPPETS] + ["print/s", "sympy/s", "transcripts p50, ms", "p99, ms", "blocks/s"]
    table("engine", titles)
    for name, found in results["engines"].items():
        recorded = found.get("transcripts", {})
        values = [found.get(column) for column in columns] + [
            recorded.get(key) for key in ("p50_ms", "p99_ms", "per_s")
        ]
        row(name, values)
    for name, reason in results.get("not_measured", {}).items():
        print(f"\n{name} was not measured: {reason}")
    print()
    table("goal", ["at most, or at least", "measured", "met"])
    for goal in results["goals"]:
        row(goal["key"], [goal["goal"], goal["measured"], "yes" if goal["met"] else "**no**"])
    print()
    table("snippet", ["CPU, ms", "without isolation, ms", "slowdown"])
    for rows in results["snippets"].values():
        for name, found in rows.items():
            row(name, [found["cpu_ms"], found["without_isolation_ms"], found["slowdown"]])
    print()


def table(first: str, others: Iterable[str]) -> None:
    titles = [first, *others]
    print(f"| {' | '.join(titles)} |")
    print("|---" * len(titles) + "|")


def row(first: str, values: Iterable[Any]) -> None:
    cells = ["-" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value) for value in values]
    print(f"| {first} | {' | '.join(cells)} |")


def median_ms(seconds: Sequence[float]) -> float:
    return round(statistics.median(seconds) * 1e3, 4)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
