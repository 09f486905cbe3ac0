"""Tracebacks in fewer steps, with the text of the library's `traceback`: an ordinary line need not be measured character
by character, nor parsed twice.
"""

import traceback

_display_width = traceback._display_width
_should_show_carets = traceback.StackSummary._should_show_carets


def display_width(line, offset=None):
    """Return the width of a part of a line on a terminal."""
    part = line[:offset]
    return len(part) if part.isascii() and part.isprintable() else _display_width(line, offset)


def should_show_carets(self, start_offset, end_offset, all_lines, anchors):
    """Return whether to mark the part of the source that failed.

    Not if it is the call that a statement returns or assigns as a whole, which only the parsed statement shows.
    """
    if anchors and len(all_lines) == 1 and all_lines[0].isascii():
        line = all_lines[0]
        before = line[:start_offset]
        may_be_whole = line[:end_offset].endswith(")") and ("return" in before or "=" in before)
        if not may_be_whole and "#" not in line:  # a comment would hide the part
            return True
    return _should_show_carets(self, start_offset, end_offset, all_lines, anchors)


def install():
    traceback._display_width = display_width
    traceback.StackSummary._should_show_carets = should_show_carets
