"""Measure the start of torl: `import torl`, `torl --help`, `torl train --help`, as the best of several attempts.

python -m benchmarks.rollout.startup [--attempts 10]

Prints wall-clock and CPU seconds and the number of imported modules, then one line of JSON.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time

PROGRAMS = {
    "python -c pass": ["-c", "pass"],
    "import torl": ["-c", "import torl"],
    "torl --help": ["-m", "torl", "--help"],
    "torl presets": ["-m", "torl", "presets"],
    "torl train --help": ["-m", "torl", "train", "--help"],
    "torl train --help all": ["-m", "torl", "train", "--help", "all"],
    "torl sample --help": ["-m", "torl", "sample", "--help"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attempts", type=int, default=10, help="attempts per program (default %(default)s)")
    attempts = parser.parse_args().attempts
    results = {}
    for name, words in PROGRAMS.items():
        wall, cpu = (min(times) for times in zip(*(measure(words) for _ in range(attempts)), strict=True))
        results[name] = {"wall_seconds": round(wall, 3), "cpu_seconds": round(cpu, 3), "modules": modules(words)}
        print(f"{name:24}{wall:8.3f} s{cpu:8.3f} s of CPU time{results[name]['modules']:7} modules")
    print(json.dumps(results))


def measure(words: list[str]) -> tuple[float, float]:
    """Return the wall-clock and CPU seconds of a program, with byte code as after its first start."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL, env=environment)
    after, end = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    return end - start, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def modules(words: list[str]) -> int:
    """Return the number of modules that a program imports."""
    ended = subprocess.run([sys.executable, "-X", "importtime", *words], check=True, capture_output=True, text=True)
    return sum(line.startswith("import time:") for line in ended.stderr.splitlines()) - 1


if __name__ == "__main__":
    main()
