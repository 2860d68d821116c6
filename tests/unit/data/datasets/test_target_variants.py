"""Tests of targets made of references and pseudo references, compared with the paper's triples in plain Python."""

import itertools
import math

import numpy as np
import pytest

from t2t_ext import registry
from t2t_ext.config.hyperparameters import HParams
from t2t_ext.config.synchronous import SynchronousHParams
from t2t_ext.data.datasets import target_variants
from t2t_ext.data.datasets.example_store import ExampleStore
from t2t_ext.data.datasets.pipeline import TrainPipeline, eval_batches
from t2t_ext.errors import UserError
from t2t_ext.models import families

COUNT = 120
FAILED_L2R, FAILED_R2L = {7, 30}, {30, 99}
# Zhou et al. (2019), sections 3.4 (two) and 4.7 (six): (left-to-right target, right-to-left target).
TRIPLES = {
    "none": ["GG"],
    "one": ["GR"],
    "two": ["LG", "GR"],
    "six": ["GR", "RG", "LG", "GL", "LR", "RL"],
}
OF_ONE_SIDE = {"none": ["G"], "l2r": ["G", "L"], "both": ["G", "L", "R"]}


def sequences():
    """Returns source, reference and pseudo references of all pairs in text order; ids 1 and 2 name field and pair."""
    rng = np.random.default_rng(5)

    def made(field, number):
        return [100 + field, 1000 + number, *rng.integers(10, 99, rng.integers(1, 25)).tolist(), 1]

    fields = [[made(field, number) for number in range(COUNT)] for field in range(4)]
    for number in FAILED_L2R:
        fields[2][number] = []
    for number in FAILED_R2L:
        fields[3][number] = []
    return dict(zip("SGLR", fields, strict=True))


FIELDS = sequences()
STORE = ExampleStore.from_sequences(FIELDS["S"], FIELDS["G"], (FIELDS["L"], FIELDS["R"]))


def backwards(ids):
    return ids[-2::-1] + ids[-1:]


def rendering(pseudo, sides, gold_only=False, r2l=False):
    """Returns the expected examples (source, targets, labels), sorted, and the number of those left out."""
    examples, left_out = [], 0
    for fields in (TRIPLES if sides == 2 else OF_ONE_SIDE)[pseudo]:
        for number in range(COUNT):
            texts = [FIELDS[field][number] for field in fields]
            if not all(texts) or (gold_only and "G" not in fields):
                left_out += 1
                continue
            turned = [False, True] if sides == 2 else [r2l]
            targets = [backwards(text) if turn else text for text, turn in zip(texts, turned, strict=True)]
            labels = [ids if field == "G" or not gold_only else [] for field, ids in zip(fields, targets, strict=True)]
            examples.append((FIELDS["S"][number], targets, labels))
    return sorted(examples), left_out


def unpadded(row):
    ids = row.tolist()
    while ids and not ids[-1]:
        ids.pop()
    assert 0 not in ids
    return ids


def read(batches, sides):
    """Returns the examples in a pipeline's batches in the form of `rendering`."""
    examples = []
    for batch in batches:
        labels = batch.get("labels", batch["targets"])
        assert batch["targets"].dtype == labels.dtype == np.int32
        assert batch["targets"].shape == labels.shape
        assert batch["targets"].ndim == 1 + sides
        for source, target, label in zip(batch["inputs"], batch["targets"], labels, strict=True):
            of_sides = [[unpadded(row) for row in (ids if sides == 2 else [ids])] for ids in (target, label)]
            if source.any():
                examples.append((unpadded(source), *of_sides))
            else:
                assert not target.any()
    return sorted(examples)


def take(dataset, count):
    return [{name: value.numpy() for name, value in batch.items()} for batch in itertools.islice(dataset, count)]


def hparams_of(sides, pseudo="none", **changes):
    family = SynchronousHParams if sides == 2 else HParams
    return family(batch_size=200, pseudo=pseudo, **changes)


def pipeline_of(sides, pseudo, *, num_replicas=1, seed=3, **changes):
    return TrainPipeline(
        STORE, hparams_of(sides, pseudo, **changes), seed=seed, num_replicas=num_replicas, target_sides=sides
    )


