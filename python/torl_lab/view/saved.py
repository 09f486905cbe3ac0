"""A page of the viewer as one file, which opens without a server and without a network."""

import base64
import json
import math
import re
import secrets
from pathlib import Path
from typing import Any, Final

STATIC: Final = Path(__file__).parent / "static"
"""Directory of the page's files."""
INDEX: Final = (STATIC / "index.html").read_text(encoding="utf-8")
[IMPORT_MAP] = re.findall(r'<script type="importmap">(.*?)</script>', INDEX, re.DOTALL)
"""Text of the import map, from the names of the modules to the addresses of their files."""


def saved_page(recorded: Any, *, reload_seconds: int = 0) -> str:
    """Return the page with recorded answers of the interface.

    Args:
        recorded: `{"states": [...], "answers": {path: answer}, "address": "#/..."}` (`static/api.js`). None for a page
            whose answers are inserted later.
        reload_seconds: Interval at which an open page is loaded again, for a file that is written again; 0 never.
    """
    vendored = {name: path for name, path in json.loads(IMPORT_MAP)["imports"].items() if not name.endswith("/")}
    imports = {name: _module(STATIC / path.removeprefix("/static/")) for name, path in vendored.items()}
    imports |= {f"view/{file.name}": _module(file) for file in sorted(STATIC.glob("*.js"))}
    styles = "".join((STATIC / name).read_text(encoding="utf-8") for name in ("vendor/uPlot.min.css", "style.css"))
    charts = (STATIC / "vendor/uPlot.iife.min.js").read_text(encoding="utf-8")
    # Modules inherit the nonce of the script that imports them, so that no other script can run.
    nonce = secrets.token_hex(16)
    policy = (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )
    reload = f'<meta http-equiv="refresh" content="{reload_seconds}">\n' if reload_seconds else ""
    data = ascii_json(recorded).replace("<", "\\u003c")
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
{reload}<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>torl view</title><link rel="icon" href="data:,"><style>{_within(styles)}</style>
<script type="importmap" nonce="{nonce}">{json.dumps({"imports": imports})}</script>
<script nonce="{nonce}">{_within(charts)}</script></head>
<body><div id="page"><noscript>This page needs JavaScript.</noscript></div>
<script type="application/json" id="recorded">{data}</script>
<script type="module" nonce="{nonce}">import "view/app.js";</script></body></html>
"""


def _module(file: Path) -> str:
    return f"data:text/javascript;base64,{base64.b64encode(file.read_bytes()).decode()}"


def _within(text: str) -> str:
    """Return a script or a style that cannot end its element."""
    return text.replace("</", "<\\/").replace("<!--", "<\\!--")


def ascii_json(content: Any) -> str:
    """Return JSON with ASCII characters only and null for numbers that are not finite.

    Texts of models may contain lone surrogates, which UTF-8 cannot encode.
    """
    try:
        return json.dumps(content, allow_nan=False, separators=(",", ":"))
    except ValueError:
        return json.dumps(_finite(content), allow_nan=False, separators=(",", ":"))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(member) for name, member in value.items()}
    return [_finite(member) for member in value] if isinstance(value, list | tuple) else value
