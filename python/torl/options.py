"""What a configuration chooses by name, and the options that each choice brings.

A *choice* is a section with a `name`: of something that torl ships, or the place of one's own, `package.module:Name`.
All other keys of the section are options of what was chosen, and of nothing else:

    [rollout.format]
    name = "zerotir"
    max_observation_tokens = 512

The options of a class or function are its parameters, less those that torl itself gives it; their annotations are what
a value must be, and "Args:" of its docstring says what they mean. One that has many takes a parameter `options`
instead, whose annotation is a `Section`.
"""

import difflib
import importlib
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Annotated, Any, Generic, Literal, TypeVar, cast, get_args, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, create_model
from pydantic_core import CoreSchema, core_schema

PositiveInt = Annotated[int, Field(gt=0)]
NonNegativeInt = Annotated[int, Field(ge=0)]
PositiveFloat = Annotated[float, Field(gt=0)]
NonNegativeFloat = Annotated[float, Field(ge=0)]
PositiveFraction = Annotated[float, Field(gt=0, le=1)]
Precision = Literal["float32", "bfloat16"]

Chosen = TypeVar("Chosen")

_PLACE = re.compile(r"(?!torl:)[A-Za-z_][\w.]*:[A-Za-z_]\w*")
"""package.module:Name; `torl:` begins the paths of files inside the package."""


class Section(BaseModel):
    """Base of every section: immutable, no unknown keys, field descriptions taken from the docstrings below it."""

    # Deferred: `--help` shows every section and validates none.
    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False, defer_build=True
    )

    def check_within(self, config: Any) -> None:
        """Raise ValueError where these options of a choice do not fit the whole configuration."""


class _SignatureSection(Section):
    """Base of the options that are read from a signature: no source holds docstrings below their names."""

    model_config = ConfigDict(use_attribute_docstrings=False)


@dataclass(frozen=True, slots=True)
class Choice(Generic[Chosen]):
    """What a section chose: a class or function, and its options. Picklable if the class or function is."""

    name: str
    target: Callable[..., Any]
    options: Section
    positional_count: int = 0  # parameters that torl gives, before the options
    common_options: Section | None = None  # options of the place, whatever is chosen there

    def make(self, *given: Any) -> Chosen:
        """Call what was chosen, with what torl gives and its options."""
        return cast(Chosen, self.target(*given, **self._keywords()))

    def bind(self) -> Chosen:
        """What was chosen as a function of what torl gives alone."""
        return cast(Chosen, partial(self.target, **self._keywords()))

    def dump(self) -> dict[str, Any]:
        """The section that chooses this again."""
        sections = [section for section in (self.options, self.common_options) if section is not None]
        values = [section.model_dump(mode="json", exclude_none=True) for section in sections]
        return {"name": self.name, **{name: value for each in values for name, value in each.items()}}

    def _keywords(self) -> dict[str, Any]:
        if _options_parameter(self.target, self.positional_count) is not None:
            return {"options": self.options}
        return {name: getattr(self.options, name) for name in type(self.options).model_fields}

    def __reduce__(self) -> tuple[Any, ...]:
        return _choice_again, (
            self.name,
            self.target,
            self.options.model_dump(),
            self.positional_count,
            self.common_options,
        )


def _choice_again(
    name: str, target: Callable[..., Any], options: dict[str, Any], given: int, shared: Section | None
) -> Choice[Any]:
    return Choice(name, target, options_of(target, given).model_validate(options), given, shared)


