"""Tests of the typed, strict hyper-parameters: overrides, validation, origins, storage."""

import copy
import dataclasses
import importlib
import json
import pathlib
import pickle
import pkgutil
import typing
from typing import Literal, Optional

import pytest

from t2t_ext import config, registry
from t2t_ext.config import hyperparameters
from t2t_ext.config.decode import DecodeHParams, resolve_decode_hparams
from t2t_ext.config.hyperparameters import (
    AUTO_BATCH_SIZE,
    HParams,
    StrictParams,
    TransformerHParams,
    hparam,
    parse_assignments,
)
from t2t_ext.config.strict_params import help_of
from t2t_ext.errors import UserError


@dataclasses.dataclass(frozen=True, kw_only=True)
class WithLists(StrictParams):
    layers: tuple[int, ...] = hparam((1, 2), "Which layers.")
    kinds: tuple[str, ...] = ()
    rate: float = hparam(0.5, "A rate.", minimum=0, exclusive=True, maximum=1)


def test_batch_size_may_be_auto():
    hparams = HParams().override("batch_size=auto")
    assert hparams.batch_size == AUTO_BATCH_SIZE
    assert {row.name: row.value for row in hparams.explain()}["batch_size"] == "auto"
    assert HParams.from_dict(hparams.to_dict()) == hparams


def test_frozen_and_keyword_only():
    with pytest.raises(dataclasses.FrozenInstanceError):
        HParams().batch_size = 3
    with pytest.raises(TypeError):
        HParams(3)


def test_replace_returns_a_copy():
    base = TransformerHParams()
    changed = base.replace(hidden_size=256, num_heads=4)
    assert (base.hidden_size, changed.hidden_size) == (512, 256)
    assert changed.batch_size == base.batch_size


def test_replace_refuses_unknown_fields():
    with pytest.raises(UserError, match=r"unknown key 'hiden_size'. Did you mean 'hidden_size'"):
        TransformerHParams().replace(hiden_size=3)


def test_override_parses_every_type():
    changed = TransformerHParams().override(
        " batch_size = 77 , label_smoothing=1e-1,optimizer=adafactor,projection_bias=True,use_target_space_embedding=0"
    )
    assert changed.batch_size == 77
    assert changed.label_smoothing == 0.1
    assert changed.optimizer == "adafactor"
    assert changed.projection_bias is True
    assert changed.use_target_space_embedding is False
    assert TransformerHParams().override("") == TransformerHParams()
    assert TransformerHParams().override("learning_rate_constant=3").learning_rate_constant == 3.0


