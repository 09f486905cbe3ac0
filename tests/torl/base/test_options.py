"""Choices: by a registered name or by an import path, each with its options and no others."""

import pickle
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, TypeAdapter, ValidationError, create_model

import torl
from torl.base.options import (
    Choice,
    ChosenFrom,
    PositiveFloat,
    PositiveInt,
    Section,
    load_object,
    options_of,
    suggestion,
)
from torl.base.types import Grade, Group, Outcome, OutcomeStatus
from torl.components.tools import FunctionTool
from torl.run.config import SampleConfig
from torl.run.config.choices import (
    AgentChoice,
    AggregationChoice,
    CorrectionChoice,
    EngineChoice,
    EnvironmentChoice,
    EstimatorChoice,
    FormatChoice,
    PolicyLossChoice,
    ProblemChoice,
    RewardChoice,
    SamplerChoice,
    TemplateChoice,
    ToolChoice,
)
from torl.run.config.loading import load_config


class Greeting:
    """Options from a signature."""

    def __init__(self, word: str = "hello", times: PositiveInt = 1) -> None:
        """Take both.

        Args:
            word: The word,
                however often.
            times: How often.

        Raises:
            ValueError: never.
        """
        self.word, self.times = word, times


class ShoutOptions(Section):
    """Options of a section."""

    loud: float
    """The volume."""
    word: str = "HEY"
    """The text of the greeting."""


class Shout:
    """Options from a parameter `options`."""

    def __init__(self, options: ShoutOptions, *, echo: bool = False) -> None:
        self.options = options


def whisper(given: str, *, hushed: bool = True, word: str | None = None) -> tuple[str, bool, str | None]:
    """A function of one given value."""
    return given, hushed, word


def quoted(given: "Undefined", volume: "PositiveInt" = 3) -> int:  # type: ignore[name-defined]  # noqa: F821
    """Annotations in quotes are looked up in their module; the annotation of a passed value is not."""
    return volume


def loudly(volume: float = 1.0) -> float:
    """A function with an option that its place may have too."""
    return volume


def named(given: str, name: str) -> None:
    """Has a parameter that no section can have as an option."""


def strange(given: str, engine: "Undefined") -> None:  # type: ignore[name-defined]  # noqa: F821
    """Has a parameter that no section can have as an option."""


GREETINGS: MappingProxyType[str, Callable[..., Any]] = MappingProxyType({"greeting": Greeting, "shout": Shout})
CHOICE = ChosenFrom(GREETINGS, "greeting", default="greeting")
WHISPERS = ChosenFrom(MappingProxyType({"whisper": whisper}), "whisper", positional_count=1)


class Whole(Section):
    """A section with a choice in it."""

    greeting: Annotated[Choice[Any], CHOICE] = Field("greeting", validate_default=True)  # type: ignore[assignment]
    aside: Annotated[Choice[Any], WHISPERS] | None = None


# --- by name ------------------------------------------------------------------------------------------------------


def test_a_text_is_the_name_of_a_choice_with_its_defaults() -> None:
    choice = CHOICE.choose("greeting")
    assert (choice.name, choice.target) == ("greeting", Greeting)
    made = choice.make()
    assert (made.word, made.times) == ("hello", 1)


def test_a_section_brings_the_options() -> None:
    made = CHOICE.choose({"name": "greeting", "times": 3}).make()
    assert (made.word, made.times) == ("hello", 3)
    made = CHOICE.choose({"name": "shout", "loud": 0.5}).make()
    assert made.options == ShoutOptions(loud=0.5)


def test_a_section_without_a_name_is_one_of_the_default() -> None:
    assert CHOICE.choose({"word": "good day"}).make().word == "good day"
    with pytest.raises(ValueError, match=r"name the whisper: whisper, or package\.module:Name for your own"):
        WHISPERS.choose({"hushed": False})


def test_an_unknown_name_is_answered_with_the_nearest_or_with_all() -> None:
    with pytest.raises(ValueError, match="no greeting is called 'shuot'; did you mean shout"):
        CHOICE.choose("shuot")
    with pytest.raises(ValueError, match=r"no greeting is called 'x'; there are: greeting, shout, or package\.module"):
        CHOICE.choose({"name": "x"})


@pytest.mark.parametrize("wrong", [3, ["greeting"], None])
def test_a_value_that_chooses_nothing(wrong: Any) -> None:
    with pytest.raises(ValueError, match="select the greeting with a name, or with a section that has a name"):
        CHOICE.choose(wrong)


def test_a_choice_that_is_made_already_stays() -> None:
    choice = CHOICE.choose({"name": "shout", "loud": 1.0})
    assert CHOICE.choose(choice) is choice
    assert Whole(greeting=choice).greeting is choice


