"""Tests of the analyses of t2t_ext-compare, by hand and against sacrebleu, and of the command on real files."""

import bz2
import csv
import dataclasses
import gzip
import html.parser
import json
import lzma
import random
import re
import types

import pytest
import sacrebleu
from sacrebleu import significance as theirs

from t2t_ext.bin import compare as command
from t2t_ext.errors import UserError
from t2t_ext.evaluation import protocols, scored_files
from t2t_ext.evaluation.comparison import comparison as compare
from t2t_ext.evaluation.comparison import (
    differing_sentences,
    length_analysis,
    segment_statistics,
    significance,
    token_accuracy,
    word_frequency,
)
from t2t_ext.evaluation.comparison import plots as compare_plots
from t2t_ext.evaluation.comparison import report as compare_report
from t2t_ext.evaluation.comparison.annotation_sheet import make_sheet
from t2t_ext.translation.hypothesis import nbest_lines

WORDS = ["the", "a", "cat", "dog", "house", "sees", "runs", "big", "small", "red", "on", "under", "and", "he", "it"]


def spoilt(lines, share, seed):
    """Returns the lines with a share of their words replaced by random words."""
    rng = random.Random(seed)
    return [" ".join(rng.choice(WORDS) if rng.random() < share else word for word in line.split()) for line in lines]


@pytest.fixture(scope="module")
def corpus():
    rng = random.Random(7)
    source = [" ".join(rng.choices(WORDS, k=rng.randint(1, 30))) for _ in range(60)]
    reference = [f"{line} ." for line in source]
    return source, reference, {"good": spoilt(reference, 0.1, 1), "bad": spoilt(reference, 0.5, 2)}


def split(texts):
    return [text.split() for text in texts]


def test_bins_are_left_closed():
    assert length_analysis.bin_labels((10, 20, 50)) == ["<10", "10-20", "20-50", ">50"]
    assert length_analysis.group_by_length([0, 9, 10, 19, 20, 50, 99], (10, 20, 50)) == [[0, 1], [2, 3], [4], [5, 6]]
    for edges in ((), (0, 5), (5, 5), (9, 3)):
        with pytest.raises(UserError, match="increasing lengths"):
            length_analysis.bin_labels(edges)


def test_bleu_by_length_is_that_of_the_part(corpus):
    source, reference, systems = corpus
    metric = protocols.protocol("sacrebleu").metrics([reference])["BLEU"]
    lengths = [len(line.split()) for line in source]
    bins = length_analysis.by_length(metric, systems, lengths, (5, 12, 40))
    assert sum(each.sentences for each in bins) == len(source)
    for each, low, high in zip(bins[:3], (0, 5, 12), (5, 12, 40), strict=True):
        part = [i for i, length in enumerate(lengths) if low <= length < high]
        assert len(part) == each.sentences > 3
        for name, lines in systems.items():
            score = sacrebleu.BLEU().corpus_score([lines[i] for i in part], [[reference[i] for i in part]])
            assert each.bleu[name] == pytest.approx(score.score)
            assert each.length_ratio[name] == pytest.approx(score.sys_len / score.ref_len)
            assert each.average_length[name] == pytest.approx(score.sys_len / len(part))
    assert bins[3].bleu == {"good": None, "bad": None}
    assert bins[3].average_reference_length is None


def test_ends_accuracy_by_hand():
    ends = token_accuracy.ends_accuracy(
        split(["a b c d e f", "x", ""]),
        [split(["a x c d f", "x y", "z"]), split(["q b q q q", "y x", "z"])],
        tokens=4,
    )
    # Right from the beginning: a, b (second reference), c, d, and x. From the end: only f, and x (second reference).
    assert ends.first_by_position == (100, 100, 100, 100)
    assert ends.first == 100
    assert ends.last_by_position == (100, 0, 0, 0)
    assert ends.last == pytest.approx(100 * 2 / 5)
    nothing = token_accuracy.ends_accuracy([[]], [[["a"]]])
    assert (nothing.first, nothing.last, nothing.last_by_position) == (None, None, (None,) * 4)