def test_override_parses_lists():
    assert WithLists().override("layers=[3, 4 ,5],rate=1").layers == (3, 4, 5)
    assert WithLists().override("layers=[7],kinds=[a, b]").kinds == ("a", "b")
    for text in ("layers=3", "layers=[]", "layers=[1.5]", "layers=[1", "layers[0]=3"):
        with pytest.raises(UserError, match="layers"):
            WithLists().override(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("batchsize=3", "unknown key 'batchsize'. Did you mean 'batch_size'"),
        ("batch_size=3.0", "batch_size=3.0: batch_size is an integer"),
        ("batch_size=1_000", "batch_size is an integer"),
        (
            "hidden_size=32 num_heads=2 optimizer=adam",
            "hidden_size=32 num_heads=2 .*: separate assignments by commas: hidden_size=32,num_heads=2,optimizer=adam",
        ),
        ("optimizer=adam; num_heads=2", "separate assignments by commas: optimizer=adam,num_heads=2"),
        ("num_heads=2 odd=3", "separate assignments by commas: num_heads=2,odd=3"),
        ("batch_size=many", "batch_size is an integer or auto"),
        ("batch_size=-1", "batch_size must be at least 1, at most 10,000,000, or auto"),
        ("label_smoothing=nan", "label_smoothing is a number"),
        ("label_smoothing=inf", "label_smoothing is a number"),
        ("shared_embedding=maybe", "shared_embedding is true or false"),
        ("batch_size=[1,2]", "batch_size is an integer or auto, not a list"),
        ("batch_size=1,batch_size=2", r"batch_size is given twice \(1 and 2\)"),
        ("batch_size=", "batch_size has no value"),
        ("batch_size", "'batch_size' is not an assignment"),
        ("optimizer=adam,adam_w", "'adam_w' is not an assignment.*comma"),
        ("=3", "is not a name"),
        ("optimizer=adm", "optimizer is one of adam, adam_w, adafactor"),
        ("batch_size=0", "batch_size must be at least 1"),
        ("label_smoothing=1", "label_smoothing must be less than 1"),
        ("length_bucket_step=1", "length_bucket_step must be more than 1"),
        ("target_space_id=32", "target_space_id must be at most 31"),
        ("num_heads=7", "hidden_size=512 is not a multiple of num_heads=7"),
        ("attention_key_channels=12", "attention_key_channels=12 is not a multiple of num_heads=8"),
        ("attention_value_channels=12", "attention_value_channels=12 is not a multiple of num_heads=8"),
        ("hidden_size=9,num_heads=3", "hidden_size=9 is odd"),
        ("layer_preprocess_sequence=none", r"must be n and da \(pre-norm\) or none and dan \(post-norm\)"),
        ("learning_rate_schedule=constant*warmup", "unknown factor 'warmup'"),
        (
            "optimizer=schedule_free_adam_w",
            "learning_rate_schedule='.*rsqrt_decay.*' decays: set",
        ),
        (
            "optimizer=schedule_free_adam_w,learning_rate_schedule=constant,ema_decay=0.9",
            "optimizer=schedule_free_adam_w and ema_decay=0.9 each average the weights: set only one",
        ),
        ("ema_decay=0.9,average_last=5", "ema_decay=0.9 and average_last=5 each average the weights"),
        ("average_last=1", "average_last=1 is no average"),
        ("use_pad_remover=True", "'use_pad_remover' is not here: padding never changes a result"),
        ("self_attention_type=dot_product", "'self_attention_type' is not here: .*--model"),
    ],
)
def test_overrides_that_are_wrong(text, expected):
    with pytest.raises(UserError, match=expected) as raised:
        registry.resolve_hparams("transformer_base", text)
    assert str(raised.value).startswith("--hparams")
    assert "\n" not in str(raised.value)


def test_all_that_is_wrong_is_in_one_error():
    with pytest.raises(UserError) as raised:
        TransformerHParams().override("batchsize=3,hidden_size=x,optimizer=adm")
    assert "batchsize" in str(raised.value)
    assert "hidden_size=x" in str(raised.value)
    with pytest.raises(UserError) as raised:
        TransformerHParams(batch_size=0, relu_dropout=2.0, optimizer="adm")
    assert all(name in str(raised.value) for name in ("batch_size", "relu_dropout", "optimizer"))


@pytest.mark.parametrize(
    "values", [{"batch_size": 3.0}, {"batch_size": True}, {"label_smoothing": "0.1"}, {"shared_embedding": 1}]
)
def test_values_of_the_wrong_type(values):
    with pytest.raises(UserError, match=next(iter(values))):
        TransformerHParams(**values)


def test_an_integer_is_a_number():
    value = HParams(learning_rate_constant=2).learning_rate_constant
    assert value == 2.0
    assert isinstance(value, float)


def test_parse_assignments():
    assert parse_assignments("a=1, b = x ,c=[1, 2],") == {"a": "1", "b": "x", "c": "[1, 2]"}
    assert parse_assignments("") == {}
    assert parse_assignments("s=constant*linear_warmup") == {"s": "constant*linear_warmup"}
    assert parse_assignments("s=a=b") == {"s": "a=b"}


def test_layer_counts():
    hparams = TransformerHParams(num_hidden_layers=6, num_decoder_layers=2)
    assert (hparams.encoder_layers, hparams.decoder_layers) == (6, 2)


def test_every_field_is_documented():
    for kind in (HParams, TransformerHParams, DecodeHParams):
        for field in dataclasses.fields(kind):
            assert help_of(field).strip(), f"{kind.__name__}.{field.name}"
            assert help_of(field).rstrip().endswith("."), f"{kind.__name__}.{field.name}"
            if isinstance(field.default, int) and not isinstance(field.default, bool):
                assert field.metadata["minimum"] is not None, f"{kind.__name__}.{field.name}"


