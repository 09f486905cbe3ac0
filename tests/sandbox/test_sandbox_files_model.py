"""The file system against the real one.

The same operations in the sandbox and in a directory of this machine, by the same Python program, have the same results
and fail with the same errors.
"""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from torl_sandbox import SandboxPool

# Plays operations below `base` and returns what each came to. Runs on both sides.
PLAYER = """
import errno, os, pathlib, shutil

def play(base, operations):
    descriptors = []

    def tree(path):
        found = []
        for directory, directories, files in os.walk(path):
            directories.sort()
            below = directory[len(base):]
            found += [below + "/" + name for name in directories]
            for name in files:
                with open(directory + "/" + name, "rb") as file:
                    found.append([below + "/" + name, file.read().hex()])
        return sorted(found, key=str)

    def one(name, *arguments):
        a = [base + "/" + x if isinstance(x, str) else x for x in arguments]
        fd = descriptors[arguments[0] % len(descriptors)] if descriptors and isinstance(arguments[0], int) else 999
        if name == "os.open":
            descriptors.append(os.open(a[0], sum(getattr(os, "O_" + flag[1:]) for flag in arguments[1:])))
            return None
        if name == "close":
            if fd in descriptors:
                descriptors.remove(fd)
            return os.close(fd)
        if name == "fd read":
            return os.read(fd, arguments[1]).hex()
        if name == "fd write":
            return os.write(fd, bytes([65 + arguments[1] % 26]) * arguments[2])
        if name == "fd seek":
            if os.fstat(fd).st_mode >> 12 == 4:
                return None  # every file system has places of its own in a directory
            return os.lseek(fd, arguments[1], arguments[2])
        if name == "fd truncate":
            return os.ftruncate(fd, arguments[1])
        if name == "fd pread":
            return os.pread(fd, arguments[2], arguments[1]).hex()
        if name == "fd pwrite":
            return os.pwrite(fd, bytes([97 + arguments[2] % 26]) * arguments[2], arguments[1])
        if name == "fd stat":
            stat = os.fstat(fd)
            return [stat.st_mode >> 12, stat.st_size if stat.st_mode >> 12 == 8 else None, min(stat.st_nlink, 1)]
        if name == "fd sync":
            return os.fsync(fd)
        if name == "open":
            with open(a[0], arguments[1][1:] + "b") as file:
                done = []
                for action in arguments[2:]:
                    try:
                        if action == "@read":
                            done.append(file.read(7).hex())
                        elif action == "@write":
                            done.append(file.write(b"0123456789"))
                        elif action == "@seek":
                            done.append(file.seek(5))
                        elif action == "@end":
                            done.append(file.seek(0, 2))
                        elif action == "@cut":
                            done.append(file.truncate())
                        elif action == "@tell":
                            done.append(file.tell())
                    except OSError as error:
                        done.append(str(type(error).__name__))
                return done
        if name == "stat":
            stat = os.stat(a[0])
            return [stat.st_mode >> 12, stat.st_size if stat.st_mode >> 12 == 8 else None]
        if name == "utime":
            os.utime(a[0], (arguments[1], arguments[2]))
            return [os.stat(a[0]).st_atime, os.stat(a[0]).st_mtime]
        if name == "listdir":
            return sorted(os.listdir(a[0]))
        if name == "scandir":
            return sorted([e.name, e.is_dir(), e.is_file(), e.is_symlink()] for e in os.scandir(a[0]))
        if name == "same":
            return os.path.samefile(a[0], a[1])
        if name == "resolve":
            return str(pathlib.Path(a[0]).resolve())[len(base):]
        if name == "touch":
            return pathlib.Path(a[0]).touch(exist_ok=bool(arguments[1]))
        if name == "text":
            pathlib.Path(a[0]).write_text("text of " + arguments[0])
            return pathlib.Path(a[0]).read_text()
        if name == "makedirs":
            return os.makedirs(a[0], exist_ok=bool(arguments[1]))
        if name in ("copy", "copyfile", "copytree", "move"):
            getattr(shutil, name)(a[0], a[1])
            return None
        if name == "rmtree":
            # How far it gets on a directory's parent depends on how it walks.
            return None if ".." in arguments[0] else shutil.rmtree(a[0])
        if name == "truncate":
            return os.truncate(a[0], arguments[1])
        if name == "chdir":
            here = os.getcwd()
            try:
                os.chdir(a[0])
                return [os.getcwd()[len(base):], sorted(os.listdir())]
            finally:
                os.chdir(here)
        return getattr(os, name)(*a)

    results = []
    for operation in operations:
        try:
            result = one(*operation)
        except OSError as error:
            result = "OSError " + errno.errorcode.get(error.errno, "none") if error.errno else type(error).__name__
        except (shutil.Error, ValueError) as error:
            result = type(error).__name__
        results.append(result)
    for descriptor in descriptors:
        try:
            os.close(descriptor)
        except OSError:
            pass
    return [results, tree(base)]
"""

