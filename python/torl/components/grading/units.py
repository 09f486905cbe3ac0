r"""Units of answers, and amounts of money without their currency: 5 for \$5, €5 and "5 euros"."""

import itertools
import re
from types import MappingProxyType

from torl.components.grading.layout import bare, without_text

_CURRENCY_NAMES = (
    "dollar dollars usd $",
    "cent cents ¢",
    "euro euros eur €",
    "sterling gbp pound pounds £",
    "penny pennies pence",
    "yen jpy ¥",
    "yuan rmb cny ¥",
    "rupee rupees inr ₹",
)
_UNIT_NAMES = (
    *_CURRENCY_NAMES,
    "mm millimeter millimeters",
    "cm centimeter centimeters",
    "dm decimeter decimeters",
    "m meter meters metre metres",
    "km kilometer kilometers",
    "in inch inches",
    "ft foot feet",
    "yd yard yards",
    "mi mile miles",
    "s sec second seconds",
    "min minute minutes",
    "h hr hour hours",
    "day days",
    "week weeks",
    "month months",
    "yr year years",
    "a.m. a.m am",
    "p.m. p.m pm",
    "g gm gram grams",
    "kg kilogram kilograms",
    "lb lbs pound pounds",
    "l L liter liters litre litres",
    "gal gallon gallons",
    "acre acres",
    "N newton newtons",
    "J joule joules",
    "W watt watts",
    "V volt volts",
    "A ampere amperes",
    "K kelvin",
    "degree degrees deg",
    "radian radians rad",
    "percent %",
)
_KINDS = MappingProxyType(
    {
        name: {names for names in _UNIT_NAMES if name in names.split()}
        for name in itertools.chain.from_iterable(map(str.split, _UNIT_NAMES))
    }
)
"""The units of a name. It may have several: pounds are money or a mass."""
_RATES = MappingProxyType({"mph": "miles/hour", "kmph": "km/hour", "kph": "km/hour"})
_COUNTED = (
    "people persons children students boys girls points solutions books cards games marbles questions tickets workers "
    "unit units way ways digits values integers multiples coins apples meals tiles edges triangles daps"
)
_PLAIN_LETTERS = "mshgl"  # units also outside of \text, after a number and a blank
_MONEY = "|".join(name for names in _CURRENCY_NAMES for name in names.split() if name.isalpha())
_MAX_CHARACTERS = 100
_COMMANDS = {"dollar": "$", "cent": "¢", "euro": "€", "sterling": "£", "pounds": "£", "yen": "¥"}

_COMMAND = re.compile(rf"\\(?:text|math)?({'|'.join(_COMMANDS)})(?![A-Za-z])\s*(?:\{{\}})?")
_SYMBOL = re.compile(r"\\(?:text|textrm|mathrm)\s*\{\s*\\?([$¢€£¥₹])\s*\}|\\(\$)")
_GAP = r"(?:\s|\\[ ,;:!]|~)*"
_BEFORE = re.compile(rf"([+-]?)\s*(?:(?:US)?\s*([$€£¥₹])|(USD|EUR|GBP|JPY|CNY|INR)(?=\s*\d)){_GAP}(.+)")
_AFTER = re.compile(
    rf"([$¢€£¥₹])|\\(?:text|mathrm|textrm)\s*\{{\s*({_MONEY})\s*\}}|(?<![A-Za-z\\])({_MONEY})(?![A-Za-z])",
    re.IGNORECASE,
)
_PERCENT = re.compile(rf"{_GAP}(?:\\?%|\\(?:text|mathrm|textrm)\s*\{{\s*(?:\\?%|percent)\s*\}}|percent){_GAP}$")
_POWER = r"(?:\s*\^\s*(?:-?\d|\{\s*-?\d\s*\})|\s*[²³])?"
_NAMES = "|".join(
    sorted(
        (
            re.escape(name)
            for names in (*_UNIT_NAMES[len(_CURRENCY_NAMES) : -1], *_RATES, _COUNTED)
            for name in names.split()
            if len(name) > 1
        ),
        key=len,
        reverse=True,
    )
)
_FACTOR = rf"(?:(?:square|sq\.?|cubic|cu\.?)\s*)?(?:{_NAMES}|[{_PLAIN_LETTERS}](?![A-Za-z])){_POWER}"
_RATE = r"(?:\s*/\s*|\s+per\s+|\s+an?\s+)"
_PLAIN_UNIT = re.compile(rf"([^'\"]*(?:[\d}})]|\\pi))({_GAP})({_FACTOR}(?:{_RATE}{_FACTOR})?)\.?")
_NUMBER = re.compile(r"[+-]?(?:[\d.,]|\\frac|[{}/]|\\[,!])+")
_WRAPPED = r"\\(?:text(?:rm|normal|bf|it)?|mbox|mathrm)\s*\{([^{}]*)\}"
_TEXT_UNIT = re.compile(rf"(.*?[A-Za-z\d}}).!%]){_GAP}((?:{_WRAPPED}{_POWER}(?:{_GAP}/)?{_GAP})+)", re.DOTALL)
_WRAPPER = re.compile(_WRAPPED)
_WORDS = re.compile(r"\s*[(A-Za-z%][A-Za-z.()/%^\s-]*[23]?\s*")
_ONE_FACTOR = re.compile(
    r"(square |sq\.? ?|cubic |cu\.? ?)?([A-Za-z%][A-Za-z.]*?)\.?(?:\^?\{?(-?\d|²|³)\}?| (squared|cubed))?"
)
_POWERS = MappingProxyType({"square": 2, "sq": 2, "squared": 2, "²": 2, "cubic": 3, "cu": 3, "cubed": 3, "³": 3})
_COMMAND_NAME, _LETTER = re.compile(r"\\[A-Za-z]+"), re.compile(r"[A-Za-z]")
_DEGREE_SIGN = re.compile(r"\\circ|\N{DEGREE SIGN}")
_RADIANS = re.compile(r"(?<![A-Za-z])rad(?:ians?)?(?![A-Za-z])")