def settings_classes():
    """Returns all subclasses of StrictParams in the package."""
    from t2t_ext.config.strict_params import StrictParams
    from t2t_ext.data.generation import cleaning  # noqa: F401 - it declares a class

    for module in pkgutil.walk_packages(config.__path__, "t2t_ext.config."):
        importlib.import_module(module.name)
    waiting, found = [StrictParams], []
    while waiting:
        kinds = [kind for kind in waiting.pop().__subclasses__() if kind.__module__.startswith("t2t_ext.")]
        waiting += kinds
        found += kinds
    return found


def test_every_number_has_limits():
    fields = {
        (kind.__name__, field.name): field.metadata
        for kind in settings_classes()
        for field in dataclasses.fields(kind)
        if {int, float} & {kind.type_of(field.name), *typing.get_args(kind.type_of(field.name))}
    }
    assert len(fields) > 100
    unlimited = {
        name
        for name, rules in fields.items()
        if rules["minimum"] is None or (rules["maximum"] is None and rules["below"] is None)
    }
    assert unlimited == set()


@pytest.mark.parametrize("digits", [299, 400, 5000])
def test_a_long_number_is_not_echoed_whole(digits):
    with pytest.raises(UserError, match=r"alpha.* must be"):
        DecodeHParams(alpha=10 ** min(digits, 4000))
    with pytest.raises(UserError) as raised:
        DecodeHParams().override(f"beam_size={'9' * digits}")
    assert len(str(raised.value)) < 300


def test_replaced_names_are_not_fields():
    assert not set(HParams._replaced) & set(TransformerHParams.names())
    assert not set(DecodeHParams._replaced) & set(DecodeHParams.names())


# Origins.


def test_origins_follow_the_derivation():
    resolved = registry.resolve_hparams("transformer_big_single_gpu", "batch_size=99")
    origins = resolved.origins()
    assert origins["batch_size"] == "flag"
    assert origins["layer_prepostprocess_dropout"] == "set transformer_big_single_gpu"
    assert origins["hidden_size"] == "set transformer_big"
    assert origins["optimizer_adam_beta2"] == "set transformer_base_v3"
    assert origins["attention_dropout"] == "set transformer_base_v2"
    assert origins["use_target_space_embedding"] == "set transformer_base_v1"
    assert origins["precision"] == "default"
    rows = {row.name: row for row in resolved.explain()}
    assert list(rows) == list(TransformerHParams.names())
    assert rows["batch_size"].value == 99
    assert rows["batch_size"].origin == "flag"
    assert "tokens" in rows["batch_size"].help


def test_origins_do_not_count_for_equality_and_survive_copies():
    hparams = registry.resolve_hparams("transformer_tiny")
    assert hparams == TransformerHParams.from_dict(hparams.to_dict())
    assert pickle.loads(pickle.dumps(hparams)).origins() == hparams.origins()
    assert copy.deepcopy(hparams) == hparams


def test_coverage_penalties_leave_unfinished_hypotheses_behind():
    DecodeHParams(coverage_penalty=30)
    DecodeHParams(coverage_penalty=30, max_input_length=2000, coverage_kind="summary")
    with pytest.raises(UserError, match=r"coverage_penalty=30\.0 x max_input_length=2000 is more than 36,000"):
        DecodeHParams(coverage_penalty=30, max_input_length=2000)


# Storage.


def test_json_round_trip():
    for hparams in (
        registry.resolve_hparams("transformer_big"),
        DecodeHParams(beam_size=7),
        WithLists(layers=(9,)),
    ):
        stored = json.loads(json.dumps(hparams.to_dict()))
        assert type(hparams).from_dict(stored) == hparams
        assert StrictParams.from_dict(stored) == hparams


def test_stored_field_that_is_unknown():
    stored = {**HParams().to_dict(), "invented_later": 3}
    with pytest.raises(UserError, match=r"'invented_later'.*newer version"):
        HParams.from_dict(stored)
    with pytest.raises(UserError, match=rf"'layer', which WithLists of the module {__name__} does not have\. Did you"):
        WithLists.from_dict({"layer": 3})


