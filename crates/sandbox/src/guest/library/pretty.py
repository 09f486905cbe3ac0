"""The text of a value as a notebook shows it.

A container that is too wide for a line has one line for each item, broken like IPython's. Sets are in order, and long
containers are cut. Other values have their `repr`.
"""

import collections
import itertools

WIDTH = 79
MAX_ITEMS = 1000

# By their `repr`, which subclasses may replace. The openings are formats.
FORMS = {
    list.__repr__: ("[", "]"),
    tuple.__repr__: ("(", ")"),
    set.__repr__: ("{{", "}"),
    frozenset.__repr__: ("frozenset({{", "})"),
    dict.__repr__: ("{{", "}"),
    collections.Counter.__repr__: ("Counter({{", "})"),
    collections.OrderedDict.__repr__: ("OrderedDict({{", "})"),
    collections.defaultdict.__repr__: ("defaultdict({0.default_factory!r}, {{", "})"),
}


def pretty(value, indentation=0, column=0, after=0, enclosing=()):
    """Return the text of a value.

    Args:
        value: Value.
        indentation: Indentation of the text's lines, apart from the first one.
        column: Column where the text begins.
        after: Number of characters that follow the text on its last line.
        enclosing: Containers that enclose the value.
    """
    form = FORMS.get(type(value).__repr__)
    if form is None or not value:
        return repr(value).replace("\n", "\n" + " " * indentation)
    opening, closing = form[0].format(value), form[1]
    if any(value is one for one in enclosing):
        return f"{opening}...{closing}"
    if isinstance(value, tuple) and len(value) == 1:
        closing = ",)"
    enclosing = (*enclosing, value)
    indentation += len(opening)
    items = list(itertools.islice(in_order(value), MAX_ITEMS))
    texts = []
    for number, item in enumerate(items, 1):
        start = column + len(opening) if number == 1 else indentation
        text = ""
        if isinstance(value, dict):
            text = f"{pretty(item, indentation, start, 2, enclosing)}: "
            start = len(text) - text.rfind("\n") - 1 if "\n" in text else start + len(text)
            item = value[item]
        follows = 1 if number < len(value) else len(closing) + after
        texts.append(text + pretty(item, indentation, start, follows, enclosing))
    if len(items) < len(value):
        texts.append("...")
    line = ", ".join(texts)
    if "\n" in line or column + len(opening) + len(line) + len(closing) + after > WIDTH:
        line = (",\n" + " " * indentation).join(texts)
    return opening + line + closing


def in_order(values):
    """Return the values of a set in order, if there is one, and any other values as they are."""
    if isinstance(values, set | frozenset) and len(values) < MAX_ITEMS:
        for key in (None, str):
            try:
                return sorted(values, key=key)
            except Exception:
                continue
    return values
