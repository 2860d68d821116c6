"""WMT's news translation tasks as the papers used them: English-German, -French, -Romanian and Russian-English.

The corpora are statmt.org's (https://www.statmt.org/wmt14/, wmt16, wmt18). ``wmt_files.toml`` lists where every file
is; docs/corpora.md says how many pairs it has, and which slips of the papers are corrected here. The variants' class
attributes say what papers did differently.

Papers: he2018 is Layer-Wise Coordination (He et al., NeurIPS 2018), zhou2019 is SB-NMT (Zhou et al., TACL 2019),
liu2020 is Layer-Wise Cross-View Decoding (Liu et al. 2020), ampomah2021 is the Dual Contextual module (Ampomah et al.
2021).
"""

import types
from collections.abc import Mapping
from typing import Any

from t2t_ext import registry
from t2t_ext.problem import DEV, TEST, TRAIN
from t2t_ext.problems._wmt_files import TestSet, corpora, packs
from t2t_ext.problems._wmt_problem import WmtProblem


def _frozen(**values: Any) -> Mapping[str, Any]:
    return types.MappingProxyType(values)


# Settings of the recipes that yield 4.5M and 36M pairs: clean-corpus-n.perl 1 80 (ratio 9), and 1 175 with ratio 1.5.
_CLEANING_80 = _frozen(min_words=1, max_words=80, max_word_ratio=9.0)
_CLEANING_175 = _frozen(min_words=1, max_words=175, max_word_ratio=1.5)


@registry.register_problem
class TranslateEndeWmt14(WmtProblem):
    """English to German, WMT14: Europarl v7, Common Crawl, News Commentary v9; 32,000 merges, about 37,000 subwords.

    Scored by tokenized BLEU after splitting compounds, like tensor2tensor's get_ende_bleu.sh. Dev is newstest2013.
    """

    source_language, target_language = "en", "de"
    training_corpora = corpora("europarl_v7", "commoncrawl", "newscommentary_v9")
    test_sets = _frozen(**{DEV: (TestSet("newstest2013"),), TEST: (TestSet("newstest2014"),)})
    packs = packs(stanford="stanford", t2t="t2t", fairseq="fairseq_de")
    tfds_name = "wmt14_translate"
    tfds_splits = _frozen(newstest2013="validation", newstest2014="test")
    approx_vocab_size, num_merges = 37_000, 32_000
    cleaning = _CLEANING_80
    scoring = "multi_bleu_compound_split"
    published = _frozen(**{TRAIN: 4_500_000, DEV: 3_000, TEST: 3_003})


@registry.register_problem
class TranslateEndeWmt14He2018(TranslateEndeWmt14):
    """He et al. 2018: Stanford's files (``layout=stanford``), dev newstest2012 and newstest2013, BPE of 40,000.

    The files are tokenized with ``##AT##-##AT##`` between the parts of compounds, so plain tokenized BLEU on them is
    BLEU after splitting compounds. The paper says neither how subwords were learned nor that compounds are split.
    """

    test_sets = _frozen(**{DEV: (TestSet("newstest2012"), TestSet("newstest2013")), TEST: (TestSet("newstest2014"),)})
    default_layout = "stanford"
    approx_vocab_size, num_merges = 40_000, 40_000
    published = _frozen(**{TRAIN: 4_500_000, DEV: 6_003, TEST: 3_003})


@registry.register_problem
class TranslateEndeWmt14Zhou2019(TranslateEndeWmt14):
    """Zhou et al. 2019: the pack of tensor2tensor (``layout=t2t``), 32,000 merges, shared; cased tokenized BLEU.

    The pack is called WMT14 in papers, but its News Commentary is version 11, of 2016.
    """

    default_layout = "t2t"
    scoring = "multi_bleu"
    published = _frozen(**{TRAIN: 4_500_000, DEV: 3_000, TEST: 3_003})


@registry.register_problem
class TranslateEndeWmt14Liu2020(TranslateEndeWmt14):
    """Liu et al. 2020: like the base problem. The paper gives no size and no subwords; they follow fairseq's recipe."""


