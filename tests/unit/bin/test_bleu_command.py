"""Tests of t2t_ext-bleu with protocols, SGML files, tables by n-gram order and JSON."""

import gzip
import io
import json
import re

import pytest

from t2t_ext.bin import bleu
from t2t_ext.evaluation import protocols
from t2t_ext.translation.hypothesis import nbest_lines

SOURCE = """<srcset setid="x" srclang="fr">
<doc docid=talk1 genre="news"><hl><seg id=1>Un &amp; deux</seg></hl><p><seg id="2">Trois.</seg></p></doc>
<doc docid="talk2"><seg id="1">Quatre</seg></doc>
</srcset>
"""
REFERENCES = """<refset setid="x" srclang="fr" trglang="en">
<DOC docid="talk2" sysid="A"><seg id="1">The fourth one is here</seg></DOC>
<DOC docid="talk1" sysid="A"><seg id="1">The first &amp; the second one</seg>
<seg id="2">It is the third one.</seg></DOC>
<DOC docid="talk1" sysid="B"><seg id="1">First and second of all</seg><seg id="2">The third one comes now.</seg></DOC>
<DOC docid="talk2" sysid="B"><seg id="1">Here is the fourth one</seg></DOC>
</refset>
"""
# In the order of the source.
SETS = [
    ["The first & the second one", "It is the third one.", "The fourth one is here"],
    ["First and second of all", "The third one comes now.", "Here is the fourth one"],
]
HYPOTHESES = ["The first & the second one", "The third one is it.", "the fourth one is now here"]
TRANSLATIONS = """<tstset setid="x" srclang="fr" trglang="en">
<doc docid="talk1" sysid="mine"><seg id="2">The third one is it.</seg>
<seg id="1">The first &amp; the second one</seg></doc>
<doc docid="talk2" sysid="mine"><seg id="1">the fourth one is now here</seg></doc>
</tstset>
"""


@pytest.fixture
def sgml(tmp_path):
    texts = {"src.sgm": SOURCE, "ref.sgm": REFERENCES, "tst.sgm": TRANSLATIONS, "tst.txt": "\n".join(HYPOTHESES) + "\n"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def run(folder, *flags, translation="tst.sgm", reference="ref.sgm"):
    return bleu.main([f"--translation={folder / translation}", f"--reference={folder / reference}", *flags])


@pytest.mark.parametrize("translation", ["tst.sgm", "tst.txt"])
@pytest.mark.parametrize("source", [True, False])
def test_sgml_is_aligned_by_document_and_segment(sgml, capsys, translation, source):
    flags = [f"--source={sgml / 'src.sgm'}"] if source else []
    if translation == "tst.txt" and not source:
        lines = [HYPOTHESES[2], HYPOTHESES[0], HYPOTHESES[1]]  # the order of the first reference
        (sgml / "tst.txt").write_text("\n".join(lines) + "\n")
    assert run(sgml, "--protocol=mteval_v13a", *flags, translation=translation) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"mteval_v13a {score}" for score in protocols.score("mteval_v13a", HYPOTHESES, SETS)]
    assert "nrefs:2" in lines[0]


def test_systems_of_a_file_are_scored_one_by_one(sgml, capsys):
    other = TRANSLATIONS.replace('"mine"', '"theirs"').replace("one", "two")
    (sgml / "both.sgm").write_text(TRANSLATIONS.replace("</tstset>", "") + other.partition("\n")[2])
    flags = ["--protocol=detok", f"--json={sgml / 'out.json'}", f"--source={sgml / 'src.sgm'}"]
    assert run(sgml, *flags, translation="both.sgm") == 0
    assert re.findall(r"^system (\w+)$", capsys.readouterr().out, re.M) == ["mine", "theirs"]
    mine, theirs = json.loads((sgml / "out.json").read_text())["scores"]
    assert (mine["system"], theirs["system"]) == ("mine", "theirs")
    assert mine["value"] > theirs["value"]


