"""Tests of the papers' scoring protocols against independent implementations and values computed by hand."""

import itertools
import math
import random
import re

import pytest
import sacrebleu

from t2t_ext.errors import UserError
from t2t_ext.evaluation import metrics, protocols

TOKENS = ["the cat sat on the mat .", "there is a well-known dog .", "Ünd ÄB 0 1 , said he ."]
FIRST = ["the cat sat on a mat .", "there is a well-known dog here .", "Und äb 0 1 , he said ."]
SECOND = ["a cat sat on the mat today .", "a well-known dog is there .", "Ünd ÄB 0 2 , he said ."]
VOCABULARY = ["a", "b", "B", "Über", "über", "x-y", "x-é-y", "Zug-Nr", "c\u00a0d", "0", ".", "e\u3000f", "ÀB", "--"]


def random_corpus(seed, words=VOCABULARY):
    """Returns hypotheses and one to three sets of references that share many words; some lines are empty."""
    rng = random.Random(seed)
    size = rng.randint(1, 6)
    references = [
        [" ".join(rng.choices(words, k=rng.randint(0, 12))) for _ in range(size)] for _ in range(rng.randint(1, 3))
    ]
    hypotheses = [
        " ".join(word if rng.random() < 0.8 else rng.choice(words) for word in rng.choice(references)[i].split(" "))
        for i in range(size)
    ]
    return hypotheses, references


# Protocols for summaries and captions have their own tests.
OF_TRANSLATIONS = [name for name, each in protocols.PROTOCOLS.items() if not each.needs[0]]

# Independent implementations: slow and plain, on bytes or on strings joined by spaces.


def byte_bleu(hypotheses, references, *, lowercase, compounds):
    """Returns multi-bleu.perl's BLEU (0 to 100) as described: bytes, ASCII whitespace, closest length, unsmoothed."""

    def words(text):
        data = text.encode()
        if compounds:
            data = re.sub(rb"(?a:(\S)-(\S))", rb"\1 ##AT##-##AT## \2", data)
        return (data.lower() if lowercase else data).split()

    good, every, length, reference_length = [0] * 4, [0] * 4, 0, 0
    for i, hypothesis in enumerate(hypotheses):
        mine = words(hypothesis)
        others = [words(reference[i]) for reference in references]
        length += len(mine)
        reference_length += min((abs(len(other) - len(mine)), len(other)) for other in others)[1]
        for n in range(1, 5):
            grams = [tuple(mine[k : k + n]) for k in range(len(mine) - n + 1)]
            every[n - 1] += len(grams)
            for gram in set(grams):
                most = max(sum(tuple(other[k : k + n]) == gram for k in range(len(other) - n + 1)) for other in others)
                good[n - 1] += min(grams.count(gram), most)
    if not all(good):
        return 0.0
    penalty = min(1.0, math.exp(1 - reference_length / length))
    return 100 * penalty * math.prod(a / b for a, b in zip(good, every, strict=True)) ** 0.25


def string_nist(hypotheses, references, *, zero_is_false):
    """Returns the NIST scores of orders 1 to 5, for texts whose words are separated by whitespace."""
    counts, total = {}, 0
    for line in itertools.chain(*references):
        words = line.split()
        total += len(words)
        for n in range(1, 6):
            for k in range(len(words) - n + 1):
                gram = " ".join(words[k : k + n])
                counts[gram] = counts.get(gram, 0) + 1

    def bits(gram):
        beginning = " ".join(gram.split(" ")[:-1])
        above = total if beginning in (("", "0") if zero_is_false else ("",)) else counts[beginning]
        return math.log(above / counts[gram]) / math.log(2)

    length = sum(len(line.split()) for line in hypotheses)
    mean = sum(len(line.split()) for line in itertools.chain(*references)) / len(references)
    ratio = length / mean if mean else 1.0
    beta = math.log(0.5) / math.log(1.5) ** 2
    penalty = 1.0 if ratio >= 1 else math.exp(beta * math.log(ratio) ** 2) if ratio else 0.0
    result = []
    for n in range(1, 6):
        summed = possible = 0
        for i, line in enumerate(hypotheses):
            words = line.split()
            grams = [" ".join(words[k : k + n]) for k in range(len(words) - n + 1)]
            possible += len(grams)
            for gram in set(grams):
                found = []
                for reference in references:
                    other = reference[i].split()
                    found.append([" ".join(other[k : k + n]) for k in range(len(other) - n + 1)].count(gram))
                if max(found):
                    summed += bits(gram) * min(max(found), grams.count(gram))
        result.append(penalty * summed / max(possible, 1))
    return result


