"""Tests of the flags: grammar, groups, help, flags of other toolkits, exit statuses."""

import contextlib
import dataclasses
import importlib
import itertools
import os
import pathlib
import re
import subprocess
import sys
import tomllib

import pytest

from t2t_ext import registry
from t2t_ext.bin import _flag_groups
from t2t_ext.bin._flags import Flag, FlagParser, configure_threads, keep_compiled_products, registry_text, run_main
from t2t_ext.config.decode import DecodeHParams, resolve_decode_hparams
from t2t_ext.config.generation import GenerationConfig
from t2t_ext.config.hyperparameters import HParams
from t2t_ext.config.strict_params import parse_assignments
from t2t_ext.config.training import TrainingSettings
from t2t_ext.data.generation.preparation import TextPreparation
from t2t_ext.errors import UserError

COMMANDS = {
    "t2t_ext-trainer": "trainer",
    "t2t_ext-datagen": "datagen",
    "t2t_ext-doctor": "doctor",
    "t2t_ext-decoder": "decoder",
    "t2t_ext-exporter": "exporter",
    "t2t_ext-avg-all": "avg_all",
    "t2t_ext-bleu": "bleu",
    "t2t_ext-compare": "compare",
    "t2t_ext-query-server": "query_server",
    "t2t_ext-prepare": "prepare",
    "t2t_ext-translate-all": "translate_all",
    "t2t_ext-experiment": "experiment",
    "t2t_ext-pseudo-references": "pseudo_references",
    "t2t_ext-augment": "augment",
    "t2t_ext-rerank": "rerank",
    "t2t_ext-analyze": "analyze",
}


def words(text):
    return text.split()


# tensor2tensor 1.15: utils/flags.py, bin/t2t_trainer.py and the flags that the other binaries add.
SHARED = words("""
    registry_help model hparams_set problem data_dir hparams_range hparams train_steps eval_early_stopping_metric
    eval_early_stopping_metric_delta eval_early_stopping_steps eval_early_stopping_metric_minimize eval_timeout_mins
    eval_run_autoregressive eval_use_test_set keep_checkpoint_max keep_checkpoint_every_n_hours save_checkpoints_secs
    local_eval_frequency eval_throttle_seconds warm_start_from enable_graph_rewriter tfdbg dbgprofile export_saved_model
    log_device_placement sync worker_job worker_gpu worker_replicas worker_id worker_gpu_memory_fraction ps_gpu
    gpu_order ps_job ps_replicas decode_hparams decode_from_file decode_to_file decode_reference
""")
TRAINER = words("""
    t2t_usr_dir random_seed output_dir master schedule eval_steps generate_data tmp_dir iterations_per_loop
    log_step_count_steps use_tpu use_tpu_estimator tpu_num_shards tpu_job_name tpu_infeed_sleep_secs cloud_tpu_name
    xla_compile xla_jit_level gpu_automatic_mixed_precision profile use_guarantee_const_getter
    optionally_use_dist_strat std_server_protocol inter_op_parallelism_threads intra_op_parallelism_threads
    export_saved_model_api_version cloud_mlengine cloud_mlengine_master_type autotune_objective autotune_maximize
    autotune_max_trials autotune_parallel_trials job-dir
""")
DECODER = words("""
    checkpoint_path keep_timestamp decode_interactive decode_shards score_file decode_in_memory
    disable_grappler_optimizations
""")
T2T_FLAGS = {
    "t2t_ext-trainer": [*SHARED, *TRAINER],
    "t2t_ext-datagen": words("""
        data_dir tmp_dir problem exclude_problems num_shards max_cases only_list random_seed task_id task_id_start
        task_id_end num_concurrent_processes t2t_usr_dir env_problem_max_env_steps env_problem_batch_size registry_help
    """),
    "t2t_ext-decoder": [*SHARED, *TRAINER, *DECODER],
    "t2t_ext-exporter": [*SHARED, *TRAINER, *words("export_as_tfhub export_dir checkpoint_path as_text")],
    "t2t_ext-avg-all": words("""
        model_dir output_dir n min_steps wait_minutes checkpoints num_last_checkpoints prefix output_path problem
    """),
    "t2t_ext-bleu": words("""
        source reference translation translations_dir event_dir bleu_variant tag_suffix min_steps wait_minutes
        report_zero
    """),
    "t2t_ext-compare": [],
    "t2t_ext-doctor": [],
    "t2t_ext-query-server": words("""
        server servable_name problem data_dir t2t_usr_dir inputs_once timeout_secs cloud_mlengine_model_name
        cloud_mlengine_model_version
    """),
    "t2t_ext-prepare": [],
    "t2t_ext-translate-all": words("""
        decoder_command model_dir source translations_dir min_steps wait_minutes beam_size alpha model t2t_usr_dir
        data_dir problem hparams_set
    """),
    "t2t_ext-experiment": [],
    "t2t_ext-pseudo-references": [],
    "t2t_ext-augment": [],
    "t2t_ext-rerank": [],
    "t2t_ext-analyze": [],
}


