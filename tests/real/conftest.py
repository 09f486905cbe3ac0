"""Tests of pre-trained models: `make test-real` for those whose packages are installed, `--model` for any directory.

.venv/bin/python -m pytest tests/real --model torl:demo/base_model
"""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from installed_models import INSTALLED
from torl.components.hub import resolve_model
from torl.components.text.tokenizer import load_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--model", action="append", default=[], help="model instead of the installed packages")


def tested_models(config: pytest.Config) -> list[str]:
    # The option is unknown where this file is found while tests are collected.
    return config.getoption("--model", default=[]) or [f"package:{name}" for name in INSTALLED]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    is_test = collection_path.name.startswith("test_")
    return True if is_test and not tested_models(config) else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "model" in metafunc.fixturenames:
        metafunc.parametrize("model", tested_models(metafunc.config), scope="session")


@pytest.fixture(scope="session")
def directory(model: str) -> Path:
    """The directory of the model, converted if it is in a package."""
    return resolve_model(model)


@pytest.fixture(scope="session")
def tokenizer(directory: Path) -> "PreTrainedTokenizerFast":
    return load_tokenizer(directory)


@pytest.fixture(scope="session")
def template(tokenizer: "PreTrainedTokenizerFast") -> str:
    """The model's own template, or ToRL's for a model without one."""
    return "chat" if tokenizer.chat_template else "torl"
