"""Plant single mistakes in copies of the tree and see whether a test notices.

    python tests/mutants/run.py [python|rust ...] [--only TEXT]
    python tests/mutants/run.py --check

A mistake is a change of one piece of text, which must occur exactly once in its file. It is killed if the tests that
are named for it fail; without it they must pass, which is tried first. Two are tried at a time, in separate copies.
Exit status 0: at least 90 % of them are killed; 1: fewer; 2: a piece of text occurs not at all or several times, or the
tests do not even pass without a mistake. `--check` looks at the pieces of text alone. A killed command continues: what
it has tried is in target/mutants.jsonl, and is tried again only when a file of the tree has changed.
"""

import argparse
import compileall
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from py_compile import PycInvalidationMode
from queue import Queue
from tempfile import TemporaryDirectory
from threading import Lock

import python_mutants
import rust_mutants
from forked import NotRunError, has_failing_test

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "scripts"))
import tree_state  # noqa: E402

TRIED = ROOT / "target" / "mutants.jsonl"
ENOUGH = 0.9
COPIES = 2  # two at a time, as in `make test`: half of the time tests wait
COMPILING = Lock()  # copies share the target directory
MAX_SECONDS = 1500  # of the tests of one mistake; a mistake that makes them hang is noticed by the timeout


@dataclass(frozen=True)
class Mutant:
    """A mistake: `old` becomes `new` in the file at `path`, and the tests should fail."""

    path: str
    old: str
    new: str
    tests: str  # words for pytest, relative to tests/; "" for those of the crates

    def __str__(self) -> str:
        old, new = (" ".join(text.split())[:60] for text in (self.old, self.new))
        return f"{self.path}: {old!r} -> {new!r}"

    @property
    def words(self) -> tuple[str, ...]:
        """The arguments of the program that runs its tests."""
        return pytest_words(self.tests) if self.tests else cargo_words(self.path)


def pytest_words(tests: str) -> tuple[str, ...]:
    """`tests` are words, paths relative to tests/; what follows " -k " is one word."""
    words, _, names = tests.partition(" -k ")
    paths = [f"tests/{word}" if "/" in word else word for word in words.split()]
    chosen = ["-k", names] if names else []
    return ("-x", "-q", "-p", "no:cacheprovider", *paths, *chosen)


def cargo_words(path: str) -> tuple[str, ...]:
    """The tests that a change of a crate's file can fail. For the sandbox alone, Wasmtime would be compiled anew."""
    crates = ("--workspace",) if path.startswith("crates/sandbox/") else ("-p", "torl-core")
    return ("cargo", "test", "--release", "--quiet", *crates, "--features", "torl-core/extension-module")


def python_list() -> list[Mutant]:
    """Mutants of the package; paths in the list are relative to python/."""
    return [Mutant(f"python/{path}", old, new, tests) for path, old, new, tests in python_mutants.MUTANTS]


def rust_list() -> list[Mutant]:
    """Mutants of the crates; paths in the list are relative to the root."""
    return [Mutant(path, old, new, "") for path, old, new, _ in rust_mutants.MUTANTS]


LISTS: dict[str, Callable[[], list[Mutant]]] = {"python": python_list, "rust": rust_list}


def controls(mutants: Sequence[Mutant]) -> list[tuple[str, ...]]:
    """The tests of all of them, each once."""
    names: dict[str, list[str]] = {}
    for mutant in mutants:
        if mutant.tests:
            paths, _, chosen = mutant.tests.partition(" -k ")
            names.setdefault(paths, []).append(chosen)
    chosen_of = {
        paths: "" if "" in found else " or ".join(f"({name})" for name in found) for paths, found in names.items()
    }
    python = [pytest_words(f"{paths} -k {chosen}" if chosen else paths) for paths, chosen in chosen_of.items()]
    return python + sorted({mutant.words for mutant in mutants if not mutant.tests})


def stale() -> list[str]:
    """Pieces of text that do not occur exactly once, those of mistakes that cannot be noticed included."""
    texts = [(mutant.path, mutant.old) for make in LISTS.values() for mutant in make()]
    texts += [(f"python/{path}", old) for path, old, _, _ in python_mutants.EQUIVALENT]
    found = []
    for path, old in texts:
        file = ROOT / path
        count = file.read_text(encoding="utf-8").count(old) if file.is_file() else 0
        if count != 1:
            found.append(f"{path}: {count} times: {old!r}")
    return found


def copy_tree(target: Path) -> None:
    """Copy the files that git tracks, as they are now, and the compiled extension."""
    extensions = [str(path.relative_to(ROOT)) for path in (ROOT / "python").rglob("*.so")]
    for name in [*tree_state.files(ROOT), *extensions]:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target / name)
    # A mistake within the same second is seen, since the bytecode holds a hash of its file.
    compileall.compile_dir(target / "python", quiet=1, invalidation_mode=PycInvalidationMode.CHECKED_HASH)


