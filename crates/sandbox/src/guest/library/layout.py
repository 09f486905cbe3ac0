"""Layout of text in lines of limited width, like IPython's pretty printer.

The interface is that of `p` in `_repr_pretty_(self, p, cycle)`: text, possible line breaks, and groups of them.
Decisions are deferred: a group stays on one line while the line has space; otherwise the outermost undecided group
breaks, at all of its breaks. Source of the interface and of the breaks: IPython 8, IPython/lib/pretty.py; after Oppen,
"Prettyprinting" (1980), like Ruby's prettyprint.
"""

from collections import deque
from contextlib import contextmanager


class _Group:
    def __init__(self, depth):
        self.depth = depth
        self.waiting = 0  # undecided line breaks
        self.broken = False


class _Place:
    def __init__(self, text, indentation, group):
        self.text = text
        self.indentation = indentation
        self.group = group


class Layout:
    """A layout that collects text and breaks its lines."""

    def __init__(self, max_width=79, max_seq_length=1000):
        self.max_width = max_width
        self.max_seq_length = max_seq_length
        self.indentation = 0
        self.verbose = False
        self._lines = []  # pieces of the decided text
        self._column = 0  # of its end
        self._waiting = deque()
        self._waiting_width = 0
        self._open = [_Group(0)]
        self._groups = [[self._open[0]]]  # by depth: groups that may be broken

    def text(self, text):
        """Add text without line breaks."""
        if not self._waiting:
            self._put(text)
            return
        self._waiting.append(text)
        self._waiting_width += len(text)
        self._break_what_is_too_wide()

    def breakable(self, sep=" "):
        """Add `sep`, or a line break instead."""
        group = self._open[-1]
        if group.broken:
            self.flush()
            self._begin_line(self.indentation)
            return
        self._waiting.append(_Place(sep, self.indentation, group))
        self._waiting_width += len(sep)
        group.waiting += 1
        self._break_what_is_too_wide()

    def break_(self):
        """Begin a new line."""
        self._break_one_group()
        self.flush()
        self._begin_line(self.indentation)

    def begin_group(self, indent=0, open=""):
        """Begin a group, after `open`; indent its lines by this much more."""
        if open:
            self.text(open)
        group = _Group(self._open[-1].depth + 1)
        self._open.append(group)
        while len(self._groups) <= group.depth:
            self._groups.append([])
        self._groups[group.depth].append(group)
        self.indentation += indent

    def end_group(self, dedent=0, close=""):
        """End the group that began last."""
        self.indentation -= dedent
        group = self._open.pop()
        if not group.waiting:
            self._forget(group)
        if close:
            self.text(close)

    @contextmanager
    def group(self, indent=0, open="", close=""):
        """Return a context manager of `begin_group` and `end_group`."""
        self.begin_group(indent, open)
        try:
            yield
        finally:
            self.end_group(indent, close)

    @contextmanager
    def indent(self, indent):
        """Return a context manager that indents the lines in it by this much more."""
        self.indentation += indent
        try:
            yield
        finally:
            self.indentation -= indent

    def flush(self):
        """Decide that undecided text stays on its line."""
        while self._waiting:
            self._settle()
        self._waiting_width = 0

    def getvalue(self):
        """Return all of the text."""
        self.flush()
        return "".join(self._lines)

    def _put(self, text):
        self._lines.append(text)
        self._column += len(text)

    def _begin_line(self, indentation):
        self._lines.append("\n" + " " * indentation)
        self._column = indentation

    def _settle(self):
        """Decide the oldest undecided break."""
        one = self._waiting.popleft()
        if isinstance(one, str):
            self._waiting_width -= len(one)
            self._put(one)
            return
        self._waiting_width -= len(one.text)
        one.group.waiting -= 1
        if one.group.broken:
            self._begin_line(one.indentation)
            return
        if not one.group.waiting:
            self._forget(one.group)
        self._put(one.text)

    def _break_what_is_too_wide(self):
        while self._column + self._waiting_width > self.max_width and self._break_one_group():
            pass

    def _break_one_group(self):
        """Break the next group and settle all up to its last break; return whether there was one."""
        group = self._next_to_break()
        if group is None:
            return False
        while group.waiting:
            self._settle()
        while self._waiting and isinstance(self._waiting[0], str):
            self._settle()
        return True

    def _next_to_break(self):
        for groups in self._groups:
            for back, group in enumerate(reversed(groups)):
                if group.waiting:
                    # The group at this distance from the front is removed, not the found one, at this distance from the
                    # back. IPython does the same, and the breaks depend on it if a key is as long as its value.
                    del groups[back]
                    group.broken = True
                    return group
            for group in groups:
                group.broken = True
            groups.clear()
        return None

    def _forget(self, group):
        if group in self._groups[group.depth]:
            self._groups[group.depth].remove(group)
