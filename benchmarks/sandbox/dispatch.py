"""Reasons why loops of small instructions are slower in the sandbox: the cost of dispatch in its interpreter.

    python -m benchmarks.sandbox.dispatch [--rounds 9]          # pip install ziglang==0.17.0 wasmtime==50.0.1

First, nanoseconds of CPU time of single statements, in the sandbox and in the Python that runs this. Second, the
machine code of the interpreter's loop (`_PyEval_EvalFrameDefault`), in the prepared guest and in the library of this
Python, by objdump: how much of it moves values from and to its frame on the stack, and how many indirect jumps it has.

Third, an interpreter as small as can be (sandbox_dispatch.c), whose instructions do nearly nothing, compiled by one
compiler in each way from an instruction to the next: a jump to an address out of a table ("goto", as CPython is built
natively), a `switch` (as CPython is built for WebAssembly, which has no such jumps), and functions that call the next
as their last act ("tail"). Natively, and as WebAssembly under Wasmtime with the sandbox's settings. The last line is
JSON.
"""

import argparse
import ctypes
import json
import re
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from torl_sandbox import SandboxPool, prepare_guest

SOURCE = Path(__file__).with_suffix(".c")
WAYS = {"native": ("GOTO", "SWITCH", "TAIL"), "wasm": ("SWITCH", "TAIL")}
GUEST_LOOP = "wasm[0]::function[3744]"  # the number in the guest's own table of names
TURNS, INSTRUCTIONS = 2_000_000, 17  # in one turn of the program that it runs
STATEMENTS = {
    "x = y": "x = y",
    "x = y + 1": "x = y + 1",
    "x = z * z, a float": "x = z * z",
    "marks[9] = 0, a bytearray": "marks[9] = 0",
    "x = numbers[9], a list": "x = numbers[9]",
    "if y < 5": "if y < 5: x = y",
    "f(y)": "f(y)",
}
COPIES, FEWER, MORE = 50, 20_000, 60_000
PROGRAM = """\
def f(x):
    return x

def program(turns):
    y, z, marks, numbers = 7, 1.5, bytearray(10), list(range(10))
    for _ in range(turns):
        {body}

program({turns})
"""


def build(way: str, directory: Path, *, wasm: bool) -> Path:
    """The small interpreter as a library or a module."""
    output = directory / f"{way}.{'wasm' if wasm else 'so'}"
    kind = ["-shared", "-fPIC", "-fvisibility=hidden"]
    if wasm:
        kind = ["-target", "wasm32-freestanding", "-mtail-call", "-nostdlib", "-Wl,--no-entry", "-Wl,--export=run"]
    command = [sys.executable, "-m", "ziglang", "cc", "-O3", f"-D{way}", *kind, "-o", str(output), str(SOURCE)]
    subprocess.run(command, check=True)
    return output


def native(library: Path) -> Callable[[int], int]:
    """Its function."""
    run = ctypes.CDLL(str(library)).run
    run.restype, run.argtypes = ctypes.c_int64, [ctypes.c_int32]
    return lambda turns: int(run(turns))


def wasm(module: Path) -> Callable[[int], int]:
    """Its function."""
    import wasmtime

    config = wasmtime.Config()
    config.cranelift_opt_level, config.wasm_tail_call = "speed", True
    engine = wasmtime.Engine(config)
    store = wasmtime.Store(engine)
    run = wasmtime.Instance(store, wasmtime.Module.from_file(engine, str(module)), []).exports(store)["run"]
    return lambda turns: int(run(store, turns))


def ways(directory: Path) -> dict[str, Callable[[int], int]]:
    """Measured times, by names like "native goto"."""
    load = {"native": native, "wasm": wasm}
    return {
        f"{machine} {way.lower()}": load[machine](build(way, directory, wasm=machine == "wasm"))
        for machine, names in WAYS.items()
        for way in names
    }


