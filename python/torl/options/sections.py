"""Sections of a configuration, and the types of their fields."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

PositiveInt = Annotated[int, Field(gt=0)]
NonNegativeInt = Annotated[int, Field(ge=0)]
Seed = Annotated[int, Field(ge=0, lt=2**31)]
"""A random seed. Libraries take 32 bits, and some add the number of a rank."""
PositiveFloat = Annotated[float, Field(gt=0)]
NonNegativeFloat = Annotated[float, Field(ge=0)]
PositiveFraction = Annotated[float, Field(gt=0, le=1)]
Precision = Literal["float32", "bfloat16"]


def _require_path(value: Any) -> Any:
    if value == "":
        raise ValueError("an empty path is the current directory: name a directory or a file")
    return value


OutputPath = Annotated[Path, BeforeValidator(_require_path)]
"""A path to write to."""


class Section(BaseModel):
    """Base class of sections: immutable, without unknown keys, described by the docstrings below the fields."""

    # Deferred: `--help` shows every section and validates none.
    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False, defer_build=True
    )

    @classmethod
    def settings_of_file(cls, tree: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the settings of a file of configuration that count for this root class: by default all."""
        return tree

    def check_within(self, config: Any) -> None:
        """Raise ValueError if these options of a choice contradict the rest of the configuration."""


def suggestion(name: str, names: Sequence[str], prefix: str = "") -> str:
    """Return "; did you mean ...?" for an unknown name, or an empty text without a close match."""
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"; did you mean {prefix}{close[0]}?" if close else ""


def dotted_leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the settings of a configuration tree by their dotted names, after `prefix`."""
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from dotted_leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
