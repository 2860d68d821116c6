"""WMT's news translation tasks as the papers used them: English-German, -French, -Romanian and Russian-English.

The corpora are statmt.org's (https://www.statmt.org/wmt14/, wmt16, wmt18). docs/corpora.md says where every file is,
how many pairs it has, and which slips of the papers are put right here. What papers did differently is class attributes
of the variants.

Papers: he2018 is Layer-Wise Coordination (He et al., NeurIPS 2018), zhou2019 is SB-NMT (Zhou et al., TACL 2019),
liu2020 is Layer-Wise Cross-View Decoding (Liu et al. 2020), ampomah2021 is the Dual Contextual module (Ampomah et al.
2021).
"""

import types
from collections.abc import Mapping
from typing import Any

from t2t_ext import registry
from t2t_ext.problem import DEV, TEST, TRAIN
from t2t_ext.problems import _wmt_packs
from t2t_ext.problems._wmt_files import DATA_STATMT, STATMT, Corpus, TestSet
from t2t_ext.problems._wmt_problem import WmtProblem

_WMT13, _WMT16, _WMT18 = (
    f"{STATMT}wmt13/",
    f"{DATA_STATMT}wmt16/translation-task/",
    f"{DATA_STATMT}wmt18/translation-task/",
)
_EUROPARL = Corpus(
    name="europarl_v7",
    stems=("training/europarl-v7.{foreign}-en",),
    archives=("training-parallel-europarl-v7.tgz",),
    url=f"{_WMT13}training-parallel-europarl-v7.tgz",
    sha256="0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7",
    subset="europarl_v7",
)
_COMMON_CRAWL = Corpus(
    name="commoncrawl",
    stems=("commoncrawl.{foreign}-en",),
    archives=("training-parallel-commoncrawl.tgz",),
    url=f"{_WMT13}training-parallel-commoncrawl.tgz",
    sha256="c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5",
    subset="commoncrawl",
)
_NEWS_COMMENTARY_9 = Corpus(
    name="newscommentary_v9",
    stems=("training/news-commentary-v9.{foreign}-en",),
    archives=("training-parallel-nc-v9.tgz",),
    url=f"{STATMT}wmt14/training-parallel-nc-v9.tgz",
    sha256="cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485",
    subset="newscommentary_v9",
)
_UN = Corpus(
    name="multiun",
    stems=("un/undoc.2000.{foreign}-en",),
    archives=("training-parallel-un.tgz",),
    url=f"{_WMT13}training-parallel-un.tgz",
    sha256="29141b5c1eba149a94f7a59d3b1a834b2e47fe0f8758d68dcd77a3d3f497ee47",
    subset="multiun",
)
_GIGA = Corpus(
    name="gigafren",
    stems=("giga-fren.release2.fixed",),
    archives=("training-giga-fren.tar",),
    url=f"{STATMT}wmt10/training-giga-fren.tar",
    sha256="3ff8319f6919393520559bfbc7ad6a747ec81b3abc7be9993b338d4b017b4d9a",
    subset="gigafren",
)
_EUROPARL_8 = Corpus(
    name="europarl_v8",
    # Of Romanian version 8 is version 7.
    stems=("training-parallel-ep-v8/europarl-v8.{foreign}-en", "europarl-v7.{foreign}-en"),
    archives=("training-parallel-ep-v8.tgz",),
    url=f"{_WMT16}training-parallel-ep-v8.tgz",
    sha256="8917bd3bef3bc894c8519ca1f8a4c7c330aad08a1263655a9d99ee13d532e3c7",
    subset="europarl_v8_16",
)
_SETIMES = Corpus(
    name="setimes_2",
    stems=("SETIMES.en-{foreign}", "SETIMES2.en-{foreign}", "SETIMES.{foreign}-en"),
    archives=("en-{foreign}.tmx.gz", "en-{foreign}.txt.zip"),
    url="https://object.pouta.csc.fi/OPUS-SETIMES/v2/tmx/en-{foreign}.tmx.gz",
    sha256="56bfaa2a8c8bdfccb7b50cc926067e2291347d807004e81faab8762ddbf26302",
    tmx="en-{foreign}.tmx",
    subset="setimes_2",
)
_BACK_TRANSLATIONS = Corpus(
    name="back_translations",
    stems=("corpus.bt.{source}-{target}",),
    archives=("corpus.bt.{source}-{target}.{language}.gz",),
    url=f"{DATA_STATMT}rsennrich/wmt16_backtranslations/{{source}}-{{target}}/",
    synthetic=True,
    note="or leave them out: --problem_options=weights=back_translations:0",
)
_PARACRAWL = Corpus(
    name="paracrawl_v1",
    stems=("paracrawl-release1.en-{foreign}.zipporah0-dedup-clean",),
    archives=("paracrawl-release1.en-{foreign}.zipporah0-dedup-clean.tgz",),
    url="https://s3.amazonaws.com/web-language-models/paracrawl/release1/"
    "paracrawl-release1.en-{foreign}.zipporah0-dedup-clean.tgz",
    sha256="d4902407ef462034e88fbf5d8712a11c4b32a6e0e82d3a1b4f42a6f33d94f3c0",
    subset="paracrawl_v1_ru",
)
_NEWS_COMMENTARY_13 = Corpus(
    name="newscommentary_v13",
    stems=("training-parallel-nc-v13/news-commentary-v13.{foreign}-en",),
    archives=("training-parallel-nc-v13.tgz",),
    url=f"{_WMT18}training-parallel-nc-v13.tgz",
    sha256="17992b7e919cfb754c60f4e754148bc23b80706ad0ed7b34150831a554b40c91",
    subset="newscommentary_v13",
)
_YANDEX = Corpus(
    name="yandex",
    stems=("corpus.en_ru.1m",),
    archives=("1mcorpus.zip",),
    url="https://translate.yandex.ru/corpus?lang=en",
    by_hand=True,
    note="by hand, after accepting its licence",
)


