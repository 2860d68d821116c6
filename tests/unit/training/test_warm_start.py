"""Tests of warm starts: variables match by name, and embeddings by piece if the vocabulary differs."""

import types

import numpy as np
import pytest
from random_weights import random_arrays

from t2t_ext import registry
from t2t_ext.data.text import sentencepiece_model, text_encoder
from t2t_ext.errors import UserError
from t2t_ext.runs import checkpoints
from t2t_ext.runs.run_directory import RunConfig, RunDirectory
from t2t_ext.training import warm_start

SIDES = {"embedding/embeddings": "source"}


@pytest.fixture(scope="module")
def other_encoder(toy_corpus):
    texts = [text for pair in toy_corpus.train[:300] for text in pair]
    return text_encoder.SubwordEncoder(sentencepiece_model.train(texts, vocab_size=310))


@pytest.fixture
def origin(tmp_path, tiny_encoder):
    """Returns a run with a checkpoint in whose embedding all values of row i are i."""
    config = RunConfig(
        problem="translate_parallel_text",
        model="transformer",
        hparams_set="transformer_test",
        hparams_class="t2t_ext.config.hyperparameters:TransformerHParams",
        hparams={},
        data_dir="data",
        data_digest="0",
        random_seed=1,
    )
    run = RunDirectory.create(tmp_path / "run", config, tiny_encoder, tiny_encoder)
    rows = np.repeat(np.arange(tiny_encoder.vocab_size, dtype=np.float32)[:, None], 4, axis=1)
    arrays = {
        "embedding/embeddings": rows,
        "encoder/kernel": np.ones([2, 2], np.float32),
        "encoder/wide": np.ones([2, 3], np.float32),
        "encoder/gone": np.ones([1], np.float32),
    }
    checkpoints.save_checkpoint(run.checkpoints_dir, 10, arrays)
    return run


def fresh(vocab_size):
    return {
        "embedding/embeddings": np.full([vocab_size, 4], -1, np.float32),
        "encoder/kernel": np.zeros([2, 2], np.float32),
        "encoder/wide": np.zeros([2, 5], np.float32),
        "encoder/bias": np.zeros([2], np.float32),
    }


def test_equal_vocabulary_is_loaded_by_name(origin, tiny_encoder):
    start = fresh(tiny_encoder.vocab_size)
    arrays, report = warm_start.warm_start(start, (tiny_encoder, tiny_encoder), SIDES, str(origin.path))
    np.testing.assert_array_equal(arrays["embedding/embeddings"][:, 0], np.arange(tiny_encoder.vocab_size))
    assert report.loaded == ["embedding/embeddings", "encoder/kernel"]
    assert report.new == ["encoder/bias"]
    assert set(report.skipped) == {"encoder/wide", "encoder/gone"}
    assert not report.mapped
    assert np.all(arrays["encoder/kernel"] == 1)
    assert np.all(arrays["encoder/wide"] == 0)
    text = "\n".join(report.lines())
    for part in ("2 variables loaded", "skipped encoder/wide", "[2, 3]", "encoder/bias"):
        assert part in text


def test_other_vocabulary_is_mapped_by_piece(origin, tiny_encoder, other_encoder):
    start = fresh(other_encoder.vocab_size)
    arrays, report = warm_start.warm_start(start, (other_encoder, other_encoder), SIDES, str(origin.path))
    old_pieces = tiny_encoder.pieces(range(tiny_encoder.vocab_size))
    new_pieces = other_encoder.pieces(range(other_encoder.vocab_size))
    moved = 0
    for row, piece in enumerate(new_pieces):
        expected = old_pieces.index(piece) if piece in old_pieces else -1
        moved += expected not in (-1, row)
        assert arrays["embedding/embeddings"][row, 0] == expected, piece
    assert moved > 5  # a copy by id would have been wrong
    shared = len(set(old_pieces) & set(new_pieces))
    assert report.mapped == {"embedding/embeddings": (shared, other_encoder.vocab_size)}
    assert f"{shared} of {other_encoder.vocab_size} subwords" in "\n".join(report.lines())