def test_table_by_order(sgml, capsys):
    assert run(sgml, "--protocol=mteval_v13a", "--by_order") == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]
    bleu_score, nist = protocols.score("mteval_v13a", HYPOTHESES, SETS)
    assert rows[0] == rows[3] == ["order", *map(str, range(1, 10))]
    assert rows[1] == ["single", *(f"{value / 100:.4f}" for value in bleu_score.details["by_order"])]
    assert rows[2][4] == f"{bleu_score.value / 100:.4f}"
    assert rows[4][1:] == [f"{value:.4f}" for value in nist.details["by_order"]]
    assert rows[5][5] == f"{nist.value:.4f}"
    assert run(sgml, "--bleu_variant=cased", "--by_order") == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [float(value) for value in rows[3][1:]][3] == pytest.approx(float(rows[0][2]) / 100, abs=1e-4)


def test_metrics_without_orders_and_metrics_named_twice(sgml, capsys):
    assert run(sgml, "--metrics=ter,chrf,ter", "--by_order") == 0
    lines = capsys.readouterr().out.split("\n")
    assert [line.split()[0] for line in lines[:-1]] == ["TER", "chrF2"]


def test_what_was_made_from_sgml_is_no_sgml(sgml, capsys):
    """As ``tst.sgm.tok``; a compressed ``tst.sgm.gz`` is."""
    for name in ("tst.sgm.tok", "ref.sgm.txt"):
        (sgml / name).write_text("\n".join(HYPOTHESES) + "\n")
    assert run(sgml, "--protocol=sacrebleu", translation="tst.sgm.tok", reference="ref.sgm.txt") == 0
    assert capsys.readouterr().out.startswith("sacrebleu BLEU = 100.00")
    (sgml / "tst.SGML.gz").write_bytes(gzip.compress(TRANSLATIONS.encode()))
    assert run(sgml, "--protocol=sacrebleu", translation="tst.SGML.gz") == 0


def test_json_on_standard_output_is_alone_there(sgml, capfd):
    assert run(sgml, "--protocol=mteval_v13a", "--by_order", "--json=-") == 0
    said = capfd.readouterr()
    assert [score["label"] for score in json.loads(said.out)["scores"]] == ["mteval_v13a BLEU", "mteval_v13a NIST"]
    assert said.err.startswith("mteval_v13a BLEU = ")


def test_protocols_intervals_and_json(sgml, capsys):
    (sgml / "ref.txt").write_text("\n".join(SETS[0]) + "\n")
    flags = ["--protocol=t2t_intl,chrf,ter_uc", "--n_bootstrap=30", f"--json={sgml / 'out.json'}"]
    assert run(sgml, *flags, translation="tst.txt", reference="ref.txt") == 0
    lines = capsys.readouterr().out.splitlines()
    names = ["t2t_intl BLEU_uncased", "t2t_intl BLEU_cased", "chrf chrF2", "ter_uc TER"]
    assert [line.split(" = ")[0] for line in lines] == names
    assert all("95% confidence" in line for line in lines)
    report = json.loads((sgml / "out.json").read_text())
    assert [score["label"] for score in report["scores"]] == names
    assert report["segments"] == 3
    assert report["scores"][2]["signature"] in lines[2]
    expected = protocols.score("ter_uc", HYPOTHESES, SETS[:1], n_bootstrap=30)[0]
    assert report["scores"][3]["value"] == pytest.approx(expected.value)
    assert report["scores"][3]["confidence"] == pytest.approx(expected.confidence)


