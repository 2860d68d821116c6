"""Tests of the places of samples: file and line, kept in little memory."""

from t2t_ext.data.corpora import places
from t2t_ext.data.corpora.readers import PairFiles, ReadReport
from t2t_ext.data.corpora.weighting import CorpusSource
from t2t_ext.problem import ParallelFilesProblem


def test_lines_that_are_left_out_and_further_files(monkeypatch):
    found = places.Places()
    read = [("x/a", 2), ("x/a", 3), ("x/a", 7), None, None, ("b", 1), ("b", 2), ("y/a", 9)]
    for place in read:
        found.add(place)
    assert [found.of(position) for position in range(len(read))] == [
        "x/a:2", "x/a:3", "x/a:7", "", "", "b:1", "b:2", "y/a:9",
    ]  # fmt: skip
    assert (found.of(-1), found.of(len(read))) == ("", "")
    assert len(found._positions) == 5
    monkeypatch.setattr(places, "MOST_STRETCHES", 2)
    few = places.Places()
    for line in (1, 2, 5, 9, 13):
        few.add(("a", line))
    assert [few.of(position) for position in range(5)] == ["a:1", "a:2", "a:5", "", ""]


def test_a_sample_without_a_place_has_a_number_of_what_is_counted():
    report = ReadReport()
    report.add_sample()
    assert report.name_of(0) == "pair 1"
    report.drop("empty", "a", 3, "empty")
    assert report.name_of(1233) == "pair 1,234 of those that remain"
    report.at = "a", 9
    report.add_sample()
    assert report.repetition((1, 0)) == "a:9 repeats pair 1 of those that remain"
    assert report.repetition(None) == ""


class Files(ParallelFilesProblem):
    source_language, target_language = "xx", "yy"

    def __init__(self, path):
        super().__init__(name="files")
        self.path = path

    def pair_files(self, split, tmp_dir):
        return [PairFiles(self.path)]


class Chosen(Files):
    def samples(self, split, tmp_dir):
        return (sample for sample in super().samples(split, tmp_dir) if sample["inputs"] != "a")


def test_a_users_choice_of_samples_has_no_false_lines(tmp_path):
    path = tmp_path / "x.tsv"
    path.write_bytes(b"a\tb\n\xff\tb\nc\td\n")
    for problem, count, name in ((Files(path), 2, "x.tsv:3"), (Chosen(path), 1, "pair 2 of those that remain")):
        assert len(list(problem.checked_samples("train", tmp_path))) == count
        assert problem.reading.name_of(1) == name


def test_a_pair_that_a_weight_leaves_out_lends_its_place_to_no_other(tmp_path):
    path = tmp_path / "x.tsv"
    path.write_bytes(b"a\tb\n")
    report = ReadReport()
    assert list(CorpusSource(name="x", files=(PairFiles(path),), weight=1e-9).read(report)) == []
    report.add_sample()  # of a corpus without places, such as TMX
    assert report.name_of(0).startswith("pair 1")
