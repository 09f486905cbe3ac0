"""A command of `torl`: its function, its description, the files that it reads, and how it reports errors."""

import functools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from torl.base.errors import NotTrustedError, TorlError
from torl.base.trust import NOT_TRUSTED

ERROR: Final = 2
"""Exit status after an error, as argparse has it. Status 1 is an answer: wrong, different, not correct."""


class Files(Enum):
    """The files that a command reads, which decide what their configurations may name (`torl.base.trust`)."""

    OWN = "the user's own files: everything that they name is imported"
    RUNS = "runs, perhaps of others: nothing but torl is imported, unless the user trusts them"
    BOTH = "either: the directory of a run is read like one, a file is the user's own"


@dataclass(frozen=True, slots=True)
class Command:
    """A command of `torl`.

    Attributes:
        main: "module:function". The function takes the words after the command, and returns the exit status. torl
            reports its `TorlError` and `OSError` in a line.
        description: Description for `torl --help`, in a line.
        files: Files that it reads.
    """

    main: str
    description: str
    files: Files = Files.RUNS


def reports_errors(main: Callable[[Sequence[str] | None], int]) -> Callable[..., int]:
    """Make a function of a command report a `TorlError` or an `OSError` in a line, and return `ERROR`.

    A `NotTrustedError` has the status `NOT_TRUSTED`. A `BrokenPipeError` is raised: `torl | head` is correct.
    """

    @functools.wraps(main)
    def reporting(arguments: Sequence[str] | None = None) -> int:
        try:
            return main(arguments)
        except BrokenPipeError:
            raise
        except (TorlError, OSError) as error:
            print(f"error: {error}", file=sys.stderr)
            return NOT_TRUSTED if isinstance(error, NotTrustedError) else ERROR

    return reporting
