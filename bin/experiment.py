"""t2t_ext-experiment: a published result as one command."""

import argparse
import importlib
import pathlib
from collections.abc import Sequence
from typing import Any

from t2t_ext.bin._flags import Flag, FlagParser, FlagTable, command, say
from t2t_ext.errors import UserError, suggest
from t2t_ext.io import log

_STAGES = ("data", "pseudo", "train", "average", "score", "compare", "report")
_EXAMPLES = """\
  t2t_ext-experiment --list
  t2t_ext-experiment --recipe=cldr_ende_transformer_tiny --seeds=2 --work_dir=W       # needs no data; some minutes
  t2t_ext-experiment --recipe=he2018_table1_deen_baseline --work_dir=W --tmp_dir=RAW --dry_run
  t2t_ext-experiment --recipe=he2018_table1_deen_baseline --work_dir=W --tmp_dir=RAW --until=data
  t2t_ext-experiment --recipe=synchronous_pipeline --problem=translate_deen_multi30k --size=tiny --work_dir=W
"""
_NAMED_ALIKE = ("problem", "tmp_dir", "teachers_seed", "scale", "train_steps", "t2t_usr_dir")
_FLAGS: FlagTable = {
    "What": {
        "recipe=NAME": "The recipe; --list shows all.",
        "work_dir=DIR": "Folder for data, runs, translations and reports.",
        "tmp_dir=DIR": "Folder of raw files, which are downloaded to it if needed; default: WORK_DIR/tmp.",
        "problem=NAME": "Problem to use instead of the recipe's, with its own way of scoring.",
        "size=SIZE": "Model size, for recipes whose models come in sizes: tiny, small, base or big.",
        "seeds": Flag("Number of seeds; 0 = as many as in the paper.", 0, minimum=0, maximum=1000),
        "first_seed": Flag("First seed, to spread seeds over machines.", 1, minimum=1),
        "teachers_seed": Flag(
            "Seed of the runs that make pseudo references, for all seeds; another value needs another --work_dir.",
            1,
            minimum=1,
        ),
        "recipes_dir=DIR": "Folder of your own recipes (*.toml), in addition to the built-in ones.",
        "t2t_usr_dir=DIR": "Folder of your own problems, models and hparams sets.",
    },
    "How far": {
        "dry_run": "Print the commands without running them.",
        "until": Flag("Stop after this stage.", choices=_STAGES),
        "stage": Flag("Run only this stage, for every seed; the stages before it must be finished.", choices=_STAGES),
        "redo=STAGE[,STAGE]": "Stages whose results to remove and make again.",
    },
    "Other settings": {
        "scale": Flag(
            "Factor for all numbers of steps (training, warm-up, between checkpoints); use 0.01 to check that "
            "everything runs.",
            1.0,
            maximum=1000,
        ),
        "train_steps": Flag("Number of training steps; 0 = the recipe's. Runs go on to a larger one.", 0, minimum=0),
        'hparams="A=1,B=x"': "Further changes to the hparams set.",
        'train="A=1,B=x"': "Further flags of t2t_ext-trainer.",
        'datagen="A=1,B=x"': "Further flags of t2t_ext-datagen.",
        'problem_options="A=1,B=x"': "Further options of the problem.",
        'augment="A=1,B=x"': "Further flags of t2t_ext-augment, such as target_text=FILE, and models=N, the number of "
        "models to train of each recipe.",
        'decode_hparams="A=1,B=x"': "Further decode hparams.",
        "beams=N[,N]": Flag(
            "Score with each of these beam sizes instead of the recipe's; makes a table, and a curve for each system.",
            minimum=1,
            many=True,
        ),
    },
    "Information": {
        "list": Flag("List the recipes with their figures (--recipe='he2018*': only some) and exit.", information=True),
    },
}


def build_parser() -> FlagParser:
    """Returns the command's flags."""
    description = (
        "Reproduces a published result: data, training with each seed, averaging, decoding, scoring as in the paper, "
        "and a report with the paper's figure. Started again, it resumes where it stopped."
    )
    parser = FlagParser("t2t_ext-experiment", description, _FLAGS, examples=_EXAMPLES)
    not_published = "With any of these the result is not that of the published setting, and the report says so."
    parser.group("Other settings").description = not_published
    return parser


