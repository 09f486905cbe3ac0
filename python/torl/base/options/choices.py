"""Choices in a configuration: a class or function selected by name, with its options."""

import inspect
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, Generic, TypeVar, cast

from pydantic import BeforeValidator, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from torl.base.guard import Check, calling, guard_function, sync_override
from torl.base.options.sections import Section, suggestion
from torl.base.options.signatures import (
    class_made_by,
    fits,
    import_object,
    is_of_recipe,
    load_object,
    options_of,
    options_parameter,
    returned_by,
)
from torl.base.trust import NotImported, Reading, continued, current_reading, is_trusted, refuse

Chosen = TypeVar("Chosen")
_PLACE = re.compile(r"(?!torl:)[A-Za-z_][\w.]*:[A-Za-z_]\w*")
"""package.module:Name; `torl:` begins the paths of files inside the package."""


@dataclass(frozen=True, slots=True)
class Choice(Generic[Chosen]):
    """A chosen class or function with its options. Picklable if the class or function is."""

    name: str
    """Name in the configuration."""
    target: Callable[..., Any]
    """Chosen class or function."""
    options: Section
    """Options of the class or function."""
    positional_count: int = 0
    """Number of parameters before the options, which torl passes."""
    common_options: Section | None = None
    """Options that all choices of the kind have."""
    kind: str = "component"
    """Kind of the component in messages, such as "reward"."""
    check: Check | None = None
    """Check of the results of a custom function."""
    item_check: Check | None = None
    """Check of each item that a custom function returns or yields."""
    reading: Reading | None = field(default=None, compare=False, repr=False)
    """Block of `torl.base.trust` that read the choice. None for the user's own."""

    @property
    def is_imported(self) -> bool:
        """Whether the class or function is known: false for a custom one of files that are not trusted."""
        return not isinstance(self.target, NotImported)

    @property
    def is_custom(self) -> bool:
        """Whether the class or function is not one of torl."""
        return not (getattr(self.target, "__module__", None) or "").startswith("torl.")

    def make(self, *arguments: Any) -> Chosen:
        """Call the class or function with `arguments` and its options, with the trust that its file has.

        Raises:
            ComponentError: The class or function raised an exception.
            NotTrustedError: Its options name a program or a server, in a file that is not trusted.
        """
        method = "__init__" if inspect.isclass(self.target) else ""
        with continued(self.reading), calling(self.kind, self.target, method, *arguments):
            return cast(Chosen, self.target(*arguments, **self._keywords()))

    def bind(self) -> Chosen:
        """Return the function with its options bound. Its exceptions and invalid results are `ComponentError`s."""
        checks = (self.check, self.item_check) if self.is_custom else ()
        return cast(Chosen, guard_function(partial(self.target, **self._keywords()), self.kind, *checks or (None,)))

    def bind_helper(self, function: Callable[..., Any], check: Check) -> Callable[..., Any]:
        """Return another function of the component with those options that it names, guarded like the component."""
        names = inspect.signature(function).parameters
        keywords = {name: value for name, value in self._keywords().items() if name in names}
        return guard_function(partial(function, **keywords), self.kind, check)

    def dump(self) -> dict[str, Any]:
        """Return the section that makes this choice."""
        sections = [section for section in (self.options, self.common_options) if section is not None]
        values = [section.model_dump(mode="json", exclude_none=True) for section in sections]
        return {"name": self.name, **{name: value for each in values for name, value in each.items()}}

    def _keywords(self) -> dict[str, Any]:
        if options_parameter(self.target, self.positional_count) is not None:
            return {"options": self.options}
        return {name: getattr(self.options, name) for name in type(self.options).model_fields}

    def __reduce__(self) -> tuple[Any, ...]:
        values = [getattr(self, each.name) for each in fields(self) if each.name not in ("options", "reading")]
        return _unpickle_choice, (self.reading, self.options.model_dump(), *values)


def _unpickle_choice(
    reading: Reading | None,
    options: dict[str, Any],
    name: str,
    target: Callable[..., Any],
    positional_count: int,
    *rest: Any,
) -> Choice[Any]:
    with continued(reading):  # options may contain choices
        validated = options_of(target, positional_count).model_validate(options)
    return replace(Choice(name, target, validated, positional_count, *rest), reading=reading)