def trainer_parser():
    parser = FlagParser("t2t_ext-trainer", "Trains.", examples="  t2t_ext-trainer \\\n    --problem=x")
    _flag_groups.add_registry_flags(parser)
    _flag_groups.add_problem_flags(parser)
    _flag_groups.add_hparams_flags(parser)
    _flag_groups.add_training_flags(parser)
    _flag_groups.add_data_generation_flags(parser)
    parser.add(_flag_groups.thread_flags())
    return parser


def parse(*args):
    return trainer_parser().parse_args(list(args))


def build_parser(command):
    return importlib.import_module(f"t2t_ext.bin.{COMMANDS[command]}").build_parser()


# Grammar.


def test_values_and_what_was_given():
    args = parse("--problem=a", "--model", "b", "-hparams_set=c", "--train_steps", "5", "--hparams=a=1,b=x")
    assert (args.problem, args.model, args.hparams_set, args.train_steps) == ("a", "b", "c", 5)
    assert args.hparams == "a=1,b=x"
    assert args.given == {"problem", "model", "hparams_set", "train_steps", "hparams"}
    assert args.local_eval_frequency == 1000  # default


def test_values_that_look_like_flags_or_are_empty():
    assert parse("--eval_early_stopping_metric_delta", "-1.5").eval_early_stopping_metric_delta == -1.5
    assert parse("--hparams=").hparams == ""
    assert parse("--data_dir=--odd").data_dir == "--odd"
    assert parse("--tmp_dir=a=b").tmp_dir == "a=b"


@pytest.mark.parametrize(
    ("given", "value"),
    [
        (["--generate_data"], True),
        (["--nogenerate_data"], False),
        (["--generate_data=true"], True),
        (["--generate_data=False"], False),
        (["--generate_data", "false"], False),
        (["--generate_data=0"], False),
        ([], False),
    ],
)
def test_booleans(given, value):
    args = parse(*given, "--problem=a")
    assert args.generate_data is value
    assert args.problem == "a"


def test_boolean_without_default():
    assert parse().separate_vocab is None
    assert parse("--separate_vocab").separate_vocab is True
    assert parse("--noseparate_vocab").separate_vocab is False


@pytest.mark.parametrize(
    ("given", "settings"),
    [
        ([], {}),
        (["--separate_vocab"], {"joint_vocab": False}),
        (["--noseparate_vocab"], {"joint_vocab": True}),
        (["--vocab_size=0", "--num_merges=0", "--num_shards=0", "--cleaning=", "--subwords="], {}),
        (["--vocab_threshold=0", "--max_length_ratio=0"], {"vocab_threshold": 0, "max_length_ratio": 0.0}),
        (["--text_steps=nfc", "--target_steps=b"], {"source_steps": "nfc", "target_steps": "b"}),
        (["--random_seed=7"], {}),  # a flag of training
    ],
)
def test_flags_that_say_something_about_data_generation(given, settings):
    assert _flag_groups.generation_settings(parse(*given)) == settings