def test_stored_class_that_is_unknown():
    stored = HParams().to_dict()
    with pytest.raises(UserError, match="newer version"):
        HParams.from_dict({**stored, "class": "t2t_ext.invented_later:NewHParams"})
    with pytest.raises(UserError, match="--t2t_usr_dir"):
        HParams.from_dict({**stored, "class": "my_models:MyHParams"})
    with pytest.raises(UserError, match="not a TransformerHParams"):
        TransformerHParams.from_dict(stored)
    with pytest.raises(UserError, match="not a HParams"):
        HParams.from_dict({**stored, "class": "os:system"})


def test_stored_value_that_is_wrong():
    with pytest.raises(UserError, match="batch_size"):
        HParams.from_dict({**HParams().to_dict(), "batch_size": "many"})


def test_field_that_was_not_stored_takes_its_default():
    stored = HParams(batch_size=5).to_dict()
    del stored["ema_decay"]
    assert HParams.from_dict(stored) == HParams(batch_size=5)


# Subclasses.


def test_subclass_that_is_not_decorated():
    class Undecorated(TransformerHParams):
        window: int = hparam(5, "Window.")

    with pytest.raises(TypeError, match=r"window is no field: decorate .*@dataclasses.dataclass"):
        Undecorated()


def test_subclass_that_sets_a_default_without_annotation():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Silent(TransformerHParams):
        hidden_size = 256

    with pytest.raises(TypeError, match="hidden_size has no effect without an annotation"):
        Silent()


@pytest.mark.parametrize(
    "kind",
    [list[int], list, dict[int, int], set[str], Literal["a"], tuple[int, str], tuple[list[int], ...], int | list[int]],
    ids=str,
)
def test_types_that_a_run_would_not_give_back_are_refused(kind):
    field = ("odd", kind, hparam(None, "Of an odd type."))
    odd = dataclasses.make_dataclass("Odd", [field], bases=(StrictParams,), frozen=True, kw_only=True)
    with pytest.raises(TypeError, match=r"Odd\.odd is declared as .*declare it as bool, int, float or str"):
        odd()


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (tuple[int, ...], (1, 2)),
        (tuple[float, float], (0.5, 1.5)),
        (tuple, (1, "a")),
        (dict, {"a": 1}),
        (dict[str, float], {"a": 0.5}),
        (str | None, None),
    ],
)
def test_types_that_a_run_gives_back(kind, value):
    field = ("odd", kind, dataclasses.field(default_factory=lambda: value))
    odd = dataclasses.make_dataclass("Odd", [field], bases=(StrictParams,), frozen=True, kw_only=True)
    assert odd.from_dict(json.loads(json.dumps(odd().to_dict()))).odd == value


@pytest.mark.parametrize(
    ("kind", "default", "text", "value"),
    [
        (int | None, None, "4", 4),
        (Optional[int], 3, "None", None),  # noqa: UP045 - users write it
        (int | str, 1, "4", 4),
        (str | int, 1, "4", 4),
        (int | str, 1, "four", "four"),
        (float | bool, 1.0, "true", True),
        (int | bool, 1, "0", 0),
        (bool | float, 2.0, "1", 1.0),
        (float | None, None, "0.5", 0.5),
        (tuple[int, ...] | None, None, "[3,7]", (3, 7)),
        (tuple[int, ...] | str, "none", "all", "all"),
    ],
)
def test_values_of_several_types(kind, default, text, value):
    field = ("odd", kind, hparam(default, "Of several types."))
    several = dataclasses.make_dataclass("Several", [field], bases=(StrictParams,), frozen=True, kw_only=True)
    found = several().override(f"odd={text}")
    assert (found.odd, type(found.odd)) == (value, type(value))
    assert several.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_a_value_of_none_of_several_types():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Several(StrictParams):
        odd: int | bool | None = hparam(None, "A whole number or a truth value.")

    with pytest.raises(UserError, match="odd=x: odd is an integer or true or false or none"):
        Several().override("odd=x")


def test_subclass_adds_fields_and_rules():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Window(TransformerHParams):
        window: int = hparam(5, "Window.", unit="tokens", minimum=1)

        def validate(self):
            yield from super().validate()
            if self.window > self.hidden_size:
                yield "window is wider than hidden_size"

    assert Window().override("window=6").window == 6
    with pytest.raises(UserError, match=r"num_heads=7.*; window is wider"):
        Window().override("window=1000,num_heads=7")