def test_warns_of_the_wrong_kind_of_text(tmp_path, capsys):
    (tmp_path / "a").write_text("This is it.\n" * 12)
    (tmp_path / "b").write_text("This is it.\n" * 12)
    assert run(tmp_path, "--protocol=multi_bleu", translation="a", reference="b") == 0
    assert "warning: 12 lines end in a full stop that is part of a word" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "flags", "message"),
    [
        (None, ["--protocol=multi-bleu"], "Did you mean 'multi_bleu'"),
        (None, ["--protocol=chrf", "--tokenize=zh", "--metrics=bleu"], "all that --metrics and --tokenize would say"),
        (None, ["--metrics=chrf,ter", "--tokenize=zh"], "--tokenize is of BLEU, which --metrics=chrf,ter leaves out"),
        (None, ["--metrics=chrf", "--bleu_variant=cased"], "Leave --bleu_variant out, too"),
        (None, ["--protocol=chrf", "--json=/nowhere/x.json"], "there is no directory /nowhere"),
        (None, ["--reference={tst}"], "a segment in a <tstset>, where a <refset> is expected"),
        (("tst.sgm", '<seg id="2">The third one is it.</seg>', ""), [], "{tst} lacks 1 segment(s) that {ref} (A)"),
        (("tst.sgm", 'docid="talk2"', 'docid="talk3"'), [], "{ref} (A) has: '1' of document 'talk2'"),
        (("ref.sgm", "</refset>", "<DOC docid=new><seg id=1>x</seg></DOC></refset>"), [], "lacks"),
        (("tst.sgm", 'id="2"', 'id="1"'), [], "line 3: segment '1' of document 'talk1' is there twice"),
        (("tst.sgm", "it.</seg>", "it."), [], "{tst}, line 3"),
        (("tst.sgm", TRANSLATIONS, "<tstset></tstset>"), [], "{tst} holds no segments"),
        (("tst.sgm", TRANSLATIONS, ""), [], "{tst} holds no segments"),
        (("tst.txt", "\nthe fourth one is now here", ""), ["--translation={txt}"], "2 in {txt}, 3 in {ref} (A)"),
        (("tst.txt", "\n".join(HYPOTHESES) + "\n", ""), ["--translation={txt}"], "{txt} is empty"),
    ],
)  # fmt: skip
def test_errors(sgml, capsys, change, flags, message):
    if change:
        name, old, new = change
        text = (sgml / name).read_text()
        assert old in text
        (sgml / name).write_text(text.replace(old, new, 1))
    names = {"tst": sgml / "tst.sgm", "ref": sgml / "ref.sgm", "txt": sgml / "tst.txt"}
    assert run(sgml, *(flag.format(**names) for flag in flags)) == 2
    error = capsys.readouterr().err
    assert message.format(**names) in error
    assert error.startswith("error: ")
    assert error.count("\n") == 1


def test_pipes_are_read_once(sgml, capsys, tmp_path):
    import os
    import threading

    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=("\n".join(SETS[0]) + "\n",))
    writer.start()
    assert run(sgml, "--protocol=chrf", translation="pipe", reference="tst.txt") == 0
    writer.join()
    assert "chrf chrF2 = " in capsys.readouterr().out


@pytest.mark.parametrize("form", ["sgml", "nbest", "lines"])
def test_standard_input_has_the_forms_of_a_file(sgml, capsys, monkeypatch, form):
    """N-best lists and SGML would otherwise be scored as they are."""
    records = [[{"text": text}, {"text": "-"}] for text in HYPOTHESES]
    lines = {"sgml": [TRANSLATIONS], "nbest": nbest_lines("xyz", records), "lines": HYPOTHESES}[form]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("\n".join(lines).encode()), "utf-8"))
    flags = [f"--reference={sgml / 'ref.sgm'}", f"--source={sgml / 'src.sgm'}", "--protocol=chrf"]
    assert bleu.main(["--translation=-", *flags]) == 0
    assert capsys.readouterr().out == f"chrf {protocols.score('chrf', HYPOTHESES, SETS)[0]}\n"


def test_standard_input_is_read_once(capsys):
    assert bleu.main(["--translation=-", "--reference=-"]) == 2
    assert "Several of the files are - (standard input), which is read once" in capsys.readouterr().err
