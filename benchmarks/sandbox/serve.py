"""Speed of the sandbox through SandboxFusion's HTTP interface, and SandboxFusion's own server in the same call.

    python -m benchmarks.sandbox.serve [--sandboxfusion CHECKOUT] [--peers DIR] [--rounds 3] [--seconds 3]

1, 8 and 64 clients ask for a print, each over a separate connection, the next request when the answer arrived. Every
program differs, so that each is executed. Two more rows for torl: **paced**, 64 clients that together ask half as often
as they could (what a busy rollout does: it asks when it has something to ask), and **repeated**, one program for all,
which is executed once.

If clients never pause, p95 is a matter of throughput: with 64 of them a request waits for 63 others. So the CPU time
that a request costs is shown as well: of the server, of the worker that runs it, and of the client. On these cores
p95 cannot be below 64 times their sum, divided by the cores.

Every round measures all servers, so that load hits all alike. CHECKOUT is SandboxFusion's source; its server runs in an
environment of its own below DIR, with one process, as its Makefile starts it. Clients and servers share the cores.
Prints a table in Markdown and, on the last line, everything as JSON.
"""

import argparse
import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.sandbox.peers import ENVIRONMENT, PEERS, SandboxFusion, UnavailableError, make_environment
from benchmarks.sandbox.speed import machine, row, table

CLIENTS = (1, 8, 64)
PACED, REPEATED = "64, paced", "64, repeated"
TORL, FUSION = "torl", "SandboxFusion"
LENGTH = re.compile(rb"(?i)content-length: (\d+)")

# On two quiet cores.
MAX_P95_MS = 5.0  # of 64 clients
MIN_RATIO = 50  # requests in a second at 64 clients, of SandboxFusion's own server

NUMBERS = count()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sandboxfusion", type=Path, help="a checkout of SandboxFusion")
    parser.add_argument("--peers", type=Path, default=Path.home() / ".cache" / "torl" / "peers")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="duration of each measurement")
    options = parser.parse_args()
    found: dict[str, dict[str, list[Measured]]] = {}
    missing: dict[str, str] = {}
    costs: dict[str, list[float]] = {}
    with torl_server() as (torl, server), fusion_server(options, missing) as fusion:
        ports = {TORL: torl} if fusion is None else {TORL: torl, FUSION: fusion}
        for _ in range(options.rounds):
            for name, port in ports.items():
                rows = found.setdefault(name, {})
                for clients in CLIENTS:
                    before = cpu_seconds(server)
                    rows.setdefault(str(clients), []).append(measured := measure(port, clients, options.seconds))
                    if (name, clients) == (TORL, CLIENTS[-1]):
                        for part, spent in cpu_seconds(server).items():
                            costs.setdefault(part, []).append((spent - before[part]) / len(measured.seconds))
            most = statistics.median(each.per_second for each in found[TORL]["64"])
            paced = measure(torl, 64, options.seconds, per_second=most / 2)
            found[TORL].setdefault(PACED, []).append(paced)
            found[TORL].setdefault(REPEATED, []).append(measure(torl, 64, options.seconds, repeated=True))
    servers = {name: {row: summary(each) for row, each in rows.items()} for name, rows in found.items()}
    show(servers, missing, {part: round(statistics.median(each) * 1e6) for part, each in costs.items()})


# --- servers ----------------------------------------------------------------------------------------------------------


@contextmanager
def torl_server() -> Iterator[tuple[int, int]]:
    """torl's, on a port that is free: that, and its process id."""
    command = [sys.executable, "-m", "torl_sandbox", "serve", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline().rsplit(":", 1)[1]), process.pid
    finally:
        process.terminate()
        process.wait(60)


@contextmanager
def fusion_server(options: argparse.Namespace, missing: dict[str, str]) -> Iterator[int | None]:
    """SandboxFusion's own, if it runs here."""
    server = None
    try:
        if options.sandboxfusion is None:
            raise UnavailableError("its source was not given (--sandboxfusion)")
        runtime = options.peers / "environment"
        if not (runtime / "bin" / "python").exists():
            options.peers.mkdir(parents=True, exist_ok=True)
            make_environment(runtime, sys.executable, PEERS)
        server = SandboxFusion(options.sandboxfusion, options.peers, str(runtime / "bin" / "python"), 1)
    except UnavailableError as error:
        missing[FUSION] = str(error)
    try:
        yield None if server is None else server.port
    finally:
        if server is not None:
            server.close()


def cpu_seconds(server: int) -> dict[str, float]:
    """CPU time so far of the server's process, of its workers, and of this one, in which the clients are."""
    tasks = Path(f"/proc/{server}/task").glob("*/children")
    workers = [int(pid) for task in tasks for pid in task.read_text().split()]
    return {"door": spent(server), "workers": sum(map(spent, workers)), "clients": time.process_time()}


