"""Layout of an answer's text: its punctuation, emphasis, dollar signs and characters."""

import re

# A sign before the answer or a mark after it belongs to the sentence, a size or a pair of stars to its layout.
_LEADING = re.compile(
    r"(?:\s|[=≈]|\\(?:approx|displaystyle|small|normalsize|large|Large|LARGE|huge|Huge|q?quad)(?![A-Za-z]))+"
)
_TRAILING = re.compile(r"(?:[.,;?~\s]|\\[\\ ,;:!]|\\q?quad)+$")
_EMPHASIS = re.compile(r"\*\*(.+?)\*\*", re.DOTALL)
_IN_TEXT = re.compile(r"\\(?:text|textbf|textrm|textnormal|mathrm|mathbf|boldsymbol)\s*\{([^{}]*)\}")
_DOLLARS = re.compile(r"\s*(?:\$([^$]*)\$|\\\(((?:[^\\]|\\[^)])*)\\\)|\\\[((?:[^\\]|\\[^\]])*)\\\])\s*")
_ANGLES = re.compile(
    r"(?:\\left\s*)?(?:\\langle|\N{MATHEMATICAL LEFT ANGLE BRACKET})\s*([^<>|]{1,500}?,[^<>|]{1,500}?)"
    r"\s*(?:\\right\s*)?(?:\\rangle|\N{MATHEMATICAL RIGHT ANGLE BRACKET})"
)
_POINTED = re.compile(r"\s*<([^<>=]{1,500},[^<>=]{1,500})>\s*")
_DEGREES = re.compile(
    r"(?<![A-Za-z])\\?(sin|cos|tan|cot|sec|csc)\s*(?:\\left)?[({]?\s*(\d+(?:\.\d+)?)\s*"
    r"(?:\^\s*\{?\s*\\circ\s*\}?|\N{DEGREE SIGN})\s*(?:\\right)?[)}]?"
)
_COLON = re.compile(r"\\colon(?![A-Za-z])|(?:\\text)?\{:\}|\\!\s*:\s*\\!")
_DECORATED = re.compile(
    r"\\(?:underline|f?box(?:ed)?|mathbf|boldsymbol|bm|pmb|(?:text)?color\s*\{[A-Za-z]{1,30}\})\s*"
    r"\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}"
)
_CONJUNCTION = re.compile(
    r"(?<=[\d)\]}A-Za-z])(?:\s{0,9},)?(?:\s|\\[ ,;:!]){0,9}"
    r"(?:\\(?:text(?:rm)?|mbox|mathrm)\s*\{[\s,]{0,9}(?:and|or)\s*\}|\b(?:and|or)\b)"
    r"(?:\s|\\[ ,;:!]){0,9}(?=[+-]?[\d(\[\\A-Za-z])"
)
_RELATION = re.compile(r"[<>=≠≤≥]|\\(?:n?eq|ne|[lg]eq?|[lg]eqslant|[lg]t|in|notin)(?![A-Za-z])")
_BLANKS = re.compile(r"(?:\s|~|\\[ ,;:!])+")
_HALF_DAY = re.compile(r"(?<=\d)\s*([AaPp])\.?[Mm]\.?$")
_MARK = re.compile(r" ?([,:;]) ?(?!\d)")
_IS_WORDS = re.compile(r"\\text[a-z]*\s*\{[^{}]*[A-Za-z]{3}[^{}]*\}|[A-Za-z][a-z]{3,}(?:[ -][A-Za-z]+)*")
_NO_SOLUTION = re.compile(
    r"(?:there\s+(?:is|are)\s+)?(?:no\s+(?:real\s+|such\s+)?(?:solutions?|roots?)(?:\s+exists?)?|none|(?:the\s+)?empty\s+set)"
)
_REALS = re.compile(r"(?:the\s+set\s+of\s+)?(?:all\s+real\s+numbers|all\s+reals|the\s+real\s+numbers)")
_MODULUS = re.compile(r"\\pmod\s*(\d+)")
_RATIO_IN_WORDS = re.compile(r"\s*\$?\s*(\d+)\s*(?:\\text\s*\{\s*to\s*\}|\bto\b)\s*(\d+)\s*\$?\s*")
_LAST_BLANK = re.compile(r"(?<!\\)\\\s*\Z")  # a blank "\ ", or its backslash where a strip took the rest
# Full-width forms have a fixed offset from ASCII; other spaces, as of TeX, become the common one.
_OPENING, _CLOSING = "([{", ")]}"
_CHARACTERS = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
_CHARACTERS |= dict.fromkeys((ord("~"), 0x3000, 0xA0, 0x2009, 0x202F), ord(" "))