def t2t_bleu(hypotheses, reference):
    """Returns t2t-bleu (0 to 100) of tokenized text, computed from its description."""
    good, every = [0] * 4, [0] * 4
    for mine, other in zip((h.split() for h in hypotheses), (r.split() for r in reference), strict=True):
        for n in range(1, 5):
            grams = [tuple(mine[k : k + n]) for k in range(len(mine) - n + 1)]
            others = [tuple(other[k : k + n]) for k in range(len(other) - n + 1)]
            every[n - 1] += len(grams)
            good[n - 1] += sum(min(grams.count(gram), others.count(gram)) for gram in set(grams))
    smooth, precisions = 1, []
    for a, b in zip(good, every, strict=True):
        if b and not a:
            smooth *= 2
        precisions.append(0 if not b else a / b if a else 1 / (smooth * b))
    logs = [math.log(p) for p in precisions if p]
    ratio = sum(len(h.split()) for h in hypotheses) / max(1, sum(len(r.split()) for r in reference))
    penalty = 1 if ratio >= 1 else math.exp(1 - 1 / ratio) if ratio else 0
    return 100 * penalty * math.exp(sum(logs) / 4) if logs else 0.0


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize(("name", "lowercase", "compounds"), [
    ("multi_bleu", False, False), ("multi_bleu_uc", True, False),
    ("multi_bleu_compound_split", False, True), ("multi_bleu_compound_split_uc", True, True),
])  # fmt: skip
def test_multi_bleu_is_counted_on_bytes(seed, name, lowercase, compounds):
    hypotheses, references = random_corpus(seed)
    (score,) = protocols.score(name, hypotheses, references)
    expected = byte_bleu(hypotheses, references, lowercase=lowercase, compounds=compounds)
    assert score.value == pytest.approx(expected, abs=1e-9)


def test_multi_bleu_by_hand():
    # References of 5 and 7 words are equally close to 6 words; the shorter one counts.
    (score,) = protocols.score("multi_bleu", ["a b c d e f"], [["a b c d e f g"], ["a b c d e"]])
    assert score.value == pytest.approx(100)
    assert (score.details["hypothesis_length"], score.details["reference_length"]) == (6, 5)
    # There is no smoothing: without a matching 4-gram the score is 0.
    (score,) = protocols.score("multi_bleu", ["a b c x d"], [["a b c d"]])
    assert score.value == 0
    assert score.details["counts"] == [4, 2, 1, 0]
    (smoothed,) = protocols.score("sacrebleu", ["a b c x d"], [["a b c d"]])
    assert smoothed.value > 0
    # A no-break space does not separate words, and only ASCII letters are lowercased.
    assert protocols.score("multi_bleu", ["a b c d\u00a0e"], [["a b c d e"]])[0].details["totals"][0] == 4
    assert protocols.score("multi_bleu", ["a\u00a0b c d e"], [["a\u2003b c d e"]])[0].details["counts"][0] == 3
    assert protocols.score("multi_bleu_uc", ["Ä b c d"], [["ä B C D"]])[0].details["counts"][0] == 3


@pytest.mark.parametrize(
    ("text", "split"),
    [
        ("a well-known dog", "a well ##AT##-##AT## known dog"),
        ("Punkt-für-Punkt", "Punkt ##AT##-##AT## für ##AT##-##AT## Punkt"),
        ("x-y-z", "x ##AT##-##AT## y-z"),  # y is already used by the first match
        ("x-é-z", "x ##AT##-##AT## é ##AT##-##AT## z"),  # é has one byte for each match
        ("- a -b c- --", "- a -b c- --"),
        ("---", "- ##AT##-##AT## -"),
        ("", ""),
    ],
)
def test_split_compounds(text, split):
    assert metrics.split_compounds(text) == split


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("zero", [True, False])
def test_nist_is_that_of_its_definition(seed, zero):
    hypotheses, references = random_corpus(seed, ["a", "b", "c", "0", "1", "x", "ü"])
    metric = metrics.Nist(mteval_zero=zero, references=references)
    result = metric.corpus_score(hypotheses, None)
    expected = string_nist(hypotheses, references, zero_is_false=zero)
    assert result.by_order[:5] == pytest.approx(expected)
    assert result.score == pytest.approx(sum(expected))
    assert f"zero:{'mteval' if zero else 'no'}" in str(metric.get_signature())