NAMES = ["a", "b", "c"]
ENDINGS = ["", "", "", "", "/", "/.", "/..", "//", "/../a", "/./b"]


def paths() -> st.SearchStrategy[str]:
    parts = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map("/".join)
    return st.tuples(parts, st.sampled_from(ENDINGS)).map("".join) | st.sampled_from(["a", "a/b", "é"])


def operations() -> st.SearchStrategy[list[Any]]:
    path = paths()
    number = st.integers(0, 40)
    fd = st.integers(0, 5)
    flags = st.sampled_from(["@RDONLY", "@WRONLY", "@RDWR"]).flatmap(
        lambda access: st.lists(
            st.sampled_from(["@CREAT", "@EXCL", "@TRUNC", "@APPEND", "@DIRECTORY"]), unique=True
        ).map(lambda others: [access, *others])
    )
    modes = st.sampled_from(["@r", "@w", "@a", "@x", "@r+", "@w+", "@a+", "@x+"])
    actions = st.lists(st.sampled_from(["@read", "@write", "@seek", "@end", "@cut", "@tell"]), max_size=6)
    named = [
        st.tuples(st.just("os.open"), path, flags).map(lambda x: [x[0], x[1], *x[2]]),
        st.tuples(st.just("open"), path, modes, actions).map(lambda x: [x[0], x[1], x[2], *x[3]]),
        st.tuples(st.just("text"), path),
        st.tuples(st.sampled_from(["mkdir", "mkdir", "rmdir", "unlink", "remove", "removedirs"]), path),
        st.tuples(st.sampled_from(["stat", "listdir", "scandir", "resolve", "chdir", "rmtree"]), path),
        st.tuples(st.sampled_from(["rename", "rename", "replace", "copy", "copyfile", "move", "same"]), path, path),
        st.tuples(st.sampled_from(["makedirs", "touch"]), path, st.integers(0, 1)),
        st.tuples(st.sampled_from(["mkdir", "stat", "text", "remove"]), st.sampled_from(["n" * 255, "n" * 256])),
        st.tuples(st.just("truncate"), path, number),
        st.tuples(st.just("utime"), path, number, number),
        st.tuples(st.sampled_from(["fd stat", "fd sync", "close"]), fd),
        st.tuples(st.sampled_from(["fd read", "fd truncate"]), fd, number),
        st.tuples(st.sampled_from(["fd write", "fd pread", "fd pwrite"]), fd, number, number),
        st.tuples(st.just("fd seek"), fd, st.integers(-5, 40), st.integers(0, 2)),
    ]
    return st.lists(st.one_of(named).map(list), min_size=1, max_size=40)


@pytest.fixture(scope="module")
def pool() -> Iterator[SandboxPool]:
    with SandboxPool(1) as pool:
        yield pool


@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(operations=operations())
def test_sandbox_files_behave_as_real_file_system(pool: SandboxPool, operations: list[list[Any]]) -> None:
    player: dict[str, Any] = {}
    exec(PLAYER, player)
    with tempfile.TemporaryDirectory() as directory:
        base = str(Path(directory).resolve() / "base")
        Path(base).mkdir()
        results, tree = player["play"](base, operations)
    code = f"{PLAYER}\nimport json\nos.mkdir('/work/base')\nprint(json.dumps(play('/work/base', {operations!r})))"
    outcome = pool.run(code)
    assert outcome.ok, outcome
    seen_results, seen_tree = json.loads(outcome.stdout)
    for operation, expected, seen in zip(operations, results, seen_results, strict=True):
        assert seen == expected, operation
    assert seen_tree == tree