# Decoding.


@pytest.mark.parametrize(
    ("written", "meant"),
    [("bf16", "mixed_bfloat16"), ("bfloat16", "mixed_bfloat16"), ("fp32", "float32"), ("fp16", "mixed_float16"),
     ("float16", "mixed_float16"), ("float32", "float32"), ("mixed_bfloat16", "mixed_bfloat16")],
)  # fmt: skip
def test_names_of_precisions(written, meant):
    """Other toolkits' names of precisions are accepted, too, and stored as Keras's names."""
    assert resolve_decode_hparams(f"precision={written}").to_dict()["precision"] == meant
    assert TransformerHParams().override(f"precision={written}").precision == meant
    with pytest.raises(UserError, match=r"precision is one of .*mixed_bfloat16"):
        resolve_decode_hparams("precision=bf15")


def test_decode_hparams():
    decode = resolve_decode_hparams("beam_size=2,alpha=1.1,return_beams=true")
    assert (decode.beam_size, decode.alpha, decode.return_beams) == (2, 1.1, True)
    assert resolve_decode_hparams("alpha=0", decode).beam_size == 2
    for other in ("diverse_groups=2", "sampling_method=random"):
        with pytest.raises(UserError, match=f"beam_extends=top is about a beam .* which {other} has not"):
            resolve_decode_hparams(f"beam_extends=top,{other}")
    with pytest.raises(UserError, match=r"Constraints divide the beam .* beam_extends=top"):
        resolve_decode_hparams("beam_extends=top").check_constraints()
    with pytest.raises(UserError, match="early_stopping=heuristic has no effect without sampling_method=argmax"):
        resolve_decode_hparams("early_stopping=heuristic,sampling_method=random")
    with pytest.raises(UserError, match="--decode_hparams: num_hypotheses=5 is more than beam_size=4"):
        resolve_decode_hparams("num_hypotheses=5")
    with pytest.raises(UserError, match=r"unknown key 'beam'.*Known: beam_size, alpha"):
        resolve_decode_hparams("beam=5")
    with pytest.raises(UserError, match="'max_input_size' is not here: use max_input_length"):
        resolve_decode_hparams("max_input_size=5")


def test_a_text_may_hold_spaces_and_equals_signs():
    ignored = "no_repeat_ngram_size=2,no_repeat_ngram_unit=words,no_repeat_ngram_ignore="
    assert resolve_decode_hparams(f"{ignored}. a = b").no_repeat_ngram_ignore == ". a = b"
    with pytest.raises(UserError, match="separate assignments by commas: beam_size=3,alpha=1"):
        resolve_decode_hparams("beam_size=3 alpha=1")


def test_learning_rate_factors_are_those_that_exist():
    source = (pathlib.Path(hyperparameters.__file__).parents[1] / "training" / "schedules.py").read_text()
    for factor in hyperparameters.LEARNING_RATE_FACTORS:
        assert f'"{factor}":' in source


def test_a_check_under_its_old_name_is_refused():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class OldHParams(HParams):
        def wrong(self):
            yield "never asked"

    with pytest.raises(TypeError, match=r"OldHParams\.wrong\(\) is called validate\(\) now"):
        OldHParams()


def test_what_decides_the_best_translation_is_described():
    assert DecodeHParams().describe_search() == "beam_size=4,alpha=0.6,min_length=1"
    assert DecodeHParams(min_length=0).describe_search() == "beam_size=4,alpha=0.6"  # as records of before have it
    changed = DecodeHParams(batch_size=8, num_hypotheses=2, return_beams=False, length_limit="extra", alpha=1.0)
    assert changed.describe_search() == "beam_size=4,alpha=1.0,length_limit=extra,min_length=1"
    drawn = DecodeHParams(sampling_method="random", num_hypotheses=2, batch_size=8)
    assert drawn.describe_search() == "beam_size=4,alpha=0.6,num_hypotheses=2,min_length=1,sampling_method=random"
    longer = DecodeHParams(early_stopping="heuristic", return_beams=True)
    assert longer.describe_search().endswith("early_stopping=heuristic,return_beams=True,min_length=1")
