"""A server that answers as the hub does, for torl's requests about datasets: their files, and ranges of their bytes."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import unquote

import pytest

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@contextmanager
def serving(folders: Mapping[str, Path]) -> Iterator[tuple[str, list[int]]]:
    """Serve the files of folders as datasets, by name; yield the address and the sizes of the pieces that were sent."""
    sent: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = unquote(self.path.partition("?")[0])
            found = re.fullmatch(r"/(api/)?datasets/([^/]+/[^/]+)(?:/(tree|resolve|revision)/([^/]+)(?:/(.*))?)?", path)
            folder = folders.get(found[2]) if found else None
            if found is None or folder is None:
                self._send(404, b"{}")
            elif found[3] == "resolve":
                self._send_file(folder / found[5])
            elif found[3] == "tree":
                self._answer([_entry(folder, name) for name in _names(folder)])
            else:
                siblings = [{"rfilename": name} for name in _names(folder)]
                self._answer({"id": found[2], "sha": COMMIT, "siblings": siblings})

        do_HEAD = do_GET

        def do_POST(self) -> None:
            request = unquote(self.rfile.read(int(self.headers["content-length"])).decode())
            name = re.match(r"/api/datasets/([^/]+/[^/]+)/", unquote(self.path))
            folder = folders[name[1]] if name else Path()
            self._answer([_entry(folder, each) for each in _names(folder) if each in request])

        def _send_file(self, file: Path) -> None:
            if not file.is_file():
                self._send(404, b"{}")
                return
            data = file.read_bytes()
            wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("range", ""))
            piece = data[int(wanted[1]) : int(wanted[2]) + 1] if wanted else data
            if self.command == "GET":
                sent.append(len(piece))
            self._send(206 if wanted else 200, piece, {"ETag": f'"{len(data)}-{file.name}"', "X-Repo-Commit": COMMIT})

        def _answer(self, value: object) -> None:
            self._send(200, json.dumps(value).encode())

        def _send(self, status: int, data: bytes, headers: Mapping[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in {"content-length": str(len(data)), **(headers or {})}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", sent
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def using_hub(address: str, cache: Path) -> Iterator[None]:
    """Let the hub's library in this process use the server at an address, and an empty cache."""
    import huggingface_hub
    from huggingface_hub import constants, hf_api

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(constants, "HF_HUB_CACHE", str(cache))
        patch.setattr(constants, "HF_HUB_OFFLINE", False)
        patch.setattr(constants, "ENDPOINT", address)
        patch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}")
        patch.setattr(hf_api.api, "endpoint", address)
        huggingface_hub.HfFileSystem.clear_instance_cache()
        yield
    huggingface_hub.HfFileSystem.clear_instance_cache()


def _names(folder: Path) -> list[str]:
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())


def _entry(folder: Path, name: str) -> dict[str, object]:
    return {"type": "file", "path": name, "size": (folder / name).stat().st_size, "oid": "0" * 40}
