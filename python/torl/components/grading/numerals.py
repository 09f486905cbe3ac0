r"""Numbers in notations that math-verify does not read, as plain decimals and fractions.

Number words and ordinals, digits in groups, mixed numbers, repeating decimals, powers of ten, and numerals of another
base: 0x1F, 0b101 and 0o17 of programs, 101_2 of textbooks. All patterns bound the digits that they read, so that
hostile text costs no more than a search.
"""

import re
from decimal import Decimal
from fractions import Fraction

from torl.components.grading.layout import bare, without_text

_SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_NUMBERS = {word: value for value, word in enumerate(_SMALL.split())}
_DECADES = "twenty thirty forty fifty sixty seventy eighty ninety"
_TENS = {word: 10 * value for value, word in enumerate(_DECADES.split(), 2)}
_SCALES = {"thousand": 1000, "million": 10**6, "billion": 10**9}
_FACTORS = {"hundred": 100, "dozen": 12, "trillion": 10**12, **_SCALES}
_IRREGULAR = {"first": "one", "second": "two", "third": "three", "fifth": "five", "eighth": "eight", "ninth": "nine"}
_ORDINAL_WORDS = {word + "th": word for word in (*_NUMBERS, "hundred", "thousand")}
_ORDINAL_WORDS |= {word[:-1] + "ieth": word for word in _TENS} | {"twelfth": "twelve"}
_ORDINAL_WORDS |= _IRREGULAR

_GAP = r"(?:\s|~|\\[ ,:;!])"
_ORDINAL = re.compile(r"(\d{1,30})\s*\^?\s*\{?\s*(?:\\(?:text|mathrm|textrm)\s*\{)?\s*(?:st|nd|rd|th)\s*\}{0,2}")
_GROUPS = re.compile(rf"([+-]?[1-9]\d{{0,2}}(?:{_GAP}\d{{3}}){{1,10}}(?:\.\d{{1,30}})?)(\s*\\text\s*\{{[^{{}}]*\}})?")
_MIXED = re.compile(
    rf"([+-]?)\s*(\d{{1,9}}){_GAP}*(?:(?<=[\s~,:;!])(\d{{1,9}})/(\d{{1,9}})"
    r"|\\[dt]?frac\s*(?:\{\s*(\d{1,9})\s*\}\s*\{\s*(\d{1,9})\s*\}|(\d)\s*(\d)))"
    r"(\s*\\text\s*\{[^{}]*\}|\s*[A-Za-z]{2,20})?"
)
_DOTTED = re.compile(
    r"(?<!\d)(\d{0,30})\.(\d{0,30})\\dot\s*(?:\{(\d)\}|(\d))(?:(\d{0,30})\\dot\s*(?:\{(\d)\}|(\d)))?(?![\d\\])"
)
_OVERLINED = re.compile(r"(?<!\d)(\d{0,30})\.(\d{0,30})\\(?:overline|bar)\s*(?:\{(\d{1,30})\}|(\d))(?!\d)")
_POWER_OF_TEN = re.compile(
    r"(?<![\w.\\^/!})\]])(?<![/^_]\s)(\d{1,30}(?:\.\d{1,30})?)\s*(?:\\times|\\cdot|\*)\s*10\s*"
    r"(?:(?:\^|\*\*)\s*(?:\{\s*([+-]?\d{1,3})\s*\}|\(\s*([+-]?\d{1,3})\s*\))|\^\s*(\d)|\*\*\s*(-?\d{1,3}))(?!\s*[\d^!]|\*\*)"
)
_SCALED = re.compile(
    rf"([+-]?\d{{1,30}}(?:\.\d{{1,30}})?){_GAP}{{0,9}}(\\(?:text|mathrm|textrm)\s*\{{)?{_GAP}{{0,9}}"
    rf"({'|'.join(_FACTORS)})(?![A-Za-z])([^{{}}]{{0,100}}\}}?)"
)
_NOISY = re.compile(
    r"(?<![\w.])((?:0|[1-9]\d{0,14})\.\d{9,30})(?![\d.eE_]|\\(?:overline|bar|dot|ldots|dots|cdots)(?![A-Za-z]))"
)
_ZERO = re.compile(
    # Not the last group of thousands in 1,000.00 or 1{,}000.
    r"(?<![\w.])(?!(?:(?<=\d,)|(?<=\d\{,\}))000)(?:0{1,30}\.0{0,30}|\.0{1,30})(?!,?\s*\d|\.?\d|[eE_]|\\(?:overline|bar|dot)(?![A-Za-z]))"
)
_NOISE, _NOISE_PLACES = Decimal("1e-9"), Decimal("1e-6")
_FLOAT = re.compile(r"(?<![\w.\\])(\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})[eE]([+-]?\d{1,3})(?![\w.])")


def plain_numbers(text: str) -> str:
    r"""Return the text with its numbers in plain notation: \frac{5}{2} for "2 1/2", 10000 for "10 000"."""
    core = bare(text)
    words = number_of_words(core) or ordinal(core)
    if words is not None:
        return words
    if groups := _GROUPS.fullmatch(core):
        return re.sub(_GAP, "", groups[1]) + (groups[2] or "")
    if mixed := _MIXED.fullmatch(core):
        sign, whole, *parts, unit = mixed.groups()
        over, under = (int(part) for part in parts if part)
        if 0 < over < under:
            return rf"{sign}\frac{{{int(whole) * under + over}}}{{{under}}}{unit or ''}"
    text = _DOTTED.sub(_dotted_fraction, text)
    text = _OVERLINED.sub(lambda found: _repeating_fraction(found[1], found[2], found[3] or found[4]), text)
    text = _POWER_OF_TEN.sub(lambda found: _scaled(found[1], found[2] or found[3] or found[4] or found[5]), text)
    return _FLOAT.sub(lambda found: _scaled(found[1], found[2]), text)