def test_equal_size_does_not_hide_another_vocabulary(origin, tiny_encoder, toy_corpus):
    texts = [target for _, target in toy_corpus.train]
    twin = text_encoder.SubwordEncoder(sentencepiece_model.train(texts, vocab_size=310))
    start = fresh(tiny_encoder.vocab_size)
    same_size = types.SimpleNamespace(
        ids_sha256=twin.ids_sha256,
        kind="sentencepiece",
        vocab_size=tiny_encoder.vocab_size,
        pieces=lambda ids: [f"piece {i}" for i in ids],
    )
    arrays, report = warm_start.warm_start(start, (same_size, same_size), SIDES, str(origin.path))
    assert np.all(arrays["embedding/embeddings"] == -1)
    assert report.mapped["embedding/embeddings"][0] == 0


def test_a_checkpoint_in_a_run_is_found(origin, tiny_encoder):
    path = origin.checkpoints_dir / checkpoints.checkpoint_name(10)
    start = fresh(tiny_encoder.vocab_size)
    _, report = warm_start.warm_start(start, (tiny_encoder, tiny_encoder), SIDES, str(path))
    assert report.origin == path


def test_a_link_to_a_checkpoint_leads_to_its_run(origin, tmp_path):
    run, checkpoint = warm_start.find_checkpoint(str(origin.path))
    (tmp_path / "links").mkdir()
    for target in (checkpoint, checkpoint.parent):
        link = tmp_path / "links" / target.name
        link.symlink_to(target)
        found = warm_start.find_checkpoint(str(link))
        assert (found[0].path, found[1]) == (run.path, checkpoint)


@pytest.mark.parametrize("kind", ["missing", "no run"])
def test_what_is_no_run_is_explained(tmp_path, kind):
    path = tmp_path / "nowhere" / "deep" if kind == "missing" else tmp_path
    with pytest.raises(UserError, match="run directory"):
        warm_start.find_checkpoint(str(path))


def test_a_run_that_is_missing_has_those_beside_it_suggested(origin):
    (origin.path.with_name(origin.path.name + "y")).mkdir()  # is not a run
    name = origin.path.name
    for wrong in (origin.path.with_name(name + "x"), origin.path.with_name(name + "x") / "best"):
        with pytest.raises(UserError) as caught:
            warm_start.find_checkpoint(str(wrong))
        told = f"does not exist. Did you mean {name!r}? Give a run directory or a checkpoint in one."
        assert str(caught.value) == f"--warm_start_from={wrong} {told}"
    with pytest.raises(UserError, match="Did you mean 'best'"):
        warm_start.find_checkpoint(str(origin.path / "bestt"))


def test_nothing_in_common_is_an_error(origin, tiny_encoder):
    start = {"other/kernel": np.zeros([2, 2], np.float32)}
    with pytest.raises(UserError, match="Nothing in"):
        warm_start.warm_start(start, (tiny_encoder, tiny_encoder), {}, str(origin.path))


@pytest.mark.parametrize(
    ("shared", "sides"),
    [
        (True, {"embedding/embeddings": "target"}),
        (
            False,
            {
                "source_embedding/embeddings": "source",
                "target_embedding/embeddings": "target",
                "softmax/embeddings": "target",
            },
        ),
    ],
)
def test_sides_come_from_the_model(shared, sides):
    hparams = registry.hparams("transformer_test").replace(shared_embedding_and_softmax_weights=shared)
    model = registry.model("transformer")(hparams, source_vocab_size=20, target_vocab_size=20)
    model.build()
    assert warm_start.vocabulary_sides(model) == sides


def test_a_users_model_may_lack_the_parts_that_have_a_row_for_each_piece():
    variable = types.SimpleNamespace(path="model/softmax/embeddings")
    model = types.SimpleNamespace(softmax=types.SimpleNamespace(variables=[variable]), source_embedding=None)
    assert warm_start.vocabulary_sides(model) == {"softmax/embeddings": "target"}


