"""`torl check`: the state of this machine for sampling and training, with a remedy for everything missing."""

import argparse
import os
import platform
import re
import shutil
import sysconfig
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from importlib import metadata
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from torl.base.errors import ConfigError, SandboxError
from torl.base.version import __version__
from torl.components.engine import ENGINES
from torl.run.placement.machine import Machine, this_machine
from torl_sandbox import SandboxPool, cache_directory, prepare_guest

_HUB_SECONDS = 5.0
_MIN_FREE = 20 << 30  # of the disk: a checkpoint of a small model, and its export
_OPTIONAL = ("view", "serve", "search", "gguf", "mcp", "ray")
_NOT_INSTALLED = "unknown, since torl is imported but not installed"
_MARKER = re.compile(r"""extra\s*==\s*['"]([\w-]+)['"]""")


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the check.

    Attributes:
        subject: Subject of the line.
        text: The finding.
        remedy: Command or setting that mends it. Empty if nothing is missing.
        fails: Whether training or sampling is impossible without the remedy.
    """

    subject: str
    text: str
    remedy: str = ""
    fails: bool = False

    def __str__(self) -> str:
        mark = "FAIL" if self.fails else "note" if self.remedy else "ok"
        remedy = f"\n{'':17}{self.remedy}" if self.remedy else ""
        return f"{mark:<5}{self.subject:<12}{self.text}{remedy}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status: 0 if models can be trained here, 1 if not."""
    parser = argparse.ArgumentParser(
        "torl check",
        description="Check the machine: devices, memory, packages, sandbox, compiler, Hub. Each line that is not ok "
        "has its remedy. The exit status is 0 if models can be trained here, and 1 if not.",
    )
    parser.parse_args(arguments)
    failed = False
    for line in check():
        print(line, flush=True)
        failed |= line.fails
    return int(failed)


def check() -> Iterator[Line]:
    """Check the machine, one line after the other."""
    yield Line("torl", f"{__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}")
    try:
        machine = this_machine()
    except ConfigError as error:
        yield Line("devices", str(error), "or compute on the cores: CUDA_VISIBLE_DEVICES=''", fails=True)
        machine = Machine((), len(os.sched_getaffinity(0)), 0)
    else:
        yield _devices(machine)
    yield _disk()
    yield _packages(machine)
    yield from _engines(machine)
    yield _options()
    yield _sandbox()
    yield _compiler(machine)
    yield _hub()


def _devices(machine: Machine) -> Line:
    found = f"{machine.cores} cores, {machine.host_bytes >> 30} GiB of memory, "
    if not machine.gpus:
        if machine.emulates_bfloat16:
            remedy = 'several times as fast: learner.dtype = "float32", engine.dtype = "float32"'
            return Line("devices", found + "no GPU: runs compute on the cores, which emulate bfloat16", remedy)
        return Line("devices", found + "no GPU: runs compute on the cores")
    models = ", ".join(sorted({gpu.model for gpu in machine.gpus}))
    free = min(gpu.free_bytes for gpu in machine.gpus) >> 30
    gpus = f"{machine.count_devices(len(machine.gpus))} ({models}; {free} GiB free; driver {machine.driver})"
    return Line("devices", found + gpus)


def _disk() -> Line:
    usage = shutil.disk_usage(Path.cwd())
    text = f"{usage.free >> 30} GiB free in {Path.cwd()}"
    small = usage.free < _MIN_FREE
    return Line("disk", text, "a checkpoint of 1.5 B parameters takes 21 GiB: set run.directory" if small else "")


def _packages(machine: Machine) -> Line:
    extra = "gpu" if machine.gpus else "cpu"
    try:
        problems = missing_requirements(extra)
    except metadata.PackageNotFoundError:
        return Line("packages", _NOT_INSTALLED, f"pip install 'torl[{extra}]'")
    names = ("torch", "transformers", "deepspeed")
    if not problems:
        return Line("packages", ", ".join(f"{name} {metadata.version(name)}" for name in names))
    return Line("packages", "; ".join(problems), f"pip install 'torl[{extra}]'", fails=True)