@pytest.mark.parametrize(
    ("sides", "pseudo", "changes"),
    [(2, pseudo, {}) for pseudo in TRIPLES]
    + [(2, pseudo, {"sb_loss_on_pseudo": False}) for pseudo in ("one", "six")]
    + [(2, "two", {"sb_loss_on_pseudo": False, "batch_shapes": "static"})]
    + [(1, pseudo, {}) for pseudo in OF_ONE_SIDE]
    + [(1, "both", {"target_direction": "r2l"})],
)
def test_an_epoch_is_what_plain_python_makes_of_the_triples(sides, pseudo, changes):
    pipeline = pipeline_of(sides, pseudo, **changes)
    found = read(take(pipeline.dataset(0), pipeline.batches_per_epoch), sides)
    gold_only, r2l = not changes.get("sb_loss_on_pseudo", True), changes.get("target_direction") == "r2l"
    expected, left_out = rendering(pseudo, sides, gold_only, r2l)
    assert found == expected
    assert sum(pipeline.dropped.values()) == left_out


def test_what_is_left_out_is_counted_by_reason():
    assert pipeline_of(2, "two").dropped == {
        "whose pseudo reference of the L2R model failed": 2,
        "whose pseudo reference of the R2L model failed": 2,
    }
    dropped = pipeline_of(2, "six", sb_loss_on_pseudo=False, max_length=20).dropped
    assert dropped.pop("without a reference (sb_loss_on_pseudo=false)") == 2 * COUNT
    assert dropped.pop("whose pseudo reference of the L2R model failed") == 4
    assert dropped.pop("whose pseudo reference of the R2L model failed") == 4
    usable = [[FIELDS["S"][i], FIELDS["G"][i], FIELDS[p][i]] for p in "LR" for i in range(COUNT) if FIELDS[p][i]] * 2
    inputs = sum(len(source) > 20 for source, *_ in usable)
    targets = sum(len(source) <= 20 and max(map(len, rest)) > 20 for source, *rest in usable)
    assert dropped == {"inputs longer than 20 tokens": inputs, "targets longer than 20 tokens": targets}
    assert targets > 0


def test_lengths_count_as_those_of_the_longer_side():
    """The longer target decides how many sentences fit into a batch; the shorter one's padding is not in the budget."""
    examples = target_variants.examples_of(STORE, hparams_of(2, "two"), 2)
    for number in (0, 7, COUNT + 5, 2 * COUNT - 1):
        variant, pair = divmod(number, COUNT)
        lengths = [len(FIELDS[field][pair]) for field in TRIPLES["two"][variant]]
        assert examples.target_lengths[number] == max(lengths)
        assert examples.target_tokens[number] == sum(lengths)
    pipeline = pipeline_of(2, "two")
    plan, batches = pipeline.planner.epoch(0), take(pipeline.dataset(0), pipeline.batches_per_epoch)
    positions = sum(batch["inputs"].size + batch["targets"].size for batch in batches)
    real = sum(np.count_nonzero(ids) for batch in batches for ids in batch.values())
    assert pipeline.fill_rate() == pytest.approx(real / positions)
    assert pipeline.shape(0) == f"{plan.rows[0]} rows x {plan.input_widths[0]} + 2 x {plan.target_widths[0]} tokens"
    for batch in batches:
        rows, _, width = batch["targets"].shape
        assert rows * max(width, batch["inputs"].shape[1]) <= 200


