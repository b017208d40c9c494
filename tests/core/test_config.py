"""Settings come from flags and files, alone or in sections, and every mistake names its field."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import noise2text
from noise2text.core.command_line import parse_assignments, parse_options
from noise2text.core.config import (
    Config,
    apply_overrides,
    describe,
    get_setting,
    has_setting,
    option,
    section,
)
from noise2text.core.config_files import read_config, to_yaml
from noise2text.core.errors import Problem
from noise2text.core.field_values import Limits
from noise2text.core.setting_words import REMARKS, SYNONYMS
from noise2text.models.baseline_config import TransformerModelConfig
from noise2text.models.pretrained_config import PretrainedModelConfig
from noise2text.nn.config import EncoderDecoderConfig, JointTransformerConfig
from noise2text.training.classifier import ClassifierConfig

if TYPE_CHECKING:
    from fractions import Fraction


@dataclass(frozen=True)
class Example:
    steps: int = option(5, "how many")
    rate: float = option(0.1, "how fast")
    fast: bool = option(False, "whether")
    name: str = option("a", "who")
    betas: tuple[float, float] = option((0.9, 0.98), "both")
    factor: float | None = option(None, "maybe")


@pytest.mark.parametrize(
    ("field", "given", "expected"),
    [
        ("steps", "7", 7),
        ("steps", 7, 7),
        ("steps", "1e4", 10_000),
        ("steps", "20_000", 20_000),
        ("steps", "9007199254740993", 2**53 + 1),
        ("steps", 2**53 + 1, 2**53 + 1),
        ("rate", "5e-4", 5e-4),
        ("rate", 1, 1.0),
        ("fast", "true", True),
        ("fast", False, False),
        ("name", "b", "b"),
        ("betas", "0.5,0.6", (0.5, 0.6)),
        ("betas", [0.5, 0.6], (0.5, 0.6)),
        ("factor", "none", None),
        ("factor", None, None),
        ("factor", "4", 4.0),
    ],
)
def test_values_become_their_fields_type(field: str, given: object, expected: object) -> None:
    changed = getattr(apply_overrides(Example(), {field: given}, origin="test"), field)
    assert changed == expected
    assert type(changed) is type(expected)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"stepps": 1}, "did you mean steps"),
        ({"zzz": 1}, "there is no setting 'zzz'"),
        ({"steps": "many"}, "steps takes a whole number, not 'many'"),
        ({"steps": 1.5}, "steps takes a whole number"),
        ({"steps": True}, "steps takes a whole number"),
        ({"rate": "x"}, "rate takes a number"),
        ({"fast": "maybe"}, "fast takes true or false"),
        ({"name": 3}, "name takes text"),
        ({"betas": "0.5"}, "betas takes 2 values"),
        ({"betas": 0.5}, "betas takes 2 values"),
        ({"rate": None}, "rate takes a number"),
    ],
)
def test_mistakes_name_the_field_and_the_origin(overrides: dict[str, object], message: str) -> None:
    with pytest.raises(Problem, match=message) as problem:
        apply_overrides(Example(), overrides, origin="test")
    assert str(problem.value).startswith("test: ")


def test_assignments() -> None:
    assert parse_assignments(["a=1", "b = x=y"]) == {"a": "1", "b": "x=y"}
    assert parse_assignments(None) == {}
    with pytest.raises(Problem, match="key=value"):
        parse_assignments(["a"])


def test_a_config_is_a_mapping(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("steps: 3\nbetas: [0.1, 0.2]\n")
    assert read_config(path) == {"steps": 3, "betas": [0.1, 0.2]}
    path.write_text("")
    assert read_config(path) == {}
    for bad in ("- a\n", "a: [\n", "\t"):
        path.write_text(bad)
        with pytest.raises(Problem, match=r"c\.yaml"):
            read_config(path)
    with pytest.raises(Problem, match=r"missing\.yaml"):
        read_config(tmp_path / "missing.yaml")


def test_every_field_says_what_it_is() -> None:
    assert [row[0] for row in describe(Example())] == ["steps", "rate", "fast", "name", "betas", "factor"]
    assert all(line for _, _, line in describe(Example()))


@dataclass(frozen=True)
class Slower(Example):
    rate: float = 0.01
    steps: int = option(9, "how many, at most")


def test_a_new_default_alone_keeps_the_help_and_the_place() -> None:
    fields = describe(Slower())
    assert [row[0] for row in fields] == [row[0] for row in describe(Example())]
    assert fields[:2] == [("steps", 9, "how many, at most"), ("rate", 0.01, "how fast")]
    assert "rate: 0.01  # how fast\n" in to_yaml(Slower())


def test_what_is_not_a_number_is_refused() -> None:
    for value in ("inf", "nan"):
        with pytest.raises(Problem, match="steps takes a whole number"):
            apply_overrides(Example(), {"steps": value}, origin="here")
    with pytest.raises(Problem, match="rate must be at least 0, not nan"):
        Limits(minimum=0).require(float("nan"), "rate")


@pytest.mark.parametrize(
    ("limits", "right", "wrong", "words"),
    [
        ({"minimum": 1}, [1, 2.5], [0, -1, 0.999], "at least 1"),
        ({"above": 0}, [1e-9, 1], [0, -1], "above 0"),
        ({"minimum": 0, "maximum": 1}, [0, 0.5, 1], [-0.1, 1.1], "between 0 and 1"),
        ({"minimum": 0, "below": 1}, [0, 0.999], [1, -0.1], "at least 0 and below 1"),
        ({"above": 0, "below": 1}, [0.5], [0, 1], "above 0 and below 1"),
        ({"above": 0, "maximum": 1}, [0.5, 1], [0, 1.1], "above 0 and at most 1"),
    ],
)
def test_a_number_outside_its_range_is_refused_with_the_range(
    limits: dict[str, Any], right: list[float], wrong: list[float], words: str
) -> None:
    @dataclass(frozen=True)
    class Ranged(Config):
        rate: float = option(right[0], "how fast", **limits)
        both: tuple[float, float] = option((right[0], right[0]), "both", **limits)
        maybe: float | None = option(None, "nothing by default", **limits)

    for value in right:
        assert Ranged(rate=value, both=(value, value), maybe=value).rate == value
        assert apply_overrides(Ranged(), {"rate": str(value)}, origin="here").rate == value
    for value in wrong:
        for settings in ({"rate": value}, {"both": (right[0], value)}, {"maybe": value}):
            with pytest.raises(Problem, match=words):
                Ranged(**settings)
    with pytest.raises(Problem, match=words):
        Ranged(rate=float("nan"))
    assert Ranged(maybe=None).maybe is None


def test_a_config_that_extends_another_keeps_its_limits_or_sets_its_own() -> None:
    @dataclass(frozen=True)
    class Base(Config):
        beam: int = option(5, "hypotheses", minimum=1)
        select: str = option("mbr", "how to select", choices=("mbr", "score"))

    @dataclass(frozen=True)
    class Greedy(Base):
        beam: int = 1
        select: str = option("vote", "how to select, with votes", choices=("vote",))

    with pytest.raises(Problem, match="The setting beam must be at least 1, not 0"):
        Greedy(beam=0)
    assert Greedy(select="vote").select == "vote"
    for config, word, names in ((Base, "vote", "mbr, score"), (Greedy, "mbr", "vote")):
        with pytest.raises(Problem, match=f"The setting select is one of {names}, not '?{word}"):
            config(select=word)


def test_options_become_settings_and_a_lone_one_is_named() -> None:
    assert parse_options(["--length-beam", "3", "--prefix=--x", "--eta", "-1"]) == {
        "length_beam": "3",
        "prefix": "--x",
        "eta": "-1",
    }
    assert parse_options(["--preprocess", "", "--steps", "3"]) == {"preprocess": "", "steps": "3"}
    with pytest.raises(Problem, match="--steps needs a value"):
        parse_options(["--steps"])
    with pytest.raises(Problem, match="--steps needs a value"):
        parse_options(["--steps", "--eta", "1"])
    with pytest.raises(Problem, match="Unexpected argument 'five'"):
        parse_options(["five"])


@pytest.mark.parametrize(
    ("name", "value"), [("rate", "nan"), ("rate", "inf"), ("rate", float("-inf")), ("steps", "1e20")]
)
def test_what_no_tensor_can_hold_is_no_number(name: str, value: object) -> None:
    with pytest.raises(Problem, match=f"the setting {name} takes a"):
        apply_overrides(Example(), {name: value}, origin="here")


WITH_HEADS = (
    EncoderDecoderConfig,
    JointTransformerConfig,
    TransformerModelConfig,
    PretrainedModelConfig,
    ClassifierConfig,
)


@pytest.mark.parametrize("config", WITH_HEADS)
def test_width_and_heads_are_positive_and_go_together(config: type[Config]) -> None:
    for wrong in ({"model_dim": 0}, {"model_dim": -4}, {"heads": 0}, {"heads": -2}):
        with pytest.raises(Problem, match="at least 1"):
            config(**wrong)
    for model_dim, heads in ((10, 4), (9, 3)):
        with pytest.raises(Problem, match=f"even and a multiple of heads, not {model_dim} of {heads}"):
            config(model_dim=model_dim, heads=heads)


@dataclass(frozen=True)
class Optim(Config):
    lr: float = option(5e-4, "peak learning rate")
    steps: int = option(100, "number of updates", minimum=1)
    betas: tuple[float, float] = option((0.9, 0.98), "of Adam")


@dataclass(frozen=True)
class Network(Config):
    model_dim: int = option(512, "dimension of the states")
    encoder_layers: int = option(6, "layers of the encoder")
    decoder_layers: int = option(6, "layers of the decoder")
    name: str = option("a: #b", "a text that YAML must quote")


@dataclass(frozen=True)
class Generation(Config):
    steps: int = option(20, "number of sampling steps")
    length_beam: int = option(5, "lengths per sentence")
    factor: float | None = option(None, "nothing by default")


@dataclass(frozen=True)
class LongGeneration(Generation):
    noise_beam: int = option(2, "noises per length")


@dataclass(frozen=True)
class Composed(Config):
    seed: int = option(0, "seed of the noise")
    optim: Optim = section(Optim(), "the optimizer")
    model: Network = section(Network())
    generation: Generation = section(LongGeneration(steps=10))
    fast: bool = option(False, "a setting after the sections")

    def __post_init__(self) -> None:
        if self.optim.steps == self.generation.steps:
            raise Problem("Training and generation must differ.")


@dataclass(frozen=True)
class Nested(Config):
    whole: Composed = section(Composed())
    lr: float = option(1.0, "a second one")


@pytest.mark.parametrize(
    "overrides",
    [
        {"optim.lr": "1e-3", "model.model_dim": 8, "generation.steps": 7},
        {"lr": 1e-3, "model_dim": "8", "generation.steps": 7},
        {"optim": {"lr": 1e-3}, "model": {"model_dim": 8}, "generation": {"steps": 7}},
        {
            "optim": {"lr": 3},
            "lr": 1e-3,
            "model": Network(model_dim=8),
            "generation": LongGeneration(steps=7),
        },
        {
            "model_dim": 8,
            "model": Network(model_dim=4),
            "model.model_dim": 8,
            "lr": 1e-3,
            "generation.steps": 7,
        },
    ],
)
def test_a_setting_is_changed_by_full_name_short_name_or_section(overrides: dict[str, Any]) -> None:
    wanted = Composed(
        optim=Optim(lr=1e-3), model=Network(model_dim=8), generation=LongGeneration(steps=7, noise_beam=2)
    )
    assert apply_overrides(Composed(), overrides, origin="test") == wanted
    assert Composed().replace(overrides) == wanted


def test_replace_takes_a_mapping_and_keywords() -> None:
    config = Composed().replace({"optim.steps": 3000}, lr=1, betas=(0.5, 0.6))
    assert config.optim == Optim(lr=1.0, steps=3000, betas=(0.5, 0.6))
    assert isinstance(config.optim.lr, float)
    assert config.model == Network()


def test_sections_may_have_sections() -> None:
    config = Nested().replace({"whole.optim.lr": 2, "optim.steps": 5, "lr": 3})
    assert (config.whole.optim, config.lr) == (Optim(lr=2.0, steps=5), 3.0)
    assert Nested().replace({"whole": {"lr": 2, "seed": 4}}).whole.optim.lr == 2
    assert Nested().replace(noise_beam=1).whole.generation == LongGeneration(steps=10, noise_beam=1)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"steps": 1}, "there is more than one setting 'steps'; write optim.steps or generation.steps."),
        ({"learning_rate": 1}, "there is no setting 'learning_rate'; it is called optim.lr."),
        ({"optim": {"learning_rate": 1}}, "no setting 'optim.learning_rate'; it is called optim.lr."),
        ({"optim": {"d_model": 1}}, "there is no setting 'optim.d_model'; it is called model.model_dim."),
        ({"epochs": 1}, "'epochs'; training counts updates, not epochs: set optim.steps."),
        ({"num_steps": 1}, "there is no setting 'num_steps'; it is called generation.steps."),
        ({"num_candidates": 1}, "where a model predicts them: set generation.noise_beam."),
        ({"num_layers": 1}, "it is called model.encoder_layers and model.decoder_layers."),
        ({"beam": 1}, "it is called generation.length_beam."),
        ({"optim.model_dim": 1}, "there is no setting 'optim.model_dim'; did you mean model.model_dim?"),
        ({"optm.lr": 1}, "there is no setting 'optm.lr'; did you mean optim.lr?"),
        ({"model_dmi": 1}, "did you mean model.model_dim?"),
        ({"stepz": 1}, "did you mean optim.steps or generation.steps?"),
        ({"optm": {"lr": 1}}, "there is no setting 'optm'; did you mean optim?"),
        ({"optim": 3}, "optim is a section; set what is in it by name, such as optim.lr."),
        ({"lr": {"a": 1}}, "the setting optim.lr takes a number, not {'a': 1}."),
        ({"optim": {"lr": "x"}}, "the setting optim.lr takes a number, not 'x'."),
        ({"qqqq": 1}, "the settings are seed, optim.lr, optim.steps, optim.betas, model.model_dim,"),
    ],
)
def test_mistakes_in_a_composed_config_lead_to_the_full_name(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(Problem) as problem:
        apply_overrides(Composed(), overrides, origin="test")
    assert message in str(problem.value)
    assert str(problem.value).startswith("test: ")


def test_a_flat_config_knows_the_synonyms_too() -> None:
    with pytest.raises(Problem, match="there is no setting 'learning_rate'; it is called lr"):
        Optim().replace(learning_rate=1)


def test_no_synonym_hides_a_setting_of_that_name() -> None:
    for setting, words in SYNONYMS.items():
        assert setting not in words.split()
    assert set(REMARKS) <= {word for words in SYNONYMS.values() for word in words.split()}


def test_every_section_and_the_whole_are_validated() -> None:
    with pytest.raises(Problem, match="steps must be at least 1, not 0"):
        Composed().replace({"optim.steps": 0})
    with pytest.raises(Problem, match="must differ"):
        Composed().replace({"optim.steps": 10})
    assert Composed().replace({"optim.steps": 10, "generation.steps": 100}).generation.steps == 100


def test_a_composed_config_is_described_by_full_names_in_order() -> None:
    assert [name for name, _, _ in describe(Composed())][:4] == [
        "seed",
        "optim.lr",
        "optim.steps",
        "optim.betas",
    ]
    assert describe(Composed())[1] == ("optim.lr", 5e-4, "peak learning rate")
    assert describe(Composed())[-1] == ("fast", False, "a setting after the sections")


def test_a_setting_is_found_by_either_name() -> None:
    assert get_setting(Composed(), "lr") == get_setting(Composed(), "optim.lr") == 5e-4
    assert get_setting(Nested(), "lr") == 1.0
    with pytest.raises(Problem, match=r"write optim\.steps or generation\.steps"):
        get_setting(Composed(), "steps")
    known = ("lr", "optim.lr", "seed", "noise_beam", "steps", "optim", "zzz")
    assert [has_setting(Composed(), name) for name in known] == [True] * 4 + [False] * 3


CHANGED = Composed().replace(
    {"optim.betas": (0.1, 0.2), "optim.lr": 1e-5, "seed": 7, "factor": 3, "fast": True}
)
TEXTS = [
    "",
    "true",
    "null",
    "5",
    "1e-4",
    "- a",
    "a\nb",
    "ü 'x' \"y\"",
    " a ",
    "a/b.json",
    "\x85\u2028\x00",
    "😀",
]


@pytest.mark.parametrize("config", [Composed(), CHANGED, *(CHANGED.replace(name=text) for text in TEXTS)])
def test_json_and_yaml_give_the_same_config_back(config: Composed, tmp_path: Path) -> None:
    values = json.loads(json.dumps(asdict(config)))
    assert Composed().replace(values) == Composed().replace(asdict(config)) == config
    path = tmp_path / "config.yaml"
    path.write_text(to_yaml(config), encoding="utf-8")
    assert apply_overrides(Composed(), read_config(path), origin="test") == config


@dataclass(frozen=True)
class PluginConfig(Config):
    """A config of types that have no text form."""

    width: int | str | None = option(None, "a number or a name")
    sizes: tuple[int, ...] = option((), "any number of them")


@dataclass(frozen=True)
class LazilyTypedConfig(Config):
    """A config whose types are imported for type checking only."""

    rate: Fraction | int = 0


def test_types_of_a_plugin_that_have_no_text_form_are_left_to_it() -> None:
    made = replace(PluginConfig(width="wide", sizes=(1, 2, 3)), width=4)
    assert (made.width, made.sizes) == (4, (1, 2, 3))
    assert LazilyTypedConfig(rate=3).rate == 3


def test_yaml_carries_the_help() -> None:
    lines = to_yaml(Composed()).splitlines()
    assert lines[:6] == [
        "seed: 0  # seed of the noise",
        "",
        "# the optimizer",
        "optim:",
        "  lr: 0.0005  # peak learning rate",
        "  steps: 100  # number of updates",
    ]
    assert lines[-1] == "fast: false  # a setting after the sections"


def test_a_config_names_a_value_of_another_type() -> None:
    public: Any = noise2text
    for settings, refusal in (
        ({"lr": "1e-3"}, "the setting lr takes a number, not '1e-3'"),
        ({"steps": None}, "the setting steps takes a whole number, not None"),
        ({"steps": 1.5}, "the setting steps takes a whole number, not 1.5"),
        ({"betas": 0.9}, "the setting betas takes 2 values, not 0.9"),
        ({"betas": (0.9, "x")}, "the setting betas takes a number, not 'x'"),
        ({"lr_schedule": []}, r"the setting lr_schedule takes text, not \[\]"),
    ):
        with pytest.raises(Problem, match=f"^OptimConfig: {refusal}"):
            public.OptimConfig(**settings)
    with pytest.raises(Problem, match="DataConfig: the setting normalize takes true or false, not 'no'"):
        public.DataConfig(normalize="no")
    with pytest.raises(Problem, match=r"OptimConfig.replace takes settings by name, such as "):
        public.OptimConfig().replace("lr=1")
    for number in (np.int64(3), 3.0, True):  # range() or JSON would refuse these later
        with pytest.raises(Problem, match="the setting steps takes a whole number"):
            public.OptimConfig(steps=number)
    assert public.OptimConfig(lr=1).lr == 1
    assert public.LengthPredictingGenerationConfig(length=None).length is None
