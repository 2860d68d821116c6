"""The training state besides the weights: what is carried from step to step and saved in checkpoints."""

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from t2t_ext.analysis.gradients.groups import groups_of
from t2t_ext.config.hyperparameters import HParams
from t2t_ext.training import handles
from t2t_ext.training.averages import make_averages
from t2t_ext.training.optimizers import Optimizer

INITIAL_LOSS_SCALE = 2.0**15
GROWTH_STEPS = 2000  # finite steps after which the loss scale is doubled
MAX_LOSS_SCALE = 2.0**24

# Sums over the steps since the metrics were last read. Skipped steps count only in `steps` and `skipped`.
WINDOW_FIELDS = (
    "loss",  # label-smoothed, nats
    "nll",  # nats
    "correct",  # labels
    "target_tokens",  # without padding, of all of an example's targets
    "source_tokens",  # without padding
    "positions",  # of source and target, padding included
    "examples",  # sentence pairs
    "gradient_norm",
    "steps",
    "skipped",
    "labels",  # tokens that the loss is taken on: the target tokens, unless a model or its hparams say otherwise
    "regularizer",  # of SimCut or R-Drop and of layers, nats
)
_GRADIENT_NORMS = "metrics/gradient_norms"


class TrainingState:
    """Step counters, loss scale, metric sums, optimizer slots and the weights' averages.

    All replicas hold the same values. ``step`` counts global batches, skipped ones included, so it is also
    the position in the data.

    Attributes:
      averages: Name -> variable of the weights for users, from ``averaging`` or the optimizer. Empty if users get the
        trained weights.
      averaging: The average that is kept beside the weights; None if there is none.
      frozen: The names of the variables that are not trained.
      gradient_groups: Group (usually a layer) -> the indices of its variables; see ``analysis.gradients.groups``.
      gradient_norms: float32 [groups + 1]: for each group, the sum of its gradient norms over the steps since they were
        last read, and finally the number of these steps. Skipped steps are left out.
    """

    def __init__(self, hparams: HParams, variables: dict[str, tf.Variable], optimizer: Optimizer) -> None:
        """Creates the variables beside the optimizer's slots. Call it in the strategy's scope.

        Args:
          hparams: The settings.
          variables: Name -> variable of the model.
          optimizer: Trains them, except for the frozen ones.
        """
        self.uses_loss_scale = hparams.precision == "mixed_float16"
        self.step = handles.new_variable(0, tf.int64, "step")
        self.skipped = handles.new_variable(0, tf.int64, "skipped")
        self.skipped_in_a_row = handles.new_variable(0, tf.int64, "skipped_in_a_row")
        # The longest row of skipped steps since the host last looked: its length, and the step that it ended at. Not in
        # checkpoints, since the host looks before it saves.
        self.longest_row = handles.new_variable(0, tf.int64, "longest_row")
        self.longest_row_end = handles.new_variable(0, tf.int64, "longest_row_end")
        self.loss_scale = handles.new_variable(
            INITIAL_LOSS_SCALE if self.uses_loss_scale else 1.0, tf.float32, "loss_scale"
        )
        self.finite_in_a_row = handles.new_variable(0, tf.int64, "finite_in_a_row")
        self.window = handles.new_variable(tf.zeros([len(WINDOW_FIELDS)]), tf.float32, "window")
        self.gradient_groups = groups_of(variables)
        self.gradient_norms = handles.new_variable(
            tf.zeros([len(self.gradient_groups) + 1]), tf.float32, "gradient_norms"
        )
        self.optimizer = optimizer
        self.frozen = variables.keys() - optimizer.variables.keys()
        self.averaging = make_averages(hparams, variables, self.frozen)
        self.averages = self.averaging.variables if self.averaging else optimizer.averages

    @property
    def trained_averages(self) -> dict[str, tf.Variable]:
        """The averages that are not the variables themselves, as those of frozen ones are."""
        return {name: average for name, average in self.averages.items() if name not in self.frozen}

    def named_variables(self) -> dict[str, tf.Variable]:
        """Returns the variables of the checkpoint's training group by stable names (averages form a separate group)."""
        return {
            "step": self.step,
            "skipped/total": self.skipped,
            "skipped/in_a_row": self.skipped_in_a_row,
            "loss_scale/scale": self.loss_scale,
            "loss_scale/finite_in_a_row": self.finite_in_a_row,
            "metrics/window": self.window,
            _GRADIENT_NORMS: self.gradient_norms,
            **self.optimizer.slots,
            **(self.averaging.slots if self.averaging else {}),
        }

    def fitted(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns a checkpoint's training group as this version would have written it.

        Earlier versions had fewer sums (see ``with_all_sums``), and slots of frozen variables, too. The moments of a
        variable that was frozen until then begin as zeros.
        """
        ours = self.named_variables()
        of_frozen = tuple(f"/{name}" for name in self.frozen)
        kept = {name: array for name, array in arrays.items() if name in ours or not name.endswith(of_frozen)}
        for name in self.optimizer.variables:
            slots = [slot for slot in self.optimizer.slots if slot.split("/", 2)[-1] == name]
            if not kept.keys() & slots and all(slot.startswith(("adam/", "adafactor/")) for slot in slots):
                kept |= {slot: np.zeros(ours[slot].shape, np.float32) for slot in slots}
        return with_all_sums(kept, len(self.gradient_groups))

    def begin(self, weights: Mapping[str, np.ndarray]) -> None:
        """Sets the state that starts as a copy of the weights; needed after new initial weights were assigned."""
        self.optimizer.begin(weights)
        for name, average in self.averages.items():
            average.assign(weights[name])

    def update_after(self, finite: tf.Tensor) -> None:
        """Advances the counters and the loss scale on the current replica.

        Args:
          finite: bool []; whether the step's gradients were finite and have been applied.
        """
        skipped = tf.cast(tf.logical_not(finite), tf.int64)
        handles.assign_add(self.step, tf.constant(1, tf.int64))
        handles.assign_add(self.skipped, skipped)
        row, longest = (handles.read(self.skipped_in_a_row) + 1) * skipped, handles.read(self.longest_row)
        handles.assign(self.skipped_in_a_row, row)
        end = tf.where(row > longest, handles.read(self.step), handles.read(self.longest_row_end))
        handles.assign(self.longest_row_end, end)
        handles.assign(self.longest_row, tf.maximum(row, longest))
        if not self.uses_loss_scale:
            return
        finite_in_a_row = (handles.read(self.finite_in_a_row) + 1) * (1 - skipped)
        grows = finite_in_a_row >= GROWTH_STEPS
        scale = handles.read(self.loss_scale)
        grown = tf.where(grows, tf.minimum(scale * 2.0, MAX_LOSS_SCALE), scale)
        handles.assign(self.loss_scale, tf.where(finite, grown, tf.maximum(scale / 2.0, 1.0)))
        handles.assign(self.finite_in_a_row, tf.where(grows, tf.zeros_like(finite_in_a_row), finite_in_a_row))


def with_all_sums(arrays: Mapping[str, np.ndarray], gradient_groups: int = 0) -> dict[str, np.ndarray]:
    """Returns a checkpoint's training group, with the sums added that checkpoints of earlier versions lack.

    The first versions took the loss on every target token, so there were as many labels as target tokens. There was no
    regularizer. The gradient norms of ``gradient_groups`` groups count from the checkpoint on.
    """
    arrays = dict(arrays)
    if gradient_groups:
        arrays.setdefault(_GRADIENT_NORMS, np.zeros(gradient_groups + 1, np.float32))
    window = arrays.get("metrics/window")
    if window is not None:
        added = [window[WINDOW_FIELDS.index("target_tokens")], 0.0]
        missing = len(WINDOW_FIELDS) - len(window)
        arrays["metrics/window"] = np.append(window, added[len(added) - missing :])
    return arrays