def multiplied(text: str) -> str | None:
    r"""Return the value of a number with a word that multiplies it: "5000000" for "5 \\text{ million}", None otherwise.

    Words after it stay: 5000000\\text{ people}.
    """
    found = _SCALED.fullmatch(bare(text))
    if found is None or bool(found[2]) != found[4].endswith("}"):
        return None
    return f"{Decimal(found[1]) * _FACTORS[found[3]]:f}" + (found[2] or "") + found[4]


def without_noise(reference: str, answer: str) -> str:
    """Return the answer with whole numbers instead of floating-point results: 24 for 23.999999999999996, 0 for 0.0.

    Such a number is within 1e-9 of a whole number other than 0, relatively, and equals it in six decimals. The answer
    stays as it is if the reference has such decimals.
    """
    answer = _ZERO.sub("0", answer)  # math-verify rounds what it compares with 0.0, and 0.0000001 would equal it
    return answer if _NOISY.search(reference) else _NOISY.sub(_nearly_whole, answer)


def _nearly_whole(found: re.Match[str]) -> str:
    number = Decimal(found[1])
    whole = number.to_integral_value()
    return f"{whole}" if abs(number - whole) <= min(_NOISE * whole, _NOISE_PLACES) else found[1]


def _scaled(digits: str, exponent: str) -> str:
    return f"{Decimal(f'{digits}E{exponent}'):f}"


def _dotted_fraction(found: re.Match[str]) -> str:
    first, last = found[3] or found[4], found[6] or found[7] or ""
    return _repeating_fraction(found[1], found[2], first + (found[5] or "") + last)


def _repeating_fraction(whole: str, first: str, repeated: str) -> str:
    r"""Return 0.1\overline{6} as (16 - 1) / 90."""
    difference = int(whole + first + repeated) - int(whole + first or "0")
    return rf"\frac{{{difference}}}{{{'9' * len(repeated)}{'0' * len(first)}}}"


def number_of_words(text: str) -> str | None:
    """Return the digits of a number in English words below 10^12: "42" for "forty-two"; None for other texts."""
    if len(text) > 200:
        return None
    words = without_text(text).lower().replace("-", " ").replace(" and ", " ").split()
    total = part = 0
    last = 10**12  # each word must be smaller than the one before, within its part
    for word in words:
        value = _NUMBERS.get(word, _TENS.get(word))
        if value is not None and value < last and (value > 0 or len(words) == 1):
            part, last = part + value, 10 if word in _TENS else 1
        elif word == "hundred" and 0 < part < 10:
            part, last = 100 * part, 100
        elif word in _SCALES and part and (not total or total % (1000 * _SCALES[word]) == 0):
            total, part, last = total + part * _SCALES[word], 0, 1000
        else:
            return None
    return str(total + part) if words else None


def ordinal(text: str) -> str | None:
    """Return the digits of an ordinal: "21" for "21st" and "twenty-first"; None for other texts and fractions."""
    if len(text) > 200:
        return None
    if found := _ORDINAL.fullmatch(text):
        return found[1]
    *before, last = without_text(text).lower().replace("-", " ").replace(" and ", " ").split() or [""]
    cardinal = _ORDINAL_WORDS.get(last)
    if cardinal is None or (before and (before[-1] in _NUMBERS or cardinal in ("hundred", "thousand"))):
        return None
    if cardinal in ("hundred", "thousand"):
        return "100" if cardinal == "hundred" else "1000"
    return number_of_words(" ".join([*before, cardinal]))


_COMMAND = re.compile(r"\\(?:text|texttt|mathtt|mathrm)\s*\{([^{}]*)\}|\\(?:left|right)(?=\s*[()])")
_LITERAL = re.compile(r"([+-]?)\s*0\s*(?:[xX]\s*([0-9A-Fa-f]{1,60})|[bB]\s*([01]{1,200})|[oO]\s*([0-7]{1,80}))")
_SUBSCRIPT = re.compile(
    r"([+-]?)\s*(\(?)\s*([+-]?[0-9A-Za-z]{1,200}(?:\.[0-9A-Za-z]{1,200})?)\s*(\)?)\s*_\s*\{?\s*(?:base\s*)?(\d{1,9}|[a-z]{3,7})\s*\}?"
)
_NAMES = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10}
_NAMES |= {"twelve": 12, "sixteen": 16}


def read_in_base(text: str) -> tuple[Fraction | str, int] | None:
    """Return the value of a numeral and its base; its digits if they are not of this base. None for other texts."""
    if (literal := _read_literal(text)) is not None:
        return literal
    found = _SUBSCRIPT.fullmatch(_plain(text))
    if found is None or bool(found[2]) != bool(found[4]) or not (found[5].isdecimal() or found[5] in _NAMES):
        return None
    base = _NAMES.get(found[5]) or int(found[5])
    digits = "-" * (found[1] == "-") + found[3]
    whole, _, rest = digits.partition(".")
    try:
        return Fraction(int(whole + rest, base), base ** len(rest)) if base else digits, base
    except ValueError:
        return digits, base


def as_decimal(text: str) -> str:
    """Return a literal of a program as a decimal: "31" for "0x1F"; other texts as they are."""
    literal = _read_literal(text)
    return text if literal is None else str(literal[0])


def _read_literal(text: str) -> tuple[Fraction, int] | None:
    found = _LITERAL.fullmatch(_plain(text))
    if found is None:
        return None
    base = 16 if found[2] else 2 if found[3] else 8
    return Fraction(int(found[1] + (found[2] or found[3] or found[4]), base)), base


def _plain(text: str) -> str:
    return _COMMAND.sub(r"\1", bare(text)).strip()