@command(build_parser)
def main(flags: argparse.Namespace) -> int:
    """Runs the experiment; returns the exit status."""
    book = recipe_book(flags.recipes_dir, flags.size)
    if flags.list:
        from t2t_ext.experiments.listing import list_text

        print(list_text(book, flags.recipe))
        return 0
    if not flags.recipe:
        raise UserError("--recipe=NAME says which result to make; --list shows all recipes.")
    recipe = book.recipe(flags.recipe)
    if flags.size and not recipe.size:
        raise UserError(f"--size={flags.size}: the models of {recipe.name} have one size. Leave it out.")
    missing = book.missing(recipe)
    if missing:
        raise UserError(
            f"{recipe.name} cannot be run: {'; '.join(missing)}. --list shows what can; if it is yours, give its "
            "folder with --t2t_usr_dir."
        )
    from t2t_ext.experiments.plan import has_teachers, plan

    options = _options(flags, recipe)
    stages = plan(recipe, book, options)
    if flags.augment and not any(stage.command == "augment" for stage in stages):
        raise UserError(f"--augment={flags.augment}: {recipe.name} makes no augmented data; leave it out.")
    if "teachers_seed" in flags.given and not has_teachers(stages):
        raise UserError(f"--teachers_seed={flags.teachers_seed}: {recipe.name} has no teachers. Leave it out.")
    check_commands(stages)
    if flags.dry_run:
        from t2t_ext.experiments.conduct import kinds_of_redo, wanted_stages
        from t2t_ext.experiments.listing import dry_run_text

        redo = kinds_of_redo(flags.redo, stages)
        wanted = wanted_stages(stages, flags.stage, flags.until, redo=redo, dry=True)
        print(dry_run_text(recipe, book, stages, options, wanted))
        return 0
    return _carry_out(flags, recipe, book, stages, options)


def recipe_book(own_folder: str = "", size: str = "") -> Any:
    """Returns the book of the built-in recipes and those in the user's folder, in another size if one is given."""
    import t2t_ext.recipes
    from t2t_ext.experiments.recipes import RecipeBook

    folders = [pathlib.Path(t2t_ext.recipes.__path__[0])]
    if own_folder:
        if not pathlib.Path(own_folder).is_dir():
            raise UserError(f"--recipes_dir={own_folder}: there is no such directory. Give the folder of your *.toml.")
        folders.append(pathlib.Path(own_folder))
    return RecipeBook(folders, size)


def check_commands(stages: Sequence[Any]) -> None:
    """Checks all commands of a plan, so that a mistake does not come to light after days of work.

    Raises:
      UserError: A flag, a name or a value is invalid (the stage is named), or a path is not UTF-8.
    """
    from t2t_ext import registry
    from t2t_ext.config.decode import resolve_decode_hparams
    from t2t_ext.evaluation import protocols
    from t2t_ext.io import stored
    from t2t_ext.models import families

    for stage in stages:
        stored.check_unicode(stage.command_line)
        module = importlib.import_module(f"t2t_ext.bin.{stage.command.replace('-', '_')}")
        try:
            parsed = module.build_parser().parse_args(stage.arguments)
            if stage.command == "augment":
                module.check_flags(parsed)
            if stage.kind in ("data", "train", "pseudo"):
                from t2t_ext.bin._flag_groups import problem_options

                registry.problem(parsed.problem, **problem_options(parsed))
            if stage.kind == "train":
                hparams = registry.resolve_hparams(parsed.hparams_set, parsed.hparams)
                families.check_hparams(parsed.model, hparams, parsed.hparams_set)
                from t2t_ext.bin.trainer import train_config
                from t2t_ext.training import dev_metrics, setup_run

                config = train_config(parsed)
                settings = config.replace(**dev_metrics.defaults(config.given()))
                setup_run.check_settings(settings, hparams, config.given_settings())
            if stage.kind in ("score", "pseudo"):
                resolve_decode_hparams(parsed.decode_hparams)
            if stage.kind == "score":
                protocols.protocol(parsed.scoring)
                _check_split(stage)
        except UserError as error:
            raise UserError(
                f"The command of '{stage.title}' is invalid: {error} It has what --hparams, --train and other flags "
                "given here add to the recipe; --dry_run without them shows the recipe's own."
            ) from error