def _test_set(name: str, *, sgml: bool = True) -> TestSet:
    """Returns a set by its name; those up to 2013 are plain text."""
    stems = (f"{name}-{{foreign}}en-src.{{foreign}}.sgm", f"{name}-{{foreign}}en-ref.en.sgm")
    foreign, english = stems if sgml else (f"{name}.{{foreign}}", f"{name}.en")
    return TestSet(name=name, foreign_file=f"dev/{foreign}", english_file=f"dev/{english}")


_NEWSTEST2012, _NEWSTEST2013 = (_test_set(name, sgml=False) for name in ("newstest2012", "newstest2013"))
_NEWSTEST2014, _NEWSDEV2016, _NEWSTEST2016 = map(_test_set, ("newstest2014", "newsdev2016", "newstest2016"))
_NEWSTEST2017, _NEWSTEST2018 = map(_test_set, ("newstest2017", "newstest2018"))


def _frozen(**values: Any) -> Mapping[str, Any]:
    return types.MappingProxyType(values)


# Of the recipes that gave 4.5M and 36M pairs: clean-corpus-n.perl 1 80 (ratio 9), and 1 175 with a ratio of 1.5.
_CLEANING_80 = _frozen(min_words=1, max_words=80, max_word_ratio=9.0)
_CLEANING_175 = _frozen(min_words=1, max_words=175, max_word_ratio=1.5)


@registry.register_problem
class TranslateEndeWmt14(WmtProblem):
    """English to German, WMT14: Europarl v7, Common Crawl, News Commentary v9; 32,000 merges, some 37,000 subwords.

    Scored by tokenised BLEU after splitting compounds, as tensor2tensor's get_ende_bleu.sh. Dev is newstest2013.
    """

    source_language, target_language = "en", "de"
    training_corpora = (_EUROPARL, _COMMON_CRAWL, _NEWS_COMMENTARY_9)
    test_sets = _frozen(**{DEV: (_NEWSTEST2013,), TEST: (_NEWSTEST2014,)})
    packs = _frozen(stanford=_wmt_packs.STANFORD, t2t=_wmt_packs.T2T, fairseq=_wmt_packs.fairseq("de"))
    tfds_name = "wmt14_translate"
    tfds_splits = _frozen(newstest2013="validation", newstest2014="test")
    approx_vocab_size, num_merges = 37_000, 32_000
    cleaning = _CLEANING_80
    scoring = "multi_bleu_compound_split"
    published = _frozen(**{TRAIN: 4_500_000, DEV: 3_000, TEST: 3_003})


@registry.register_problem
class TranslateEndeWmt14He2018(TranslateEndeWmt14):
    """He et al. 2018: Stanford's files (``layout=stanford``), dev newstest2012 and newstest2013, BPE of 40,000.

    The files are tokenised with ``##AT##-##AT##`` between the parts of compounds, so plain tokenised BLEU on them is
    BLEU after splitting compounds. The paper says neither how subwords were learnt nor that compounds are split.
    """

    test_sets = _frozen(**{DEV: (_NEWSTEST2012, _NEWSTEST2013), TEST: (_NEWSTEST2014,)})
    default_layout = "stanford"
    approx_vocab_size, num_merges = 40_000, 40_000
    published = _frozen(**{TRAIN: 4_500_000, DEV: 6_003, TEST: 3_003})


