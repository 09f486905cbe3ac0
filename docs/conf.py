"""Sphinx's configuration of the documentation: `make docs`."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

DOCS = Path(__file__).parent
RECIPES = DOCS.parent / "python" / "torl" / "recipes"
TITLE = re.compile(r"^(#+) ", re.MULTILINE)

project = "torl"
html_title = "torl"
extensions = ["myst_nb"]
exclude_patterns = ["tutorials/*.py"]
nitpicky = True
templates_path: list[str] = []

myst_heading_anchors = 4
# Tutorials are executed by `make tutorials`, which stores their output.
nb_execution_mode = "off"

html_theme = "furo"
html_static_path = ["assets"]
html_css_files = ["site.css"]
html_show_copyright = False
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"top_of_page_buttons": []}


def setup(app: "Sphinx") -> None:
    """Add the pages of the recipes, whose texts are next to their code."""
    app.connect("builder-inited", write_recipe_pages)
    app.connect("source-read", link_recipe_pages)


def write_recipe_pages(app: "Sphinx") -> None:
    """Copy the README of each recipe to the folder `recipes`."""
    folder = DOCS / "recipes"
    folder.mkdir(exist_ok=True)
    pages = {f"{readme.parent.name}.md": readme for readme in RECIPES.glob("*/README.md")}
    for old in folder.glob("*.md"):
        if old.name not in pages:
            old.unlink()
    for name, readme in pages.items():
        page, text = folder / name, readme.read_text(encoding="utf-8")
        if not page.exists() or page.read_text(encoding="utf-8") != text:  # an unchanged page is not read again
            page.write_text(text, encoding="utf-8")


def link_recipe_pages(app: Any, name: str, source: list[str]) -> None:
    """Let links to a recipe's folder point to its page, and list these pages below the page of recipes."""
    source[0] = re.sub(r"\.\./python/torl/recipes/(\w+)/README\.md", r"recipes/\1.md", source[0])
    if name == "presets":
        names = "\n".join(sorted(f"recipes/{page.stem}" for page in (DOCS / "recipes").glob("*.md")))
        source[0] += f"\n```{{toctree}}\n:hidden:\n\n{names}\n```\n"
