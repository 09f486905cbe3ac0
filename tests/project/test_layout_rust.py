"""The layers of the Rust side: every import points to a lower layer."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
SANDBOX, CORE = REPOSITORY / "crates" / "sandbox" / "src", REPOSITORY / "rust" / "src"

# For each folder, its modules from the lowest layer to the highest. A module is a file, or a folder with its contents.
# A module may use modules of lower layers only, so there are no cycles. "lib" and
# "mod" are the file that declares the others.
LAYERS: dict[Path, list[set[str]]] = {
    CORE: [
        {"error"},
        {"advantage", "marker", "packing", "repetition", "splice", "vocabulary"},
        {"fences"},
        {"scanner"},
        {"python"},
        {"lib"},
    ],
    CORE / "python": [{"kernels", "scanner", "splice"}, {"mod"}],
    SANDBOX: [
        {"errno", "error", "limits", "wire"},
        {"pinned"},
        {"files", "session"},
        {"outcome"},
        {"request"},
        {"run"},
        {"guest"},
        {"worker"},
        {"pool"},
        {"fuzzing"},
        {"lib"},
    ],
    SANDBOX / "files": [{"archive", "contents"}, {"tree"}, {"descriptors"}, {"mod"}, {"encoding", "tests"}],
    SANDBOX / "guest": [
        {"functions", "library", "module", "sources"},
        {"casts", "frames", "integers", "interrupt", "libc"},
        {"preparation"},
        {"artifacts"},
        {"cache"},
        {"mod"},
    ],
    SANDBOX / "pool": [
        {"job", "retry", "settings", "source", "statistics"},
        {"child", "queue", "sharing"},
        {"slots"},
        {"mod"},
        {"tests"},
    ],
    SANDBOX / "run": [
        {"cpu_time", "driver", "interrupt", "native_stack", "output", "protection", "reset", "virtual_clock"},
        {"watchdog"},
        {"engine", "host"},
        {"calls", "instance"},
        {"runner"},
        {"mod"},
    ],
    SANDBOX / "worker": [{"confine", "descriptors"}, {"protocol"}, {"mod"}],
}
# Separate programs, which use the crate from outside.
OUTSIDE = {"bin"}

_COMMENT = re.compile(r"//.*")
_CRATE_PATH = re.compile(r"(?<![\w$:])crate::((?:\w+::)*)(\{[^}]*\}|\w+)")
_SUPER_PATH = re.compile(r"(?<![\w:])super::((?:\w+::)*)(\{[^}]*\}|\w+)")


def room_of(file: Path, folder: Path) -> str:
    """The module of `folder` that a file below it belongs to."""
    return file.relative_to(folder).parts[0].removesuffix(".rs")


def paths_used(text: str, file: Path, source: Path) -> Iterator[list[str]]:
    """Every path from the root of the crate that this text names, segment by segment."""
    text = _COMMENT.sub("", text)
    parent = list(file.relative_to(source).with_suffix("").parts)
    parent = parent[:-2] if parent[-1] == "mod" else parent[:-1]
    for pattern, base in ((_CRATE_PATH, []), (_SUPER_PATH, parent)):
        for segments, last in pattern.findall(text):
            for name in re.findall(r"\w+(?:::\w+)*", last):
                yield [*base, *segments.split("::")[:-1], *name.split("::")]


def root_of(folder: Path) -> Path:
    return SANDBOX if folder.is_relative_to(SANDBOX) else CORE


def arrows(folder: Path, file: Path, text: str) -> Iterator[tuple[str, str]]:
    """(module, module it uses) for every use of another module of `folder` by this file."""
    source = root_of(folder)
    module, place = room_of(file, folder), list(folder.relative_to(source).parts)
    modules = {name for floor in LAYERS[folder] for name in floor}
    for path in paths_used(text, file, source):
        if path[: len(place)] != place or len(path) == len(place):
            continue
        # A name that is not a module is declared, or passed on, by the file that declares the modules.
        used = path[len(place)] if path[len(place)] in modules else ("mod" if place else "lib")
        if used != module:
            yield module, used


def wrong_arrows(folder: Path, file: Path, text: str) -> list[str]:
    """The imports of a file, among the modules of `folder`, that do not point down."""
    floor = {module: height for height, modules in enumerate(LAYERS[folder]) for module in modules}
    return [
        f"{file.relative_to(REPOSITORY)}: {module} -> {used}"
        for module, used in arrows(folder, file, text)
        if floor[used] >= floor[module]
    ]


@pytest.mark.parametrize("folder", LAYERS, ids=lambda folder: str(folder.relative_to(REPOSITORY)))
def test_every_room_has_a_floor(folder: Path) -> None:
    modules = {room_of(file, folder) for file in folder.rglob("*.rs")} - OUTSIDE
    floors = [module for floor in LAYERS[folder] for module in floor]
    assert sorted(floors) == sorted(modules)


@pytest.mark.parametrize("folder", LAYERS, ids=lambda folder: str(folder.relative_to(REPOSITORY)))
def test_every_arrow_points_down(folder: Path) -> None:
    files = [file for file in sorted(folder.rglob("*.rs")) if room_of(file, folder) not in OUTSIDE]
    wrong = [arrow for file in files for arrow in wrong_arrows(folder, file, file.read_text(encoding="utf-8"))]
    assert wrong == []


def test_the_arrows_of_the_sandbox_are_seen() -> None:
    files = [file for file in SANDBOX.rglob("*.rs") if room_of(file, SANDBOX) not in OUTSIDE]
    seen = {arrow for file in files for arrow in arrows(SANDBOX, file, file.read_text(encoding="utf-8"))}
    assert {("files", "errno"), ("run", "files"), ("guest", "run"), ("worker", "guest"), ("pool", "worker")} <= seen


@pytest.mark.parametrize(
    ("folder", "file", "line", "arrow"),
    [
        (SANDBOX, "wire.rs", "use crate::pool::Pool;", "wire -> pool"),
        (SANDBOX, "outcome.rs", "use crate::request::Request;", "outcome -> request"),
        (SANDBOX, "run/calls/clock.rs", "use crate::guest::Cache;", "run -> guest"),
        (SANDBOX, "request.rs", "let pool = crate::pool::Pool::new();", "request -> pool"),
        (SANDBOX, "files/tree/edits.rs", "use crate::{error, run::host};", "files -> run"),
        (SANDBOX, "session.rs", "use crate::Outcome;", "session -> lib"),
        (SANDBOX, "limits.rs", "use super::pool::Pool;", "limits -> pool"),
        (SANDBOX / "run", "run/watchdog.rs", "use crate::run::host::Output;", "watchdog -> host"),
        (SANDBOX / "run", "run/watchdog.rs", "use super::host::Output;", "watchdog -> host"),
        (SANDBOX / "pool", "pool/job.rs", "use crate::pool::sharing::Key;", "job -> sharing"),
        (SANDBOX / "pool", "pool/slots.rs", "use crate::pool::{\n    Settings,\n};", "slots -> mod"),
        (CORE, "vocabulary.rs", "use crate::scanner::Scanner;", "vocabulary -> scanner"),
    ],
)
def test_an_arrow_up_or_aside_is_seen(folder: Path, file: str, line: str, arrow: str) -> None:
    place = root_of(folder) / file
    (problem,) = wrong_arrows(folder, place, f"{place.read_text(encoding='utf-8')}\n{line}\n")
    assert problem.endswith(f"{place.relative_to(REPOSITORY)}: {arrow}")


def test_words_in_comments_are_not_imports() -> None:
    assert (
        wrong_arrows(SANDBOX, SANDBOX / "wire.rs", "//! See [`crate::pool::Pool`].\n/// And [`crate::Outcome`].\n")
        == []
    )