@pytest.mark.parametrize("given", ["--verbosity=loud", "--stderrthreshold=loud"])
def test_a_wrong_value_of_a_flag_for_logging_is_explained(given):
    with pytest.raises(UserError, match=rf"^{given.partition('=')[0]}.*'?loud'?.* --help lists all flags"):
        parse(given)


def test_a_later_flag_wins():
    assert parse("--problem=a", "--problem=b").problem == "b"


def test_assignments_of_a_flag_that_is_repeated_are_joined():
    args = parse("--hparams=hidden_size=8", "--hparams", "filter_size=9", "--hparams=", "--hp_batch_size=3")
    assert args.hparams == "hidden_size=8,filter_size=9,batch_size=3"
    args = parse("--decode_hparams=beam_size=2", "--problem_options=a=1", "--decode_hparams=alpha=1")
    assert (args.decode_hparams, args.problem_options) == ("beam_size=2,alpha=1", "a=1")
    # If several flags set a name, the last value counts; if one flag sets it twice, the parser of its value refuses it.
    args = parse("--hparams=hidden_size=8,encoder_kernel_sizes=3,5,pos=none", "--hparams=hidden_size=16,batch_size=4")
    assert args.hparams == "encoder_kernel_sizes=3,5,pos=none,hidden_size=16,batch_size=4"
    with pytest.raises(UserError, match=r"hidden_size is given twice \(8 and 16\)"):
        parse_assignments(parse("--hparams=hidden_size=8,hidden_size=16", "--hparams=pos=none").hparams)


def test_hp_flags_are_appended_to_hparams():
    args = parse("--hp_batch_size", "3", "--hparams=hidden_size=8", "--hp_optimizer=adam")
    assert args.hparams == "hidden_size=8,batch_size=3,optimizer=adam"
    assert "hparams" in args.given
    with pytest.raises(UserError, match="unknown flag --hp_x"):
        FlagParser("t2t_ext-bleu", "Scores.").parse_args(["--hp_x=1"])


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--train_step=3"], "unknown flag --train_step. Did you mean 'train_steps'.*'[?] t2t_ext-trainer --help"),
        (["--output-dir=x"], "unknown flag --output-dir. Did you mean 'output_dir'"),
        (["--train"], "unknown flag --train"),  # abbreviations are not guessed
        (["run"], "unexpected argument 'run': flags are written --name=value"),
        (["--problem", "a", "b"], "unexpected argument 'b'"),
        (["--problem"], "--problem needs a value"),
        (["--problem", "--model=x"], "--problem needs a value"),
        (["--describe=1"], "--describe takes no value"),
        (["--describe_sgv=x"], "unknown flag --describe_sgv. Did you mean 'describe_svg'"),
        (["--train_steps=x"], "--train_steps expects an integer, not 'x'"),
        (["--train_steps=0"], "--train_steps must be at least 1, not 0"),
        (["--max_length_ratio=x"], "--max_length_ratio expects a number, not 'x'"),
        (["--generate_data=maybe"], "--generate_data expects true or false, not 'maybe'"),
        (["--distribution=two"], "--distribution must be one of 'auto', .*'tpu', not 'two'"),
        (["--worker_gpu=8"], "--worker_gpu is no flag of t2t_ext-trainer: --distribution=mirrored"),
        (["--schedule", "train"], "--schedule is no flag of t2t_ext-trainer"),
        (["--nosync"], "--nosync is no flag of t2t_ext-trainer: training is always synchronous"),
    ],
)
def test_flags_that_are_wrong(args, expected):
    with pytest.raises(UserError, match=expected):
        parse(*args)


@pytest.mark.parametrize(
    "command",
    [
        name
        for name in COMMANDS
        if name.removeprefix("t2t_ext-") not in ("trainer", "datagen", "doctor", "pseudo-references", "augment")
    ],
)
def test_commands_that_list_no_names_say_which_one_does(command):
    with pytest.raises(UserError, match=f"no flag of {command}: use t2t_ext-trainer --registry_help"):
        build_parser(command).parse_args(["--registry_help"])


