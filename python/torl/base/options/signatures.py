"""The options of a class or function, read from its signature."""

import importlib
import inspect
import re
from collections.abc import Callable
from functools import cache
from types import UnionType
from typing import Annotated, Any, SupportsFloat, Union, cast, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, Field, PydanticUserError, TypeAdapter, create_model

from torl.base.guard import place_in_custom_code
from torl.base.options.sections import Section, suggestion
from torl.base.trust import NotImported, is_trusted, require_trust

_RECIPES = "torl.recipes."
_MOVED = {
    f"torl.{name}": f"torl.{folder}.{name}"
    for folder, names in {
        "base": "component errors options types",
        "components": "agents algorithms data engine environments formats interop rewards text tools trackers",
    }.items()
    for name in names.split()
}
_MOVED |= {"torl.sandbox": "torl_sandbox", "torl.apps": "torl_sandbox.servers"}
# Also with a type, as Google's style has it: "query (str, optional): What to search for".
_DESCRIBED = re.compile(r"\*{0,2}(?P<name>\w+)\s*(?:\(.*?\))?\s*:\s*(?P<meaning>.*)")


class _SignatureSection(Section):
    """Base class of options that are read from a signature, which has no docstrings below its fields."""

    model_config = ConfigDict(use_attribute_docstrings=False)


class _UnknownOptions(Section):
    """The options of a class or function that is not imported: any."""

    model_config = ConfigDict(extra="allow")


def load_object(location: str) -> Callable[..., Any]:
    """Import the class or function `package.module:Name` of a configuration.

    Raises:
        ValueError: The module cannot be imported, or does not define a callable of that name.
        NotTrustedError: The configuration is not trusted, and the class or function is not one of torl's recipes.
    """
    if not is_trusted() and not is_of_recipe(location):
        require_trust(location, "imported")
    return import_object(location)


def is_of_recipe(location: str) -> bool:
    """Whether a recipe of torl defines the class or function: a name that it imports is not enough."""
    module_name = location.partition(":")[0]
    if not module_name.startswith(_RECIPES):
        return False
    try:
        return import_object(location).__module__ == module_name
    except ValueError:
        return False


def import_object(location: str) -> Callable[..., Any]:
    """Import the class or function of a location in torl's own code. `load_object` is for those of configurations.

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
        if isinstance(error, ModuleNotFoundError) and error.name in _MOVED:
            hint += f"; it is {_MOVED[error.name]} now"
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
    if isinstance(target, NotImported):
        return _UnknownOptions
    target_name = getattr(target, "__name__", type(target).__name__)
    try:
        model = options_parameter(target, positional_count)
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
        if parameter.name.startswith("model_") and hasattr(Section, parameter.name):
            raise ValueError(f"{parameter.name!r} has a meaning in pydantic; rename the parameter")
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
        described = _DESCRIBED.match(line.strip())
        if indent == 4 and described:
            meanings[described["name"]] = described["meaning"]
        elif indent > 4 and meanings:
            meanings[next(reversed(meanings))] += f" {line.strip()}"
        else:
            break
    return meanings


def options_parameter(target: Callable[..., Any], positional_count: int) -> type[Section] | None:
    """Return the section of the parameter `options`; None if each option is a parameter."""
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


def class_made_by(target: Callable[..., Any]) -> type:
    """Return the class itself, or the class that a function is annotated to return; `object` if unknown."""
    if isinstance(target, type):
        return target
    returned = returned_by(target)
    return returned if isinstance(returned, type) else object


def returned_by(function: Callable[..., Any]) -> Any:
    """Return the annotation of a function's result; `Any` without a valid one."""
    try:
        return get_type_hints(function).get("return", Any)
    except Exception:  # annotations of custom code may be invalid
        return Any


def fits(annotation: Any, wanted: Any) -> bool:
    """Whether a result with this annotation can be what is wanted: a class, a union, or a class of one other class."""
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(wanted) in (Union, UnionType):
        return any(fits(annotation, member) for member in get_args(wanted))
    if get_origin(annotation) in (Union, UnionType):
        return any(fits(member, wanted) for member in get_args(annotation))
    wanted = SupportsFloat if wanted is float else wanted  # numbers of numpy, too
    found, members, wanted_members = get_origin(annotation) or annotation, get_args(annotation), get_args(wanted)
    if found in (Any, object) or not isinstance(found, type):
        return True  # unknown, or the variable of a type
    if not issubclass(found, get_origin(wanted) or wanted):
        return False
    return not (members and wanted_members) or fits(members[0], wanted_members[0])
