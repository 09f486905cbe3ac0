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

from torl.base.options.choices import Choice, ChosenFrom, default_choice, named_by_key
from torl.base.options.sections import (
    NonNegativeFloat,
    NonNegativeInt,
    OutputPath,
    PositiveFloat,
    PositiveFraction,
    PositiveInt,
    Precision,
    Section,
    Seed,
    dotted_leaves,
    parse_toml,
    read_text,
    read_toml,
    suggestion,
)
from torl.base.options.signatures import (
    arguments_of,
    class_made_by,
    import_object,
    is_of_recipe,
    load_object,
    options_of,
)

__all__ = [
    "Choice",
    "ChosenFrom",
    "NonNegativeFloat",
    "NonNegativeInt",
    "OutputPath",
    "PositiveFloat",
    "PositiveFraction",
    "PositiveInt",
    "Precision",
    "Section",
    "Seed",
    "arguments_of",
    "class_made_by",
    "default_choice",
    "dotted_leaves",
    "import_object",
    "is_of_recipe",
    "load_object",
    "named_by_key",
    "options_of",
    "parse_toml",
    "read_text",
    "read_toml",
    "suggestion",
]
