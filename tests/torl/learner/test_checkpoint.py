"""Checkpoint directories: complete or absent after any interruption."""

import errno
import json
import logging
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from torl.base.errors import CheckpointError
from torl.learner.checkpoint.directory import (
    MANIFEST,
    checkpoint_path,
    clean_checkpoints,
    latest_checkpoint,
    open_checkpoint,
    prune_checkpoints,
    read_controller_state,
    verify_checkpoint,
)

FACTS = {"ranks": 2}


def write(run: Path, step: int, content: bytes = b"weights") -> Path:
    directory = checkpoint_path(run, step)
    with open_checkpoint(directory, {"step": step}, FACTS) as partial:
        (partial / "learner").mkdir()
        (partial / "learner" / "state.bin").write_bytes(content)
    return directory


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_written_checkpoint_is_restored(tmp_path: Path) -> None:
    directory = write(tmp_path, 20)
    assert directory == tmp_path / "checkpoints" / "step_000020"
    assert verify_checkpoint(directory) == FACTS
    assert read_controller_state(directory) == {"step": 20}
    assert (directory / "learner" / "state.bin").read_bytes() == b"weights"
    assert names(tmp_path / "checkpoints") == ["step_000020"]


def test_error_leaves_existing_contents(tmp_path: Path) -> None:
    directory = write(tmp_path, 20, b"first")

    def fail_in_the_middle() -> None:
        with open_checkpoint(directory, {}, FACTS) as partial:
            (partial / "state.bin").write_bytes(b"second")
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        fail_in_the_middle()
    assert names(tmp_path / "checkpoints") == ["step_000020"]
    assert (directory / "learner" / "state.bin").read_bytes() == b"first"
    assert verify_checkpoint(directory) == FACTS


def test_a_checkpoint_is_replaced_whole(tmp_path: Path) -> None:
    write(tmp_path, 20, b"first")
    directory = write(tmp_path, 20, b"second")
    assert (directory / "learner" / "state.bin").read_bytes() == b"second"
    assert verify_checkpoint(directory) == FACTS


def test_a_kill_while_the_old_one_is_removed_leaves_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, 20, b"first")

    def interrupted(path: Path, ignore_errors: bool = False) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path, 20, b"second")
    directory = checkpoint_path(tmp_path, 20)
    assert (directory / "learner" / "state.bin").read_bytes() == b"second"
    assert verify_checkpoint(directory) == FACTS
    monkeypatch.undo()
    assert names(write(tmp_path, 20).parent) == ["step_000020"]


