"""TOML files: their errors name the file and the remedy."""

import re
from pathlib import Path
from typing import Any

from torl.base import inputs
from torl.base.errors import ConfigError

_YAML = re.compile(r"^(---\s*$|[\w.-]+:(\s|$))", re.MULTILINE)


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        ConfigError: The file cannot be read, or is not valid TOML.
    """
    return parse_toml(path, read_text(path))


def read_text(path: Path) -> str:
    """Read the text of a TOML file.

    Raises:
        ConfigError: The file cannot be read, or is not UTF-8.
    """
    try:
        return inputs.decode_utf8(inputs.read_file(path))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read: {inputs.reason(error)}") from error


def parse_toml(path: Path, text: str) -> dict[str, Any]:
    """Parse the text of a TOML file.

    Raises:
        ConfigError: The text is not valid TOML.
    """
    try:
        return inputs.parse_toml(text)
    except ValueError as error:
        hint = "; it looks like YAML: write `[section]` and `key = value`" if _YAML.search(text) else ""
        raise ConfigError(f"{path}: not valid TOML: {error}{hint}") from error