def test_word_frequencies_by_hand():
    frequencies = word_frequency.count_words(split(["the the the cat cat dog"]))
    hypotheses, references = split(["the the cat", "dog bird"]), [split(["the cat cat mouse", "bird dog dog"])]
    buckets = word_frequency.by_frequency(hypotheses, references, frequencies, (1, 2, 3))
    assert [bucket.label for bucket in buckets] == ["0", "1", "2", ">=3"]
    # Buckets: bird and mouse; dog; cat; the. Values: words of the reference, of the translation, matches.
    counts = [(bucket.reference_words, bucket.hypothesis_words, bucket.matches) for bucket in buckets]
    assert counts == [(2, 1, 1), (2, 1, 1), (2, 1, 1), (1, 2, 1)]
    assert buckets[3].precision == 50
    assert buckets[3].recall == 100
    assert buckets[3].f1 == pytest.approx(200 / 3)
    assert word_frequency.bucket_labels() == ["0", "1", "2-4", "5-9", "10-99", "100-999", ">=1000"]
    # Each sentence is compared with the reference that shares the most words with it.
    (only,) = word_frequency.by_frequency([["a", "b"]], [[["c", "d"]], [["a", "c"]]], frequencies, ())
    assert (only.matches, only.f1) == (1, 50)
    (only,) = word_frequency.by_frequency([["a", "b"]], [[[]], [["c", "d"]]], frequencies, ())
    assert only.reference_words == 2


def test_marked_words():
    metric = protocols.protocol("multi_bleu").metrics([["x"]])["BLEU"]
    words = differing_sentences.mark_words(metric, {"one": "a b c", "two": "a x c d"}, ["x c d", "a y c"])
    assert [(word.text, word.in_reference, word.shared) for word in words["one"]] == [
        ("a", True, True),
        ("b", False, False),
        ("c", True, True),
    ]
    assert [(word.text, word.in_reference, word.shared) for word in words["two"]] == [
        ("a", False, True),
        ("x", True, False),
        ("c", True, True),
        ("d", True, False),
    ]


def test_marked_words_keep_their_case():
    metric = protocols.protocol("multi_bleu_uc").metrics([["x"]])["BLEU"]
    words = differing_sentences.mark_words(metric, {"one": "The CAT sat"}, ["the cat sits"])["one"]
    assert [(word.text, word.in_reference) for word in words] == [("The", True), ("CAT", True), ("sat", False)]


def test_order_of_differing_sentences():
    chrf = {"one": [10.0, 50.0, 70.0, 20.0], "two": [20.0, 50.0, 40.0, 30.0]}
    assert differing_sentences.most_differing(chrf, 10) == [2, 0, 3]  # without the sentence that is equal in both
    assert differing_sentences.most_differing(chrf, 1) == [2]
    assert differing_sentences.most_differing({"one": chrf["one"]}, 2) == [0, 3]  # the worst ones


def test_sentence_bleu_is_sacrebleus():
    hypothesis, reference = "a b x d e", "a b c d e"
    metric = protocols.protocol("mteval_v13a").metrics([[reference]])["BLEU"]
    counts = segment_statistics.by_segment(metric, [hypothesis])
    expected = sacrebleu.sentence_bleu(hypothesis, [reference]).score
    assert segment_statistics.sentence_bleu(metric, counts[0]) == pytest.approx(expected)


@pytest.mark.parametrize("name", ["sacrebleu", "ter", "rouge_unicode"])
def test_empty_lines_that_fill_up_a_set_are_no_references(corpus, name, monkeypatch):
    monkeypatch.setattr(segment_statistics, "_SEGMENTS_AT_ONCE", 8)
    _, reference, systems = corpus
    second = [line if number % 3 and number < 50 else "" for number, line in enumerate(spoilt(reference, 0.3, 4))]
    given = [reference, [line or None for line in second]]
    found = segment_statistics.metrics_of(protocols.protocol(name), systems, [reference, second])
    for label, metric in protocols.protocol(name).metrics(given).items():
        assert "nrefs:var|" in str(found[label].get_signature())
        for lines in systems.values():
            score = found[label].corpus_score(lines, None).score
            assert score == pytest.approx(metric.corpus_score(lines, given).score)


@pytest.mark.parametrize("name", ["sacrebleu", "mteval_v13a"])
def test_paired_tests_are_sacrebleus(corpus, name, monkeypatch):
    monkeypatch.setattr(significance, "_BLOCK", 1)  # 32 trials at a time
    _, reference, systems = corpus
    (label, metric), *_ = segment_statistics.metrics_of(protocols.protocol(name), systems, [reference]).items()
    (result,) = significance.paired_tests(label, metric, systems, resamples=200, trials=300)
    for kind, samples, p in (("bs", 200, result.p_bootstrap), ("ar", 300, result.p_randomization)):
        test = theirs.PairedTest([*systems.items()], {"BLEU": sacrebleu.BLEU()}, [reference], kind, samples)
        _, columns = test()
        assert p == columns["BLEU"][1].p_value
        assert result.difference == pytest.approx(columns["BLEU"][1].score - columns["BLEU"][0].score)
    metric.n_bootstrap = 50  # as for a confidence interval
    (again,) = significance.paired_tests(label, metric, systems, resamples=200, trials=300)
    for found in (result, again):
        assert "bs:200" in found.signature_bootstrap
        assert "ar:300" in found.signature_randomization
        assert "bs:" not in found.signature_randomization