def test_nist_by_hand():
    # Six words in the references: a and b twice each (log2 6/2 bits); "b" always follows "a" (0 bits for "a b").
    (_, score) = protocols.score("mteval_v13a", ["a b"], [["a b c"], ["a b d"]])
    assert score.name == "NIST"
    assert score.details["length_penalty"] == pytest.approx(0.5)  # two thirds of the length
    assert score.value == pytest.approx(0.5 * math.log2(3))
    assert (score.details["hypothesis_length"], score.details["reference_length"]) == (2, 3)
    # Two of three a's match, the most in any one reference; 3 of 6 reference words are a's, which gives 1 bit each.
    clipped = metrics.Nist().corpus_score(["a a a"], [["a a x"], ["a y z"]])
    assert clipped.by_order[0] == pytest.approx(2 * 1 / 3)
    # "0 a" is one of 4 words for mteval, but one of two zeros by the definition.
    texts = ["0 a"], [["0 a 0 b"]]
    by_order = [metrics.Nist(mteval_zero=zero).corpus_score(*texts).by_order for zero in (True, False)]
    penalty = 0.5 ** (math.log(0.5) / math.log(1.5)) ** 2
    assert by_order[0][:2] == pytest.approx([penalty * (1 + 2) / 2, penalty * 2])
    assert by_order[1][:2] == pytest.approx([penalty * (1 + 2) / 2, penalty * 1])
    assert protocols.score("mteval_v13a", *texts)[1].details["by_order"] == by_order[0]


def test_mteval_tokenizes_and_prints_every_order():
    hypotheses, references = (
        ['He said: "no &amp; left-2 at 1,000.5.'],
        [["He said: &quot;no & left-2 at 1,000.5."]],
    )
    bleu, nist = protocols.score("mteval_v13a", hypotheses, references)
    assert bleu.value == pytest.approx(100)
    assert bleu.details["hypothesis_length"] == 10
    assert len(bleu.details["by_order"]) == len(nist.details["by_order"]) == 9
    assert bleu.details["cumulative"] == pytest.approx([100] * 9)
    assert nist.value == pytest.approx(math.log2(10))  # only single words add information
    lower = protocols.score("mteval_v13a_uc", ["ÄPFEL AND pears of MINE"], [["äpfel and PEARS of mine"]])[0]
    assert lower.details["counts"] == [4, 3, 2, 1]  # only A to Z are lowercased


def test_mteval_bleu_is_sacrebleus():
    hypotheses, references = random_corpus(4, ["the", "cat", "sat", "on", "mat", "."])
    bleu = protocols.score("mteval_v13a", hypotheses, references)[0]
    theirs = sacrebleu.BLEU().corpus_score(hypotheses, references)
    assert bleu.value == pytest.approx(theirs.score)
    assert bleu.details["cumulative"][3] == pytest.approx(theirs.score)
    assert bleu.signature == str(sacrebleu_signature(hypotheses, references))


def sacrebleu_signature(hypotheses, references):
    metric = sacrebleu.BLEU()
    metric.corpus_score(hypotheses, references)
    return metric.get_signature()


@pytest.mark.parametrize("seed", range(15))
def test_t2t_bleu(seed):
    hypotheses, references = random_corpus(seed, ["a", "b", "c", "d", "B", "ü"])
    uncased, cased = protocols.score("t2t_intl", hypotheses, references[:1])
    assert (uncased.name, cased.name) == ("BLEU_uncased", "BLEU_cased")
    assert cased.value == pytest.approx(t2t_bleu(hypotheses, references[0]))
    lowered = [line.lower() for line in hypotheses], [line.lower() for line in references[0]]
    assert uncased.value == pytest.approx(t2t_bleu(*lowered))


def test_t2t_tokens():
    assert metrics.t2t_tokenize("It's 1,000.5€ – (no)!") == "It ' s 1,000.5 € – ( no ) !"
    assert metrics.t2t_tokenize("½,¾") == "½ , ¾"  # these characters are not decimal digits
    # Its smoothing gives a positive score where other tools give 0.
    assert protocols.score("t2t_intl", ["a b"], [["c d"]])[1].value > 0
    assert protocols.score("detok", ["a b"], [["c d"]])[0].value == 0


@pytest.mark.parametrize("name", OF_TRANSLATIONS)
def test_every_protocol(name):
    protocol = protocols.PROTOCOLS[name]
    assert protocol.name == name
    assert protocol.lowercase == (None if name == "t2t_intl" else name.endswith("_uc"))
    found = protocols.score(protocol, TOKENS, [FIRST, SECOND], n_bootstrap=50)
    again = protocols.score(name, TOKENS, [FIRST, SECOND], n_bootstrap=50)
    assert found == again  # resampling has a fixed seed
    for score in found:
        assert "nrefs:2|" in score.signature
        assert "bs:50|seed:12345" in score.signature
        case = "lc" if score.name == "BLEU_uncased" or protocol.lowercase else "mixed"
        assert re.search(rf"case:{case}(-ascii)?\|", score.signature)
        assert f"{score.mean:.2f}"[:4] in str(score)
        assert score.confidence >= 0
    same = protocols.score(name, SECOND, [FIRST, SECOND])
    for score in same:
        if not score.name.startswith("NIST"):
            assert score.value == pytest.approx(100 if score.higher_is_better else 0, abs=1e-9)
    shouted = protocols.score(name, [line.upper() for line in SECOND], [SECOND])
    equal = [score.value == pytest.approx(100 if score.higher_is_better else 0) for score in shouted]
    if not name.startswith("mteval"):  # NIST has no highest value
        assert equal == ([True, False] if name == "t2t_intl" else [bool(protocol.lowercase)])


