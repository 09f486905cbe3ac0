"""Stand-ins for `unknown`, `proxies` and `operators` for programs that no object of a test reaches. They load fast."""

from typing import Any


class Proxy:
    """Has no instance."""


class Unknown:
    """Has no instance."""


class Suspended(BaseException):
    """Is never raised."""


def number_of(proxy: Any) -> int:
    """Raise TypeError: no object is a proxy."""
    raise TypeError(f"{proxy!r} is not a proxy")


def install() -> None:
    """Do nothing."""
