"""Trust in the files that a command reads: whether what they name may be imported, started, connected or written to.

The run of another user is data, but its configuration can name a class of any package, a program, or the address of a
server. A command that reads runs does so in a block `reading(trust=...)`. Without trust, `require_trust` raises an
error at each place that would import, start or connect to something outside torl, and the block collects what was
refused. Outside such a block, the configuration is the user's own, and everything is allowed. A `Choice` keeps the
block that read it, so that a component that is made later, or in another thread or process, is trusted as its file is.

The module imports little, because `torl --help` imports it.
"""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Literal

from torl.base.errors import NotTrustedError

if TYPE_CHECKING:
    from argparse import ArgumentParser

Deed = Literal["imported", "started", "connected to", "written to", "indexed", "passed to vLLM"]
NOT_TRUSTED: Final = 3
"""The exit status of a command that found nothing wrong, but left something out for lack of trust."""
_SAFE_PATH: Final = "PYTHONSAFEPATH"
_BY_TORL: Final = "torl"  # Python asks only whether the variable has a value
_PACKAGES: Final = os.path.realpath(f"{__file__}/../../..")  # the directory that torl itself is imported from
_REMEDY: Final = "; read it, then give --trust (in Python: trust=True)"


class Reading:
    """The names in the files that a block reads.

    Attributes:
        trust: Whether everything that the files name is allowed.
        settings: The texts in the configurations that were read, by setting.
        refused: Refused locations, commands and addresses, each with the refused deed.
    """

    def __init__(self, trust: bool) -> None:
        """Begin with or without trust."""
        self.trust = trust
        self.settings: dict[str, str] = {}
        self.refused: dict[str, Deed] = {}

    def line(self, text: str) -> str:
        """Return the settings and the text of a refusal, with the refused deed."""
        names = [name for name, value in self.settings.items() if value == text]
        return f"{' = '.join([*names, text])} is not {self.refused[text]}: the files are not trusted"

    def lines(self) -> list[str]:
        """Return a line for each refusal, with the remedy."""
        return [f"{self.line(text)}{_REMEDY}" for text in self.refused]

    def conclude(self, status: int) -> int:
        """Print a line for each refusal, and return the exit status: `NOT_TRUSTED` instead of 0 after a refusal."""
        for line in self.lines():
            print(f"not checked: {line}", file=sys.stderr)
        return status or (NOT_TRUSTED if self.refused else 0)


_READING: ContextVar[Reading | None] = ContextVar("reading", default=None)


@contextmanager
def reading(*, trust: bool) -> Iterator[Reading]:
    """Read files of others until the block ends, with or without trust in what they name."""
    opened = Reading(trust)
    with continued(opened):
        yield opened


@contextmanager
def continued(earlier: Reading | None) -> Iterator[None]:
    """Continue an earlier block, also after its end and in another thread. Without one, continue the current block."""
    token = _READING.set(earlier or _READING.get())
    try:
        yield
    finally:
        _READING.reset(token)


def current_reading() -> Reading | None:
    """Return the current block, or None outside of all."""
    return _READING.get()


@contextmanager
def reading_unless_open() -> Iterator[None]:
    """Continue the current block, or read without trust, so that no reader of runs can forget to open a block."""
    if _READING.get() is not None:
        yield
    else:
        with reading(trust=False):
            yield


def is_reading() -> bool:
    """Whether the command reads files that may be of others."""
    return _READING.get() is not None


def is_trusted() -> bool:
    """Whether everything that the current files name is allowed."""
    current = _READING.get()
    return current is None or current.trust


def refuse(text: str, deed: Deed) -> NotTrustedError:
    """Count a refusal in the current block and return its error."""
    current = _READING.get() or Reading(trust=False)  # a component of an untrusted file may be called after its block
    current.refused[text] = deed
    return NotTrustedError(current.line(text) + _REMEDY)


def require_trust(text: str, deed: Deed) -> None:
    """Refuse what an untrusted file names.

    Args:
        text: Location, command or address, as the configuration has it.
        deed: What would be done with it.

    Raises:
        NotTrustedError: The current files are not trusted.
    """
    if not is_trusted():
        raise refuse(text, deed)


def trust_own_files(configs: Iterable[str | None], *, trust: bool) -> None:
    """Allow everything in the current block if its configurations are the user's own, or trusted.

    Args:
        configs: Configurations as they were given: a directory is a run, perhaps of others; a file or a preset is the
            user's own.
        trust: Whether the user trusts runs, too.
    """
    current = _READING.get()
    if current is not None and (
        trust or not any(each and os.path.exists(os.path.join(each, "config.toml")) for each in configs)
    ):
        current.trust = True
        import_from_here()


def require_nothing_refused() -> None:
    """Raise `NotTrustedError` if the current block has refused anything, before work that needs all components."""
    current = _READING.get()
    if current is not None and current.refused:
        raise NotTrustedError("; ".join(map(current.line, current.refused)) + _REMEDY)


def note_settings(leaves: Iterable[tuple[str, Any]]) -> None:
    """Keep the settings of a configuration, by which refusals are named."""
    if (current := _READING.get()) is not None:
        current.settings |= {name: value for name, value in leaves if isinstance(value, str)}


class NotImported:
    """Stands for a class or function that an untrusted file names, and that is not imported."""

    def __init__(self, location: str) -> None:
        """Set the location, package.module:Name."""
        self.location = location

    def __call__(self, *_: object, **__: object) -> Any:
        """Refuse.

        Raises:
            NotTrustedError: Always.
        """
        raise refuse(self.location, "imported")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NotImported) and other.location == self.location

    def __hash__(self) -> int:
        return hash(self.location)


def add_trust_option(parser: "ArgumentParser") -> None:
    """Add `--trust` to the parser of a command that reads runs."""
    parser.add_argument(
        "--trust",
        action="store_true",
        help="run what the files name: import its classes and functions, start its programs, connect to its servers",
    )


@contextmanager
def reading_runs(*, trust: bool) -> Iterator[Reading]:
    """Read runs for a command. With trust, modules of the current directory can be imported, as in training."""
    if trust:
        import_from_here()
    with reading(trust=trust) as opened:
        yield opened


def import_from_here() -> None:
    """Find custom modules in the current directory, too, after all others."""
    if os.environ.get(_SAFE_PATH) == _BY_TORL:
        del os.environ[_SAFE_PATH]
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


@contextmanager
def importing_nothing_from_here() -> Iterator[None]:
    """Find no module in the current directory, which may be that of a run, and let no child process find one."""
    path, safe, here = list(sys.path), os.environ.get(_SAFE_PATH), os.getcwd()
    os.environ[_SAFE_PATH] = _BY_TORL
    if here != _PACKAGES:
        sys.path[:] = [entry for entry in path if entry not in ("", here)]
    try:
        yield
    finally:
        sys.path[:] = path
        os.environ.pop(_SAFE_PATH, None)  # trust may have removed it
        os.environ |= {} if safe is None else {_SAFE_PATH: safe}