@pytest.mark.parametrize("failure", [OSError(errno.EIO, "Input/output error"), KeyboardInterrupt()])
def test_failed_rename_keeps_the_existing_checkpoint(
    failure: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = write(tmp_path, 20, b"first")
    rename = Path.rename

    def fail(path: Path, target: Path) -> Path:
        if target == directory and not path.name.endswith("-replaced"):
            raise failure
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises((CheckpointError, KeyboardInterrupt)):
        write(tmp_path, 20, b"second")
    assert names(tmp_path / "checkpoints") == ["step_000020"]
    assert (directory / "learner" / "state.bin").read_bytes() == b"first"
    assert verify_checkpoint(directory) == FACTS


def test_checkpoint_that_a_kill_left_renamed_is_restored(tmp_path: Path) -> None:
    write(tmp_path, 10)
    program = f"""
        import os
        from pathlib import Path
        from torl.learner.checkpoint.directory import checkpoint_path, open_checkpoint
        for content in (b"first", b"second"):
            with open_checkpoint(checkpoint_path(Path({str(tmp_path)!r}), 20), {{}}, {{}}) as partial:
                (partial / "state.bin").write_bytes(content)
                rename = Path.rename
                if content == b"second":
                    Path.rename = lambda path, target: (rename(path, target), os.kill(os.getpid(), 9))
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=False)
    directory = checkpoint_path(tmp_path, 20)
    assert not directory.exists()
    clean_checkpoints(tmp_path)
    assert latest_checkpoint(tmp_path) == directory
    assert (directory / "state.bin").read_bytes() == b"first"
    assert names(tmp_path / "checkpoints") == ["step_000010", "step_000020"]


def test_checkpoint_that_was_replaced_before_a_kill_is_not_restored(tmp_path: Path) -> None:
    directory = write(tmp_path, 20, b"second")
    write(tmp_path, 10, b"first").rename(directory.with_name(".partial-step_000020-replaced"))
    clean_checkpoints(tmp_path)
    assert (directory / "learner" / "state.bin").read_bytes() == b"second"
    assert names(tmp_path / "checkpoints") == ["step_000020"]
    clean_checkpoints(tmp_path / "absent")


def test_a_crash_leaves_a_partial_directory_that_counts_as_nothing(tmp_path: Path) -> None:
    program = f"""
        import os
        from pathlib import Path
        from torl.learner.checkpoint.directory import checkpoint_path, open_checkpoint
        with open_checkpoint(checkpoint_path(Path({str(tmp_path)!r}), 20), {{}}, {{}}) as partial:
            (partial / "state.bin").write_bytes(b"x")
            os.kill(os.getpid(), 9)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=False)
    (leftover,) = names(tmp_path / "checkpoints")
    assert leftover.startswith(".partial-step_000020")
    assert latest_checkpoint(tmp_path) is None
    directory = write(tmp_path, 20)
    assert latest_checkpoint(tmp_path) == directory
    assert names(tmp_path / "checkpoints") == ["step_000020"]


def flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def write_files(directory: Path, files: object) -> None:
    """Write a manifest with these files."""
    manifest = json.loads((directory / MANIFEST).read_text())
    (directory / MANIFEST).write_text(json.dumps({**manifest, "files": files}))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda directory: (directory / "learner" / "state.bin").unlink(), r"learner/state\.bin is missing"),
        (lambda directory: os.truncate(directory / "learner" / "state.bin", 3), "has 3 bytes, not 7"),
        (lambda directory: flip_a_byte(directory / "learner" / "state.bin"), r"content of learner/state\.bin"),
        (lambda directory: flip_a_byte(directory / "controller.json"), r"controller\.json"),
        (lambda directory: (directory / MANIFEST).unlink(), "manifest.json cannot be read"),
        (lambda directory: os.truncate(directory / MANIFEST, 20), "manifest.json cannot be read"),
        (lambda directory: (directory / MANIFEST).write_text("[]"), "manifest.json cannot be read"),
        (lambda directory: (directory / MANIFEST).write_text('{"format": 99}'), "has format 99"),
        (lambda directory: write_files(directory, []), "manifest.json cannot be read"),
        (lambda directory: write_files(directory, {"state.bin": []}), "manifest.json cannot be read"),
        (lambda directory: write_files(directory, {"state.bin": {"bytes": 3}}), "entry of state.bin is incomplete"),
    ],
)
def test_damage_is_found_and_passed_over(
    damage: "object", message: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    older, newer = write(tmp_path, 9), write(tmp_path, 10)
    assert latest_checkpoint(tmp_path) == newer
    assert callable(damage)
    damage(newer)
    with pytest.raises(CheckpointError, match=message):
        verify_checkpoint(newer)
    with caplog.at_level(logging.WARNING):
        assert latest_checkpoint(tmp_path) == older
    assert "damaged checkpoint" in caplog.text
    assert str(newer) in caplog.text


def test_checkpoints_that_are_all_damaged_are_an_error_that_names_each(tmp_path: Path) -> None:
    """A run that began again instead would throw away the records of the one before."""
    older, newer = write(tmp_path, 9), write(tmp_path, 10)
    flip_a_byte(newer / "controller.json")
    (older / MANIFEST).unlink()
    with pytest.raises(CheckpointError) as raised:
        latest_checkpoint(tmp_path)
    assert f"{tmp_path} has no intact checkpoint" in str(raised.value)
    assert f"{newer}: the content of controller.json has changed" in str(raised.value)
    assert f"{older}: {MANIFEST} cannot be read" in str(raised.value)


def test_the_newest_are_kept(tmp_path: Path) -> None:
    for step in (5, 999_999, 1_000_000, 20):  # names of different length: the number counts
        write(tmp_path, step)
    removed = prune_checkpoints(tmp_path, 1_000_000, keep=2)
    assert [path.name for path in removed] == ["step_000005", "step_000020"]
    assert names(tmp_path / "checkpoints") == ["step_1000000", "step_999999"]
    assert latest_checkpoint(tmp_path) == tmp_path / "checkpoints" / "step_1000000"
    write(tmp_path, 1_000_001)
    assert prune_checkpoints(tmp_path, 1_000_001, keep=1, values={999_999: 0.5, 1_000_000: 0.4, 7: 0.9}) == [
        tmp_path / "checkpoints" / "step_1000000"
    ]
    assert names(tmp_path / "checkpoints") == ["step_1000001", "step_999999"]
    with pytest.raises(ValueError, match="keep is 0"):
        prune_checkpoints(tmp_path, 1_000_001, keep=0)


@pytest.mark.parametrize(("keep", "values"), [(2, {}), (1, {10: 0.9})])
def test_checkpoints_after_the_one_just_written_are_removed(
    keep: int, values: dict[int, float], tmp_path: Path
) -> None:
    """The run resumed from an earlier one, because these were damaged; as the newest, they would be kept instead."""
    for step in (10, 20, 30):
        write(tmp_path, step)
    for step in (20, 30):
        (checkpoint_path(tmp_path, step) / MANIFEST).unlink()
    write(tmp_path, 15)
    prune_checkpoints(tmp_path, 15, keep, values)
    assert names(tmp_path / "checkpoints") == ["step_000010", "step_000015"]


def test_checkpoint_of_another_run_is_left_alone(tmp_path: Path) -> None:
    original = write(tmp_path / "original", 20)
    (tmp_path / "replay" / "checkpoints").mkdir(parents=True)
    checkpoint_path(tmp_path / "replay", 20).symlink_to(original)
    write(tmp_path / "replay", 21)
    prune_checkpoints(tmp_path / "replay", 21, keep=1)
    assert names(tmp_path / "replay" / "checkpoints") == ["step_000021"]
    assert verify_checkpoint(original) == FACTS


def test_no_checkpoint_at_all(tmp_path: Path) -> None:
    assert latest_checkpoint(tmp_path) is None
    assert prune_checkpoints(tmp_path, 1, keep=1) == []


FULL_DISK = """
    import sys
    from pathlib import Path
    from torl.base.errors import CheckpointError
    from torl.learner.checkpoint.directory import checkpoint_path, latest_checkpoint, open_checkpoint
    run = Path(sys.argv[1])
    def write(step, size):
        with open_checkpoint(checkpoint_path(run, step), {}, {}) as partial:
            (partial / "state.bin").write_bytes(bytes(size))
    write(1, 100_000)
    try:
        write(2, 2_000_000)
    except CheckpointError as error:
        print(error)
    assert latest_checkpoint(run) == checkpoint_path(run, 1)
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["step_000001"]
"""


def test_a_full_disk_is_named_and_the_previous_checkpoint_kept(tmp_path: Path) -> None:
    """Write to a file system of one megabyte, mounted in a separate namespace."""
    namespace = ["unshare", "--map-root-user", "--mount"]
    mount = f"mount -t tmpfs -o size=1m none {tmp_path} && exec "
    if (
        shutil.which("unshare") is None
        or subprocess.run([*namespace, "sh", "-c", mount + "true"], check=False).returncode
    ):
        pytest.skip("this machine does not let its users mount a file system in a namespace")
    ended = subprocess.run(
        [*namespace, "sh", "-c", mount + '"$@"', "sh", sys.executable, "-c", textwrap.dedent(FULL_DISK), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "step_000002 could not be written: the disk is full; the previous checkpoint is kept" in ended.stdout