def have_other_units(reference: str, answer: str) -> bool:
    """Whether both texts have a unit of length, time, mass, money or angle, or a percent sign, and the units differ."""
    for one, other in ((reference, answer), (answer, reference)):
        if _DEGREE_SIGN.search(one) and _RADIANS.search(other):
            return True
    first, second = _unit(reference), _unit(answer)
    if first is None or second is None:
        return False
    return len(first) != len(second) or any(
        one.isdisjoint(other) or power != other_power
        for (one, power), (other, other_power) in zip(first, second, strict=True)
    )


def without_currency(text: str) -> str:
    """Return an amount of money without its currency, or the text."""
    amount = _amount(text)
    return text if amount is None else amount[0]


def without_plain_unit(text: str) -> str:
    r"""Return a quantity without a unit outside of \text: 7 for "7 km/h", also \frac12 for "\frac12 kg".

    The value is a number without letters. A unit of one letter, as in "12 h", follows a plain number and a blank: in
    12h and 2\pi h, the letter is a variable.
    """
    found = _PLAIN_UNIT.fullmatch(bare(text)) if len(text) < _MAX_CHARACTERS else None
    if found is None or _LETTER.search(_COMMAND_NAME.sub("", found[1])):
        return text
    is_letter = len(found[3]) == 1 or found[3][1:].lstrip().startswith("^")
    return text if is_letter and not (found[2] and _NUMBER.fullmatch(found[1])) else found[1]


def without_text_unit(text: str) -> str:
    r"""Return a quantity without its unit in \text or \mathrm: 5 for 5\text{ cm}^2; of two equal quantities, the first.

    A name before it stays: A = 5 for A = 5\text{ cm}^2. Other words are removed after a number only, such as the apples
    of 12\text{ apples}.
    """
    names = text.split("=")
    *others, last = (_split_text_unit(side) for side in names)
    if last is None:
        return text
    if not any(others):
        return "=".join([*names[:-1], last[0]])
    return text if others[0] is None or None in others else others[0][0]


def _split_text_unit(text: str) -> tuple[str, str] | None:
    r"""Return a value and the unit after it in \text."""
    found = _TEXT_UNIT.fullmatch(text.strip()) if text.rstrip()[-1:] in ("}", "2", "3") else None
    if found is None or found[1].rstrip().endswith(("_", "^")):
        return None
    words = [words.strip() for words in _WRAPPER.findall(found[2])]
    unit = " ".join(_WRAPPER.sub(r"\1", found[2]).split())
    if not all(_WORDS.fullmatch(each) for each in words if each):
        return None
    if _factors(unit) is None:
        is_number = _LETTER.search(_COMMAND_NAME.sub("", found[1])) is None
        if not is_number or any(len(each) == 1 for each in words):
            return None
    return found[1], unit


def _factors(unit: str) -> list[tuple[set[str], int]] | None:
    """Return the units of a product or rate with their powers, None for other words."""
    factors = []
    for place, part in enumerate(re.split(r"\s*/\s*|\s+per\s+", unit.strip())):
        found = _ONE_FACTOR.fullmatch(part.strip())
        if found is None:
            return None
        if (rate := _RATES.get(found[2])) and place == 0:
            return _factors(rate)
        kinds = _KINDS.get(found[2]) or _KINDS.get(found[2].lower()) or _KINDS.get(found[2] + ".")
        if kinds is None:
            return None
        words = [word.strip(" .") for word in (found[1], found[3], found[4]) if word]
        power = _POWERS.get(words[0]) or int(words[0]) if words else 1
        factors.append((kinds, -power if place else power))
    return factors


def without_percent(text: str) -> str:
    """Return a percentage without its sign and dollars around it, or the text."""
    return _PERCENT.sub("", bare(text)) if _PERCENT.search(bare(text)) else text


def _unit(text: str) -> list[tuple[set[str], int]] | None:
    """Return the factors of the unit of a quantity."""
    if (amount := _amount(text)) is not None:
        return [(_KINDS[amount[1].lower()], 1)]
    if len(text) > _MAX_CHARACTERS:
        return None
    text = without_text(bare(text))
    if _PERCENT.search(text):
        return [(_KINDS["%"], 1)]
    if (split := _split_text_unit(text)) is not None:
        return _factors(split[1])
    value = without_plain_unit(text)
    return _factors(text[len(value) :].replace("\\", " ").strip(" ~,;:!")) if value != text else None


def _amount(text: str) -> tuple[str, str] | None:
    """Return the value and the currency of an amount, None for other texts."""
    text = without_text(bare(text))
    if len(text) > _MAX_CHARACTERS:
        return None
    text = _COMMAND.sub(lambda found: _COMMANDS[found[1]], text)
    text = _SYMBOL.sub(lambda found: found[1] or found[2], text)
    if len(names := list(_AFTER.finditer(text))) != 1:
        return None
    if before := _BEFORE.fullmatch(text):
        return before[1] + before[4], before[2] or before[3]
    value, name = text[: names[0].start()], names[0]
    return (value.strip(" ~"), name[1] or name[2] or name[3]) if value and name.end() == len(text) else None
