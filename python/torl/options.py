"""Choices in a configuration: a class or function selected by name, and its options.

A *choice* is a section with a `name`: the name of a component of torl, or the location of a custom one,
`package.module:Name`. All other keys of the section are the options of the chosen component:

    [rollout.format]
    name = "zerotir"
    max_observation_tokens = 512

The options of a class or function are its parameters, except the first ones that torl passes. Annotations validate the
values, and "Args:" of the docstring describes them. A component with many options has a parameter `options` instead,
whose annotation is a `Section`.
"""

import difflib
import importlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar, cast, get_args, get_type_hints

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    PydanticUserError,
    TypeAdapter,
    create_model,
)
from pydantic_core import CoreSchema, core_schema

from torl.guard import Check, calling, guard_function, place_in_custom_code, sync_override

PositiveInt = Annotated[int, Field(gt=0)]
NonNegativeInt = Annotated[int, Field(ge=0)]
Seed = Annotated[int, Field(ge=0, lt=2**31)]
"""A random seed. Libraries take 32 bits, and some add the number of a rank."""
PositiveFloat = Annotated[float, Field(gt=0)]
NonNegativeFloat = Annotated[float, Field(ge=0)]
PositiveFraction = Annotated[float, Field(gt=0, le=1)]
Precision = Literal["float32", "bfloat16"]

Chosen = TypeVar("Chosen")


def _require_path(value: Any) -> Any:
    if value == "":
        raise ValueError("an empty path is the current directory: name a directory or a file")
    return value


OutputPath = Annotated[Path, BeforeValidator(_require_path)]
"""A path to write to."""

_PLACE = re.compile(r"(?!torl:)[A-Za-z_][\w.]*:[A-Za-z_]\w*")
"""package.module:Name; `torl:` begins the paths of files inside the package."""


class Section(BaseModel):
    """Base class of sections: immutable, without unknown keys, described by the docstrings below the fields."""

    # Deferred: `--help` shows every section and validates none.
    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False, defer_build=True
    )

    def check_within(self, config: Any) -> None:
        """Raise ValueError if these options of a choice contradict the rest of the configuration."""


class _SignatureSection(Section):
    """Base class of options that are read from a signature, which has no docstrings below its fields."""

    model_config = ConfigDict(use_attribute_docstrings=False)


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

    @property
    def is_custom(self) -> bool:
        """Whether the class or function is not one of torl."""
        return not (getattr(self.target, "__module__", None) or "").startswith("torl.")

    def make(self, *arguments: Any) -> Chosen:
        """Call the class or function with `arguments` and its options.

        Raises:
            ComponentError: The class or function raised an exception.
        """
        method = "__init__" if inspect.isclass(self.target) else ""
        with calling(self.kind, self.target, method, *arguments):
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
        if _options_parameter(self.target, self.positional_count) is not None:
            return {"options": self.options}
        return {name: getattr(self.options, name) for name in type(self.options).model_fields}

    def __reduce__(self) -> tuple[Any, ...]:
        values = [getattr(self, each.name) for each in fields(self) if each.name != "options"]
        return _unpickle_choice, (self.options.model_dump(), *values)


def _unpickle_choice(
    options: dict[str, Any], name: str, target: Callable[..., Any], positional_count: int, *rest: Any
) -> Choice[Any]:
    model = options_of(target, positional_count)
    return Choice(name, target, model.model_validate(options), positional_count, *rest)


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
    check: Check | None = None
    """Check of the results of custom functions."""
    item_check: Check | None = None
    """Check of each item that a custom function returns or yields."""
    by_step: bool = False
    """Whether numeric options may change with the step (`torl.config.schedule`): for functions that each step binds."""

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

    def common_option_names(self, target: Callable[..., Any]) -> frozenset[str]:
        """Return the names of the options that all choices have."""
        common = self._common_options_of(target)
        return frozenset() if common is None else frozenset(common.model_fields)

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
        if method := sync_override(target):
            raise ValueError(f"{name}.{method} must be declared with `async def`")
        positional = self._positional_count_of(target)
        try:
            inspect.signature(target).bind_partial(*[None] * positional)
        except TypeError as error:
            count = f"{positional} positional argument{'s' * (positional > 1)}"
            raise ValueError(f"{name} must take {count} before its options to be {_with_article(self.kind)}") from error

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


def load_object(location: str) -> Callable[..., Any]:
    """Import the class or function `package.module:Name`.

    Raises:
        ValueError: The module cannot be imported, or does not define a callable of that name.
    """
    module_name, _, name = location.partition(":")
    try:
        target: Any = importlib.import_module(module_name)
    except Exception as error:
        top = module_name.partition(".")[0]
        if isinstance(error, ModuleNotFoundError) and error.name == top:
            hint = f"; start torl in the directory that holds {top}, or install its package"
        else:
            place = place_in_custom_code(error)
            hint = f" ({place})" if place else ""
        raise ValueError(f"{module_name} cannot be imported: {type(error).__name__}: {error}{hint}") from error
    for part in name.split("."):
        if not hasattr(target, part):
            raise ValueError(f"{location}: {module_name} has no {name}{suggestion(name, dir(target))}")
        target = getattr(target, part)
    if not callable(target):
        raise ValueError(f"{location} is neither a class nor a function")
    return cast(Callable[..., Any], target)