def test_the_seed_of_tests(corpus, monkeypatch):
    _, reference, systems = corpus

    def p_of(seed):
        monkeypatch.setenv("SACREBLEU_SEED", seed)
        (label, metric), *_ = segment_statistics.metrics_of(
            protocols.protocol("sacrebleu"), systems, [reference]
        ).items()
        (result,) = significance.paired_tests(label, metric, systems, resamples=50, trials=50)
        assert f"seed:{seed}" in result.signature_randomization
        return result

    assert p_of("0") == p_of("0")
    # Also with a random seed, all systems are resampled alike: between equal ones there is no difference in any sample.
    first = next(iter(systems.values()))
    systems = {"one": first, "same": list(first)}
    assert p_of("none").p_bootstrap == 1.0
    with pytest.raises(UserError, match=r"SACREBLEU_SEED=abc: the seed .* is a whole number from 0, or none"):
        p_of("abc")


@pytest.mark.parametrize("name", ["sacrebleu", "chrf"])
def test_one_sentence_makes_no_significant_difference(corpus, name):
    """Swapping the only differing sentence keeps the size of the difference; equal systems differ in no sample."""
    _, reference, systems = corpus
    first = systems["good"]
    wrong = max(range(len(first)), key=lambda line: first[line] != reference[line])
    other = [reference[line] if line == wrong else text for line, text in enumerate(first)]
    systems = {"first": first, "same": list(first), "other": other}
    (label, metric), *_ = segment_statistics.metrics_of(protocols.protocol(name), systems, [reference]).items()
    same, better = significance.paired_tests(label, metric, systems, resamples=100, trials=100)
    assert (same.difference, same.p_bootstrap, same.p_randomization) == (0.0, 1.0, 1.0)
    assert better.difference > 0
    assert better.p_randomization == 1.0
    assert better.p_bootstrap > 0.05


def test_trials_fit_into_memory():
    assert significance.affordable_trials(3000) == 10000
    assert significance.affordable_trials(50_000) == 3000
    assert significance.affordable_trials(10_000_000) == 1000
    assert significance.affordable_trials(3000, 500) == 500
    assert significance.affordable_resamples(3000) == 1000
    assert 200 < significance.affordable_resamples(20_000) < 1000
    assert significance.affordable_resamples(10_000_000) == 200


def small_settings(**changes):
    return compare.Settings(**{"resamples": 50, "trials": 60, **changes})


def test_comparison(corpus):
    source, reference, systems = corpus
    settings = small_settings(protocols=("mteval_v13a", "chrf++", "ter_uc"), sentences=5)
    found = compare.compare(systems, [reference, reference], source=source, settings=settings)
    assert [(each.protocol, each.label) for each in found.scores] == [
        ("mteval_v13a", "BLEU"),
        ("mteval_v13a", "NIST"),
        ("chrf++", "chrF2++"),
        ("ter_uc", "TER"),
    ]
    for each in found.scores:
        good, bad = each.systems["good"], each.systems["bad"]
        assert (good.value > bad.value) == good.higher_is_better
        assert each.tests[0].difference == pytest.approx(bad.value - good.value)
        assert each.tests[0].p_randomization < 0.05
        assert good.confidence > 0
    assert found.ends["good"].first > found.ends["bad"].first > 0
    assert len(found.differing) == 5
    spreads = [each.spread for each in found.differing]
    assert spreads == sorted(spreads, reverse=True)
    assert found == compare.compare(systems, [reference, reference], source=source, settings=settings)
    written = json.loads(json.dumps(found.as_dict()))
    assert written["by_frequency"]["good"][4]["f1"] == found.by_frequency["good"][4].f1 > 0
    trained = compare.compare(systems, [reference], train_text=iter(["the the cat"]), settings=settings)
    assert (trained.frequencies_of, trained.length_of) == ("training text", "reference")
    assert trained.by_frequency["good"][2].reference_words == sum(line.split().count("the") for line in reference)


