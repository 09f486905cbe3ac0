r"""Units of answers, and amounts of money without their currency: 5 for \$5, €5 and "5 euros"."""

import itertools
import re
from types import MappingProxyType

from torl.rewards.layout import bare, without_text

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
    "year years",
    "g gram grams",
    "kg kilogram kilograms",
    "lb pound pounds",
    "degree degrees",
    "radian radians rad",
    "percent %",
)
# A name may belong to several units: pounds are money or a mass.
_UNITS = MappingProxyType(
    {
        name: {names for names in _UNIT_NAMES if name in names.split()}
        for name in itertools.chain.from_iterable(map(str.split, _UNIT_NAMES))
    }
)
_COUNTED = (
    "people persons children students boys girls points solutions books cards games marbles questions tickets workers"
)
# Names that cannot be variables: they have several letters. A single letter is a unit only in a rate, such as m/s.
_PLAIN_NAME = "|".join(
    name
    for names in (*_UNIT_NAMES[len(_CURRENCY_NAMES) :], _COUNTED)
    for name in names.split()
    if len(name) > 1 and not name.startswith(("degree", "rad", "percent"))
)
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
_WITH_UNIT = re.compile(
    rf"[+-]?[\d.,]+{_GAP}(?:\\(?:text|mathrm|textrm)\s*\{{\s*([A-Za-z]+)\s*\}}|([A-Za-z]+)|\\?(%))\.?"
)
_PERCENT = re.compile(rf"{_GAP}(?:\\?%|\\(?:text|mathrm|textrm)\s*\{{\s*(?:\\?%|percent)\s*\}}|percent){_GAP}$")
_POWER = r"(?:\s*\^\s*(?:[23]|\{[23]\}))?"
_PLAIN_UNIT = re.compile(
    rf"([^'\"]*[\d}})]){_GAP}(?:(?:{_PLAIN_NAME}){_POWER}"
    rf"|(?:{_PLAIN_NAME}|[mg])(?:\s*/\s*|\s+per\s+)(?:{_PLAIN_NAME}|[smh]){_POWER})"
)
_COMMAND_NAME, _LETTER = re.compile(r"\\[A-Za-z]+"), re.compile(r"[A-Za-z]")
_DEGREE_SIGN = re.compile(r"\\circ|\N{DEGREE SIGN}")
_RADIANS = re.compile(r"(?<![A-Za-z])rad(?:ians?)?(?![A-Za-z])")


def have_other_units(reference: str, answer: str) -> bool:
    """Whether both texts have a unit of length, time, mass, money or angle, or a percent sign, and the units differ."""
    for one, other in ((reference, answer), (answer, reference)):
        if _DEGREE_SIGN.search(one) and _RADIANS.search(other):
            return True
    first, second = _unit(reference), _unit(answer)
    return bool(first and second) and first.isdisjoint(second)


def without_currency(text: str) -> str:
    """Return an amount of money without its currency, or the text."""
    amount = _amount(text)
    return text if amount is None else amount[0]


def without_plain_unit(reference: str, answer: str) -> str:
    r"""Return an answer without the unit that follows its value, as in 7 km/h, if the reference has no letters.

    math-verify reads many units outside of \text as products of variables.
    """
    found = _PLAIN_UNIT.fullmatch(bare(answer)) if len(answer) < _MAX_CHARACTERS else None
    has_letters = found is None or any(_LETTER.search(_COMMAND_NAME.sub("", each)) for each in (reference, found[1]))
    return answer if found is None or has_letters else found[1]


def without_percent(text: str) -> str:
    """Return a percentage without its sign, or the text."""
    return _PERCENT.sub("", text)


def _unit(text: str) -> set[str]:
    if (amount := _amount(text)) is not None:
        return _UNITS[amount[1].lower()]
    found = _WITH_UNIT.fullmatch(without_text(bare(text)))
    return _UNITS.get((found[1] or found[2] or found[3]).lower(), set()) if found else set()


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