def spent(pid: int) -> float:
    """User and system time of a process, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# --- clients ----------------------------------------------------------------------------------------------------------


class Measured:
    """Some requests of some clients."""

    def __init__(self, seconds: list[float], wall_seconds: float) -> None:
        self.seconds = sorted(seconds)
        self.per_second = len(seconds) / wall_seconds

    def percentile_ms(self, share: float) -> float:
        """The longest time, in milliseconds, of this share of the requests."""
        return self.seconds[min(len(self.seconds) - 1, int(share * len(self.seconds)))] * 1e3


def measure(
    port: int, clients: int, seconds: float, *, per_second: float | None = None, repeated: bool = False
) -> Measured:
    """Ask for `seconds`; with `per_second`, so often in all."""
    return uvloop.run(ask_all(port, clients, seconds, per_second, repeated))


async def ask_all(port: int, clients: int, seconds: float, per_second: float | None, repeated: bool) -> Measured:
    until = time.perf_counter() + seconds
    pause = None if per_second is None else clients / per_second
    started = time.perf_counter()
    taken = await asyncio.gather(*(ask(port, until, pause, each / clients, repeated) for each in range(clients)))
    return Measured([one for each in taken for one in each], time.perf_counter() - started)


async def ask(port: int, until: float, pause: float | None, phase: float, repeated: bool) -> list[float]:
    """One client: the seconds that each of its requests took."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    taken: list[float] = []
    due = time.perf_counter() + phase * (pause or 0)
    while time.perf_counter() < until:
        if pause is not None:
            await asyncio.sleep(due - time.perf_counter())
            due += pause
        number = 0 if repeated else next(NUMBERS)
        started = time.perf_counter()
        writer.write(request(number))
        head = await reader.readuntil(b"\r\n\r\n")
        length = LENGTH.search(head)
        assert length is not None
        body = await reader.readexactly(int(length.group(1)))
        taken.append(time.perf_counter() - started)
        assert json.loads(body)["run_result"]["stdout"] == f"{number}\n", body
    writer.close()
    return taken


def request(number: int) -> bytes:
    """As verl sends it."""
    fields = {"compile_timeout": 30, "run_timeout": 30, "code": f"print({number})", "stdin": None}
    fields |= {"memory_limit_MB": 1024, "language": "python", "files": {}, "fetch_files": []}
    body = json.dumps(fields).encode()
    headers = ("Host: localhost", "Content-Type: application/json", f"Content-Length: {len(body)}")
    return "\r\n".join(("POST /run_code HTTP/1.1", *headers, "", "")).encode() + body


# --- results ----------------------------------------------------------------------------------------------------------


def summary(measured: list[Measured]) -> dict[str, float]:
    """Medians over the rounds."""
    return {
        "per_s": round(statistics.median(each.per_second for each in measured), 1),
        "p50_ms": round(statistics.median(each.percentile_ms(0.5) for each in measured), 3),
        "p95_ms": round(statistics.median(each.percentile_ms(0.95) for each in measured), 3),
    }


def show(servers: dict[str, dict[str, dict[str, float]]], missing: dict[str, str], costs: dict[str, int]) -> None:
    """A table, and all as JSON."""
    table("server", ["clients", "requests/s", "p50, ms", "p95, ms"])
    for name, rows in servers.items():
        for clients, each in rows.items():
            row(name, [clients, *each.values()])
    for name, reason in missing.items():
        print(f"\n{name} was not measured: {reason}")
    least = 64 * sum(costs.values()) / 1e3 / len(os.sched_getaffinity(0))
    parts = ", ".join(f"{part} {microseconds} µs" for part, microseconds in costs.items())
    print(f"\nCPU time of a request at 64 clients: {parts}; so 64 that never pause wait {least:.1f} ms here at least\n")
    goals: list[dict[str, Any]] = []
    for key, rows in (("64 clients", "64"), ("64 clients, paced", PACED)):
        measured = servers[TORL][rows]["p95_ms"]
        goals.append(
            {"key": f"p95 of {key}, ms", "goal": MAX_P95_MS, "measured": measured, "met": measured <= MAX_P95_MS}
        )
    if FUSION in servers:
        ratio = round(servers[TORL]["64"]["per_s"] / servers[FUSION]["64"]["per_s"], 1)
        goals.append({"key": "requests/s over its", "goal": MIN_RATIO, "measured": ratio, "met": ratio >= MIN_RATIO})
    print()
    table("goal", ["at most, or at least", "measured", "met"])
    for goal in goals:
        row(goal["key"], [goal["goal"], goal["measured"], "yes" if goal["met"] else "**no**"])
    print()
    print(
        json.dumps(
            {
                "machine": machine(len(os.sched_getaffinity(0))),
                "servers": servers,
                "cpu_us": costs,
                "not_measured": missing,
                "goals": goals,
            }
        )
    )


if __name__ == "__main__":
    main()