def test_notes():
    systems = {"one": ["a ."] * 20, "two": ["a ."] * 20, "three": ["", *["b ."] * 19]}
    notes = compare.compare(systems, [["a ."] * 20], settings=small_settings()).notes
    assert "two and one are the same, line for line." in notes
    assert "three: 1 of 20 translations are empty." in notes
    chinese = ["我们昨天去了柏林看望我们的老朋友。"]
    notes = compare.compare({"one": ["a"]}, [["a"]], source=chinese, settings=small_settings()).notes
    assert notes == [
        "The source has a space every 17 characters: its lengths in words mean little. Count characters or subwords."
    ]
    notes = compare.compare(systems, [["a ."] * 20], settings=small_settings()).notes
    assert any(note.startswith("one: 20 lines end in a full stop that stands alone") for note in notes)


class Page(html.parser.HTMLParser):
    """Checks that elements are closed in order, and collects tags, ids and text."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.ids, self.text = [], [], [], ""
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        values = dict(attributes)
        if tag not in ("meta", "br"):
            self.open.append(tag)
        assert tag != "svg" or values["aria-label"]
        self.ids += [values["id"]] if "id" in values else []
        assert values.get("href", "#").startswith("#")
        assert not set(values) & {"onload", "onerror"}

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_html_is_one_safe_page():
    evil = "<script>alert('x')</script> & \"$q$\" </td> 猫"
    systems = {"<b>A&B</b> $x$": [evil, "a b c"], "猫": ["<img src=x onerror=y>", "a b d"]}
    found = compare.compare(systems, [[evil, "a b c"]], source=[evil, evil], settings=small_settings())
    text = compare_report.build(found).page()
    assert text == compare_report.build(found).page()
    page = Page(text)
    assert "script" not in page.tags
    assert page.text.count("alert('x')") == 3  # two sources, one reference; systems' words are cut
    assert "<b>A&B</b> $x$" in page.text
    assert not re.search(r"(src|href)=\"(?!data:|#)", text)
    assert "http" not in text
    assert page.tags.count("svg") == len(found.scores) + 4
    assert not {"img", "image", "metadata"} & set(page.tags)
    assert len(set(page.ids)) == len(page.ids)
    assert re.search(r"<title>猫: [\d.]+</title>", text)


def test_no_line_is_drawn_to_a_bin_of_few_sentences():
    assert compare_plots.drawn_bins([3, 200, 10, 9]) == [False, True, True, False]
    assert compare_plots.drawn_bins([3, 0, 4]) == [True] * 3  # with few data this is better than an empty figure


def test_colors_are_many_enough(corpus):
    _, reference, systems = corpus
    many = {f"system number {number} with a long name": systems["bad"] for number in range(9)}
    found = compare.compare(many, [reference], settings=small_settings(protocols=("sacrebleu",), resamples=5, trials=5))
    for draw in (compare_plots.bleu_by_length, compare_plots.ratio_by_length, compare_plots.ends):
        assert draw(found).count(b"<svg") == 1
    assert compare_plots.f1_by_frequency(found).count(b"<svg") == 1


def write(folder, name, lines):
    path = folder / name
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


@pytest.fixture
def files(corpus, tmp_path):
    source, reference, systems = corpus
    names = {name: write(tmp_path, f"{name}.txt", lines) for name, lines in systems.items()}
    return {**names, "source": write(tmp_path, "src.txt", source), "reference": write(tmp_path, "ref.txt", reference)}


FAST = ["--n_bootstrap=20", "--n_trials=30"]


def test_command(files, tmp_path, capsys):
    outputs = [f"--json={tmp_path / 'out.json'}", f"--html={tmp_path / 'out.html'}"]
    flags = [f"--reference={files['reference']}", f"--source={files['source']}", "--length_bins=5,12", "--sentences=2"]
    assert command.main([files["good"], *flags, *FAST, files["bad"], *outputs]) == 0
    captured = capsys.readouterr()
    assert "good, bad: 60 segments, 1 reference; the baseline is good" in captured.out
    counts = re.search(
        r"^bad: better than good in (\d+) sentences, worse in (\d+), equal in (\d+)$", captured.out, re.M
    )
    better, worse, equal = map(int, counts.groups())
    assert better + worse + equal == 60
    assert worse > 40
    for heading in ("sacrebleu: BLEU", "chrf: chrF2", "BLEU, length ratio", "Accuracy", "F1 of words", "Sentences"):
        assert f"== {heading}" in captured.out
    assert re.search(
        r"^bad +\d+\.\d\d +\d+\.\d\d ± \d+\.\d\d +-\d+\.\d\d +0\.\d{4} \* +0\.\d{4} \*$", captured.out, re.M
    )
    assert re.search(r"^<5 +\d+ ", captured.out, re.M)
    assert captured.out.count("\nline ") == 2
    assert "paired tests ..." in captured.err
    report = json.loads((tmp_path / "out.json").read_text())
    assert report["format"] == 1
    assert report["wins"]["bad"] == [better, worse, equal]
    assert report["names"] == ["good", "bad"]
    assert report["scores"][0]["tests"][0]["system"] == "bad"
    assert len(report["sentence_chrf"]["bad"]) == 60
    Page((tmp_path / "out.html").read_text())


def test_a_report_on_standard_output_is_alone_there(files, capfd):
    flags = [f"--reference={files['reference']}", "--sentences=0", "--protocol=chrf", "--json=-", *FAST]
    assert command.main([*flags, files["good"]]) == 0
    said = capfd.readouterr()
    assert json.loads(said.out)["names"] == ["good"]
    assert "== chrf: chrF2" in said.err


def test_command_with_one_system_and_tokens(files, capsys):
    flags = [f"--reference={files['reference']},{files['source']}", "--protocol=multi_bleu,ter", "--names=mine"]
    assert command.main([*flags, *FAST, files["bad"]]) == 0
    out = capsys.readouterr().out
    assert out.startswith("mine: 60 segments, 2 references\n")
    assert "difference" not in out
    assert "lower is better" in out
    assert "lowest chrF\n[words] are not in the reference" in out
    assert "length of the reference" in out


def test_command_reads_sgml_with_several_systems(tmp_path, capsys):
    seg = '<seg id="{}">{}</seg>'.format
    documents = [f'<doc docid="d" sysid="{name}">{seg(2, second)}{seg(1, first)}</doc>' for name, first, second in (
        ("one", "a b c d", "e f g &amp;"), ("two", "a b c x", "e f g h"),
    )]  # fmt: skip
    (tmp_path / "tst.sgm").write_text(f'<tstset setid="s">{"".join(documents)}</tstset>')
    reference = write(tmp_path, "ref.txt", ["e f g &", "a b c d"])  # in the order of the segments in the SGML file
    assert command.main([f"--reference={reference}", *FAST, str(tmp_path / "tst.sgm")]) == 0
    out = capsys.readouterr().out
    assert out.startswith("one, two: 2 segments")
    assert re.search(r"^one +100\.00 ", out, re.M)


def test_command_counts_the_sources_subwords(files, corpus, tmp_path, capsys):
    from t2t_ext.data.text import sentencepiece_model
    from t2t_ext.data.text.text_encoder import SubwordEncoder

    encoder = SubwordEncoder(sentencepiece_model.train(corpus[0], 300))
    encoder.save(tmp_path / "subwords.model")
    lengths = [len(ids) for ids in encoder.encode_batch(corpus[0])]
    longest = max(lengths)
    shorter = 60 - lengths.count(longest)
    flags = [f"--reference={files['reference']}", f"--source={files['source']}", *FAST, files["good"]]
    subwords = ["--length_unit=subwords", f"--subword_model={tmp_path / 'subwords.model'}", f"--length_bins={longest}"]
    assert command.main([*flags, *subwords]) == 0
    rows = rf"^subwords.*\n<{longest} +{shorter} .*\n>{longest} +{60 - shorter} "
    assert re.search(rows, capsys.readouterr().out, re.M)
    assert command.main([*flags, "--length_unit=characters", "--length_bins=1"]) == 0
    assert re.search(r"^characters.*\n<1 +0 +- .*\n>1 +60 ", capsys.readouterr().out, re.M)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{good}"], "needs a value"),
        (["--reference={reference}"], "No translations are given"),
        (["--reference={reference}", "{good}", "{good}"], "is the same file as"),
        (["--reference={reference}", "{good}", "{tmp}/./good.txt"], "is the same file as"),
        (["--reference={reference},{reference}", "{good}"], "--reference names"),
        (["--reference={reference},", "{good}"], "empty name"),
        (["--reference={reference}", "{good}", "{tmp}/nothing"], "{tmp}/nothing"),
        (["--reference={tmp}/nothing", "{good}"], "{tmp}/nothing"),
        (["--reference={reference}", "{good}", "{short}"], "59 in {short}, 60 in {reference}"),
        (["--reference={reference}", "--source={short}", "{good}"], "60 in {good}, 59 in {short}"),
        (["--reference={reference}", "{empty}"], "{empty} is empty"),
        (["--reference={reference}", "--names=a", "{good}", "{bad}"], "1 names for 2 translations"),
        (["--reference={reference}", "--names=a,a", "{good}", "{bad}"], "a name of its own"),
        (["--reference={reference}", "--protocol=multiblue", "{good}"], "Did you mean 'multi_bleu'"),
        (["--reference={reference}", "--protocol=multi_bleu,detok", "{good}"], "command each"),
        (["--reference={reference}", "--length_bins=1,x", "{good}"], "whole numbers"),
        (["--reference={reference}", "--length_bins=9,3", "{good}"], "increasing lengths"),
        (["--reference={reference}", "--length_unit=subwords", "{good}"], "give --source=FILE"),
        (["--reference={reference}", "--source={source}", "--length_unit=subwords", "{good}"], "--subword_model=FILE"),
        (["--reference={reference}", "--subword_model=x", "{good}"], "--length_unit=subwords only"),
        (["--reference={reference}", "--html={tmp}/no/x.html", "{good}"], "Create it first"),
        (["--reference={reference}", "--train_text={tmp}/none", "{good}"], "{tmp}/none"),
        (["--reference={reference}", "--train_text=/dev/null", "{good}"], "--train_text=/dev/null is empty"),
        (["--reference={reference}", "--n_bootstrap=1", "{good}"], "at least 2"),
        (["--reference={reference}", "--refs=x", "{good}"], "unknown flag --refs"),
        (["--reference={reference}", "--sheet_sentences=5", "{good}"], "give --sheet=FILE, or leave it out"),
    ],
)
def test_command_errors(files, corpus, tmp_path, capsys, arguments, message):
    names = {
        **files,
        "tmp": tmp_path,
        "short": write(tmp_path, "short.txt", corpus[1][:-1]),
        "empty": write(tmp_path, "empty.txt", []),
    }
    given = [argument.format(**names) for argument in arguments]
    if message == "needs a value":
        given, message = [*given, "--reference"], "--reference needs a value"
    assert command.main(given) == 2
    error = capsys.readouterr().err
    assert message.format(**names) in error
    assert error.startswith("error: ")
    assert error.count("\n") == 1


def test_a_tag_is_no_word_of_the_source(tmp_path, monkeypatch):
    problem = types.SimpleNamespace(tags=("<a>", "<b>"))
    split = (["<a> ein Haus", "das <b> da"], [["a house", "that there"]])
    encoder = types.SimpleNamespace(steps=types.SimpleNamespace(names=()))
    run = types.SimpleNamespace(text_encoders=lambda: (encoder, encoder))
    monkeypatch.setattr("t2t_ext.runs.run_directory.RunDirectory.open", lambda path: run)
    texts = types.SimpleNamespace(problem=problem, split=lambda name: split)
    monkeypatch.setattr("t2t_ext.bin._run_text.run_texts", lambda run, flags: texts)
    translations = [write(tmp_path, "a.txt", ["a house", "that"])]
    flags = types.SimpleNamespace(split="test", output_dir="RUN", translations=translations)
    assert command._read(flags, tokenized=False).source.lines == ["ein Haus", "das <b> da"]


def test_text_without_differences(corpus):
    _, reference, _ = corpus
    same = compare.compare({"a": reference, "b": reference}, [reference], settings=small_settings())
    report = compare_report.build(same)
    text = report.text()
    assert "none: every sentence has the same chrF in all systems" in text
    assert "+0.00" in text
    unshown = compare.compare({"a": reference, "b": reference}, [reference], settings=small_settings(sentences=0))
    assert compare_report.build(unshown).text().endswith("equal in 60")
    assert "<p>none:" not in compare_report.build(unshown).page()
    assert "<p>none:" in report.page()


# All pairs, directions, and inputs other than plain lines.


def test_all_pairs_are_tested(corpus):
    _, reference, systems = corpus
    systems = {**systems, "worse": spoilt(reference, 0.6, 3)}
    settings = compare.Settings(protocols=["sacrebleu"], resamples=200, trials=200)
    block = compare.compare(systems, [reference], settings=settings).scores[0]
    assert [(test.baseline, test.system) for test in block.pairs] == [
        ("good", "bad"), ("good", "worse"), ("bad", "worse")
    ]  # fmt: skip
    assert list(block.tests) == list(block.pairs[:2])
    metric = protocols.protocol("sacrebleu").metrics([reference])["BLEU"]
    (alone,) = significance.paired_tests(
        "BLEU", metric, {name: systems[name] for name in ("bad", "worse")}, resamples=200, trials=200
    )
    # (The signature of two systems has no intervals.)
    assert dataclasses.replace(block.pairs[2], signature_randomization=alone.signature_randomization) == alone
    table = compare_report.pairs(block)
    rows = table.cells()
    assert ([column.heading for column in table.columns], [row[0] for row in rows]) == (["", *systems], list(systems))
    assert rows[2][2].startswith(f"{alone.difference:+.2f} ({alone.p_randomization:.4f}")
    assert rows[1][3].startswith(f"{-alone.difference:+.2f} (")
    assert [rows[place][place + 1] for place in range(3)] == ["", "", ""]
    settings = dataclasses.replace(settings, all_pairs=False)
    found = compare.compare(systems, [reference], settings=settings)
    assert found.scores[0].tests == block.tests
    assert not found.scores[0].pairs


@pytest.fixture
def nbest(corpus, tmp_path):
    """Returns an n-best list of a model that generates in both directions, and the direction that won each line."""
    _, _, systems = corpus
    won = ["l2r" if number % 3 else "r2l" for number in range(60)]
    rows = [
        {"line": number, "hypotheses": [{"text": text, "prepared": f"{text} x", "direction": direction}, {"text": "-"}]}
        for number, (text, direction) in enumerate(zip(systems["bad"], won, strict=True), start=1)
    ]
    path = tmp_path / "sb.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path, won


def test_directions_of_an_nbest_list(files, nbest, corpus, tmp_path, capsys):
    _, reference, systems = corpus
    path, won = nbest
    flags = [f"--reference={files['reference']}", f"--json={tmp_path / 'out.json'}", f"--html={tmp_path / 'out.html'}"]
    assert command.main([*flags, *FAST, "--names=base,sb", files["good"], str(path)]) == 0
    out = capsys.readouterr().out
    assert "== Sentences that each direction of sb won: 66.7% l2r, 33.3% r2l" in out
    parts = json.loads((tmp_path / "out.json").read_text())["by_direction"]["sb"]
    assert [part["sentences"] for part in parts] == [40, 20]
    for part in parts:
        lines = [number for number, direction in enumerate(won) if direction == part["direction"]]
        expected = [reference[number] for number in lines]
        for name, system in (("base", "good"), ("sb", "bad")):
            score = sacrebleu.BLEU().corpus_score([systems[system][number] for number in lines], [expected])
            assert part["bleu"][name] == pytest.approx(score.score)
            assert part["average_length"][name] == pytest.approx(score.sys_len / len(lines))
    assert "Sentences that each direction of sb won" in (tmp_path / "out.html").read_text()
    # Protocols for tokenized text score the tokens that the model generated.
    assert command.main([f"--reference={files['reference']}", *FAST, "--protocol=multi_bleu", str(path)]) == 0
    score = protocols.score("multi_bleu", [f"{line} x" for line in systems["bad"]], [reference])[0]
    assert f" {score.value:.2f} " in capsys.readouterr().out


@pytest.mark.parametrize(("ending", "compress"), [("gz", gzip.compress), ("xz", lzma.compress), ("bz2", bz2.compress)])
def test_nbest_lists_may_be_compressed(nbest, tmp_path, ending, compress):
    path, won = nbest
    (tmp_path / f"out.nbest.jsonl.{ending}").write_bytes(compress(path.read_bytes()))
    (plain,) = scored_files.read_translations([str(path)])
    (text,) = scored_files.read_translations([str(tmp_path / f"out.nbest.jsonl.{ending}")])
    assert (text.lines, text.directions) == (plain.lines, won)


def test_nbest_lists_are_known_by_their_beginning(tmp_path):
    """Their lines would otherwise be scored as they are."""
    records = [[{"text": "a b", "prepared": "a @-@ b"}, {"text": "c"}], [{"text": "d"}]]
    path = tmp_path / "best.txt.gz"
    path.write_bytes(gzip.compress("".join(f"{line}\n" for line in nbest_lines(["x", "y"], records)).encode()))
    (text,) = scored_files.read_translations([str(path)])
    assert text.lines == ["a b", "d"]
    (text,) = scored_files.read_translations([str(path)], tokenized=True)
    assert text.lines == ["a @-@ b", "d"]
    (text,) = scored_files.read_translations([write(tmp_path, "plain.txt", ['{"line": 1}', "x"])])
    assert text.lines == ['{"line": 1}', "x"]


def test_lines_without_text_are_won_by_no_direction(tmp_path):
    """An empty line counts for no direction, as in the decoder's own statistics."""
    from t2t_ext.evaluation.comparison import direction_analysis

    best = [("a b", "l2r", 3), ("", "l2r", 0), ("c", "r2l", 2), ("d", "l2r", 2), ("e", "l2r", 2)]
    rows = [{"hypotheses": [dict(zip(("text", "direction", "length"), each, strict=True))]} for each in best]
    path = tmp_path / "sb.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (text,) = scored_files.read_translations([str(path)])
    assert text.directions == ["l2r", "", "r2l", "l2r", "l2r"]
    bleu = sacrebleu.BLEU(references=[["a b", "", "c", "d", "e"]])
    parts = direction_analysis.by_direction(bleu, {"sb": text.lines}, text.directions)
    assert [(part.sentences, part.share) for part in parts] == [(3, 0.75), (1, 0.25)]