@dataclass(frozen=True, slots=True)
class ChosenFrom:
    """The annotation of a field that is a `Choice`: `Annotated[Choice[Format], ChosenFrom(FORMATS, ...)]`.

    A text selects a name with the default options, or sets the option of `shorthand`. A section without a name selects
    the default.
    """

    registry: Mapping[str, Callable[..., Any] | str]
    """Classes and functions by name. A text is a location, package.module:Name, which is imported when chosen."""
    kind: str
    """Kind of the choice in messages, such as "format"."""
    default: str | None = None
    """Name that a section without a name selects."""
    positional_count: int | Callable[[Any], int] = 0
    """Number of parameters before the options, which torl passes, or a function of the target that returns it."""
    shorthand: tuple[str, str] | None = None
    """Name and option that a text sets."""
    common_options: Callable[[Any], type[Section] | None] | None = None
    """Function that returns the options that all choices have, for a chosen class or function."""
    option_shorthands: tuple[str, ...] = ()
    """Names that are selected by an option of the same name."""
    bases: tuple[type, ...] = ()
    """Base classes of custom choices; empty for functions."""
    functions: bool = False
    """Whether a custom choice may be a plain function, in addition to classes of `bases`."""
    returns: Any = Any
    """Type of the results of custom functions. An annotation of another type is refused; none is required."""
    check: Check | None = None
    """Check of the results of custom functions."""
    item_check: Check | None = None
    """Check of each item that a custom function returns or yields."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Present names of choices that had another one."""
    by_step: bool = False
    """Whether numeric options may change with the step (`torl.run.config.schedule`), for functions that steps bind."""

    def __hash__(self) -> int:
        return id(self.registry)

    def expand(self, value: Any) -> Any:
        """Return the section that a text abbreviates, and add the name that an option selects."""
        if isinstance(value, Mapping) and "name" not in value:
            selected = next((name for name in self.option_shorthands if name in value), None)
            return value if selected is None else {"name": selected, **value}
        if not isinstance(value, str):
            return value
        if self.shorthand is not None and not _PLACE.fullmatch(value):
            name, option = self.shorthand
            return {"name": name, option: value}
        return {"name": value}

    def choose(self, value: Any) -> Choice[Any]:
        """Return the choice of a section or a text.

        Raises:
            ValueError: The name is unknown, or the options are invalid.
        """
        if isinstance(value, Choice):
            return value
        section = self.expand(value)
        if not isinstance(section, Mapping):
            raise ValueError(f"select the {self.kind} with a name, or with a section that has a name")
        options = dict(section)
        name = options.pop("name", self.default)
        if not isinstance(name, str):
            raise ValueError(f"name the {self.kind}: {self._known()}")
        target = self.find(name)
        self.options_of(target)  # raises ValueError if own and common options have the same name
        common = self._common_options_of(target)
        values = {} if common is None else {key: options.pop(key) for key in common.model_fields if key in options}
        count = self._positional_count_of(target)
        return Choice(
            name,
            target,
            options=options_of(target, count).model_validate(options),
            positional_count=count,
            common_options=None if common is None else common.model_validate(values),
            kind=self.kind,
            check=self.check,
            item_check=self.item_check,
            reading=current_reading(),
        )

    def options_of(self, target: Callable[..., Any]) -> dict[str, Any]:
        """Return the fields of all options of a class or function, including the common ones.

        Raises:
            ValueError: The parameters cannot be options.
        """
        fields, common = (
            options_of(target, self._positional_count_of(target)).model_fields,
            self._common_options_of(target),
        )
        if common is None:
            return dict(fields)
        if taken := sorted(fields.keys() & common.model_fields.keys()):
            raise ValueError(f"every {self.kind} has the option {taken[0]!r}; rename the parameter")
        return {**fields, **common.model_fields}

    def all_options(self) -> dict[str, dict[str, Any]]:
        """Return the fields of the options of each registered name."""
        return {name: self.options_of(self.find(name)) for name in self.registry}

    def _positional_count_of(self, target: Callable[..., Any]) -> int:
        return self.positional_count if isinstance(self.positional_count, int) else self.positional_count(target)

    def _common_options_of(self, target: Callable[..., Any]) -> type[Section] | None:
        return None if self.common_options is None else self.common_options(target)

    def find(self, name: str) -> Callable[..., Any]:
        """Return the class or function of a name.

        Raises:
            ValueError: The name does not exist, or is a component of another kind.
        """
        if name in self.registry:
            target = self.registry[name]
            return import_object(target) if isinstance(target, str) else target
        if ":" not in name:
            now = self.renamed.get(name)
            close = f"; it is {now!r} now" if now else suggestion(name, list(self.registry))
            raise ValueError(f"no {self.kind} is called {name!r}{close or f'; there are: {self._known()}'}")
        if not is_trusted() and not is_of_recipe(name):
            refuse(name, "imported")
            return NotImported(name)
        target = load_object(name)
        self._require_kind(name, target)
        return target

    def _require_kind(self, name: str, target: Callable[..., Any]) -> None:
        """Raise ValueError if a custom class or function cannot be what is chosen here."""
        if _is_of_python(name) or (inspect.isroutine(target) and _is_of_python(target.__module__ or "")):
            raise ValueError(f"{name} is a part of Python, not {_with_article(self.kind)}")
        base, made = _torl_base(target), class_made_by(target)
        is_function, makes_base = not inspect.isclass(target), any(wanted in made.__mro__ for wanted in self.bases)
        if self.bases and not (self.functions and is_function) and not makes_base:
            found = base or ("class" if inspect.isclass(target) else "function")
            wanted_names = " or ".join(_with_article(wanted.__name__) for wanted in self.bases)
            hint = f'; use function = "{name}"' if "function" in self.option_shorthands and is_function else ""
            raise ValueError(f"{name} is {_with_article(found)}; {wanted_names} is wanted{hint}")
        if not self.bases and base is not None:
            raise ValueError(f"{name} is {_with_article(base)}; {_with_article(self.kind)} is wanted")
        if missing := sorted(getattr(target, "__abstractmethods__", ())):
            raise ValueError(f"{name} does not define {', '.join(missing)}")
        if method := sync_override(target):
            raise ValueError(f"{name}.{method} must be declared with `async def`")
        positional = self._positional_count_of(target)
        try:
            inspect.signature(target).bind_partial(*[None] * positional)
        except TypeError as error:
            count = f"{positional} positional argument{'s' * (positional > 1)}"
            raise ValueError(f"{name} must take {count} before its options to be {_with_article(self.kind)}") from error
        if self.returns is not Any and is_function and not makes_base and not fits(returned_by(target), self.returns):
            returned = returned_by(target)
            raise ValueError(f"{name} returns {_type_name(returned)}; {_type_name(self.returns)} is wanted")

    def _known(self) -> str:
        return f"{', '.join(self.registry)}, or package.module:Name for your own"

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self.choose, serialization=core_schema.plain_serializer_function_ser_schema(Choice.dump)
        )