def dispatch(rounds: int) -> dict[str, float]:
    """Nanoseconds of an instruction of the small interpreter."""
    with tempfile.TemporaryDirectory() as directory:
        found = ways(Path(directory))
    assert len({run(1000) for run in found.values()}) == 1, "all compute the same"
    seconds: dict[str, list[float]] = {name: [] for name in found}
    for _ in range(rounds):
        for name, run in found.items():
            began = time.thread_time()
            run(TURNS)
            seconds[name].append(time.thread_time() - began)
    return {name: statistics.median(taken) / TURNS / INSTRUCTIONS * 1e9 for name, taken in seconds.items()}


def statements(rounds: int) -> dict[str, tuple[float, float]]:
    """Nanoseconds of a statement, in the sandbox and here: by what more turns of its loop take."""
    found = {}
    with SandboxPool(workers=1, result_cache_bytes=0) as pool:
        for name, statement in STATEMENTS.items():
            body = "\n        ".join([statement] * COPIES)
            programs = [PROGRAM.format(body=body, turns=turns) for turns in (FEWER, MORE)]
            there, here = [], []
            for _ in range(rounds):
                fewer, more = (pool.run(program).cpu_seconds for program in programs)
                there.append(more - fewer)
                began = time.process_time()
                exec(programs[0], {})
                middle = time.process_time()
                exec(programs[1], {})
                here.append(time.process_time() - middle - (middle - began))
            scale = 1e9 / COPIES / (MORE - FEWER)
            found[name] = (statistics.median(there) * scale, statistics.median(here) * scale)
    return found


def machine_code() -> dict[str, tuple[int, int, int]]:
    """Counts in the interpreter's loop, in the sandbox and here: instructions, frame accesses, indirect jumps."""
    module = max(prepare_guest().glob("*.module"), key=lambda path: path.stat().st_mtime)
    library = Path(sysconfig.get_config_var("LIBDIR")) / sysconfig.get_config_var("INSTSONAME")
    return {"sandbox": _code(module, GUEST_LOOP), "native": _code(library, "_PyEval_EvalFrameDefault")}


def _code(path: Path, symbol: str) -> tuple[int, int, int]:
    listed = subprocess.run(["objdump", "--syms", str(path)], check=True, capture_output=True, text=True).stdout
    (line,) = (line for line in listed.splitlines() if line.endswith(f" {symbol}"))
    start, size = int(line.split()[0], 16), int(line.split("\t")[1].split()[0], 16)
    bounds = [f"--start-address={start}", f"--stop-address={start + size}"]
    command = ["objdump", "--disassemble", "--no-show-raw-insn", *bounds, str(path)]
    code = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    instructions = [line for line in code.splitlines() if re.match(r" *[0-9a-f]+:\t", line)]
    frame = sum("(%rsp)" in each or "(%rbp)" in each for each in instructions)
    return len(instructions), frame, sum("jmp" in each and "*" in each for each in instructions)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    if not (find_spec("ziglang") and find_spec("wasmtime")):
        sys.exit("the small interpreter is compiled and run by others: pip install ziglang==0.17.0 wasmtime==50.0.1")
    print("| statement | sandbox, ns | native, ns | ratio |\n|---|---|---|---|")
    taken = statements(rounds)
    for name, (there, here) in taken.items():
        print(f"| `{name}` | {there:.1f} | {here:.1f} | {there / here:.1f} |")
    code = machine_code()
    print("\n| interpreter's loop | instructions | that touch its frame | indirect jumps |\n|---|---|---|---|")
    for name, (instructions, frame, jumps) in code.items():
        print(f"| {name} | {instructions} | {frame} ({frame / instructions:.0%}) | {jumps} |")
    print("\n| small interpreter | ns an instruction | by native goto |\n|---|---|---|")
    small = dispatch(rounds)
    for name, nanoseconds in small.items():
        print(f"| {name} | {nanoseconds:.2f} | {nanoseconds / small['native goto']:.2f} |")
    print(json.dumps({"statements": taken, "code": code, "small": small}))


if __name__ == "__main__":
    main()