def test_folder_of_translations(files, corpus, tmp_path, capsys):
    from t2t_ext.evaluation.score_table import ScoreRecord, ScoreTable

    _, _, systems = corpus
    table = ScoreTable(tmp_path / "test.beam4.alpha0.6")
    for step, name in ((10, "bad"), (20, "good")):
        (table.folder / f"model.ckpt-{step}.txt").write_text("".join(f"{line}\n" for line in systems[name]))
        table.add(
            ScoreRecord(
                step=step, checkpoint="", weights="", search="", scoring="", translations=f"model.ckpt-{step}.txt",
                lines=60, seconds=1.0, scores={"BLEU": 1.0}, signatures={"BLEU": ""},
            )
        )  # fmt: skip
    (table.folder / "model.ckpt-20.directions.txt").write_text("l2r\n" * 60)
    flags = [f"--reference={files['reference']}", f"--json={tmp_path / 'out.json'}", "--names=sb,file"]
    assert command.main([*flags, *FAST, str(table.folder), files["good"]]) == 0
    assert "sb and file are the same" in capsys.readouterr().out.replace("file and sb", "sb and file")
    assert [part["share"] for part in json.loads((tmp_path / "out.json").read_text())["by_direction"]["sb"]] == [1, 0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"text": "a"}\n', "line 1 is no line of an n-best list"),
        ('{"hypotheses": []}\n', "line 1 is no line of an n-best list"),
        ("not JSON\n", "give translations another ending"),
        ("", "is empty"),
    ],
)
def test_damaged_nbest_lists(files, tmp_path, capsys, content, message):
    (tmp_path / "bad.jsonl").write_text(content)
    assert command.main([f"--reference={files['reference']}", *FAST, str(tmp_path / "bad.jsonl")]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "--reference and --split are both missing"),
        (["--split=test"], "--output_dir=RUN and --split=NAME go together"),
        (["--output_dir=nowhere", "--split=test"], "nowhere"),
        (["--reference={reference}", "--output_dir=x", "--split=test"], "exclude each other"),
        (["--reference={reference}", "--data_dir=x"], "--data_dir goes with --split"),
        (["--reference={reference}", "--test_pairs=every"], "must be one of"),
        (["--reference={reference}", "{folder}"], "is no folder of t2t_ext-translate-all"),
    ],
)
def test_mistakes_in_what_is_compared(files, tmp_path, capsys, flags, message):
    flags = [flag.format(reference=files["reference"], folder=tmp_path) for flag in flags]
    assert command.main([*flags, *FAST, files["good"]]) == 2
    assert message in capsys.readouterr().err


