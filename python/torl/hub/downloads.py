"""What is fetched into the hub's cache, and what is said where it cannot be."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torl.errors import DataError
from torl.hub.names import DATASET_PREFIX, split_name


def snapshot(name: str, kind: str, patterns: list[str], option: str) -> Path:
    """The directory of a model or data set in the cache, after what is missing has been downloaded."""
    from huggingface_hub import snapshot_download

    repository, revision = split_name(name)
    with hub_errors(name, kind, option):
        return Path(snapshot_download(repository, repo_type=kind, revision=revision, allow_patterns=patterns))


@contextmanager
def hub_errors(name: str, kind: str, option: str) -> Iterator[None]:
    """What the hub and the way to it raise becomes a `DataError` that says what to download and where to put it."""
    from httpx2 import HTTPError
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        yield
    except (LocalEntryNotFoundError, HTTPError, OSError, ValueError) as error:
        repository, revision = split_name(name.removeprefix(DATASET_PREFIX))
        flags = ("" if kind == "model" else " --repo-type dataset") + (f" --revision {revision}" if revision else "")
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise DataError(
            f"{name}: is no directory here, and the {kind} of that name cannot be had from the hub: {reason}. "
            f"Where there is a network, run `hf download {repository}{flags} --local-dir {Path(repository).name}`, "
            f"bring that directory here, and give its path {option}"
        ) from error