def warm_started(name, hparams, encoder, run):
    """Returns a new model's fresh values, those after a warm start, and the report."""
    model = registry.model(name)(hparams, source_vocab_size=encoder.vocab_size, target_vocab_size=encoder.vocab_size)
    model.build()
    fresh = {name: np.asarray(value) for name, value in model.named_variables().items()}
    sides = warm_start.vocabulary_sides(model)
    return fresh, *warm_start.warm_start(fresh, (encoder, encoder), sides, str(run.path))


def run_of(path, encoder, hparams):
    """Returns a run with a checkpoint of a Transformer with random weights, and its arrays."""
    size = encoder.vocab_size
    model = registry.model("transformer")(hparams, source_vocab_size=size, target_vocab_size=size)
    model.build()
    config = RunConfig(
        problem="translate_parallel_text", model="transformer", hparams_set="transformer_test",
        hparams_class="t2t_ext.config.hyperparameters:TransformerHParams", hparams=hparams.to_dict(), data_dir="data",
        data_digest="0", random_seed=1,
    )  # fmt: skip
    run = RunDirectory.create(path, config, encoder, encoder)
    arrays = random_arrays(model, seed=4)
    checkpoints.save_checkpoint(run.checkpoints_dir, 10, arrays)
    return run, arrays


ONE_MATRIX = {}
TWO_MATRICES = {"shared_embedding_and_softmax_weights": False, "shared_embedding": True}
THREE_MATRICES = {"shared_embedding_and_softmax_weights": False}


@pytest.mark.parametrize(
    ("theirs", "ours", "unshared"),
    [
        (ONE_MATRIX, ONE_MATRIX, {}),
        (THREE_MATRICES, THREE_MATRICES, {}),
        (TWO_MATRICES, TWO_MATRICES, {}),
        (ONE_MATRIX, THREE_MATRICES, dict.fromkeys(["source_embedding", "softmax", "target_embedding"], "embedding")),
        (TWO_MATRICES, THREE_MATRICES, dict.fromkeys(["source_embedding", "target_embedding"], "embedding")),
    ],
)
def test_a_synchronous_transformer_takes_everything_from_a_transformer(tmp_path, tiny_encoder, theirs, ours, unshared):
    hparams = registry.hparams("transformer_test").replace(
        num_hidden_layers=1, use_target_space_embedding=False, **theirs
    )
    run, old = run_of(tmp_path / "run", tiny_encoder, hparams)
    hparams = registry.hparams("synchronous_transformer_test").replace(num_hidden_layers=1, **ours)
    fresh, arrays, report = warm_started("synchronous_transformer", hparams, tiny_encoder, run)
    assert report.new == []
    assert not report.skipped
    assert sorted(report.loaded) == sorted(fresh)
    assert "no variable is new" in report.lines()[-2]
    assert report.unshared == {f"{new}/embeddings": f"{name}/embeddings" for new, name in unshared.items()}
    for name, value in arrays.items():
        np.testing.assert_array_equal(value, old[report.unshared.get(name, name)], err_msg=name)


@pytest.mark.parametrize(
    ("frames", "before"),
    [({}, "final_norm"), ({"layer_preprocess_sequence": "none", "layer_postprocess_sequence": "dan"},
                          "layer_1/feed_forward_frame/post_norm")],
)  # fmt: skip
def test_norms_of_views_begin_as_that_of_what_was_read(tmp_path, tiny_encoder, frames, before):
    """New norms of views start as copies of the norm that the decoder read before.

    Otherwise the scale of keys and values would change at once, to values that the decoder has not learned.
    """
    hparams = registry.hparams("transformer_test").replace(use_target_space_embedding=False, **frames)
    run, old = run_of(tmp_path / "run", tiny_encoder, hparams)
    views_too = hparams.replace(source_view="gca", integration="soft")
    _, arrays, report = warm_started("cross_view_transformer", views_too, tiny_encoder, run)
    views = {f"decoder/source_views/layer_{i}/norm" for i in range(2)}
    views |= set() if frames else {"encoder/view_norms/layer_0"}
    assert report.begun == {
        f"{view}/{part}": f"encoder/{before}/{part}" for view in views for part in ("scale", "bias")
    }
    assert report.new == []
    for name, taken in report.begun.items():
        np.testing.assert_array_equal(arrays[name], old[taken])
    assert any("begins as encoder/" in line for line in report.lines())