@cache
def options_of(target: Callable[..., Any], positional_count: int = 0) -> type[Section]:
    """Return the model of the options of a class or function: its parameters after the first `positional_count`.

    Raises:
        ValueError: The class or function has no signature, or parameters that cannot be options.
    """
    target_name = getattr(target, "__name__", type(target).__name__)
    try:
        model = _options_parameter(target, positional_count)
        fields = {} if model else _options_fields(target, positional_count)
        return model or create_model(f"{target_name}Options", __base__=_SignatureSection, **fields)
    except Exception as error:  # custom annotations may be undefined names or unsupported types
        raise ValueError(f"the parameters of {target_name} cannot be options: {error}") from error


def arguments_of(function: Callable[..., Any]) -> type[Section]:
    """Return the model of the arguments of a function, described by its docstring.

    Raises:
        ValueError: A parameter has no annotation, or cannot be passed by name.
    """
    function_name = getattr(function, "__name__", type(function).__name__)
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise ValueError(f"{function_name}: the parameter {parameter} cannot be passed by name")
        if parameter.annotation is parameter.empty:
            raise ValueError(f"{function_name}: the parameter {parameter.name!r} has no type hint")
    try:
        return create_model(function_name, __base__=_SignatureSection, **_fields(function, 0))
    except Exception as error:
        raise ValueError(f"{function_name}: a parameter has no schema: {error}") from error


def _options_fields(target: Callable[..., Any], positional_count: int) -> dict[str, Any]:
    for parameter in list(inspect.signature(target).parameters.values())[positional_count:]:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) and target.__module__ != "builtins":
            raise ValueError(f"{parameter} names no options; declare each option as a parameter")
    fields = _fields(target, positional_count)
    if "name" in fields:
        raise ValueError("'name' is the key of the choice; rename the parameter")
    if not (target.__module__ or "").startswith("torl."):
        for name, (annotation, _) in fields.items():
            _require_schema(name, annotation)
    return fields


def _require_schema(name: str, annotation: Any) -> None:
    try:
        TypeAdapter(annotation)
    except PydanticUserError as error:
        type_name = getattr(annotation, "__name__", annotation)
        raise ValueError(f"{name}: no value of a configuration is a {type_name}") from error


def _fields(target: Callable[..., Any], positional_count: int) -> dict[str, Any]:
    """Return the (annotation, field) pairs of a model by name."""
    meanings = _argument_docs(target)
    fields: dict[str, Any] = {}
    for parameter in _parameters(target)[positional_count:]:
        default = ... if parameter.default is inspect.Parameter.empty else parameter.default
        field = Field(default, description=meanings.get(parameter.name))
        fields[parameter.name] = (_annotation(target, parameter), field)
    return fields


def _argument_docs(target: Callable[..., Any]) -> dict[str, str]:
    """Return the descriptions of the parameters in "Args:" of the docstring, for a class of `__init__`."""
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


def _options_parameter(target: Callable[..., Any], positional_count: int) -> type[Section] | None:
    for parameter in _parameters(target)[positional_count:]:
        if parameter.name == "options":
            annotation = _annotation(target, parameter)
            members = [each for each in (annotation, *get_args(annotation)) if isinstance(each, type)]
            return next((member for member in members if issubclass(member, Section)), None)
    return None


def _parameters(target: Callable[..., Any]) -> list[inspect.Parameter]:
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [each for each in inspect.signature(target).parameters.values() if each.kind not in variable]


def _annotation(target: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """Return the annotation of a parameter. A quoted one is evaluated in the module of the target."""
    annotation = parameter.annotation
    if annotation is inspect.Parameter.empty:
        return Any
    if isinstance(annotation, str):
        function: Any = target.__init__ if isinstance(target, type) else target  # type: ignore[misc]
        return eval(annotation, getattr(inspect.unwrap(function), "__globals__", {}))
    return annotation


def suggestion(name: str, names: Sequence[str], prefix: str = "") -> str:
    """Return "; did you mean ...?" for an unknown name, or an empty text without a close match."""
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"; did you mean {prefix}{close[0]}?" if close else ""


def dotted_leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the settings of a configuration tree by their dotted names, after `prefix`."""
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from dotted_leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def default_choice(default: Any) -> Any:
    """Return a field whose default is validated like a value from a file: a name, or sections."""
    return Field(default, validate_default=True)
