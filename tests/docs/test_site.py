"""The built site loads nothing from other hosts."""

import re
from pathlib import Path

SITE = Path(__file__).parents[2] / "target" / "docs"
LOADED = re.compile(
    r"""<(?:script|img|iframe)[^>]*\ssrc="([^"]+)"|<link(?![^>]*rel="canonical")[^>]*\shref="([^"]+)\""""
)
IN_STYLE = re.compile(r"""(?:url\(|@import\s+)["']?((?:https?:)?//[^"')]+)""")


def test_pages_and_styles_load_no_outside_address() -> None:
    pages, styles = list(SITE.rglob("*.html")), list(SITE.rglob("*.css"))
    assert len(pages) > 50
    assert styles
    for page in pages:
        loaded = [one or two for one, two in LOADED.findall(page.read_text(encoding="utf-8"))]
        assert loaded
        assert [address for address in loaded if re.match(r"(https?:)?//", address)] == [], page
    for style in styles:
        assert IN_STYLE.findall(style.read_text(encoding="utf-8")) == [], style