def test_what_was_apart_does_not_become_one(tmp_path, tiny_encoder):
    """Three embedding matrices are not merged into one: it starts fresh, and the report says so."""
    run, _ = run_of(tmp_path / "run", tiny_encoder, registry.hparams("transformer_test").replace(**THREE_MATRICES))
    size = tiny_encoder.vocab_size
    start = {"embedding/embeddings": np.zeros([size, 16], np.float32)}
    start["encoder/final_norm/scale"] = np.zeros([16], np.float32)
    _, report = warm_start.warm_start(start, (tiny_encoder, tiny_encoder), SIDES, str(run.path))
    assert report.new == ["embedding/embeddings"]
    assert "softmax/embeddings" in report.skipped
    assert "new, not in the checkpoint: embedding/embeddings" in "\n".join(report.lines())


POST_NORM = {"layer_preprocess_sequence": "none", "layer_postprocess_sequence": "dan"}


@pytest.mark.parametrize(
    ("model", "hparams_set"),
    [
        ("cross_view_transformer", "cross_view_transformer_test"),
        ("synchronous_transformer", "synchronous_transformer_test"),
        ("transformer", "transformer_test"),
    ],
)
def test_continued_learning_takes_everything_from_a_transformer(tmp_path, tiny_encoder, model, hparams_set):
    """A model with views takes all weights from a trained Transformer, and so does its baseline, which trains on."""
    base = registry.hparams("transformer_test").replace(use_target_space_embedding=False, **POST_NORM)
    run, old = run_of(tmp_path / "run", tiny_encoder, base)
    views = {} if model == "transformer" else {"source_view": "gca", "integration": "soft"}
    hparams = registry.hparams(hparams_set).replace(use_target_space_embedding=False, **POST_NORM, **views)
    size = tiny_encoder.vocab_size
    built = registry.model(model)(hparams, source_vocab_size=size, target_vocab_size=size)
    built.build()
    fresh = {name: np.asarray(value) for name, value in built.named_variables().items()}
    sides = warm_start.vocabulary_sides(built)
    arrays, report = warm_start.warm_start(fresh, (tiny_encoder, tiny_encoder), sides, str(run.path), hparams)
    assert sorted(report.loaded) == sorted(old)
    for name, value in old.items():
        np.testing.assert_array_equal(arrays[name], value, err_msg=name)
    assert not report.skipped
    assert all(name.startswith("decoder/source_views/layer_") for name in report.new)
    text = "\n".join(report.lines())
    assert f"{checkpoints.checkpoint_name(10)} (the last one, of step 10): {len(old)} variables" in text
    assert "optimizer, steps and learning rate begin anew" in text
    if views:
        assert {"source_view": ("last", "gca"), "integration": ("hard", "soft")}.items() <= report.changed.items()
        assert "source_view last -> gca, integration hard -> soft" in text
        assert "decoder/source_views/layer_*/norm/scale (2)" in text
        assert "no other variable is new" in text
    else:
        assert "others than there" not in text
        assert "no variable is new" in text


def test_the_report_says_which_checkpoint_was_taken(origin, tiny_encoder):
    arrays = checkpoints.load_arrays(checkpoints.latest(origin.path))
    checkpoints.save_checkpoint(origin.checkpoints_dir, 20, arrays)
    checkpoints.save_checkpoint(origin.best_dir, 10, arrays, metadata={"metric": "bleu", "bleu": 12.345})
    checkpoints.save_checkpoint(origin.averaged_dir, 20, arrays, metadata={"averaged_steps": [10, 20]})
    first = origin.checkpoints_dir / checkpoints.checkpoint_name(10)

    def told(path):
        start = fresh(tiny_encoder.vocab_size)
        return warm_start.warm_start(start, (tiny_encoder, tiny_encoder), SIDES, str(path))[1].lines()[0]

    assert f"(the last one, of step 20; there is also {origin.best_dir} and {origin.averaged_dir})" in told(origin.path)
    assert f"(the best by bleu, 12.35, of step 10; there is also {origin.averaged_dir})" in told(origin.best_dir)
    assert f"(the average of steps 10, 20; there is also {origin.best_dir})" in told(origin.averaged_dir)
    assert "(of step 10; " in told(first)
    (origin.checkpoints_dir / checkpoints.checkpoint_name(20) / "checkpoint.json").write_text("{", encoding="utf-8")
    assert "(of step 10, the last one that is not damaged; " in told(origin.path)


