"""A command of `torl`: its function, its description, and the files that it reads."""

from dataclasses import dataclass
from enum import Enum


class Files(Enum):
    """The files that a command reads, which decide what their configurations may name (`torl.base.trust`)."""

    OWN = "the user's own files: everything that they name is imported"
    RUNS = "runs, perhaps of others: nothing but torl is imported, unless the user trusts them"
    BOTH = "either: the directory of a run is read like one, a file is the user's own"


@dataclass(frozen=True, slots=True)
class Command:
    """A command of `torl`.

    Attributes:
        main: "module:function". The function takes the words after the command, and returns the exit status.
        description: Description for `torl --help`, in a line.
        files: Files that it reads.
    """

    main: str
    description: str
    files: Files = Files.RUNS
