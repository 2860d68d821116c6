"""Tests a table of wrong inputs: each command must print the given message on one line and change nothing."""

import argparse
import importlib

import pytest
from hostile_world import DATA, RUN

from t2t_ext.bin import analyze
from t2t_ext.bin._flags import FlagParser

COMMANDS = (
    "augment", "avg_all", "bleu", "compare", "datagen", "decoder", "doctor", "experiment", "exporter", "prepare",
    "pseudo_references", "query_server", "rerank", "trainer", "translate_all",
)  # fmt: skip
_TEXTS = "--reference=WORLD/text.txt"
_RUN = f"--output_dir=WORLD/{RUN}"
_DECODE = (_RUN, "--decode_from_file=WORLD/text.txt", "--decode_to_file=OUT/out")
_RECIPE = ("--recipe=own", "--recipes_dir=WORLD/recipes", "--work_dir=OUT/work", "--dry_run")
_OWN = (
    "--problem=translate_parallel_text", "--train_source=WORLD/train.source", "--train_target=WORLD/train.target",
    "--dev_source=WORLD/dev.source", "--dev_target=WORLD/dev.target", "--data_dir=OUT/data", "--num_processes=1",
)  # fmt: skip
_NEW = ("--model=transformer", "--hparams_set=transformer_test", f"--data_dir=WORLD/{DATA}", "--output_dir=OUT/run")
LONG = "x" * 5000
DIGITS = "9" * 300
HUGE = "9" * 400  # more than the maximum of a float

