"""Settings of a training run; flags of ``t2t_ext-trainer``, checks and tables of the docs are generated from them."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from t2t_ext.config.strict_params import StrictParams, hparam

RESET, KEEP = "reset", "keep"  # what warm_start_optimizer may be
_METRICS = "bleu, loss, reference_loss, nll, perplexity, accuracy, or a score such as ROUGE-L, chrF2 or TER"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingSettings(StrictParams):
    """Settings that may change when a run is resumed: they do not alter what an update computes.

    Every field is documented by its ``hparam(...)``. Names of metrics are checked by ``training.dev_metrics``.
    """

    _prefix: ClassVar[str] = "--"

    train_steps: int = hparam(
        250000,
        "Number of steps, skipped updates included, after which training stops; the schedules linear_decay and "
        "single_cycle_cos_decay end there.",
        unit="steps",
        minimum=1,
        group="Training",
    )
    deterministic: bool = hparam(
        False,
        "Use only operations whose results are bit-identical every time; can be slower on GPUs.",
        group="Training",
    )
    keep_checkpoint_max: int = hparam(
        20, "Number of checkpoints to keep in RUN/checkpoints; 0 = all.", minimum=0, maximum=1_000_000, group="Training"
    )
    log_step_count_steps: int = hparam(
        100,
        "Steps between log lines; values are read from the device only at these steps.",
        unit="steps",
        minimum=1,
        group="Training",
    )
    max_skipped_steps: int = hparam(
        20,
        "Stop after this many consecutive steps with non-finite gradients.",
        unit="steps",
        minimum=1,
        group="Training",
    )
    preempted_exit_code: int = hparam(
        143,
        "Exit status after SIGTERM, so that a scheduler restarts the run; 0 would mean that the run is finished.",
        minimum=1,
        maximum=255,
        group="Training",
    )

    local_eval_frequency: int = hparam(
        1000,
        "Steps between evaluations on the development set; each saves a checkpoint.",
        unit="steps",
        minimum=1,
        group="Evaluation",
    )
    eval_bleu_sentences: int = hparam(
        0,
        "Number of development sentences to translate for BLEU, starting with the first; 0 = all, -1 = no BLEU.",
        minimum=-1,
        group="Evaluation",
    )
    best_checkpoint_metric: str = hparam(
        "bleu",
        f"Metric that selects RUN/best: {_METRICS}. With --eval_bleu_sentences=-1, which leaves no translations, the "
        "default is loss.",
        group="Evaluation",
        metavar="NAME",
    )
    eval_early_stopping_metric: str = hparam(
        "loss",
        f"Metric that early stopping watches: {_METRICS}. For models with two targets the default is bleu.",
        group="Evaluation",
        metavar="NAME",
    )
    eval_early_stopping_steps: int = hparam(
        0, "Stop when the metric has not improved for this many steps; 0 = never.", unit="steps", minimum=0,
        group="Evaluation",
    )  # fmt: skip
    eval_early_stopping_metric_delta: float = hparam(
        0.1,
        "Smallest change of the metric that counts as an improvement.",
        minimum=-1e6,
        maximum=1e6,
        group="Evaluation",
    )
    eval_early_stopping_metric_minimize: bool | None = hparam(
        None, "Whether a smaller value is better; default: as the metric is defined.", group="Evaluation"
    )

    decode_hparams: str = hparam(
        "beam_size=4,alpha=0.6",
        "Search settings for translating the development set, as for t2t_ext-decoder.",
        group="Decoding",
        metavar='"A=1,B=x"',
    )

    distribution: str = hparam(
        "auto",
        "Devices to train on: one (one_device), all of this machine (mirrored), those of the workers in TF_CONFIG "
        "(multi_worker_mirrored), or a TPU (tpu). auto = the workers if TF_CONFIG lists several, otherwise all GPUs, "
        "otherwise the CPU.",
        choices=("auto", "one_device", "mirrored", "multi_worker_mirrored", "tpu"),
        group="Machine",
    )
    xla_compile: bool = hparam(
        False,
        "Compile the training step with XLA (needs length_groups above 1 or batch_shapes=static in --hparams).",
        group="Machine",
    )
    tpu: str = hparam(
        "",
        "Name or address of the TPU, for --distribution=tpu; empty = the local one.",
        group="Machine",
        metavar="ADDRESS",
    )
    worker_timeout: float = hparam(
        30.0,
        "Time without a heartbeat after which another worker in TF_CONFIG counts as lost. This worker then exits with "
        "status 75, to be restarted together with all others.",
        unit="seconds",
        minimum=1,
        maximum=86400,
        group="Machine",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig(TrainingSettings):
    """The settings of ``train``; resuming a run needs only ``output_dir``, since settings not given are as stored.

    A new run needs ``problem``, ``model``, ``hparams_set`` and ``data_dir``. What an update computes (these four, the
    hparams, the data and the seed) cannot change when a run is resumed; the fields of ``TrainingSettings`` can. None
    means that a value is not given.
    """

    output_dir: str = hparam("", "Run directory: a new one, or one to resume.", group="Training", metavar="RUN")
    problem: str = hparam(
        "",
        "Problem, which defines the task and its data; NAME_rev is its other direction. --registry_help lists all.",
        group="What",
        metavar="NAME",
    )
    problem_options: Mapping[str, Any] | None = hparam(
        None,
        'Options of the problem, such as "test=paper,layout=plain"; the error for an unknown option lists all of them.',
        group="What",
        metavar='"A=x,B=y"',
    )
    model: str = hparam("", "The model. --registry_help lists all.", group="What", metavar="NAME")
    hparams_set: str = hparam(
        "", "The set of hyper-parameters. --registry_help lists all.", group="What", metavar="NAME"
    )
    hparams: str = hparam(
        "",
        'Changes to the set: "name=value,name=value"; --hp_name=value does the same.',
        group="What",
        metavar='"A=1,B=x"',
    )
    t2t_usr_dir: str = hparam(
        "",
        "Folder of your own modules (a package or a plain folder) with problems, models and hparams sets to register.",
        group="What",
        metavar="DIR",
    )
    data_dir: str = hparam("", "Directory of the generated data.", group="Data", metavar="DIR")
    random_seed: int = hparam(
        1,
        "Seed for initial weights, dropout and the order of the data.",
        minimum=0,
        maximum=2**63 - 1,
        group="Training",
    )
    warm_start_from: str = hparam(
        "",
        "Run (its last checkpoint) or checkpoint, such as RUN/best or RUN/averaged, to take the first weights of a new "
        "run from.",
        group="Training",
        metavar="RUN",
    )
    warm_start_optimizer: str = hparam(
        RESET,
        "With --warm_start_from: start optimizer state, steps and learning rate anew (reset), or continue them from "
        "that checkpoint (keep).",
        choices=(RESET, KEEP),
        group="Training",
    )
    train_command: tuple[str, ...] = hparam((), "The command line, to be stored with the run.")
    _given: ClassVar[Mapping[str, Any]] = {}  # each instance has its own dict

    def __new__(cls, **values: Any) -> Self:
        """Records which fields are given: ``__init__`` cannot tell a default from a given value that equals it."""
        config = super().__new__(cls)
        defaults = {field.name: field.default for field in dataclasses.fields(cls)}
        is_copy = values.keys() == defaults.keys()  # dataclasses.replace passes every field
        given = {
            name: value
            for name, value in values.items()
            if value is not None and not (is_copy and value == defaults.get(name))
        }
        object.__setattr__(config, "_given", given)
        return config

    def __post_init__(self) -> None:
        """Replaces None by the default and checks the values.

        Raises:
          UserError: A value is not allowed.
        """
        for field in dataclasses.fields(self):
            if getattr(self, field.name) is None:
                object.__setattr__(self, field.name, field.default)
        super().__post_init__()

    def replace(self, **changes: Any) -> Self:
        """Returns a copy with other values; fields that were not given and are not changed still count as not given."""
        return type(self)(**{**self.given(), **changes})

    def given(self) -> dict[str, Any]:
        """Returns the names and values of the fields that were given."""
        return dict(self._given)

    def given_settings(self) -> dict[str, Any]:
        """Returns the names and values of the ``TrainingSettings`` that were given."""
        return {name: value for name, value in self._given.items() if name in TrainingSettings.names()}