def test_a_shorthand_is_one_option_of_one_choice() -> None:
    by_word = ChosenFrom(GREETINGS, "greeting", default="greeting", shorthand=("greeting", "word"))
    assert by_word.choose("shout").make().word == "shout"
    assert by_word.choose({"name": "shout", "loud": 1.0}).target is Shout
    assert by_word.expand("a") == {"name": "greeting", "word": "a"}
    assert by_word.expand({"word": "a"}) == {"word": "a"}
    assert CHOICE.expand("a") == {"name": "a"}


# --- by place -----------------------------------------------------------------------------------------------------


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module that torl knows nothing of."""
    made = ModuleType("somebodys_greetings")
    monkeypatch.setitem(sys.modules, made.__name__, made)
    return made


def test_location_loads_its_object(module: ModuleType) -> None:
    vars(module).update(Greeting=Greeting, Outer=type("Outer", (), {"Inner": Greeting}))
    choice = CHOICE.choose({"name": "somebodys_greetings:Greeting", "times": 2})
    assert (choice.target, choice.make().times) == (Greeting, 2)
    assert choice.dump()["name"] == "somebodys_greetings:Greeting"
    assert load_object("somebodys_greetings:Outer.Inner") is Greeting


def test_a_place_may_be_a_module_that_is_not_imported_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "not_imported_yet.py").write_text("def wave(strength: float = 0.5):\n    return strength\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert CHOICE.choose({"name": "not_imported_yet:wave", "strength": 1}).make() == 1.0


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("no_such_module:Name", "no_such_module cannot be imported: ModuleNotFoundError"),
        ("torl.no_such:Name", r"torl\.no_such cannot be imported"),
        ("somebodys_greetings:Greting", "somebodys_greetings has no Greting; did you mean Greeting"),
        ("somebodys_greetings:Greeting.x", r"somebodys_greetings has no Greeting\.x"),
        ("somebodys_greetings:", "somebodys_greetings has no "),
        ("somebodys_greetings:number", "somebodys_greetings:number is neither a class nor a function"),
        (":Greeting", "cannot be imported"),
    ],
)
def test_empty_location_is_an_error(module: ModuleType, place: str, message: str) -> None:
    vars(module).update(Greeting=Greeting, number=3)
    with pytest.raises(ValueError, match=message):
        CHOICE.choose(place)


def test_a_module_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fails_at_import.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        ValueError,
        match=r"fails_at_import cannot be imported: ZeroDivisionError: division by zero \(at \S+fails_at_import\.py:1 ",
    ):
        load_object("fails_at_import:Name")


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("from torl.sandbox import SandboxPool", "torl_sandbox"),
        ("from torl.sandbox.pool import SandboxPool", "torl_sandbox"),
        ("import torl.apps.serve.settings", "torl_sandbox.servers"),
    ],
)
def test_an_import_of_a_module_that_moved_names_its_place(
    line: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "imports_old_places.py").write_text(f"{line}\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=rf"imports_old_places\.py:1.*; it is {place} now$"):
        load_object("imports_old_places:Name")


# --- options ------------------------------------------------------------------------------------------------------


def test_the_options_of_a_signature_have_its_annotations_defaults_and_meanings() -> None:
    fields = options_of(Greeting).model_fields
    assert list(fields) == ["word", "times"]
    assert [field.default for field in fields.values()] == ["hello", 1]
    assert [field.description for field in fields.values()] == ["The word, however often.", "How often."]
    for wrong in ({"times": 0}, {"times": "many"}, {"word": 3}):
        with pytest.raises(ValidationError):
            CHOICE.choose({"name": "greeting", **wrong})


@pytest.mark.parametrize(
    ("annotation", "value", "is_accepted"),
    [
        (int, True, False),
        (PositiveFloat | None, True, False),
        (int | Literal["auto"], False, False),
        (tuple[PositiveInt, ...], [1, True], False),
        (tuple[bool, int], [True, 1], True),
        (tuple[int, bool], [True, True], False),
        (list[float], [True], False),
        (dict[str, float], {"a": True}, False),
        (int | bool, True, True),
        (bool | Literal["auto"], True, True),
        (Any, True, True),
        (int | tuple[int, ...], [1, 2], True),
        (int | tuple[int, ...], True, False),
        (Annotated[bool, "of a custom option"] | int, True, True),
        (Literal[True, "auto"] | int, True, True),
        (int | Any, True, True),
        (list[int] | list[bool], [True], True),
        (dict[str, int] | dict[str, bool], {"a": True}, True),
        (tuple[()] | int, [], True),
    ],
)
def test_boolean_is_no_number(annotation: Any, value: Any, is_accepted: bool) -> None:
    section: type[Section] = create_model("Numbers", __base__=Section, field=(annotation, ...))
    if is_accepted:
        section(field=value)
    else:
        with pytest.raises(ValidationError, match="should be a number, not a boolean"):
            section(field=value)


def test_a_required_option_is_missed() -> None:
    with pytest.raises(ValidationError, match="Field required"):
        CHOICE.choose("shout")


def test_the_options_of_a_section_are_that_section() -> None:
    assert options_of(Shout) is ShoutOptions


def test_leading_argument_is_not_an_option() -> None:
    assert list(options_of(whisper, 1).model_fields) == ["hushed", "word"]
    assert list(options_of(quoted, 1).model_fields) == ["volume"]
    with pytest.raises(ValidationError):
        options_of(quoted, 1)(volume=0)


def test_parameters_that_cannot_be_options_are_named() -> None:
    for target, message in (
        (named, "the parameters of named cannot be options: 'name' is the key of the choice"),
        (strange, "the parameters of strange cannot be options: name 'Undefined' is not defined"),
    ):
        with pytest.raises(ValueError, match=message):
            options_of(target, 1)


def test_options_of_another_choice_are_refused() -> None:
    for section in ({"loud": 1.0}, {"name": "shout", "loud": 1.0, "times": 2}):
        with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
            CHOICE.choose(section)


def test_a_function_is_bound_to_its_options() -> None:
    choice = WHISPERS.choose({"name": "whisper", "hushed": False})
    assert choice.bind()("psst") == ("psst", False, None)
    assert choice.make("psst") == ("psst", False, None)


def test_all_options_of_a_registry() -> None:
    assert {name: list(options) for name, options in CHOICE.all_options().items()} == {
        "greeting": ["word", "times"],
        "shout": ["loud", "word"],
    }


def test_registered_place_is_imported_when_chosen() -> None:
    places = MappingProxyType({"greeting": f"{__name__}:Greeting", "missing": f"{__name__}:Missing"})
    chosen_from = ChosenFrom(places, "greeting", "greeting")
    assert chosen_from.choose({"times": 2}).target is Greeting
    assert chosen_from.find("greeting") is Greeting
    with pytest.raises(ValueError, match=r"test_options has no Missing"):
        chosen_from.find("missing")
    known = ChosenFrom(MappingProxyType({"greeting": f"{__name__}:Greeting"}), "greeting", "greeting")
    assert {name: list(options) for name, options in known.all_options().items()} == {"greeting": ["word", "times"]}


# --- options of the place -----------------------------------------------------------------------------------------


class Volume(Section):
    """The base of every greeting except shouts."""

    volume: float = 0.5
    """The volume."""


SHARED = ChosenFrom(
    GREETINGS, "greeting", "greeting", common_options=lambda target: None if target is Shout else Volume
)


def test_options_of_the_place_are_kept_apart_and_dumped_with_the_others() -> None:
    choice = SHARED.choose({"times": 2, "volume": 0.25})
    assert choice.common_options == Volume(volume=0.25)
    assert choice.make().times == 2
    assert choice.dump() == {"name": "greeting", "word": "hello", "times": 2, "volume": 0.25}
    assert SHARED.choose(choice.dump()) == choice == pickle.loads(pickle.dumps(choice))
    assert SHARED.choose("greeting").common_options == Volume()
    assert {name: list(options) for name, options in SHARED.all_options().items()} == {
        "greeting": ["word", "times", "volume"],
        "shout": ["loud", "word"],
    }


def test_missing_location_is_unknown() -> None:
    assert SHARED.choose({"name": "shout", "loud": 1}).common_options is None
    with pytest.raises(ValidationError, match="volume"):
        SHARED.choose({"name": "shout", "loud": 1, "volume": 0.25})
    with pytest.raises(ValidationError, match="volum"):
        SHARED.choose({"volum": 0.25})


def test_an_option_that_the_place_has_already_is_refused() -> None:
    with pytest.raises(ValueError, match="every greeting has the option 'volume'; rename the parameter"):
        SHARED.choose({"name": f"{__name__}:loudly"})


# --- written down and read again ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "chosen", [{"name": "greeting", "times": 4}, {"name": "shout", "loud": 0.25}, {"name": "whisper", "hushed": False}]
)
def test_a_choice_pickles(chosen: dict[str, Any]) -> None:
    choice = (WHISPERS if chosen["name"] == "whisper" else CHOICE).choose(chosen)
    again = pickle.loads(pickle.dumps(choice))
    assert again == choice
    assert again.dump() == choice.dump()
    given = ("psst",) if choice.positional_count else ()
    assert type(again.make(*given)) is type(choice.make(*given))


def test_dumped_choice_selects_the_same() -> None:
    whole = Whole.model_validate({"greeting": {"name": "shout", "loud": 1}, "aside": "whisper"})
    tree = whole.model_dump(mode="json", exclude_none=True)
    assert tree == {
        "greeting": {"name": "shout", "loud": 1.0, "word": "HEY"},
        "aside": {"name": "whisper", "hushed": True},
    }
    assert Whole.model_validate(tree) == whole
    assert Whole() == Whole.model_validate(Whole().model_dump(mode="json", exclude_none=True)) != whole


def test_the_nearest_name() -> None:
    assert suggestion("greting", ["greeting", "shout"]) == "; did you mean greeting?"
    assert suggestion("a.greting", ["a.greeting"], "--") == "; did you mean --a.greeting?"
    assert suggestion("x", ["greeting", "shout"]) == ""


# --- choices of the wrong kind --------------------------------------------------------------------------------------


class Calculator(torl.Tool):
    """A tool."""

    description = "Adds."
    parameters: Mapping[str, Any] = MappingProxyType({"type": "object"})

    async def call(self, arguments: Mapping[str, Any]) -> Outcome:
        return Outcome(OutcomeStatus.OK, "2")


class Notebook(torl.StatefulTool):
    """A stateful tool."""

    def session(self, seed: int) -> torl.ToolSession:
        raise NotImplementedError


class Halfway(torl.Reward):
    """A reward without `grade`."""


class Constant(torl.Reward):
    """A reward."""

    async def grade(self, group: Group) -> list[Grade]:
        return []


def constant_reward(count: int = 1) -> Constant:
    """Make a reward, as the annotation says."""
    return Constant()


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def nothing(*, scale: float = 1.0) -> float:
    """Take no positional argument."""
    return scale


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        (RewardChoice, "Calculator", ":Calculator is a Tool; a Reward is wanted"),
        (RewardChoice, "Notebook", ":Notebook is a StatefulTool; a Reward is wanted"),
        (RewardChoice, "Greeting", ":Greeting is a class; a Reward is wanted"),
        (RewardChoice, "nothing", "must take 1 positional argument before its options to be a reward"),
        (RewardChoice, "Halfway", ":Halfway does not define grade"),
        (ToolChoice, "Constant", ":Constant is a Reward; a Tool or a StatefulTool is wanted"),
        (ToolChoice, "add", f':add is a function; .* is wanted; use function = "{__name__}:add"'),
        (FormatChoice, "Constant", ":Constant is a Reward; a Format is wanted"),
        (EnvironmentChoice, "Calculator", ":Calculator is a Tool; an Environment is wanted"),
        (AgentChoice, "Calculator", ":Calculator is a Tool; an Agent is wanted"),
        (EngineChoice, "Calculator", ":Calculator is a Tool; an Engine is wanted"),
        (EstimatorChoice, "Calculator", ":Calculator is a Tool; an advantage estimator is wanted"),
        (ProblemChoice, "Calculator", ":Calculator is a Tool; a problem source is wanted"),
        (EstimatorChoice, "nothing", "must take 1 positional argument before its options to be an advantage estimator"),
        (PolicyLossChoice, "nothing", "must take 1 positional argument before its options to be a policy loss"),
        (AggregationChoice, "nothing", "must take 1 positional argument before its options to be an aggregation"),
        (CorrectionChoice, "nothing", "must take 1 positional argument before .* an importance correction"),
        (TemplateChoice, "nothing", "must take 1 positional argument before its options to be a prompt template"),
        (SamplerChoice, "whisper", "must take 2 positional arguments before its options to be a sampler"),
    ],
)
def test_choice_of_the_wrong_kind_is_refused(kind: Any, name: str, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        TypeAdapter(kind).validate_python({"name": f"{__name__}:{name}"})


def test_choice_of_the_right_kind_is_accepted() -> None:
    assert TypeAdapter(ToolChoice).validate_python(f"{__name__}:Calculator").target is Calculator
    assert TypeAdapter(ToolChoice).validate_python(f"{__name__}:Notebook").target is Notebook
    assert TypeAdapter(ToolChoice).validate_python({"function": f"{__name__}:add"}).target is FunctionTool
    assert TypeAdapter(RewardChoice).validate_python(f"{__name__}:constant_reward").target is constant_reward
    assert TypeAdapter(TemplateChoice).validate_python(f"{__name__}:whisper").target is whisper


def test_wrong_kind_is_reported_with_its_setting(tmp_path: Path) -> None:
    path = tmp_path / "sample.toml"
    path.write_text(f'[reward]\nname = "{__name__}:Calculator"\n')
    with pytest.raises(torl.TorlError, match=rf"reward: {__name__}:Calculator is a Tool; a Reward is wanted"):
        load_config(SampleConfig, path)