# Command, flags, expected part of the message.
CASES = [
    # Files that are not what they should be.
    ("bleu", (_TEXTS, "--translation=WORLD/missing.txt"), "missing.txt"),
    ("bleu", (_TEXTS, "--translation=WORLD"), "WORLD"),
    ("bleu", (_TEXTS, f"--translation={LONG}"), "name too long"),
    ("bleu", (_TEXTS, f"--translation=WORLD/{'d' * 300}/{'e' * 300}"), "name too long"),
    ("bleu", (_TEXTS, "--translation=a\0b"), "NUL character"),
    ("bleu", (_TEXTS, "--translation=WORLD/empty.txt"), "empty.txt"),
    ("bleu", (_TEXTS, "--translation=WORLD/twice.sgm"), "is there twice"),
    ("bleu", (_TEXTS, "--translation=WORLD/text.txt", f"--json={LONG}"), "name too long"),
    ("bleu", (_TEXTS, "--translation=WORLD/text.txt", "--json=WORLD/missing/a.json"), "missing"),
    ("bleu", (_TEXTS, "--translation=WORLD/text.txt", "--json=WORLD"), "is a directory"),
    ("compare", (_TEXTS, "WORLD/missing.txt"), "missing.txt"),
    ("compare", (_TEXTS, "WORLD/list.jsonl", "WORLD/text.txt", "--names=a"), "--names"),
    ("decoder", (_RUN, "--decode_from_file=WORLD/missing.txt"), "missing.txt"),
    ("decoder", (_RUN, f"--decode_from_file={LONG}"), "name too long"),
    ("decoder", ("--output_dir=WORLD/missing", "--decode_from_file=WORLD/text.txt"), "no run directory"),
    ("decoder", (f"--output_dir={LONG}", "--decode_from_file=WORLD/text.txt"), "name too long"),
    ("decoder", ("--output_dir=a\0b", "--decode_from_file=WORLD/text.txt"), "a\0b"),
    ("decoder", ("--output_dir=WORLD/text.txt", "--decode_from_file=WORLD/text.txt"), "is a file, not a run directory"),
    ("decoder", (f"--output_dir=WORLD/{RUN},WORLD/{DATA}", "--decode_from_file=WORLD/text.txt"), "not a run directory"),
    ("prepare", ("--subword_model=WORLD/text.txt", "--describe"), "is not a SentencePiece model"),
    ("prepare", ("--export_dir=WORLD/text.txt", "--describe"), "no exported model"),
    ("datagen", (*_OWN, "--train_source=WORLD/missing"), "missing"),
    ("datagen", (*_OWN, "--train_source=WORLD/empty.txt", "--train_target=WORLD/empty.txt"), "empty.txt"),
    ("datagen", (*_OWN, f"--data_dir={LONG}"), "name too long"),
    ("doctor", (*_OWN[:3], "--train_source=WORLD/missing"), "missing"),
    ("trainer", (*_NEW, "--problem=translate_parallel_text", "--data_dir=WORLD/missing"), "t2t_ext-datagen"),
    ("trainer", (*_NEW, "--problem=translate_parallel_text", f"--output_dir={LONG}"), "name too long"),
    ("trainer", (*_NEW, "--problem=translate_parallel_text", "--output_dir=WORLD/text.txt"), "is a file"),
    ("experiment", (*_RECIPE, "--recipes_dir=WORLD/missing"), "no such directory"),
    ("experiment", (*_RECIPE, "--recipes_dir=WORLD/data"), "no recipe"),
    # Names that do not exist.
    ("trainer", (*_NEW, "--problem=translate_ende_wmtt"), "Unknown problem"),
    ("trainer", (*_NEW, "--problem=translate_parallel_text", "--model=transformr"), "Did you mean 'transformer'"),
    ("trainer", (*_NEW, "--problem=translate_parallel_text", "--hparams_set=transformer_tset"), "transformer_test"),
    ("trainer", (*_NEW, "--problem=summarize_text_rev"), "not a translation problem"),
    ("decoder", (*_DECODE, "--checkpoint_path=bset"), "Did you mean 'best'"),
    ("decoder", (*_DECODE, "--checkpoint_path=best"), "It has checkpoints: model.ckpt-00000300"),
    ("decoder", (*_DECODE, "--checkpoint_path=12345"), "no checkpoint '12345'"),
    ("decoder", (*_DECODE, f"--checkpoint_path={DIGITS}"), "name too long"),
    ("experiment", ("--recipe=own2", *_RECIPE[1:]), "no recipe 'own2'"),
    ("experiment", (*_RECIPE, "--redo=foo"), "'foo' is no stage"),
    ("experiment", (*_RECIPE, "--train=output_dir=/elsewhere"), "output_dir"),
    ("experiment", (*_RECIPE, "--train=trian_steps=3"), "trian_steps"),
    ("experiment", (*_RECIPE, "--datagen=data_dir=/elsewhere"), "data_dir"),
    ("experiment", (*_RECIPE, "--augment=output_data_dir=/elsewhere"), "output_data_dir"),
    ("experiment", (*_RECIPE, "--augment=models=2"), "makes no augmented data"),
    ("experiment", (*_RECIPE, "--hparams=hidden_size=nan"), "hidden_size"),
    ("experiment", (*_RECIPE, "--scale=0"), "--scale"),
    ("analyze", ("atention", _RUN), "no analysis 'atention'"),
    ("analyze", (), "analysis comes first"),
    ("bleu", (_TEXTS, "--translation=WORLD/text.txt", "--metrics=blue"), "Did you mean 'bleu'"),
    ("bleu", (_TEXTS, "--translation=WORLD/text.txt", "--protocol=sacreblue"), "sacrebleu"),
    ("bleu", (_TEXTS, "--translation=WORLD/text.txt", "--tokenize=13b"), "13b"),
    # Values that contradict each other or make no sense.
    ("trainer", (*_NEW, "--problem=translate_parallel_text", "--tpu=grpc://a", "--distribution=one_device"), "--tpu"),
    ("datagen", (*_OWN, "--bpe_codes="), "--bpe_codes"),
    ("datagen", (*_OWN, "--subwords=subword_nmt", "--bpe_codes=WORLD/empty.txt"), "empty.txt"),
    ("datagen", (*_OWN, "--vocab_size=1"), "vocab_size"),
    ("datagen", (*_OWN, "--num_shards=100000000"), "at most 99,999"),
    ("datagen", (*_OWN, "--max_length_ratio=nan"), "--max_length_ratio must be finite"),
    ("datagen", (*_OWN, "--train_weights=nan"), "from 0 to 1,000"),
    ("datagen", (*_OWN, f"--vocab_size={DIGITS}"), "... (300 characters)"),
    ("datagen", (*_OWN, f"--vocab_size={HUGE}"), "... (400 characters)"),
    ("bleu", (_TEXTS, "--translation=WORLD/text.txt", f"--n_bootstrap={HUGE}"), "at most 100,000"),
    ("decoder", (*_DECODE, "--decode_hparams=beam_size=100000000"), "at most 1,000"),
    ("decoder", (*_DECODE, f"--decode_hparams=beam_size={DIGITS}"), "at most 1,000"),
    ("decoder", (*_DECODE, f"--decode_hparams=beam_size={DIGITS * 20}"), "... (6,000 characters)"),
    ("decoder", (*_DECODE, "--decode_hparams=alpha=nan"), "alpha is a number"),
    ("decoder", (*_DECODE, "--decode_hparams=alpha=1e999"), "must be finite"),
    ("decoder", (*_DECODE, "--ensemble_weights=nan"), "must be finite"),
    ("decoder", (*_DECODE, "--ensemble_weights=1,1"), "2 weights for 1 members"),
    ("decoder", (*_DECODE, "--alignment_file=OUT/a", "--alignment_heads=x"), "--alignment_heads"),
    ("decoder", (*_DECODE, "--score_file=WORLD/text.txt"), "exclude each other"),
    ("trainer", (_RUN, "--explain", "--hparams=hidden_size=1000000000"), "at most 65,536"),
    ("trainer", (_RUN, "--explain", "--hp_learning_rate=nan"), "learning_rate is a number"),
    ("trainer", (*_NEW, "--problem=translate_parallel_text", "--eval_early_stopping_metric_delta=nan"), "finite"),
    ("bleu", (_TEXTS, "--translation=WORLD/text.txt", "--n_bootstrap=1000000000000"), "at most 100,000"),
    ("compare", (_TEXTS, "WORLD/text.txt", "--n_trials=99999999999"), "at most 1,000,000"),
    ("query_server", ("--server=localhost:1", "--servable_name=m", "--timeout_secs=nan"), "must be finite"),
    ("query_server", ("--server=localhost:1", "--servable_name=m", "--timeout_secs=1e300"), "at most"),
    ("query_server", ("--server=[::1:80", "--servable_name=m", "--inputs_once=a"), "no address"),
    ("query_server", ("--server=http://[::1", "--servable_name=m", "--inputs_once=a"), "no address"),
    ("query_server", ("--server=localhost:99999999", "--servable_name=m", "--inputs_once=a"), "no address"),
    ("query_server", ("--server=", "--servable_name=m", "--inputs_once=a"), "no address"),
    ("translate_all", (_RUN, "--decode_from_file=WORLD/text.txt", "--wait_minutes=inf"), "must be finite"),
    ("translate_all", (_RUN, "--decode_from_file=WORLD/text.txt", "--wait_minutes=-1"), "at least 0"),
    (
        "rerank",
        (f"--l2r=WORLD/{RUN}", f"--r2l=WORLD/{RUN}", "--decode_from_file=WORLD/text.txt"),
        "target_direction=r2l",
    ),
    ("rerank", (f"--l2r=WORLD/{RUN}", f"--r2l=WORLD/{RUN}", "--k=100000"), "at most 1,000"),
    ("avg_all", ("--output_dir=WORLD/missing",), "no run directory"),
    ("avg_all", (_RUN, "--n=0"), "at least 1"),
    ("exporter", (_RUN, "--export_dir=WORLD/text.txt"), "is a file"),
    ("exporter", (_RUN, "--format=keras_hub", "--alignment_layer=-1"), "--alignment_layer has no effect"),
    ("trainer", (_RUN, "--describe", "--vocab_size=300"), "--vocab_size=300"),
    ("exporter", (_RUN, "--export_dir=OUT/x", "--export_version=99999999999999999999"), "at most"),
    (
        "pseudo_references",
        ("--problem=translate_parallel_text", f"--l2r=WORLD/{RUN}", "--r2l=WORLD/missing", f"--data_dir=WORLD/{DATA}"),
        "missing",
    ),
    ("prepare", (_RUN, "--side=middle"), "must be one of"),
    ("prepare", (), "nothing says whose text"),
    # Command lines.
    ("bleu", ("--translatoin=a",), "Did you mean 'translation'"),
    ("bleu", (f"--{LONG}=a",), "unknown flag"),
    ("bleu", ("--flagfile=WORLD/missing",), "--flagfile"),
    ("bleu", ("--flagfile=WORLD/not_utf8.txt",), "not UTF-8"),
    ("bleu", ("\udcff",), "unexpected argument"),
    ("bleu", (_TEXTS, "--translation=\udcff"), "cannot be read"),
    ("decoder", (*_DECODE, "--decode_hparams=" + "beam_size=4," * 1000), "given twice"),
    ("decoder", (*_DECODE, "--decode_hparams=" + "[" * 10_000), "--decode_hparams"),
    ("trainer", (_RUN, "--explain", "--verbosity=nan"), "verbosity"),
    ("trainer", (_RUN, "--explain", "--log_dir=WORLD/text.txt"), "--log_dir"),
]