def test_the_report_says_that_targets_are_turned(tmp_path, tiny_encoder):
    hparams = registry.hparams("transformer_test").replace(num_hidden_layers=1)
    run, _ = run_of(tmp_path / "run", tiny_encoder, hparams)
    for ours, told in (("r2l", {"target_direction": ("l2r", "r2l")}), ("l2r", {})):
        stored = run.config.hparams
        assert warm_start.changed_hparams(stored, hparams.replace(target_direction=ours)) == told


def test_an_average_that_was_not_made_is_explained(origin):
    with pytest.raises(UserError, match=r"no averaged checkpoint yet\. Make one: t2t_ext-avg-all"):
        warm_start.find_checkpoint(str(origin.averaged_dir))


SCHEDULE_FREE = {"optimizer": "schedule_free_adam_w", "learning_rate_schedule": "constant"}


@pytest.fixture
def trained(origin):
    """Returns the path of a checkpoint of step 30 with the state of Adam and averages."""
    training = {
        "step": np.array(30), "skipped/total": np.array(2), "skipped/in_a_row": np.array(1),
        "loss_scale/scale": np.array(512, np.float32), "loss_scale/finite_in_a_row": np.array(7),
        "metrics/window": np.ones([11], np.float32),
    }  # fmt: skip
    model = checkpoints.load_arrays(checkpoints.latest(origin.path))
    for name, value in model.items():
        training |= {f"adam/m/{name}": value + 5, f"adam/v/{name}": value + 6}
    ema = {name: value + 7 for name, value in model.items()}
    return checkpoints.save_checkpoint(origin.checkpoints_dir, 30, model, training=training, ema=ema)


def test_what_is_kept_of_the_training_state(trained, tiny_encoder):
    """Keeping the training state keeps steps and the moments of loaded variables; other moments start at zero.

    The counts of consecutive skipped steps and of the metrics window start at zero, too.
    """
    start = fresh(tiny_encoder.vocab_size)
    arrays, report = warm_start.warm_start(start, (tiny_encoder, tiny_encoder), SIDES, str(trained), keep=True)
    counters = ("step", "skipped/total", "skipped/in_a_row", "loss_scale/finite_in_a_row")
    state = {name: np.array(0) for name in counters}
    state |= {"loss_scale/scale": np.array(1024, np.float32), "metrics/window": np.zeros([12], np.float32)}
    state |= {f"adam/{kind}/{name}": np.zeros_like(value) for kind in "mv" for name, value in start.items()}
    kept, report = warm_start.kept_training(state, report)
    assert kept.keys() == state.keys()
    assert (kept["step"], kept["skipped/total"], kept["skipped/in_a_row"]) == (30, 2, 0)
    assert (kept["loss_scale/scale"], kept["loss_scale/finite_in_a_row"]) == (512, 7)
    assert not kept["metrics/window"].any()
    for name in report.loaded:
        np.testing.assert_array_equal(kept[f"adam/m/{name}"], arrays[name] + 5)
        np.testing.assert_array_equal(kept[f"adam/v/{name}"], arrays[name] + 6)
    for name in ("encoder/wide", "encoder/bias"):
        assert not kept[f"adam/m/{name}"].any()
    assert "after step 30, the optimizer's state of 2 variables is kept, that of the other 2" in report.lines()[-1]
    averages = warm_start.kept_averages(dict(arrays), report)
    np.testing.assert_array_equal(averages["encoder/kernel"], arrays["encoder/kernel"] + 7)
    np.testing.assert_array_equal(averages["encoder/wide"], arrays["encoder/wide"])
    assert warm_start.kept_averages({}, report) == {}