@pytest.mark.parametrize(
    ("command", "args", "answer"),
    [
        ("t2t_ext-trainer", ["--source_view=gca"], '--hparams="source_view=gca"'),
        ("t2t_ext-trainer", ["--batch_size", "3"], '--hparams="batch_size=3"'),
        ("t2t_ext-trainer", ["--dc-encoder-layers"], '--hparams="dc_encoder_layers=VALUE"'),
        ("t2t_ext-trainer", ["--beam_size=4"], '--decode_hparams="beam_size=4"'),
        ("t2t_ext-decoder", ["--batch_size=4"], '--decode_hparams="batch_size=4"'),
        ("t2t_ext-exporter", ["--alpha=1"], '--decode_hparams="alpha=1"'),
        ("t2t_ext-rerank", ["--beam_size=4"], '--decode_hparams="beam_size=4"'),
    ],
)
def test_an_hparam_that_is_given_as_a_flag(command, args, answer):
    with pytest.raises(UserError, match=f"{args[0].partition('=')[0]} is no flag of {command}: use {answer}"):
        build_parser(command).parse_args(args)


def test_all_wrong_flags_in_one_error():
    with pytest.raises(UserError) as raised:
        parse("--worker_gpu", "8", "--bogus=1", "stray")
    assert all(word in str(raised.value) for word in ("--worker_gpu", "--bogus", "'stray'"))


def test_required_flags():
    parser = FlagParser("t2t_ext-decoder", "Decodes.", _flag_groups.RUN_FLAGS)
    with pytest.raises(UserError, match="required: --output_dir"):
        parser.parse_args([])
    shown = " ".join(parser.format_help().split())
    assert "together as an ensemble. (required)" in shown
    assert shown.count("(required)") == 1


def test_types():
    parser = FlagParser("command", "Does it.")
    group = parser.group("Numbers")
    parser.add({"Numbers": {"count": Flag("Count.", 3), "rate": Flag("Rate.", 0.5)}})
    parser.add({"Numbers": {"least": Flag("Least.", 3, minimum=-1)}})
    args = parser.parse_args(["--count=4", "--rate=1", "--least=-1"])
    assert (args.count, args.rate, args.least) == (4, 1.0, -1)
    assert isinstance(args.rate, float)
    assert parser.group("Numbers") is group


def test_problem_options_are_those_given():
    args = parse("--train_source=a.txt", "--source_language=de", "--problem=translate_parallel_text")
    assert _flag_groups.problem_options(args) == {"train_source": "a.txt", "source_language": "de"}


@pytest.mark.parametrize("model", ["--subword_model=m.model", "--vocab_from=RUN"])
def test_text_steps_beside_a_model_are_called_as_typed(model):
    args = build_parser("t2t_ext-datagen").parse_args(["--problem=p", "--text_steps=nfc", model])
    with pytest.raises(UserError, match="--text_steps says how text is prepared, but a model is given"):
        _flag_groups.generation_settings(args)


@pytest.mark.parametrize("flag", ["text_steps", "source_steps"])
def test_a_misspelt_step_names_the_flag_that_was_given(flag, tmp_path):
    args = [f"--{flag}=moses", "--problem=translate_ende_cldr", f"--data_dir={tmp_path}", f"--tmp_dir={tmp_path}"]
    flags = build_parser("t2t_ext-datagen").parse_args(args)
    with pytest.raises(UserError, match=f"--{flag}=moses: there is no step 'moses'.* or 'moses_tokenize'"):
        TextPreparation.of(registry.problem(flags.problem), GenerationConfig(**_flag_groups.generation_settings(flags)))


# Help.


def test_help(capsys):
    for args in (["--help"], ["-h"], ["--problem=x", "--help", "--worker_gpu=1"]):
        with pytest.raises(SystemExit) as raised:
            parse(*args)
        assert raised.value.code == 0
    text = capsys.readouterr().out
    for expected in (
        "Training:",
        "--train_steps=STEPS",
        "[250000]",
        "--[no]generate_data",
        "Examples:\n  t2t_ext-trainer",
    ):
        assert expected in text
    assert text.index("Information:") > text.index("Machine:")


def test_version(capsys):
    with pytest.raises(SystemExit) as raised:
        parse("--version")
    assert raised.value.code == 0
    assert capsys.readouterr().out.startswith("t2t_ext-trainer 0.")