@pytest.mark.parametrize(("command", "flags", "said"), CASES, ids=lambda value: str(value)[:60] if value else "")
def test_what_is_said(world, command, flags, said):
    outcome = world.run(command, *flags)
    assert world.fault(outcome) == ""
    assert outcome.status == 2
    assert said.replace("WORLD", str(world.folder)) in outcome.err
    assert len(outcome.err) < 5000


def number_flags(parser: FlagParser) -> list[str]:
    """Returns the flags of a parser that accept only numbers."""
    found = []
    for action in parser._actions:
        if isinstance(action, argparse._StoreAction) and action.type is not None:
            with_text = True
            try:
                action.type("no number")
            except (argparse.ArgumentTypeError, ValueError):
                with_text = False
            found += [] if with_text else [action.option_strings[-1]]
    return found


@pytest.mark.parametrize("command", [*COMMANDS, *(f"analyze {name}" for name in analyze.ANALYSES)])
def test_numbers_that_are_none(world, command):
    """For NaN, infinities, huge numbers and texts, every flag of every command that takes a number names itself."""
    name, *analysis = command.split()
    module = analyze if analysis else importlib.import_module(f"t2t_ext.bin.{name}")
    flags = number_flags(module.build_parser(*analysis))
    faults = []
    for flag in flags:
        for value in ("nan", "inf", "-inf", "1e999", "-1e18", "1e18", "9" * 30, "9" * 5000, "x", "--", "0x10"):
            outcome = world.run(name, *analysis, f"{flag}={value}")
            fault = outcome.fault() or ("" if outcome.status == 2 and flag in outcome.err else outcome.err[-300:])
            faults += [f"{flag}={value[:20]}: {fault}"] if fault else []
    assert faults == []
    assert world.fault(world.run(name, "--version")) == ""