def _engines(machine: Machine) -> Iterator[Line]:
    for engine in ENGINES.values():
        found = engine.installation(on_gpus=bool(machine.gpus))
        yield Line("engine", found.text, found.remedy, fails=not found.works)


def _options() -> Line:
    try:
        missing = [extra for extra in _OPTIONAL if missing_requirements(extra)]
    except metadata.PackageNotFoundError:
        return Line("extras", _NOT_INSTALLED, "pip install 'torl[EXTRA]'")
    installed = ", ".join(extra for extra in _OPTIONAL if extra not in missing) or "none"
    return Line("extras", installed, f"for {', '.join(missing)}: pip install 'torl[EXTRA]'" if missing else "")


def missing_requirements(extra: str) -> list[str]:
    """Return the packages of an extra of torl that are missing, or have another version than it requires.

    Raises:
        PackageNotFoundError: torl is not installed, for example imported from PYTHONPATH.
    """
    problems: list[str] = []
    for requirement in metadata.requires("torl") or ():
        specification, _, marker = requirement.partition(";")
        named = _MARKER.search(marker)
        if named is None or named.group(1) != extra or specification.strip().startswith("torl["):
            continue
        problem = _problem(specification.strip())
        if problem is not None:
            problems.append(problem)
    return problems


def _problem(specification: str) -> str | None:
    name = re.split(r"[^\w.-]", specification, maxsplit=1)[0]
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return f"{name} is not installed"
    try:
        from packaging.requirements import Requirement
    except ImportError:  # only with the smallest installation
        return None
    return (
        None
        if Requirement(specification).specifier.contains(version, prereleases=True)
        else (f"{name} is {version}, and torl requires {specification}")
    )


class _NotPreparedError(Exception):
    """Cancels the preparation of the guest, which takes a minute."""


def _sandbox() -> Line:
    def cancel(stage: str, fraction: float) -> None:
        raise _NotPreparedError

    try:
        prepare_guest(cancel)
        started = time.perf_counter()
        with SandboxPool(1) as pool:
            pool.self_test()
            confinement = pool.confinement()
    except _NotPreparedError:
        return Line("sandbox", "not prepared yet: the first use takes some 90 s", "now: torl sandbox check")
    except SandboxError as error:
        return Line("sandbox", str(error), f"torl sandbox check (cache: {cache_directory()})", fails=True)
    text = f"works, started and tested in {time.perf_counter() - started:.1f} s"
    return Line("sandbox", text, f"missing layers: {'; '.join(confinement.missing)}" if confinement.missing else "")


def _compiler(machine: Machine) -> Line:
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    missing = [what for what, there in (("C compiler", compiler), ("Python.h", header.exists())) if not there]
    if not missing:
        return Line("compiler", str(compiler))
    text = f"no {' and no '.join(missing)}, which kernels on GPUs are compiled with"
    return Line("compiler", text, "apt install gcc python3-dev", fails=bool(machine.gpus))


def _hub() -> Line:
    others = "directories and package: models need no Hub (docs/install.md)"
    try:
        from huggingface_hub import constants
    except ImportError:
        return Line("hub", "huggingface_hub is not installed", others)
    if constants.HF_HUB_OFFLINE:
        return Line("hub", "offline (HF_HUB_OFFLINE): the cache only", others)
    try:
        with urlopen(Request(constants.ENDPOINT, method="HEAD"), timeout=_HUB_SECONDS):
            pass
    except HTTPError:  # an answer
        pass
    except (OSError, ValueError, HTTPException) as error:  # ValueError: not a URL
        return Line("hub", f"{constants.ENDPOINT} cannot be reached: {getattr(error, 'reason', error)}", others)
    return Line("hub", f"{constants.ENDPOINT} answers")