def _check_split(stage: Any) -> None:
    """Checks that the problem of a scoring stage has its split, which is read only after training."""
    from t2t_ext import registry
    from t2t_ext.config.problem_options import parse
    from t2t_ext.experiments.plan import requirements

    flags = next(need.flags for need in requirements(stage.needs) if need.kind == "train")
    splits = registry.problem(flags["problem"], **parse(flags.get("problem_options", ""))).splits
    if stage.split not in splits:
        raise UserError(
            f"{flags['problem']} has no split {stage.split!r}.{suggest(stage.split, splits)} It has "
            f"{', '.join(splits)}. Correct splits of the recipe, or the problem and its options."
        )


def _options(flags: argparse.Namespace, recipe: Any) -> Any:
    from t2t_ext.config.problem_options import parse
    from t2t_ext.data.corpora import readers
    from t2t_ext.experiments.plan import Options
    from t2t_ext.experiments.recipes import OF_THE_EXPERIMENT

    if not flags.work_dir:
        raise UserError("--work_dir=DIR says where data, runs and reports are put.")
    work_dir = pathlib.Path(flags.work_dir)
    if work_dir.exists() and not work_dir.is_dir():
        raise UserError(f"--work_dir={work_dir} is a file. Name a directory (it is made where it is missing).")
    names = ("hparams", "train", "datagen", "problem_options", "augment", "decode_hparams")
    parsed: dict[str, Any] = {name: parse(getattr(flags, name), name) for name in names}
    for name, where in (("train_steps", "--train_steps"), ("hparams", "--hparams"), ("random_seed", "--first_seed")):
        if name in parsed["train"]:
            raise UserError(f"--train={flags.train}: say {name} with {where}.")
    own_text = [path for path in parsed["augment"].get("target_text", "").split(",") if path]
    own_files = [pathlib.Path(path).expanduser() for path in own_text]
    readers.require_unpacked_files(own_files, "Correct --augment=target_text=...")
    for flag in ("train", "datagen", "augment"):
        for name in [name for name in parsed[flag] if name in OF_THE_EXPERIMENT]:
            raise UserError(
                f"--{flag}={getattr(flags, flag)}: {name} is what the recipe and the experiment's own flags say "
                "(--work_dir, --problem, --tmp_dir, ...). Leave it out."
            )
    count = flags.seeds or recipe.seeds
    return Options(
        work_dir=work_dir,
        seeds=tuple(range(flags.first_seed, flags.first_seed + count)),
        beams=tuple(dict.fromkeys(flags.beams)),
        decode=parsed.pop("decode_hparams"),
        **parsed,
        **{name: getattr(flags, name) for name in _NAMED_ALIKE},
    )


def _carry_out(flags: argparse.Namespace, recipe: Any, book: Any, stages: Sequence[Any], options: Any) -> int:
    """Runs the requested stages and writes the report; returns the exit status."""
    from t2t_ext.experiments import conduct
    from t2t_ext.experiments.stages import Interrupted
    from t2t_ext.reporting.report import checked_directory

    checked_directory(options.work_dir / recipe.name, "--work_dir")
    redo = conduct.redo_kinds(flags.redo, stages)
    wanted = conduct.wanted_stages(stages, flags.stage, flags.until, redo=redo)
    say(f"{recipe.name}: {book.paper(recipe).short}, {recipe.table}, {recipe.row}; in {options.work_dir}")
    for change in options.changes():
        say(f"NOT {recipe.setting}: {change}")
    if recipe.hardware:
        say(f"the paper's hardware: {recipe.hardware}")
    try:
        conduct.run_stages(stages, wanted, redo, options.work_dir, say)
    except Interrupted as interrupted:
        log.info("interrupted: the same command resumes here")
        return interrupted.exit_status
    if flags.stage in ("", "report") and flags.until in ("", "report"):
        print(conduct.report_text(recipe, book, stages, options), end="")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
