"""What SandboxFusion's clients send: the fields of its `RunCodeRequest` and `RunJupyterRequest`.

Source: SandboxFusion, sandbox/server/sandbox_api.py and sandbox/runners/types.py. Unknown fields are ignored there and
here. `seed` is ours; its server ignores it.
"""

import binascii
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field

from torl.sandbox.options import MAXIMUM_MEMORY, MINIMUM_MEMORY

# A file that a client names in this way is not to be written; several clients rely on it.
_IGNORED = "IGNORE_THIS_FILE"


def _decoded(files: Any) -> Any:
    """Files as bytes; those without content are left out, as there."""
    if not isinstance(files, dict):
        return files
    return {
        name: binascii.a2b_base64(content) if isinstance(content, str) else content
        for name, content in files.items()
        if content is not None and _IGNORED not in str(name)
    }


def _python(language: str) -> str:
    if language != "python":
        raise ValueError(f"only 'python' runs here, not {language!r}")
    return language


Seconds = Annotated[float, Field(gt=0, lt=1e9)]
Files = Annotated[dict[str, bytes], BeforeValidator(_decoded)]


class _Request(BaseModel):
    """What both kinds of runs take."""

    memory_limit_MB: int = -1
    """Memory of the run in MiB, the interpreter's own 176 MiB included; at most the server's, which -1 means too. Less
    than 192 are taken for 192."""
    files: Files = {}
    """By path relative to where the run starts; base64 on the wire."""
    fetch_files: list[str] = []
    """Paths of files to send back."""
    seed: int = 0
    """Of everything random in the run."""

    @property
    def memory_bytes(self) -> int | None:
        """The limit that was asked for, if any was."""
        return (
            min(max(self.memory_limit_MB << 20, MINIMUM_MEMORY), MAXIMUM_MEMORY) if self.memory_limit_MB > 0 else None
        )


class RunCodeRequest(_Request):
    """A program."""

    code: str
    language: Annotated[str, AfterValidator(_python)]
    run_timeout: Seconds = 10
    """CPU seconds here; nothing waits in the sandbox, and so no busy machine makes a time-out of a run."""
    stdin: str | None = None


class RunJupyterRequest(_Request):
    """The cells of a notebook, each run with the state that those before it left."""

    cells: list[str]
    cell_timeout: float = 0
    """CPU seconds of each cell; 0: what the server allows."""
    total_timeout: Seconds = 45
    """CPU seconds of all cells together."""
