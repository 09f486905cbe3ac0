"""A server that answers as the hub does, for torl's requests about a dataset: its files, and ranges of their bytes."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import unquote

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@contextmanager
def serving(folder: Path, data_set: str) -> Iterator[tuple[str, list[int]]]:
    """Serve the files of a folder as a dataset; yield the address, and the sizes of the pieces that were sent."""
    sent: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = unquote(self.path.partition("?")[0])
            if path.startswith(f"/api/datasets/{data_set}/tree/"):
                self._answer([self._entry(name) for name in self._names()])
            elif path.startswith(f"/api/datasets/{data_set}"):
                self._answer(
                    {"id": data_set, "sha": COMMIT, "siblings": [{"rfilename": name} for name in self._names()]}
                )
            elif path.startswith(f"/datasets/{data_set}/resolve/{COMMIT}/"):
                data = (folder / path.split(COMMIT + "/")[1]).read_bytes()
                wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("range", ""))
                piece = data[int(wanted[1]) : int(wanted[2]) + 1] if wanted else data
                sent.append(len(piece))
                self._send(206 if wanted else 200, piece)
            else:
                self._send(404, b"{}")

        def do_POST(self) -> None:
            request = self.rfile.read(int(self.headers["content-length"])).decode()
            self._answer([self._entry(name) for name in self._names() if name in unquote(request)])

        def _names(self) -> list[str]:
            return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())

        def _entry(self, name: str) -> dict[str, object]:
            return {"type": "file", "path": name, "size": (folder / name).stat().st_size, "oid": "0" * 40}

        def _answer(self, value: object) -> None:
            self._send(200, json.dumps(value).encode())

        def _send(self, status: int, data: bytes) -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
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
