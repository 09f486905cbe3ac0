"""A run as the result of an MCP tool: what it printed as text, its pictures as pictures, its files as resources."""

import base64
import mimetypes
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from mcp.types import (
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    TextContent,
    TextResourceContents,
)

from torl.sandbox.execution import Execution
from torl.sandbox.transcript import render_transcript

# What clients show as a picture.
_PICTURES = {"image/png", "image/jpeg", "image/gif", "image/webp"}
_DATA, _BASE64 = "data:", ";base64,"


def result_of(outcome: Execution, session: str | None, max_file_bytes: int) -> CallToolResult:
    """The result of a run.

    Args:
        outcome: what it did.
        session: the name by which it can be continued, if it can.
        max_file_bytes: of files together that are sent; the others are named with their sizes.
    """
    content: list[ContentBlock] = [TextContent(text=_text(outcome, session))]
    room = max_file_bytes
    for path, data in outcome.files.items():
        if len(data) <= room:
            content.append(_file(path, data))
            room -= len(data)
    structured: dict[str, Any] = {
        "status": outcome.status.value,
        "stdout": outcome.stdout,
        "stderr": outcome.stderr,
        "value": outcome.value,
        "error": outcome.exception_line,
        "cpu_seconds": outcome.cpu_seconds,
        "session": session,
        "files": {_shown(path): len(data) for path, data in outcome.files.items()},
    }
    return CallToolResult(content=content, structured_content=structured, is_error=not outcome.ok)


def failure(said: str) -> CallToolResult:
    """A call that was not run, and why."""
    return CallToolResult(content=[TextContent(text=said)], is_error=True)


def contents(files: Mapping[str, str]) -> dict[str, bytes]:
    """Files of a call as bytes: text, or a data URL in base64.

    Raises:
        ValueError: what calls itself base64 is none.
    """
    return {path: _content(text) for path, text in files.items()}


def _content(text: str) -> bytes:
    head, marker, data = text.partition(_BASE64)
    if head.startswith(_DATA) and marker:
        return base64.b64decode(data, validate=True)
    return text.encode()


def _text(outcome: Execution, session: str | None) -> str:
    lines = [text] if (text := render_transcript(outcome)) else []
    lines += [f"[file {_shown(path)}, {len(data)} bytes]" for path, data in outcome.files.items()]
    return "\n".join(lines if session is None else [*lines, f"[session {session}]"])


def _file(path: str, data: bytes) -> ContentBlock:
    kind = mimetypes.guess_type(path)[0] or "application/octet-stream"
    if kind in _PICTURES:
        return ImageContent(data=base64.b64encode(data).decode(), mime_type=kind)
    uri = f"file:///work/{quote(path, errors='surrogateescape')}"
    try:
        text = data.decode()
    except UnicodeDecodeError:
        blob = base64.b64encode(data).decode()
        return EmbeddedResource(resource=BlobResourceContents(uri=uri, mime_type=kind, blob=blob))
    if kind == "application/octet-stream":
        kind = "text/plain"
    return EmbeddedResource(resource=TextResourceContents(uri=uri, mime_type=kind, text=text))


def _shown(path: str) -> str:
    """A path whose letters can be sent."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