def failing(words: Sequence[str], tree: Path) -> bool:
    """Whether the tests fail there, or do not end in time.

    Raises:
        NotRunError: The tests could not be run.
    """
    if words[0] != "cargo":
        return has_failing_test(list(words), tree, MAX_SECONDS)
    environment = os.environ | cargo_environment()
    try:
        with COMPILING:
            done = subprocess.run(
                words, cwd=tree, env=environment, capture_output=True, text=True, timeout=MAX_SECONDS, check=False
            )
    except subprocess.TimeoutExpired:
        return True
    # 101 is cargo's for a test that failed, and for a change that does not compile.
    if done.returncode not in (0, 101) or "could not compile" in done.stderr:
        raise NotRunError(
            f"{' '.join(words)}: exit status {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-1000:]}"
        )
    return done.returncode != 0


def cargo_environment() -> dict[str, str]:
    """With these, and the features of the extension, no dependency is compiled that `make install` has compiled."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    settings = {"CARGO_TARGET_DIR": str(target), "PYO3_BUILD_EXTENSION_MODULE": "1"}
    for path in sorted(target.glob("maturin/pyo3-config-*-abi3.txt"))[:1]:
        settings["PYO3_CONFIG_FILE"] = str(path)
    return settings


def killed(mutant: Mutant, tree: Path) -> bool:
    """Plant it, run its tests, take it out again."""
    file = tree / mutant.path
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
    try:
        return failing(mutant.words, tree)
    finally:
        file.write_text(text, encoding="utf-8")


class Tried:
    """The results of the mistakes and of the tests without one, for these files of the tree. Kept in a file."""

    def __init__(self, file: Path, tree: str) -> None:
        self._file, self._tree, self._writing = file, tree, Lock()
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else ()
        entries = [json.loads(line) for line in lines if line.endswith(("true}", "false}"))]  # a kill cuts a line
        self._failed = {tuple(entry["tried"]): entry["failed"] for entry in entries if entry["tree"] == tree}

    def failed(self, tried: tuple[str, ...]) -> bool | None:
        """Return whether the tests failed then; None if this was not tried."""
        return self._failed.get(tried)

    def keep(self, tried: tuple[str, ...], *, failed: bool) -> bool:
        """Keep a result, and return it."""
        self._failed[tried] = failed
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._writing, self._file.open("a", encoding="utf-8") as lines:
            lines.write("\n" + json.dumps({"tree": self._tree, "tried": tried, "failed": failed}) + "\n")
        return failed


def main() -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description="Plant one mistake at a time and see whether a test notices.")
    parser.add_argument("lists", nargs="*", help="python, rust; both when none is named")
    parser.add_argument("--only", default="", metavar="TEXT", help="only mistakes whose path holds this")
    parser.add_argument("--check", action="store_true", help="only see whether each piece of text occurs exactly once")
    options = parser.parse_args()
    if unknown := set(options.lists) - LISTS.keys():
        parser.error(f"there is no list {min(unknown)!r}; there are: {', '.join(LISTS)}")
    if problems := stale():
        print("these pieces of text must occur exactly once:", *problems, sep="\n", file=sys.stderr)
        return 2
    if options.check:
        return 0
    mutants = [mutant for name in options.lists or LISTS for mutant in LISTS[name]() if options.only in mutant.path]
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # the copies keep the bytecode of their files without a mistake
    tried = Tried(TRIED, tree_state.tree_hash(ROOT))
    with TemporaryDirectory(prefix="torl-mutants-") as scratch, ThreadPoolExecutor(COPIES) as threads:
        trees = Queue[Path]()
        for number in range(COPIES):
            copy_tree(Path(scratch, str(number)))
            trees.put(Path(scratch, str(number)))

        def in_copy(try_there: Callable[[Path], bool], key: tuple[str, ...]) -> bool:
            known = tried.failed(key)
            if known is not None:
                return known
            tree = trees.get()
            try:
                return tried.keep(key, failed=try_there(tree))
            finally:
                trees.put(tree)

        def control(words: tuple[str, ...]) -> bool:
            is_failing = in_copy(lambda tree: failing(words, tree), words)
            print(f"without a mistake, {'FAILED' if is_failing else 'passed'}: {' '.join(words)}", flush=True)
            return is_failing

        def plant(mutant: Mutant) -> bool:
            start = time.monotonic()
            dead = in_copy(lambda tree: killed(mutant, tree), (mutant.path, mutant.old, mutant.new))
            print(f"{'killed' if dead else 'SURVIVED'} in {time.monotonic() - start:.0f} s  {mutant}", flush=True)
            return dead

        try:
            if any(list(threads.map(control, controls(mutants)))):
                print("tests fail without any mistake", file=sys.stderr)
                return 2
            survivors = [mutant for mutant, dead in zip(mutants, threads.map(plant, mutants), strict=True) if not dead]
        except NotRunError as error:
            threads.shutdown(cancel_futures=True)
            print(error, file=sys.stderr)
            return 2
    share = 1 - len(survivors) / len(mutants) if mutants else 1.0
    for mutant in survivors:
        print(f"survived: {mutant}")
    print(f"{len(mutants) - len(survivors)} of {len(mutants)} killed: {share:.1%}")
    return int(share < ENOUGH)


if __name__ == "__main__":
    sys.exit(main())