def trimmed(text: str) -> str:
    """Return the text without signs before it, trailing marks and emphasis."""
    text = _TRAILING.sub("", text.strip())
    if leading := _LEADING.match(text):
        text = text[leading.end() :]
    if emphasized := _EMPHASIS.fullmatch(text):
        text = _TRAILING.sub("", emphasized[1].strip())
    return text


def bare(text: str) -> str:
    """Return the text without signs before it, trailing marks, emphasis and a pair of dollar signs."""
    return without_dollars(trimmed(text))


def without_dollars(text: str) -> str:
    """Return the text inside a pair of dollar signs, or the stripped text."""
    inside = _DOLLARS.fullmatch(text)
    return (next(filter(None, inside.groups()), "") if inside else text).strip()


def without_text(text: str) -> str:
    r"""Return the content of a text that is wholly \text{...} or the like, or the text."""
    whole = _IN_TEXT.fullmatch(text.strip())
    return whole[1] if whole else text


def have_same_words(one: str, other: str) -> bool:
    r"""Whether two texts are the same without \text and blanks at punctuation: \text{A,C} and A, C.

    A blank between digits stays, because 1, 234 and 1,234 differ. The case of words does not count. The case of a
    few letters outside of \text counts, because they may be variables.
    """
    first, second = _words(one), _words(other)
    is_words = any(_IS_WORDS.fullmatch(bare(text)) for text in (one, other))
    return one != other and (first.lower() == second.lower() if is_words else first == second)


def _words(text: str) -> str:
    text = bare(_IN_TEXT.sub(r"\1", bare(text))).replace(r"\!", "")
    text = _MARK.sub(r"\1", _BLANKS.sub(" ", text)).strip()
    return _HALF_DAY.sub(lambda half: f" {half[1].lower()}.m.", text)


def plain_layout(text: str) -> str:
    r"""Return the text in a common layout.

    Characters and colons are plain, a line under the text and its color removed, numbers separated by ", ", vectors in
    parentheses, angles of functions in radians, moduli in braces; no solution is \emptyset, all real numbers are
    \mathbb{R}, and "3 to 2" is 3:2.
    """
    text = _LAST_BLANK.sub("", text.translate(_CHARACTERS))
    if decorated := _DECORATED.fullmatch(bare(text)):
        text = decorated[1]
    if len(text) < 100:
        words = without_text(bare(text)).strip().lower()
        if _NO_SOLUTION.fullmatch(words):
            return r"\emptyset"
        if _REALS.fullmatch(words):
            return r"\mathbb{R}"
        if ratio := _RATIO_IN_WORDS.fullmatch(text):
            return f"{ratio[1]}:{ratio[2]}"
    if pointed := _POINTED.fullmatch(text):
        text = f"({pointed[1]})"
    if not _RELATION.search(text):
        text = _CONJUNCTION.sub(", ", text)
    text = _DEGREES.sub(r"\\\1(\\frac{\2\\pi}{180})", text)
    text = _MODULUS.sub(r"\\pmod{\1}", text)
    return _COLON.sub(":", _ANGLES.sub(r"(\1)", text))


def is_vector(text: str) -> bool:
    """Whether a text is a vector in angle brackets."""
    return bool(_ANGLES.fullmatch(bare(text)) or _POINTED.fullmatch(text))


def members_of(text: str) -> list[str]:
    """Return the parts of a text between the commas outside of brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in _OPENING) - (character in _CLOSING)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]