def test_without_the_optimizer_the_weights_that_users_get_are_taken(trained, tiny_encoder):
    start = fresh(tiny_encoder.vocab_size)
    arrays, report = warm_start.warm_start(start, (tiny_encoder, tiny_encoder), SIDES, str(trained))
    model = checkpoints.load_arrays(trained, "model")
    np.testing.assert_array_equal(arrays["encoder/kernel"], model["encoder/kernel"] + 7)
    assert "(the averages of its weights; the last one, of step 30)" in report.lines()[0]


@pytest.mark.parametrize(("count", "fits"), [(3, True), (4, False)])
def test_snapshots_are_kept_together_or_not_at_all(trained, tiny_encoder, count, fits):
    model = {name: value for name, value in checkpoints.load_arrays(trained, "model").items() if "wide" not in name}
    rows = {f"snapshots/last/{name}": np.ones([3, *value.shape], np.float32) for name, value in model.items()}
    path = checkpoints.save_checkpoint(
        trained.parent, 40, model, training={"step": np.array(40), "snapshots/taken": np.array(9), **rows}
    )
    _, report = warm_start.warm_start(model, (tiny_encoder, tiny_encoder), SIDES, str(path), keep=True)
    fresh_rows = {name: np.zeros([count, *value.shape[1:]], np.float32) for name, value in rows.items()}
    state = {"step": np.array(0), "loss_scale/scale": np.array(1), "snapshots/taken": np.array(0), **fresh_rows}
    kept, _ = warm_start.kept_training(state, report)
    assert kept["snapshots/taken"] == (9 if fits else 0)
    assert all(kept[name].any() == fits for name in rows)


def test_schedule_free_keeps_only_what_is_the_same_model(trained, tiny_encoder):
    """Schedule-free training state is kept only if no variable is new.

    The initial values of a new variable would remain part of the average of all steps.
    """
    start = fresh(tiny_encoder.vocab_size)
    _, report = warm_start.warm_start(start, (tiny_encoder, tiny_encoder), SIDES, str(trained), keep=True)
    slots = {f"schedule_free/z/{name}": value for name, value in start.items()}
    with pytest.raises(UserError, match=r"needs every variable in the checkpoint .*warm_start_optimizer=reset"):
        warm_start.kept_training({"step": np.array(0), **slots}, report)


def test_without_a_loss_scale_none_is_taken_over(trained, tiny_encoder):
    _, report = warm_start.warm_start(fresh(tiny_encoder.vocab_size), (tiny_encoder,) * 2, SIDES, str(trained))
    state = {"loss_scale/scale": np.array(1, np.float32), "step": np.array(0)}
    kept, _ = warm_start.kept_training(state, report)
    assert (kept["loss_scale/scale"], kept["step"]) == (1, 30)


@pytest.mark.parametrize(
    ("step", "changes", "train_steps", "told"),
    [
        (30, {}, 30, "continues after step 30 .* give more"),
        (30, {"optimizer": "adafactor"}, 60, "has the state of adam, which optimizer=adafactor cannot continue with"),
        (30, SCHEDULE_FREE, 60, "has the state of adam, which optimizer=schedule_free_adam_w cannot"),
        (10, {}, 60, "holds weights only"),
    ],
)
def test_what_cannot_be_kept_is_told(trained, step, changes, train_steps, told):
    path = trained.parent / checkpoints.checkpoint_name(step)
    with pytest.raises(UserError, match=told):
        warm_start.check_keepable(path, registry.hparams("transformer_test").replace(**changes), train_steps)


def test_what_can_be_kept(trained):
    for optimizer in ("adam", "adam_w"):
        hparams = registry.hparams("transformer_test").replace(optimizer=optimizer)
        warm_start.check_keepable(trained, hparams, train_steps=31)