def test_registry_help_needs_no_required_flag_and_lists_the_users_names(tmp_path, capsys, monkeypatch):
    from t2t_ext import registry
    from t2t_ext.config import user_directory as _user_directory

    monkeypatch.setattr(_user_directory, "_loaded", [])
    monkeypatch.setattr(registry._hparams, "_entries", dict(registry._hparams._entries))
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "my_registry_help.py").write_text(
        "from t2t_ext import registry\nfrom t2t_ext.config.hyperparameters import HParams\n"
        "@registry.register_hparams\ndef a_users_set():\n    return HParams()\n"
    )
    parser = trainer_parser()
    parser.add({"What": {"needed=NAME": Flag("Needed.", required=True)}})
    with pytest.raises(SystemExit) as raised:
        parser.parse_args(["--registry_help", f"--t2t_usr_dir={tmp_path}"])
    assert raised.value.code == 0
    text = capsys.readouterr().out
    assert "a_users_set  (--t2t_usr_dir)" in text
    for name in ("translate_ende_cldr", "transformer_base", "    transformer\n", "NAME_rev"):
        assert name in text
    sys.modules.pop("my_registry_help")


def test_registry_text_has_every_name():
    from t2t_ext import registry

    words = registry_text().split()
    assert {*registry.problem_names(), *registry.model_names(), *registry.hparams_names()} <= set(words)


def test_registry_text_says_what_each_model_is():
    from t2t_ext import registry

    lines = registry_text().splitlines()
    for name in registry.model_names():
        below = lines[lines.index(f"    {name}") + 1]
        assert below == f"        {registry.model_summary(name)}"
        assert below.endswith(".")


@pytest.mark.parametrize("flag", ["--help", "--registry_help"])
def test_trainer_answers_fast_and_without_tensorflow(flag):
    code = (
        "import sys\nfrom t2t_ext.bin.trainer import main\n"
        f"try:\n    main(['{flag}'])\nexcept SystemExit as stop:\n    assert not stop.code\n"
        "assert not {'tensorflow', 'keras'} & set(sys.modules)\n"
    )
    times = []
    for _ in range(3):
        # Processor time, since wall-clock time depends on the load of the machine.
        before = os.times()
        subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL, timeout=60)
        after = os.times()
        times.append(after.children_user + after.children_system - before.children_user - before.children_system)
    assert min(times) < 1.0


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command, capsys):
    with pytest.raises(SystemExit) as raised:
        build_parser(command).parse_args(["--help"])
    assert raised.value.code == 0
    assert f"usage: {command} " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("t2t_ext-decoder", "best, averaged, a step or a path; by default the latest. A,B: one"),
        ("t2t_ext-exporter", "best, averaged, a step or a path; by default the latest. A,B: one"),
        ("t2t_ext-decoder", 'the defaults include "beam_size=4,alpha=0.6,batch_size=32". For all names see the '),
        ("t2t_ext-rerank", 'the defaults include "beam_size=10,alpha=0.6,batch_size=32". For all names see the '),
        ("t2t_ext-decoder", "writes log-probability, tokens (EOS included) and score, separated by tabs"),
        ("t2t_ext-decoder", "a fourth column l2r (the default) or r2l"),
        ("t2t_ext-decoder", "q or Ctrl-D leaves. [false] With the input: --prefix_file=FILE"),
        ("t2t_ext-rerank", "data and score it. With the input: --source_tag=<TAG>"),
        ("t2t_ext-experiment", " --list List the recipes"),
    ],
)
def test_what_help_says(command, shown):
    assert shown in " ".join(build_parser(command).format_help().split())


def test_the_doctor_has_no_flags_of_shards():
    for name in ("num_shards", "bpe_dropout", "segmentations"):
        with pytest.raises(UserError, match=f"--{name} is .*it is a flag of t2t_ext-datagen, "):
            build_parser("t2t_ext-doctor").parse_args([f"--{name}=3"])