@registry.register_problem
class TranslateEndeWmt14Ampomah2021(TranslateEndeWmt14):
    """Ampomah et al. 2021: BPE of 32,000, shared; cased BLEU of mteval-v13a on detokenized text.

    The paper calls it "4-gram case-sensitive NIST BLEU": BLEU by NIST's script, not the NIST score.
    """

    approx_vocab_size = 32_000
    scoring = "mteval_v13a"


@registry.register_problem
class TranslateEnfrWmt14(WmtProblem):
    """English to French, WMT14: Europarl v7, Common Crawl, UN, News Commentary v9, 10^9; 36M after cleaning of 41M.

    Prepared like fairseq's recipe: punctuation normalized, hyphens split off, BPE of 40,000, at most 175 words, a ratio
    of at most 1.5.
    """

    source_language, target_language = "en", "fr"
    training_corpora = corpora("europarl_v7", "commoncrawl", "multiun", "newscommentary_v9", "gigafren")
    test_sets = _frozen(**{DEV: (TestSet("newstest2012"), TestSet("newstest2013")), TEST: (TestSet("newstest2014"),)})
    packs = packs(fairseq="fairseq_fr")
    tfds_name = "wmt14_translate"
    tfds_splits = _frozen(newstest2013="validation", newstest2014="test")
    source_steps = target_steps = ("moses_punctuation", "moses_tokenize", "hyphen_split")
    approx_vocab_size, num_merges = 40_000, 40_000
    cleaning = _CLEANING_175
    scoring = "multi_bleu"
    published = _frozen(**{TRAIN: 36_000_000, DEV: 6_003, TEST: 3_003})


@registry.register_problem
class TranslateEnfrWmt14Liu2020(TranslateEnfrWmt14):
    """Liu et al. 2020: like the base problem."""


@registry.register_problem
class TranslateEnroWmt16(WmtProblem):
    """English to Romanian, WMT16: Europarl v8, SETIMES 2 and back-translations; detokenized BLEU.

    The back-translations are Sennrich et al.'s (https://data.statmt.org/rsennrich/wmt16_backtranslations/):
    ``translate_enro_wmt16`` has Romanian news with machine-made English, ``translate_enro_wmt16_rev`` has English news
    with machine-made Romanian. So the two problems have separate data files. Weight 0 leaves the back-translations out.
    """

    source_language, target_language = "en", "ro"
    training_corpora = corpora("europarl_v8", "setimes_2", "back_translations")
    test_sets = _frozen(**{DEV: (TestSet("newsdev2016"),), TEST: (TestSet("newstest2016"),)})
    tfds_name = "wmt16_translate"
    tfds_splits = _frozen(newsdev2016="validation", newstest2016="test")
    approx_vocab_size, num_merges = 36_000, 36_000
    scoring = "detok"
    published = _frozen(**{TRAIN: 2_800_000, DEV: 1_999, TEST: 1_999})


@registry.register_problem
class TranslateEnroWmt16He2018(TranslateEnroWmt16):
    """He et al. 2018: like the base problem.

    The paper prints newstest2013 and newstest2014 as dev, which do not exist in Romanian; newsdev2016 is used instead.
    """


@registry.register_problem
class TranslateRuenWmt18(WmtProblem):
    """Russian to English, WMT18: ParaCrawl, Common Crawl, News Commentary v13, Yandex; without UN and Wiki Headlines.

    50,000 merges, about 52,000 subwords; uncased tokenized BLEU. Dev is newstest2017, test is newstest2018.
    """

    source_language, target_language = "ru", "en"
    training_corpora = corpora("paracrawl_v1", "commoncrawl", "newscommentary_v13", "yandex")
    test_sets = _frozen(**{DEV: (TestSet("newstest2017"),), TEST: (TestSet("newstest2018"),)})
    approx_vocab_size, num_merges = 52_000, 50_000
    scoring = "multi_bleu_uc"
    published = _frozen(**{TRAIN: 14_000_000, DEV: 3_001, TEST: 3_000})


@registry.register_problem
class TranslateRuenWmt18Zhou2019(TranslateRuenWmt18):
    """Zhou et al. 2019: like the base problem."""
