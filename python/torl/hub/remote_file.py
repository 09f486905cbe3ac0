"""A file of the hub that is read and not stored."""

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import IO, cast

from torl.hub.names import DATASET_PREFIX

_BLOCK_BYTES = 2**20  # asked for at once; up to twice as many are held


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of a data set on the hub, read over the network as it is needed, and not stored."""

    data_set: str  # "owner/name@commit"
    name: str  # within it

    @property
    def suffix(self) -> str:
        """As of a `Path`."""
        return PurePosixPath(self.name).suffix

    def open(self, mode: str) -> IO[bytes]:
        """As of a `Path`; only "rb" is known."""
        from huggingface_hub import HfFileSystem

        opened = HfFileSystem().open(f"datasets/{self.data_set}/{self.name}", mode, block_size=_BLOCK_BYTES)
        return cast(IO[bytes], opened)

    def read_bytes(self) -> bytes:
        """As of a `Path`."""
        with self.open("rb") as file:
            return file.read()

    def __str__(self) -> str:
        return f"{DATASET_PREFIX}{self.data_set}/{self.name}"
