"""The program in a response: its last complete block of Python."""

import re

_FENCE = re.compile(r"^[ \t]*```[ \t]*([\w+-]*)[ \t]*\r?$", re.MULTILINE)
_LANGUAGES = frozenset({"python", "python3", "py"})


def find_program(text: str) -> str | None:
    """Return the code of the last complete fenced block of Python, all of a text without fences, or None.

    A block without a language counts only if no block has one of Python. Blocks of other languages, such as the output
    of a tool, and a block that was cut off do not count. A text without fences is for models that write code alone.
    """
    if not _FENCE.search(text):
        return text.strip() or None
    blocks = _blocks(text)
    named = [code for language, code in blocks if language in _LANGUAGES]
    unnamed = [code for language, code in blocks if not language]
    return next(reversed(named or unnamed), None)


def _blocks(text: str) -> list[tuple[str, str]]:
    """Return the language in lower case and the code of each complete block."""
    found = []
    opening = None
    for fence in _FENCE.finditer(text):
        if opening is None:
            opening = fence
        elif not fence[1]:
            found.append((opening[1].lower(), text[opening.end() + 1 : fence.start()]))
            opening = None
        else:  # the block before it was never closed
            opening = fence
    return found