def test_a_row_of_the_sheet_is_a_line(tmp_path):
    sheet, _ = make_sheet({"a": ["mid\rcr here"]}, [["x\ry"]], ["s"])
    assert [len(row) for row in csv.reader(sheet.splitlines())] == [7, 7]
    assert "mid cr here" in sheet


def test_sheet_for_people(files, corpus, tmp_path, capsys):
    source, reference, systems = corpus
    sheet = tmp_path / "sheet.csv"
    flags = [f"--reference={files['reference']}", f"--source={files['source']}", "--names=good,bad", *FAST]
    assert command.main([*flags, f"--sheet={sheet}", "--sheet_sentences=9", files["good"], files["bad"]]) == 0
    rows = list(csv.DictReader(sheet.open()))
    keys = list(csv.DictReader((tmp_path / "sheet.csv.key.csv").open()))
    assert len(rows) == len(keys) == 9
    assert len({row["line"] for row in rows}) == 9
    for row, key in zip(rows, keys, strict=True):
        line = int(row["line"]) - 1
        assert (row["line"], row["source"], row["reference 1"]) == (key["line"], source[line], reference[line])
        assert row["words"] == str(len(source[line].split()))
        for letter in "AB":
            assert row[letter] == systems[key[letter]][line]
            assert (row[f"{letter} twice"], row[f"{letter} missing"]) == ("", "")
    assert {key["A"] for key in keys} == {"good", "bad"}  # the order of the systems differs between sentences
    capsys.readouterr()
    assert command.main([*flags, "--sheet=-", files["good"], files["bad"]]) == 2
    assert "--sheet=-: the sheet and its key are two files" in capsys.readouterr().err
    assert command.main([f"--reference={files['reference']}", f"--sheet={sheet}", files["good"], *FAST]) == 2
    assert "give --source=FILE" in capsys.readouterr().err
