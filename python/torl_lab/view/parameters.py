"""The parameters of requests: queries of trajectories in the form that links have."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from torl_lab.view.selection import FLAGS, NUMBERS, Query

_TRUTH: Mapping[str, bool] = {"1": True, "0": False}


class Parameters(Protocol):
    """The parameters of a request, some of which may occur several times."""

    def getlist(self, key: str) -> list[str]:
        """Return all values of a parameter."""
        ...

    def keys(self) -> Iterable[str]:
        """Return the names of the parameters."""
        ...


def parse_query(parameters: Parameters, others: Iterable[str] = ()) -> Query:
    """Return the query of a request.

    `set`, `status`, `finish` and `sign` may occur several times; a flag is 1 or 0; a range is "2..5", with either end
    left out, or one number; `problem` is an id or a key, `about` a text in the problem, and `words` are in the
    response.

    Args:
        parameters: Parameters of the request.
        others: Names of parameters that are not part of the query.

    Raises:
        ValueError: A parameter is unknown or has an invalid value.
    """
    known = {"set", "status", "finish", "sign", "problem", "about", "words", *FLAGS, *NUMBERS, *others}
    for name in parameters.keys():  # noqa: SIM118 - not a mapping
        if name not in known:
            raise ValueError(f"unknown parameter {name!r}")
    problems = parameters.getlist("problem")
    return Query(
        sets=tuple(parameters.getlist("set")),
        flags={name: _truth(name, values[-1]) for name in FLAGS if (values := parameters.getlist(name))},
        ranges={name: parse_range(name, values[-1]) for name in NUMBERS if (values := parameters.getlist(name))},
        statuses=tuple(parameters.getlist("status")),
        finishes=tuple(parameters.getlist("finish")),
        signs=tuple(parameters.getlist("sign")),
        problem=problems[-1] if problems else None,
        problem_text=["", *parameters.getlist("about")][-1].strip(),
        words=" ".join(parameters.getlist("words")).strip(),
    )


def parse_range(name: str, text: str) -> tuple[float | None, float | None]:
    """Return the ends of a range: "2..5", "2..", "..5" or "3".

    Raises:
        ValueError: The text is not a range.
    """
    first, separator, last = text.partition("..")
    try:
        low = float(first) if first else None
        return (low, float(last) if last else None) if separator else (low, low)
    except ValueError:
        raise ValueError(f'{name} = {text!r} must be a number or a range such as "2..5"') from None


def parse_number(parameters: Parameters, name: str, default: int, maximum: int) -> int:
    """Return a parameter that is a whole number from 0 to `maximum`.

    Raises:
        ValueError: The value is not such a number.
    """
    values = parameters.getlist(name)
    if not values:
        return default
    if not values[-1].isdecimal() or len(values[-1]) > 12 or int(values[-1]) > maximum:
        raise ValueError(f"{name} = {values[-1]!r} must be a whole number from 0 to {maximum}")
    return int(values[-1])


def _truth(name: str, text: str) -> bool:
    if text not in _TRUTH:
        raise ValueError(f"{name} = {text!r} must be 1 or 0")
    return _TRUTH[text]
