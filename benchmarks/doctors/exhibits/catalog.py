"""The catalog of exhibits, and the replacement of functions of torl in this process."""

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final, Literal

Side = Literal["controller", "learner"]
"""Process of a run: the one that plays, grades and records, or the one of a learner rank."""
Wrap = Callable[[Any], Any]
"""Return the function with the bug for the original one."""

CHECKS: Final = (
    "files",
    "groups",
    "prompts",
    "tokens",
    "versions",
    "rewards",
    "selection",
    "advantages",
    "metrics",
    "updates",
    "checkpoints",
    "logprobs",
    "receipt",
)
"""Checks of `torl verify` that a ground truth may name, as `verify:CHECK`."""
RECEIPT: Final = "receipt"
"""Ground truth that `torl verify --receipt` finds: calls have other outcomes when they run again."""
REPLAY: Final = "replay"
"""Ground truth that only `torl replay` finds: the step has another gradient or other weights when it is made again."""
END_TOKEN: Final = 1875
"""End token of the demo's model."""


@dataclass(frozen=True, slots=True)
class Exhibit:
    """A bug of a public trainer.

    Attributes:
        id: Name.
        thread: Public thread: "owner/name#issue" or "owner/name!pull request".
        says: Content of the thread in a sentence.
        truth: Names that a correct finding has: checks of `torl doctor`, "verify:CHECK", "receipt" or "replay".
        side: Process that is patched.
        patches: Wraps by their targets, "module:attribute" or "module:Class.method".
        settings: Settings of the run in addition to those of all runs.
        starts: Number of starts of the run. With 2, it is resumed half way.
    """

    id: str
    thread: str
    says: str
    truth: Collection[str]
    side: Side
    patches: Mapping[str, Wrap]
    settings: Mapping[str, object] = field(default_factory=dict)
    starts: int = 1

    @property
    def link(self) -> str:
        """Address of the thread."""
        repository, mark, number = self.thread.replace("#", " # ").replace("!", " ! ").split()
        return f"https://github.com/{repository}/{'issues' if mark == '#' else 'pull'}/{number}"


EXHIBITS: Final[dict[str, Exhibit]] = {}
"""All exhibits by their ids."""
_KEPT: Final = ExitStack()  # patches that last as long as the process


def exhibit(
    target: str,
    *,
    thread: str,
    says: str,
    truth: Collection[str],
    side: Side = "controller",
    settings: Mapping[str, object] | None = None,
    starts: int = 1,
    also: Mapping[str, Wrap] | None = None,
) -> Callable[[Wrap], Wrap]:
    """Register a wrap as an exhibit. Its id is the name of the function, with hyphens.

    The arguments are those of `Exhibit`; `target` is the function of torl that has the bug, and `also` has the patches
    that the bug needs to appear, such as a failing host.
    """

    def register(wrap: Wrap) -> Wrap:
        id = wrap.__name__.replace("_", "-")
        add(Exhibit(id, thread, says, tuple(truth), side, {target: wrap, **(also or {})}, settings or {}, starts))
        return wrap

    return register


def add(made: Exhibit) -> None:
    """Register an exhibit.

    Raises:
        ValueError: The id is taken.
    """
    if made.id in EXHIBITS:
        raise ValueError(f"two exhibits have the id {made.id}")
    EXHIBITS[made.id] = made


@contextmanager
def applied(chosen: Exhibit) -> Iterator[None]:
    """Patch torl in this process until the end of the block."""
    with ExitStack() as stack:
        for target, wrap in chosen.patches.items():
            stack.enter_context(_replaced(target, wrap))
        yield


def apply(name: str, side: Side) -> None:
    """Patch torl in this process until it ends, if the exhibit has its bug on this side."""
    load_all()
    chosen = EXHIBITS[name]
    if chosen.side == side:
        _KEPT.enter_context(applied(chosen))
        print(f"exhibit {name}: patched {', '.join(chosen.patches)}", file=sys.stderr, flush=True)


def load_all() -> None:
    """Register all exhibits."""
    for module in ("tokens", "sampling", "rewards", "tools", "data", "update", "weights"):
        import_module(f"benchmarks.doctors.exhibits.{module}")


@contextmanager
def _replaced(target: str, wrap: Wrap) -> Iterator[None]:
    """Replace a function in a module, and if the module defines it, in all modules of torl that have imported it."""
    module_name, _, path = target.partition(":")
    module = import_module(module_name)
    *owners, name = path.split(".")
    owner: Any = module
    for each in owners:
        owner = getattr(owner, each)
    original = vars(owner)[name]
    changed = wrap(original)
    places = [(owner, name)]
    if owner is module and getattr(original, "__module__", None) == module_name:
        places += [
            (other, key)
            for other_name, other in list(sys.modules.items())
            if other_name.startswith("torl.") and other is not module
            for key, value in list(vars(other).items())
            if value is original
        ]
    for place, key in places:
        setattr(place, key, changed)
    try:
        yield
    finally:
        for place, key in places:
            setattr(place, key, original)