def named_by_key(choice: ChosenFrom) -> BeforeValidator:
    """Return a validator that names each section of a table without a name after one of its options, or its key."""

    def add_names(table: Any) -> Any:
        if not isinstance(table, dict):
            return table
        expanded = {key: choice.expand(section) for key, section in table.items()}
        return {key: {"name": key, **each} if isinstance(each, dict) else each for key, each in expanded.items()}

    return BeforeValidator(add_names)


def _torl_base(target: Callable[..., Any]) -> str | None:
    """Return the name of the abstract class of torl that a class derives from, if any."""
    bases = [base for base in getattr(target, "__mro__", ()) if base.__module__.partition(".")[0] == "torl"]
    return next((base.__name__ for base in bases if inspect.isabstract(base)), None)


def _is_of_python(location: str) -> bool:
    """Whether a module, or the module of a location, belongs to the standard library."""
    return location.partition(":")[0].partition(".")[0] in sys.stdlib_module_names


def _type_name(annotation: Any) -> str:
    return annotation.__name__ if type(annotation) is type else re.sub(r"\w+\.", "", str(annotation))


def _with_article(noun: str) -> str:
    return f"{'an' if noun[0].lower() in 'aeiou' else 'a'} {noun}"


def default_choice(default: Any) -> Any:
    """Return a field whose default is validated like a value from a file: a name, or sections."""
    return Field(default, validate_default=True)