@dataclass(frozen=True, slots=True)
class ChosenFrom:
    """Stands in the annotation of a field that holds a `Choice`: `Annotated[Choice[Format], ChosenFrom(FORMATS, ...)]`.

    A text alone stands for the name, with the default options; or for one option of one choice, if `shorthand` names
    them. A section without a name is one of the default's.
    """

    registry: Mapping[str, Callable[..., Any] | str]  # a text is a place, package.module:Name, imported when chosen
    kind: str  # what is chosen, for messages: "format"
    default: str | None = None
    given: int | Callable[[Any], int] = 0  # parameters that torl gives, or their number for what is chosen
    shorthand: tuple[str, str] | None = None  # (name, option) that a text alone sets
    shared: Callable[[Any], type[Section] | None] | None = None  # options of the place, for what is chosen there
    option_shorthands: tuple[str, ...] = ()  # names that a section need not give: an option of the same name says so
    bases: tuple[type, ...] = ()  # base classes, one of which a custom choice has to derive from; none for functions
    functions: bool = False  # whether a custom choice may be a plain function as well

    def __hash__(self) -> int:
        return id(self.registry)

    def expand(self, value: Any) -> Any:
        """A text as the section that it stands for, a section with the name that an option says; else as it is."""
        if isinstance(value, Mapping) and "name" not in value:
            said = next((name for name in self.option_shorthands if name in value), None)
            return value if said is None else {"name": said, **value}
        if not isinstance(value, str):
            return value
        if self.shorthand is not None and not _PLACE.fullmatch(value):
            name, option = self.shorthand
            return {"name": name, option: value}
        return {"name": value}

    def choose(self, value: Any) -> Choice[Any]:
        """The choice that a section or a text makes.

        Raises:
            ValueError: there is nothing of that name, or the options are not its own.
        """
        if isinstance(value, Choice):
            return value
        section = self.expand(value)
        if not isinstance(section, Mapping):
            raise ValueError(f"choose the {self.kind} by its name, or by a section with a name")
        options = dict(section)
        name = options.pop("name", self.default)
        if not isinstance(name, str):
            raise ValueError(f"name the {self.kind}: {self._known()}")
        target = self.find(name)
        self.options_of(target)  # raises where the names of the place and of the choice clash
        shared = self._shared_by(target)
        of_place = {} if shared is None else {key: options.pop(key) for key in shared.model_fields if key in options}
        given = self._given(target)
        own = options_of(target, given).model_validate(options)
        return Choice(name, target, own, given, None if shared is None else shared.model_validate(of_place))

    def options_of(self, target: Callable[..., Any]) -> dict[str, Any]:
        """The options of a class or function where it is chosen here, as pydantic describes them.

        Raises:
            ValueError: it cannot be chosen here.
        """
        own, shared = options_of(target, self._given(target)).model_fields, self._shared_by(target)
        if shared is None:
            return dict(own)
        if taken := sorted(own.keys() & shared.model_fields.keys()):
            raise ValueError(f"every {self.kind} has the option {taken[0]!r}; call the parameter something else")
        return {**own, **shared.model_fields}

    def all_options(self) -> dict[str, dict[str, Any]]:
        """For each registered name its options, as pydantic describes them."""
        return {name: self.options_of(self.find(name)) for name in self.registry}

    def _given(self, target: Callable[..., Any]) -> int:
        return self.given if isinstance(self.given, int) else self.given(target)

    def _shared_by(self, target: Callable[..., Any]) -> type[Section] | None:
        return None if self.shared is None else self.shared(target)

    def find(self, name: str) -> Callable[..., Any]:
        """The class or function of a name.

        Raises:
            ValueError: It does not exist, or is of another kind.
        """
        if name in self.registry:
            target = self.registry[name]
            return load_object(target) if isinstance(target, str) else target
        if ":" not in name:
            close = suggestion(name, list(self.registry))
            raise ValueError(f"no {self.kind} is called {name!r}{close or f'; there are: {self._known()}'}")
        target = load_object(name)
        self._require_kind(name, target)
        return target

    def _require_kind(self, name: str, target: Callable[..., Any]) -> None:
        """Raise ValueError if a custom class or function cannot be what is chosen here."""
        base, made = _torl_base(target), class_made_by(target)
        is_allowed_function = self.functions and not inspect.isclass(target)
        if self.bases and not is_allowed_function and not any(wanted in made.__mro__ for wanted in self.bases):
            found = base or ("class" if inspect.isclass(target) else "function")
            wanted_names = " or ".join(_with_article(wanted.__name__) for wanted in self.bases)
            is_function = "function" in self.option_shorthands and not inspect.isclass(target)
            hint = f'; use function = "{name}"' if is_function else ""
            raise ValueError(f"{name} is {_with_article(found)}; {wanted_names} is wanted{hint}")
        if not self.bases and base is not None:
            raise ValueError(f"{name} is {_with_article(base)}; {_with_article(self.kind)} is wanted")
        if missing := sorted(getattr(target, "__abstractmethods__", ())):
            raise ValueError(f"{name} does not define {', '.join(missing)}")
        given = self._given(target)
        try:
            inspect.signature(target).bind_partial(*[None] * given)
        except TypeError as error:
            count = f"{given} positional argument{'s' * (given > 1)}"
            raise ValueError(f"{name} must take {count} before its options to be {_with_article(self.kind)}") from error

    def _known(self) -> str:
        return f"{', '.join(self.registry)}, or package.module:Name for your own"

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self.choose, serialization=core_schema.plain_serializer_function_ser_schema(Choice.dump)
        )


def _torl_base(target: Callable[..., Any]) -> str | None:
    """Return the name of the abstract class of torl that a class derives from, if any."""
    bases = [base for base in getattr(target, "__mro__", ()) if base.__module__.partition(".")[0] == "torl"]
    return next((base.__name__ for base in bases if inspect.isabstract(base)), None)


def class_made_by(target: Callable[..., Any]) -> type:
    """Return the class itself, or the class that a function is annotated to return; `object` if unknown."""
    if isinstance(target, type):
        return target
    try:
        returned = get_type_hints(target).get("return")
    except Exception:  # annotations of custom code may be invalid
        returned = None
    return returned if isinstance(returned, type) else object


