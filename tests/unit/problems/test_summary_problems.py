"""Tests of the summaries' training samples."""

import pytest

from t2t_ext import registry


@pytest.mark.parametrize("tags", [{}, {"train_tags": "<a>", "default_tag": "<a>"}])
def test_a_tag_is_none_of_the_words_that_are_kept(tmp_path, tags):
    text, summary = tmp_path / "text", tmp_path / "summary"
    text.write_text("one two three four five\n")
    summary.write_text("a b c d\n")
    files = {
        f"{split}_{side}": str(path)
        for split in ("train", "dev")
        for side, path in (("source", text), ("target", summary))
    }
    problem = registry.problem("summarize_text", **files, **tags, source_words=3, target_words=2)
    (sample,) = problem.samples("train", tmp_path)
    assert sample == {"inputs": f"{'<a> ' if tags else ''}one two three", "targets": "a b"}
