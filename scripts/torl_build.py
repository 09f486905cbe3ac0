"""The build backend of torl's wheel, which holds two extension modules: maturin builds one for each wheel.

It builds the sandbox's wheel first and puts its module into `python/`, where maturin includes it.
"""

import contextlib
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import maturin
from maturin import build_sdist as build_sdist
from maturin import get_requires_for_build_editable as get_requires_for_build_editable
from maturin import get_requires_for_build_sdist as get_requires_for_build_sdist
from maturin import get_requires_for_build_wheel as get_requires_for_build_wheel
from maturin import prepare_metadata_for_build_editable as prepare_metadata_for_build_editable
from maturin import prepare_metadata_for_build_wheel as prepare_metadata_for_build_wheel

ROOT = Path(__file__).resolve().parents[1]
EXTENSION = "torl_sandbox/_core.abi3.so"


def build_wheel(
    wheel_directory: str,
    config_settings: Mapping[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """Build the wheel of torl and return its file name."""
    _place_sandbox(config_settings)
    name: str = maturin.build_wheel(wheel_directory, config_settings, metadata_directory)
    return name


def build_editable(
    wheel_directory: str,
    config_settings: Mapping[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """Build a wheel that refers to `python/` and return its file name."""
    _place_sandbox(config_settings)
    name: str = maturin.build_editable(wheel_directory, config_settings, metadata_directory)
    return name


def _place_sandbox(settings: Mapping[str, Any] | None) -> None:
    sources = ROOT / "crates/sandbox/torl_sandbox"
    if not sources.exists():  # a source distribution has no links
        sources.symlink_to("../../python/torl_sandbox")
    with contextlib.chdir(ROOT / "crates/sandbox"), tempfile.TemporaryDirectory() as directory:
        built = Path(directory, maturin.build_wheel(directory, settings))
        (ROOT / "python" / EXTENSION).unlink(missing_ok=True)  # processes that use it keep the file that they opened
        with zipfile.ZipFile(built) as wheel:
            wheel.extract(EXTENSION, ROOT / "python")