@pytest.mark.parametrize("changes", [{"sb_loss_on_pseudo": False}, {"batch_shapes": "static"}])
def test_starting_at_a_step_is_arriving_there(changes):
    pipeline = pipeline_of(2, "six", **changes)
    per_epoch = pipeline.batches_per_epoch
    whole = take(pipeline.dataset(0), 2 * per_epoch)
    for first in (per_epoch // 2, per_epoch - 1):
        for batch, expected in zip(
            take(pipeline_of(2, "six", **changes).dataset(first), 3), whole[first:], strict=False
        ):
            assert batch.keys() == expected.keys()
            for name, ids in batch.items():
                np.testing.assert_array_equal(ids, expected[name])


@pytest.mark.parametrize(
    ("replicas", "accumulation", "parallel", "shapes"), [(2, 1, 2, "dynamic"), (3, 2, 1, "static")]
)
def test_parts_of_replicas_are_the_global_batch(replicas, accumulation, parallel, shapes):
    changes = {
        "gradient_accumulation_steps": accumulation, "parallel_slices": parallel, "batch_shapes": shapes,
        "sb_loss_on_pseudo": False,
    }  # fmt: skip
    pipeline = pipeline_of(2, "two", num_replicas=replicas, **changes)
    count = pipeline.batches_per_epoch
    whole = take(pipeline.dataset(0, 0, 1), count)
    parts = [take(pipeline.dataset(0, replica, replicas), count) for replica in range(replicas)]
    assert read(itertools.chain(*parts), 2) == read(whole, 2)
    for i, batch in enumerate(whole):
        for name, ids in batch.items():
            joined = np.concatenate([part[i][name] for part in parts])
            np.testing.assert_array_equal(joined[: len(ids)], ids)
            assert not joined[len(ids) :].any()
            assert all(len(part[i][name]) % (accumulation * parallel) == 0 for part in parts)


def test_the_dev_set_is_made_of_the_same_variants_whatever_its_lengths():
    hparams = hparams_of(2, "six", max_length=10)
    examples = target_variants.examples_of(STORE, hparams, 2)
    batches = list(eval_batches(STORE, hparams, 60, examples).as_numpy_iterator())
    expected, left_out = rendering("six", 2)
    assert read(batches, 2) == expected
    assert sum(examples.dropped.values()) == left_out
    numbers = sorted(int(n) for batch in batches for n in batch["index"] if n >= 0)
    assert numbers == np.flatnonzero(examples.usable).tolist()
    source, targets = examples.sequences(STORE, 2 * COUNT + 3)
    assert [source.tolist(), *(ids.tolist() for ids in targets)] == [FIELDS[field][3] for field in "SLG"]


def test_ids_are_in_memory_once_whatever_the_number_of_variants():
    kept = {pseudo: pipeline_of(2, pseudo)._gather._targets.shape[0] for pseudo in ("none", "one", "two", "six")}
    tokens = {field: sum(map(len, FIELDS[field])) for field in "GLR"}
    assert kept["none"] == tokens["G"]
    assert kept["one"] == tokens["G"] + tokens["R"]
    assert kept["two"] == kept["six"] == sum(tokens.values())


def test_fingerprints_tell_variants_apart():
    """Resuming with other variants must be noticed, even if they give the same number of examples."""
    same = ExampleStore.from_sequences(FIELDS["S"], FIELDS["G"], (FIELDS["G"], FIELDS["G"]))

    def fingerprint(sides, pseudo, **changes):
        pipeline = TrainPipeline(same, hparams_of(sides, pseudo, **changes), seed=3, target_sides=sides)
        return pipeline.planner.fingerprint

    found = [
        fingerprint(2, "none"), fingerprint(2, "one"), fingerprint(2, "one", sb_loss_on_pseudo=False),
        fingerprint(2, "two"), fingerprint(1, "l2r"), fingerprint(1, "none"),
    ]  # fmt: skip
    assert len(set(found)) == len(found)
    assert fingerprint(2, "two") == found[3]
    changed = pipeline_of(2, "two").with_batches_of(hparams_of(2, "two", gradient_accumulation_steps=2)).planner
    assert changed.dropped == pipeline_of(2, "two").dropped


@pytest.mark.parametrize(
    ("sides", "changes", "message"),
    [
        (1, {"pseudo": "two"}, r"pseudo=two is for models that learn from two targets .* one of none, l2r, both"),
        (1, {"pseudo": "six"}, "is for models"),
        (2, {"pseudo": "none", "sb_loss_on_pseudo": False}, "with pseudo=none there are none"),
    ],
)
def test_contradictions_of_model_and_pseudo_are_explained(sides, changes, message):
    family = SynchronousHParams if "sb_loss_on_pseudo" in changes else HParams
    with pytest.raises(UserError, match=message):
        target_variants.check_model(family(**changes), sides)


def test_a_two_sided_model_takes_neither_r2l_nor_the_mixtures_of_ordinary_ones():
    for changes, message in (
        ({"target_direction": "r2l"}, "Leave target_direction out"),
        ({"pseudo": "both"}, "two, six, one"),
    ):
        with pytest.raises(UserError, match=message):
            target_variants.check_model(HParams(**changes), 2)


def test_pseudo_references_that_are_not_there():
    plain = registry.problem("translate_ende_cldr_rev")
    message = r"--problem={0} .* train on --problem={0}_synchronous, .*pseudo=none".format("translate_ende_cldr_rev")
    with pytest.raises(UserError, match=f"t2t_ext-pseudo-references {message}"):
        target_variants.check_problem(hparams_of(2, "two"), plain, "data")
    composed = registry.hparams("composed_transformer_tiny")
    with pytest.raises(
        UserError, match=r"pseudo=none in --hparams, or generate in one direction: synchronous=false\.$"
    ):
        target_variants.check_problem(composed, plain, "data")
    target_variants.check_problem(composed.replace(synchronous=False), plain, "data")
    target_variants.check_problem(hparams_of(2, "none"), plain, "data")
    target_variants.check_problem(hparams_of(2, "two"), registry.problem("translate_ende_cldr_synchronous"), "data")
    without = ExampleStore.from_sequences([[5, 1]], [[6, 1]])
    with pytest.raises(UserError, match="needs pseudo references"):
        TrainPipeline(without, hparams_of(2, "two"), seed=1, target_sides=2)
    failed = ExampleStore.from_sequences([[5, 1]], [[6, 1]], ([[]], [[]]))
    with pytest.raises(UserError, match=r"None of the 2 training examples .*1 whose pseudo reference of the L2R model"):
        TrainPipeline(failed, hparams_of(2, "two"), seed=1, target_sides=2)
    told = r"nothing to evaluate: all 1 examples .*1 whose pseudo reference of the R2L model failed.*--overwrite"
    with pytest.raises(UserError, match=told):
        eval_batches(failed, hparams_of(2), 50, target_variants.examples_of(failed, hparams_of(2, "one"), 2))


@pytest.mark.parametrize(
    ("model", "hparams_set", "one_way"),
    [
        ("synchronous_transformer", "synchronous_transformer_tiny", "transformer"),
        ("synchronous_layer_coordination", "synchronous_layer_coordination_tiny", "layer_coordination"),
    ],
)
def test_what_is_offered_in_their_place_is_what_the_model_takes(model, hparams_set, one_way):
    plain, hparams = registry.problem("translate_ende_cldr"), registry.hparams(hparams_set)
    with pytest.raises(UserError) as caught:
        target_variants.check_problem(hparams, plain, "data", model)
    offer = f"pseudo=none in --hparams, or generate in one direction: synchronous=false with --model={one_way}."
    assert str(caught.value).endswith(offer)
    for taken_by, overrides in ((one_way, "synchronous=false"), (model, "pseudo=none")):
        changed = registry.resolve_hparams(hparams_set, overrides)
        families.check_hparams(taken_by, changed, hparams_set)
        target_variants.check_problem(changed, plain, "data", taken_by)


def test_what_a_user_is_told():
    assert target_variants.describe(target_variants.gold_examples(STORE)) == ""
    text = target_variants.describe(
        target_variants.examples_of(STORE, hparams_of(2, "two", sb_loss_on_pseudo=False), 2)
    )
    assert "(pseudo reference of the L2R model, reference backwards), (reference, pseudo reference of the R2L" in text
    assert "loss on references only" in text
    (warning,) = target_variants.notes(hparams_of(2, "none"), 2, has_pseudo=False)
    assert warning.startswith("warning: pseudo=none")
    assert "see its own future" in warning
    assert not target_variants.notes(hparams_of(2, "two"), 2, has_pseudo=True)
    assert "not used" in target_variants.notes(HParams(), 1, has_pseudo=True)[0]


def test_the_trainer_warns_where_many_pseudo_references_failed():
    def warning(failed, pseudo):
        made = [[] if number < failed else [7, 1] for number in range(10)]
        store = ExampleStore.from_sequences([[5, 1]] * 10, [[6, 1]] * 10, (made, [[7, 1]] * 10))
        return target_variants.failure_warning(target_variants.examples_of(store, hparams_of(2, pseudo), 2))

    assert warning(4, "two") == ""  # that is a fifth of the examples
    assert warning(5, "two").startswith(
        "warning: of 20 examples, 5 whose pseudo reference of the L2R model failed, are"
    )
    assert "longer" in warning(5, "two")
    assert warning(10, "one") == warning(10, "none") == ""


def test_wide_ids_and_narrow_ones_together():
    """Ids of 16-bit references and of 32-bit pseudo references can be held in memory together."""
    store = ExampleStore.from_sequences([[5, 1]], [[6, 1]], ([[70000, 8, 1]], [[9, 70001, 1]]))
    (batch,) = take(TrainPipeline(store, hparams_of(2, "one"), seed=1, target_sides=2).dataset(0), 1)
    assert batch["targets"][0].tolist() == [[6, 1, 0], [70001, 9, 1]]
    assert math.prod(batch["targets"].shape[:2]) >= 2