@registry.register_problem
class TranslateEndeWmt14Zhou2019(TranslateEndeWmt14):
    """Zhou et al. 2019: the pack of tensor2tensor (``layout=t2t``), 32,000 merges, shared; cased tokenised BLEU.

    The pack is called WMT14 in papers, but its News Commentary is version 11, of 2016.
    """

    default_layout = "t2t"
    scoring = "multi_bleu"
    published = _frozen(**{TRAIN: 4_500_000, DEV: 3_000, TEST: 3_003})


@registry.register_problem
class TranslateEndeWmt14Liu2020(TranslateEndeWmt14):
    """Liu et al. 2020: as the base problem. The paper gives neither size nor subwords; they are fairseq's recipe's."""


@registry.register_problem
class TranslateEndeWmt14Ampomah2021(TranslateEndeWmt14):
    """Ampomah et al. 2021: BPE of 32,000, shared; cased BLEU of mteval-v13a on detokenised text.

    The paper calls it "4-gram case-sensitive NIST BLEU": BLEU by NIST's script, not the NIST score.
    """

    approx_vocab_size = 32_000
    scoring = "mteval_v13a"


@registry.register_problem
class TranslateEnfrWmt14(WmtProblem):
    """English to French, WMT14: Europarl v7, Common Crawl, UN, News Commentary v9, 10^9; 36M after cleaning of 41M.

    fairseq's recipe: punctuation normalised, hyphens split off, BPE of 40,000, at most 175 words, a ratio of 1.5.
    """

    source_language, target_language = "en", "fr"
    training_corpora = (_EUROPARL, _COMMON_CRAWL, _UN, _NEWS_COMMENTARY_9, _GIGA)
    test_sets = _frozen(**{DEV: (_NEWSTEST2012, _NEWSTEST2013), TEST: (_NEWSTEST2014,)})
    packs = _frozen(fairseq=_wmt_packs.fairseq("fr"))
    tfds_name = "wmt14_translate"
    tfds_splits = _frozen(newstest2013="validation", newstest2014="test")
    source_steps = target_steps = ("moses_punctuation", "moses_tokenize", "hyphen_split")
    approx_vocab_size, num_merges = 40_000, 40_000
    cleaning = _CLEANING_175
    scoring = "multi_bleu"
    published = _frozen(**{TRAIN: 36_000_000, DEV: 6_003, TEST: 3_003})


@registry.register_problem
class TranslateEnfrWmt14Liu2020(TranslateEnfrWmt14):
    """Liu et al. 2020: as the base problem."""


@registry.register_problem
class TranslateEnroWmt16(WmtProblem):
    """English to Romanian, WMT16: Europarl v8, SETIMES 2 and back-translations; detokenised BLEU.

    The back-translations are Sennrich et al.'s (http://data.statmt.org/rsennrich/wmt16_backtranslations/): of
    ``translate_enro_wmt16`` Romanian news with machine-made English, of ``translate_enro_wmt16_rev`` English news with
    machine-made Romanian; so the two have data files of their own. Weight 0 leaves them out.
    """

    source_language, target_language = "en", "ro"
    training_corpora = (_EUROPARL_8, _SETIMES, _BACK_TRANSLATIONS)
    test_sets = _frozen(**{DEV: (_NEWSDEV2016,), TEST: (_NEWSTEST2016,)})
    tfds_name = "wmt16_translate"
    tfds_splits = _frozen(newsdev2016="validation", newstest2016="test")
    approx_vocab_size, num_merges = 36_000, 36_000
    scoring = "detok"
    published = _frozen(**{TRAIN: 2_800_000, DEV: 1_999, TEST: 1_999})


@registry.register_problem
class TranslateEnroWmt16He2018(TranslateEnroWmt16):
    """He et al. 2018: as the base problem.

    The paper prints newstest2013 and newstest2014 as dev, which do not exist in Romanian; newsdev2016 is taken.
    """


@registry.register_problem
class TranslateRuenWmt18(WmtProblem):
    """Russian to English, WMT18: ParaCrawl, Common Crawl, News Commentary v13, Yandex; without UN and Wiki Headlines.

    50,000 merges, some 52,000 subwords; uncased tokenised BLEU. Dev is newstest2017, test newstest2018.
    """

    source_language, target_language = "ru", "en"
    training_corpora = (_PARACRAWL, _COMMON_CRAWL, _NEWS_COMMENTARY_13, _YANDEX)
    test_sets = _frozen(**{DEV: (_NEWSTEST2017,), TEST: (_NEWSTEST2018,)})
    approx_vocab_size, num_merges = 52_000, 50_000
    scoring = "multi_bleu_uc"
    published = _frozen(**{TRAIN: 14_000_000, DEV: 3_001, TEST: 3_000})


@registry.register_problem
class TranslateRuenWmt18Zhou2019(TranslateRuenWmt18):
    """Zhou et al. 2019: as the base problem."""