def test_each_analysis_has_a_line_of_the_help(monkeypatch):
    from t2t_ext.bin.analyze import ANALYSES

    monkeypatch.setenv("COLUMNS", "200")
    lines = build_parser("t2t_ext-analyze").format_help().splitlines()
    assert {f"    {name}: {words}" for name, (_, words) in ANALYSES.items()} <= set(lines)


# tensor2tensor's flags.


@pytest.mark.parametrize("command", COMMANDS)
def test_every_flag_of_tensor2tensor_is_taken_or_answered(command):
    parser = build_parser(command)
    taken = set(parser.names())
    assert not set(parser.replaced()) & taken
    for name in T2T_FLAGS[command]:
        if name in taken:
            continue
        for args in ([f"--{name}=1"], [f"--{name}", "1"], [f"--{name}"]):
            with pytest.raises(UserError, match=f"--{name} is no flag of {command}: ") as raised:
                parser.parse_args(args)
            assert "unexpected argument" not in str(raised.value)


def _flags_of_fairseq():
    """Returns the flags of fairseq-train and fairseq-generate that the table in the docs lists."""
    page = (pathlib.Path(__file__).parents[3] / "docs" / "from_tensor2tensor.md").read_text()
    rows = re.findall(r"^\| (.+?) \|", page.partition("| fairseq |")[2].partition("\n## ")[0], re.MULTILINE)
    return sorted({flag for row in rows for flag in re.findall(r"--([a-z0-9-]+)", row)})


def test_flags_of_fairseq_that_the_docs_map_are_answered():
    parsers = [build_parser(command) for command in ("t2t_ext-trainer", "t2t_ext-decoder")]
    found = _flags_of_fairseq()
    assert {"arch", "max-update", "lr", "beam", "remove-bpe"} <= set(found)
    for flag in found:
        said = []
        for parser in parsers:
            with pytest.raises(UserError) as raised:
                parser.parse_args([f"--{flag}=1"])
            said.append(str(raised.value))
        assert any(f"--{flag} is no flag of" in text for text in said), said


@pytest.mark.parametrize(
    ("command", "flag", "answer"),
    [
        ("trainer", "--arch=x", "--model"),
        ("trainer", "--save-dir=x", "--output_dir"),
        ("trainer", "--optimizer=adam", '--hparams="optimizer=adam"'),
        ("trainer", "--clip-norm=0.1", "clip_grad_norm"),
        ("trainer", "--label-smoothing=0.1", '--hparams="label_smoothing=0.1"'),
        ("trainer", "--no-epoch-checkpoints", "--keep_checkpoint_max"),
        ("trainer", "-s=de", "--problem"),
        ("datagen", "--trainpref=x", "--train_source"),
        ("decoder", "--lenpen=1", "length_penalty=len_power"),
        ("decoder", "--max-tokens=1", "in sentences"),
        ("decoder", "--source-lang=de", "stored in the run"),
        ("avg_all", "--num-epoch-checkpoints=5", "--n"),
        ("trainer", "--model_type=Transformer", "--hparams_set=transformer_base"),
        ("trainer", "--auto_config", "leave it out"),
        ("trainer", "--max-tokens=4096", "the longest pair of the data is --max_tokens of t2t_ext-datagen"),
        ("trainer", "--dev_lines=9", "a flag of t2t_ext-datagen, which makes the data"),
        ("trainer", "--overwrite", "give another --output_dir"),
        *[("doctor", f"--{name}=9", "a flag of t2t_ext-datagen") for name in _flag_groups._DATAGEN_ALONE],
        ("trainer", "--checkpoint_path=x", "--warm_start_from"),
        ("trainer", "--save_checkpoints_steps=5", "--local_eval_frequency"),
        ("trainer", "--length_penalty=0.6", "alpha=X"),
        ("datagen", "--train_features_file=x", "--train_source"),
        ("datagen", "--max_step=5", "it is for training"),
        ("decoder", "--features_file=x", "--decode_from_file"),
        ("decoder", "--predictions_file=x", "--decode_to_file"),
        ("decoder", "--config=x", "--output_dir=RUN"),
        ("decoder", "--beam_width=4", "beam_size=N"),
        ("decoder", "--length_penalty=0.6", "alpha=X"),
        ("exporter", "--export_format=x", "--format"),
        ("avg-all", "--max_count=3", "--n"),
    ],
)
def test_flags_of_fairseq_and_opennmt_are_answered(command, flag, answer):
    parser = build_parser(f"t2t_ext-{command.replace('_', '-')}")
    with pytest.raises(UserError, match=r"is no flag of t2t_ext-.*" + re.escape(answer)):
        parser.parse_args([flag])


