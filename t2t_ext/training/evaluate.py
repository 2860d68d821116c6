"""Evaluates the dev set during training: loss, perplexity and accuracy over all of it, and BLEU of its translations.

A second model holds the weights that users would get (in the inference precision; the averages if the run keeps
them). Evaluation therefore never touches what training continues from, and BLEU comes from the same ``Translator``
that the decoder uses.

If a model learns from two targets per sentence, its dev loss is taken on the same variants as in training, made from
the dev set's pseudo references (``t2t_ext.data.datasets.target_variants``); the loss on references only is reported as
well. The dev loss of any other model is taken on references only, whatever else it is trained on, so that models can
be compared.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_ext import registry
from t2t_ext.analysis.attention import maps as attention
from t2t_ext.data.datasets import target_variants
from t2t_ext.data.datasets.example_store import ExampleStore
from t2t_ext.data.datasets.generated import GeneratedData
from t2t_ext.data.datasets.pipeline import eval_batches
from t2t_ext.evaluation import protocols
from t2t_ext.evaluation.scorer import Scorer
from t2t_ext.models.seq2seq import build_model
from t2t_ext.training import dev_metrics, losses, setup_run
from t2t_ext.training.monitor import Board
from t2t_ext.training.records import Record
from t2t_ext.translation.translator import Translator

SAMPLES = 5
_PICTURED_TOKENS = 40  # longer sentences make unreadable attention pictures


class Evaluator:
    """Evaluates weights on the dev set."""

    def __init__(self, run: setup_run.ResolvedRun, generated: GeneratedData, encoders: tuple[Any, Any]) -> None:
        """Builds the evaluation model; translations are scored by the problem's protocol, and always by BLEU.

        Raises:
          UserError: There is nothing to evaluate, or the model does not support the search of the decode hparams.
        """
        hparams, settings, decode_hparams = run.hparams, run.settings, run.decode_hparams
        store, language = ExampleStore.load(generated, "dev"), generated.target_language
        scoring = getattr(setup_run.make_problem(run), "scoring", protocols.DEFAULT)
        model_class = registry.model(run.config.model)
        # Low-precision weights are enough for a model that is not trained further, and faster to read.
        precision = (decode_hparams.precision or hparams.precision).removeprefix("mixed_")
        self._model = build_model(
            model_class, hparams, *encoders, source_feature_size=store.source_feature_size, dtype=precision
        )
        self._hparams = hparams
        self._encoders = encoders
        # Made once, since the graph and the batches are the same at every evaluation.
        self._examples = (
            target_variants.gold_examples(store)
            if self._model.target_sides == 1
            else target_variants.examples_of(store, hparams, self._model.target_sides)
        )
        self._losses_of = {"loss": _Losses(self._model, store, hparams, self._examples)}
        if self._examples.loss_on_pseudo:
            gold = target_variants.with_loss_on_references(store, self._examples)
            self._losses_of["reference_loss"] = _Losses(self._model, store, hparams, gold)
        limit = settings.eval_bleu_sentences
        self._sources: list[Any]
        self._sources, self._references = generated.texts("dev")
        if limit > 0:
            self._sources = self._sources[:limit]
            self._references = [reference[:limit] for reference in self._references]
        self._translator: Translator | None = None
        if limit >= 0:
            self._translator = Translator(self._model, *encoders, decode_hparams)
            # The score called BLEU must be a kind of BLEU, whatever else translations are scored by.
            bleu, *others = dev_metrics.scored_by(settings, scoring)
            self._scorer = Scorer([bleu], self._references, encoders[1], language=language)
            self._other_scorer = Scorer(others, self._references, encoders[1], language=language)
        self._leaky = self._model.target_sides == 2 and hparams.pseudo == "none"

    def describe(self) -> str:
        """Returns a description of what the dev loss is taken on; empty if that is the dev set's references."""
        if not self._examples.identity:
            return ""
        left_out = ", ".join(f"{count:,} {why}" for why, count in self._examples.dropped.items()) or "none"
        return f"dev loss on {int(self._examples.usable.sum()):,} examples of the same kinds; left out: {left_out}"

    def evaluate(
        self, weights: Mapping[str, tf.Variable], note: Callable[[str], None] = lambda text: None
    ) -> tuple[Record, list[str]]:
        """Evaluates weights, given by name; ``note`` receives progress messages.

        Returns:
          The metrics and the translations (empty without scores). The metrics are loss and nll in nats per label,
          perplexity and accuracy; reference_loss, the loss on references only; the number of sentences translated,
          search (how they were searched for), bleu and bleu_signature; other scores by their labels; and leaky if only
          the scores of translations mean something.
        """
        for name, variable in self._model.named_variables().items():
            variable.assign(tf.cast(weights[name], variable.dtype))
        note("evaluating: loss")
        metrics = {name: value for name, each in self._losses_of.items() for name, value in each.record(name).items()}
        metrics.setdefault("reference_loss", metrics["loss"])
        if self._leaky:
            metrics["leaky"] = True
        if self._translator is None:
            return metrics, []
        total = len(self._sources)
        hypotheses = [
            found[0]
            for found in self._translator.translate(
                self._sources, progress=lambda done, _: note(f"evaluating: {done}/{total} sentences translated")
            )
        ]
        bleu = self._scorer.scores(hypotheses)[0]
        others = {score.name: score.value for score in self._other_scorer.scores(hypotheses)}
        texts = [hypothesis.text for hypothesis in hypotheses]
        search = self._translator.decode_hparams.describe_search()
        scores = {"sentences": total, "search": search, "bleu": bleu.value, "bleu_signature": bleu.signature, **others}
        return {**metrics, **scores}, texts

    def first_sentence(self) -> tuple[str, str]:
        """Returns the first dev sentence that is translated and its (first) reference."""
        return str(self._sources[0]), self._references[0][0]

    def show(self, board: Board, step: int, hypotheses: list[str]) -> None:
        """Writes sample translations and attention pictures of the first dev sentences to TensorBoard."""
        count = min(SAMPLES, len(hypotheses))
        if count:
            names = [str(source) for source in self._sources[:count]]
            board.samples(step, names, hypotheses[:count], self._references[0][:count])
        sentence = self._pictured_sentence()
        if sentence is None:
            return
        source, labels, target = sentence
        backwards = target[-2::-1] + target[-1:]
        if self._model.target_sides == 2:
            sides = [target, backwards]
        else:
            sides = [backwards if self._hparams.target_direction == "r2l" else target]
        targets = tf.constant([sides if len(sides) == 2 else sides[0]], tf.int32)
        weights = self._model.attention_weights(tf.constant(source[np.newaxis]), targets)
        pieces = [self._encoders[1].pieces(side) for side in sides]
        words = attention.sentence_of(self._model, labels, pieces)
        maps = attention.read_maps(weights, words)
        # For the second side only the last layer is drawn: drawing is slow, and the sides share their weights.
        last = max((each.layer for each in maps if each.side == "r2l"), default=0)
        board.attention(step, [each for each in maps if each.side != "r2l" or each.layer == last])

    def _pictured_sentence(self) -> tuple[np.ndarray, list[str], list[int]] | None:
        """Returns source (ids or feature vectors), labels of its positions and target ids of a sentence to draw."""

        def ids_of(encoder: Any, text: str) -> list[int]:
            return encoder.encode_batch(encoder.prepare([text]), add_eos=True)[0]

        for source, text in zip(self._sources, self._references[0], strict=True):
            target = ids_of(self._encoders[1], text)
            if self._model.source_feature_size:
                inputs = np.asarray(source.rows, np.float32)
                labels = [str(region) for region in range(1, len(inputs) + 1)]
            else:
                inputs = np.array(ids_of(self._encoders[0], source), np.int32)
                labels = self._encoders[0].pieces(inputs.tolist())
            lengths = (len(inputs), len(target))
            if 4 <= max(lengths) <= _PICTURED_TOKENS and min(lengths) > 1:
                return inputs, labels, target
        return None