def _with_article(noun: str) -> str:
    return f"{'an' if noun[0].lower() in 'aeiou' else 'a'} {noun}"


def load_object(place: str) -> Callable[..., Any]:
    """The class or function that `package.module:Name` names.

    Raises:
        ValueError: the module cannot be imported, or holds nothing of that name that can be called.
    """
    module_name, _, name = place.partition(":")
    try:
        target: Any = importlib.import_module(module_name)
    except Exception as error:
        raise ValueError(f"{place}: {module_name} cannot be imported: {type(error).__name__}: {error}") from error
    for part in name.split("."):
        if not hasattr(target, part):
            raise ValueError(f"{place}: {module_name} has no {name}{suggestion(name, dir(target))}")
        target = getattr(target, part)
    if not callable(target):
        raise ValueError(f"{place} is neither a class nor a function")
    return cast(Callable[..., Any], target)


@cache
def options_of(target: Callable[..., Any], given: int = 0) -> type[Section]:
    """The model of the options that a class or function takes after its first `given` parameters.

    Raises:
        ValueError: it has no signature, or parameters that cannot be options.
    """
    called = getattr(target, "__name__", type(target).__name__)
    try:
        own = _options_parameter(target, given)
        return own or create_model(f"{called}Options", __base__=_SignatureSection, **_options_fields(target, given))
    except Exception as error:  # of a stranger's annotations: a name that is not there, a type that no value can have
        raise ValueError(f"the parameters of {called} cannot be options: {error}") from error


def arguments_of(function: Callable[..., Any]) -> type[Section]:
    """The model of the arguments that a function takes, with the meanings that its docstring gives them.

    Raises:
        ValueError: they are not those of a plain function with an annotation for each.
    """
    called = getattr(function, "__name__", type(function).__name__)
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise ValueError(f"{called}: the parameter {parameter} cannot be given by its name")
        if parameter.annotation is parameter.empty:
            raise ValueError(f"{called}: the parameter {parameter.name!r} has no type hint")
    try:
        return create_model(called, __base__=_SignatureSection, **_fields(function, 0))
    except Exception as error:
        raise ValueError(f"{called}: no schema can be made of its parameters: {error}") from error


def _options_fields(target: Callable[..., Any], given: int) -> dict[str, Any]:
    fields = _fields(target, given)
    if "name" in fields:
        raise ValueError("'name' is the key that chooses; call the parameter something else")
    return fields


def _fields(target: Callable[..., Any], given: int) -> dict[str, Any]:
    """What pydantic makes the model of: (annotation, field) by name."""
    meanings = _argument_docs(target)
    fields: dict[str, Any] = {}
    for parameter in _parameters(target)[given:]:
        default = ... if parameter.default is inspect.Parameter.empty else parameter.default
        field = Field(default, description=meanings.get(parameter.name))
        fields[parameter.name] = (_annotation(target, parameter), field)
    return fields


def _argument_docs(target: Callable[..., Any]) -> dict[str, str]:
    """What the docstring says of each parameter below "Args:"; that of `__init__` for a class."""
    documented: Any = target.__init__ if isinstance(target, type) else target  # type: ignore[misc]
    _, _, arguments = (inspect.getdoc(documented) or "").partition("\nArgs:\n")
    meanings: dict[str, str] = {}
    for line in arguments.splitlines():
        indent = len(line) - len(line.lstrip())
        name, colon, meaning = line.strip().partition(":")
        if indent == 4 and colon:
            meanings[name] = meaning.strip()
        elif indent > 4 and meanings:
            meanings[next(reversed(meanings))] += f" {line.strip()}"
        else:
            break
    return meanings


def _options_parameter(target: Callable[..., Any], given: int) -> type[Section] | None:
    for parameter in _parameters(target)[given:]:
        if parameter.name == "options":
            annotation = _annotation(target, parameter)
            members = [each for each in (annotation, *get_args(annotation)) if isinstance(each, type)]
            return next((member for member in members if issubclass(member, Section)), None)
    return None


def _parameters(target: Callable[..., Any]) -> list[inspect.Parameter]:
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [each for each in inspect.signature(target).parameters.values() if each.kind not in variable]


def _annotation(target: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """Annotations in quotes are looked up where the target was written."""
    annotation = parameter.annotation
    if annotation is inspect.Parameter.empty:
        return Any
    if isinstance(annotation, str):
        function: Any = target.__init__ if isinstance(target, type) else target  # type: ignore[misc]
        return eval(annotation, getattr(inspect.unwrap(function), "__globals__", {}))
    return annotation


def suggestion(name: str, names: Sequence[str], prefix: str = "") -> str:
    """The end of a message about an unknown name: which one may have been meant; empty if none is close."""
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"; did you mean {prefix}{close[0]}?" if close else ""