def _names_of_opennmt():
    """Returns OpenNMT-tf's flags and YAML names that the table in the docs lists, and its words after onmt-main."""
    page = (pathlib.Path(__file__).parents[3] / "docs" / "from_tensor2tensor.md").read_text()
    rows = re.findall(r"^\| (.+?) \|", page.partition("| OpenNMT-tf |")[2], re.MULTILINE)
    text = " ".join(quoted for row in rows for quoted in re.findall("`(.+?)`", row))
    commands = set(re.findall(r"onmt-main (\w+)", text))
    return sorted({*re.findall(r"--(\w+)|\b([a-z]+(?:_[a-z]+)+)", text)}), sorted(commands)


def test_names_of_opennmt_that_the_docs_map_are_answered():
    parsers = [build_parser(f"t2t_ext-{command}") for command in ("trainer", "decoder", "avg-all")]
    found, commands = _names_of_opennmt()
    names = {name for pair in found for name in pair if name} - set(commands)
    assert {"model_type", "config", "auto_config", "beam_width", "average_loss_in_time"} <= names
    assert {"train", "eval", "infer", "export", "average_checkpoints"} <= set(commands)
    for name in names:
        said = []
        for parser in parsers:
            with contextlib.suppress(SystemExit):
                try:
                    parser.parse_args([f"--{name}=1"])
                except UserError as error:
                    said.append(str(error))
        assert any(f"--{name} is no flag of" in text for text in said), said
    for parser, command in itertools.product(parsers, commands):
        with pytest.raises(UserError, match=f"{command} is no command here: .*t2t_ext-"):
            parser.parse_args([command])


@pytest.mark.parametrize(
    ("kind", "given", "answer"),
    [
        (HParams, "beam_width=4", "beam_size of --decode_hparams"),
        (HParams, "average_loss_in_time=true", "mean over the target's tokens"),
        (DecodeHParams, "beam_width=4", "the name is beam_size"),
    ],
)
def test_names_of_opennmt_in_hparams_are_answered(kind, given, answer):
    with pytest.raises(UserError, match=re.escape(answer)):
        kind().override(given)


def test_answers_are_sentences():
    for command in COMMANDS:
        for name, text in FlagParser(command, "").replaced().items():
            assert text.endswith("."), name
            assert "\n" not in text, name


def test_input_is_not_said_to_be_in_memory():
    """The answers on decode_in_memory agree with docs/decoding.md and the decoder: input is never all in memory."""
    with pytest.raises(UserError, match=r"decode_in_memory is no flag .* never all in memory"):
        build_parser("t2t_ext-decoder").parse_args(["--decode_in_memory=True"])
    with pytest.raises(UserError, match=r"decode_in_memory' is not here: .* never all in memory"):
        resolve_decode_hparams("decode_in_memory=true")


def test_tables_are_installed():
    root = pathlib.Path(__file__).parents[3]
    packages = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    for folder in ("bin", "problems", "recipes", "t2t_ext/config"):
        assert list((root / folder).glob("*.toml")), folder
        assert "*.toml" in packages[f"t2t_ext.{pathlib.Path(folder).name}"]


@pytest.mark.parametrize("command", COMMANDS)
def test_answers_name_flags_that_exist(command):
    """The answer to a flag of another toolkit names only flags that exist."""
    known = {name: set(build_parser(name).names()) for name in COMMANDS}
    everything = set().union(*known.values()) | {"logdir", "help"}
    for name, text in build_parser(command).replaced().items():
        for flag in re.findall(r"--(\w+)", text):
            assert flag in everything, f"--{name}: {text}"


# Running a command.