class _Losses:
    """Computes the losses of a model over all of the given examples."""

    def __init__(self, model: Any, store: ExampleStore, hparams: Any, examples: target_variants.Examples) -> None:
        """Plans the batches; the graph is traced at the first use."""
        self._model, self._hparams = model, hparams
        # The sides' weights apply to losses on both sides; with references only, one side may have all labels.
        self._weighted = not examples.gold_only
        self._batches = eval_batches(store, hparams, hparams.batch_size, examples)
        elements = {name: spec for name, spec in self._batches.element_spec.items() if name != "index"}
        self._sums = tf.function(self._batch_sums, input_signature=[elements], autograph=False)

    def record(self, name: str) -> Record:
        """Returns the mean loss under a name; for ``loss`` also nll, perplexity and accuracy."""
        totals = [0.0] * 4
        for batch in self._batches:
            sums = self._sums({name: ids for name, ids in batch.items() if name != "index"})
            totals = [total + float(value) for total, value in zip(totals, sums[:4], strict=True)]
        loss, nll, correct, tokens = totals
        tokens = max(tokens, 1.0)
        if name != "loss":
            return {name: loss / tokens}
        return {
            "loss": loss / tokens,
            "nll": nll / tokens,
            "perplexity": math.exp(min(nll / tokens, 700.0)),  # beyond, a float overflows
            "accuracy": correct / tokens,
        }

    def _batch_sums(self, batch: dict[str, tf.Tensor]) -> losses.LossSums:
        features = self._model.training_features(batch["inputs"], batch["targets"], training=False)
        labels = self._model.training_labels(batch.get("labels", batch["targets"]))
        kernel, bias = self._model.softmax_weights()
        return losses.softmax_cross_entropy(
            features,
            kernel,
            bias,
            labels,
            self._hparams.label_smoothing,
            weights=self._model.label_weights(labels) if self._weighted else None,
            differentiable=False,
        )