def test_an_empty_line_is_no_reference_beside_another():
    """Empty lines fill up the sets of references if segments have different numbers of them; they are no references."""
    hypotheses = ["a cat", "dogs ran far away", "one two three four"]
    filled = [["a cat sat on a mat", "dogs ran far", "one two three"], ["", "the dogs ran away", " "]]
    given = [filled[0], [None, filled[1][1], None]]
    for name, metric in (
        ("sacrebleu", sacrebleu.BLEU()), ("chrf", sacrebleu.CHRF()), ("ter", sacrebleu.TER(case_sensitive=True)),
    ):  # fmt: skip
        (score,) = protocols.score(name, hypotheses, filled)
        theirs = metric.corpus_score(hypotheses, given)
        assert score.value == pytest.approx(theirs.score)
        assert score.signature == str(metric.get_signature())
        assert "nrefs:var|" in score.signature
        assert protocols.score(name, hypotheses, filled[::-1]) == [score]
    bleu = protocols.score("multi_bleu", hypotheses, filled)[0]
    # The scripts count an empty line as a reference of no words, which is the closest to two words.
    assert (bleu.details["hypothesis_length"], bleu.details["reference_length"]) == (10, 0 + 4 + 3)
    nist = protocols.score("mteval_v13a", hypotheses, filled)[1]
    assert nist.details["reference_length"] == 3 + 3.5 + 1.5
    assert protocols.score("ter", ["a b"], [["a b c d"], [""]])[0].details["edits"] == 2
    # If no set has a text, only the empty line is left to compare with.
    assert protocols.score("ter", ["a b", "x"], [["", "x"], ["", "y"]])[0].details["edits"] == 2


@pytest.mark.parametrize("name", OF_TRANSLATIONS)
@pytest.mark.parametrize(
    ("hypotheses", "references"),
    [
        (["word"], [["word"]]),
        (["", ""], [["a b", "c"]]),
        (["a", ""], [["", ""]]),
        ([""], [[""]]),
        (["汉字 測試 🙂", "नमस्ते דوست"], [["汉字 測試 🙂", "नमस्ते דوست"]]),
    ],
)
def test_odd_texts_have_scores(name, hypotheses, references):
    for score in protocols.score(name, hypotheses, references, n_bootstrap=10):
        assert math.isfinite(score.value)
        assert score.value >= 0


def test_protocols_differ_where_they_should():
    zh = ["我们去 Berlin 。"], [["我们来 Berlin 。"]]
    assert protocols.score("sacrebleu", *zh, language="zh")[0].signature.split("tok:")[1].startswith("zh")
    assert "tok:13a" in protocols.score("detok", *zh, language="zh")[0].signature
    assert "asian:yes" in protocols.score("ter", *zh, language="zh-TW")[0].signature
    cased = protocols.score("sacrebleu", TOKENS, [FIRST])[0]
    assert [cased] == protocols.score(protocols.bleu_with("13a"), TOKENS, [FIRST])
    plain = [name for name, each in protocols.PROTOCOLS.items() if not each.tokenized]
    assert "multi_bleu" not in plain
    assert "mteval_v13a" in plain


def test_mistakes():
    with pytest.raises(UserError, match="Did you mean 'multi_bleu'"):
        protocols.protocol("multibleu")
    with pytest.raises(UserError, match="multi_bleu scores tokenized text and sacrebleu plain text"):
        protocols.check_names(["sacrebleu", "ter", "multi_bleu"])
    with pytest.raises(UserError, match="given twice"):
        protocols.check_names(["chrf", "chrf"])
    assert [each.name for each in protocols.check_names(["multi_bleu", "ter"])] == ["multi_bleu", "ter"]
    with pytest.raises(UserError, match="Unequal numbers of segments: 3 translations, but 2 in set 2"):
        protocols.score("multi_bleu", TOKENS, [FIRST, SECOND[:2]])
    with pytest.raises(UserError, match="0 translations"):
        protocols.score("mteval_v13a", [], [[]])


def test_doubt_about_the_kind_of_text():
    plain, tokens = ["This is it."] * 12, ["This is it ."] * 12
    assert "12 lines end in a full stop that is part of a word" in protocols.doubt("multi_bleu", plain)
    assert "Detokenize" in protocols.doubt("mteval_v13a", tokens)
    assert not protocols.doubt("multi_bleu", tokens)
    assert not protocols.doubt("detok", plain)
    assert not protocols.doubt("multi_bleu", plain[:5])
    assert not protocols.doubt("chrf", tokens)