def test_exit_statuses(capsys):
    def wrong():
        raise UserError("what is wrong\n  and what to do.")

    def interrupted():
        raise KeyboardInterrupt

    assert run_main(lambda: None) == 0
    assert run_main(lambda: 7) == 7
    assert run_main(wrong) == 2
    assert run_main(interrupted) == 130
    assert capsys.readouterr().err == "error: what is wrong and what to do.\ninterrupted\n"
    with pytest.raises(ZeroDivisionError):
        run_main(lambda: 1 // 0)


def test_arguments_without_dashes():
    parser = FlagParser("t2t_ext-compare", "Compares.")
    parser.take_arguments("files", "What is compared.", metavar="FILE")
    parser.add({"Input": {"reference=FILE": "The reference.", "fast": "Whether to hurry."}})
    flags = parser.parse_args(["a.txt", "--reference", "r.txt", "-", "--fast", "b=c.txt"])
    assert (flags.files, flags.reference, flags.fast) == (["a.txt", "-", "b=c.txt"], "r.txt", True)
    assert flags.given == {"reference", "fast"}
    assert parser.parse_args([]).files == []
    assert "Arguments:\n  FILE: What is compared." in parser.format_help()
    with pytest.raises(UserError, match=r"unknown flag --referense\. Did you mean 'reference'"):
        parser.parse_args(["a.txt", "--referense=x"])


def test_broken_pipe():
    code = "from t2t_ext.bin._flags import run_main\nimport sys\nsys.exit(run_main(lambda: print('x\\n' * 10**6)))"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=60) == 141
        assert process.stderr.read() == b""


def test_configure_threads(monkeypatch):
    for name in ("TF_NUM_INTEROP_THREADS", "TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, "5")
    configure_threads(0, 0)
    assert os.environ["TF_NUM_INTEROP_THREADS"] == "5"
    configure_threads(2, 1)
    assert os.environ["TF_NUM_INTEROP_THREADS"] == "2"
    assert os.environ["TF_NUM_INTRAOP_THREADS"] == os.environ["OMP_NUM_THREADS"] == "1"


@pytest.mark.parametrize("prefix", ["ONEDNN", "DNNL"])
def test_onednn_keeps_more_kernels_than_by_default_unless_the_user_says_how_many(monkeypatch, prefix):
    for each in ("ONEDNN", "DNNL"):
        monkeypatch.delenv(f"{each}_PRIMITIVE_CACHE_CAPACITY", raising=False)
    with monkeypatch.context() as users:
        users.setenv(f"{prefix}_PRIMITIVE_CACHE_CAPACITY", "7")
        keep_compiled_products()
        assert os.environ.get("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "7") == "7"
    monkeypatch.setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "")  # so that monkeypatch restores it after the test
    monkeypatch.delenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY")
    keep_compiled_products()
    assert int(os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"]) > 1024


def test_keras_imports_no_matplotlib_in_a_command_and_others_still_can():
    code = (
        "from t2t_ext.bin._flags import start_tensorflow\nimport gc, sys\nstart_tensorflow()\n"
        "assert gc.isenabled() and gc.get_freeze_count() > 100_000\nimport keras\n"
        "assert 'matplotlib' not in sys.modules\nimport matplotlib.pyplot as plt\nassert plt.figure"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_every_setting_of_a_run_is_a_flag_with_the_same_default():
    args = parse()
    for field in dataclasses.fields(TrainingSettings):
        assert hasattr(args, field.name), field.name
        assert getattr(args, field.name) == field.default, field.name


def test_the_home_directory_in_paths(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    given = parse("--data_dir=~/data", "--hparams=optimizer=~/x", "--warm_start_from", "a~,~/run")
    assert (given.data_dir, given.hparams) == ("/home/me/data", "optimizer=~/x")
    assert given.warm_start_from == "a~,/home/me/run"


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e400"])
def test_a_number_is_finite(value):
    parser = FlagParser("t2t_ext-compare", "Compares.", {"Input": {"scale": Flag("How much.", 1.0)}})
    with pytest.raises(UserError, match="--scale must be finite"):
        parser.parse_args([f"--scale={value}"])
