"""The garden's problems: what can be translated from what.

``INDEX`` says which module registers which problem, so that names are listed without importing the modules;
``FAMILIES`` maps patterns of names to the modules that register their factories, ``FAMILY_EXAMPLES`` to words for
``--registry_help``.
"""

from collections.abc import Mapping

_CLDR_PAIRED_WITH_ENGLISH = ("de", "es", "fr", "ro", "ru", "vi", "zh")

INDEX: Mapping[str, str] = {
    "caption_coco": "t2t_ext.problems.captioning",
    "caption_features": "t2t_ext.problems.captioning",
    "summarize_cnn_dailymail": "t2t_ext.problems.summarization",
    "summarize_text": "t2t_ext.problems.summarization",
    **{f"translate_en{language}_cldr": "t2t_ext.problems.cldr" for language in _CLDR_PAIRED_WITH_ENGLISH},
    "translate_deen_multi30k": "t2t_ext.problems.multi30k",
    "translate_enfr_multi30k": "t2t_ext.problems.multi30k",
    "translate_parallel_text": "t2t_ext.problems.parallel_text",
    "translate_zhen_nist": "t2t_ext.problems.nist",
    **dict.fromkeys(
        (
            "translate_deen_iwslt14",
            "translate_deen_iwslt14_he2018",
            "translate_deen_iwslt14_liu2020",
            "translate_enfr_iwslt15",
            "translate_enfr_iwslt15_ampomah2021",
            "translate_envi_iwslt15",
            "translate_envi_iwslt15_ampomah2021",
            "translate_esen_iwslt14",
            "translate_esen_iwslt14_ampomah2021",
            "translate_esen_iwslt14_he2018",
            "translate_roen_iwslt14",
            "translate_roen_iwslt14_ampomah2021",
            "translate_roen_iwslt14_he2018",
        ),
        "t2t_ext.problems.iwslt",
    ),
    **dict.fromkeys(
        (
            "translate_ende_wmt14",
            "translate_ende_wmt14_ampomah2021",
            "translate_ende_wmt14_he2018",
            "translate_ende_wmt14_liu2020",
            "translate_ende_wmt14_zhou2019",
            "translate_enfr_wmt14",
            "translate_enfr_wmt14_liu2020",
            "translate_enro_wmt16",
            "translate_enro_wmt16_he2018",
            "translate_ruen_wmt18",
            "translate_ruen_wmt18_zhou2019",
        ),
        "t2t_ext.problems.wmt",
    ),
}

_TWO_LANGUAGES = r"translate_([a-z]{2,3})([a-z]{2,3})_cldr"
_TWO_LOCALES = (
    r"translate_[a-z]{2,3}(_[a-z]{4})?(_([a-z]{2}|[0-9]{3}))?_[a-z]{2,3}(_[a-z]{4})?(_([a-z]{2}|[0-9]{3}))?_cldr"
)

FAMILIES: Mapping[str, str] = {
    _TWO_LANGUAGES: "t2t_ext.problems.cldr",
    _TWO_LOCALES: "t2t_ext.problems.cldr",
}

FAMILY_EXAMPLES: Mapping[str, str] = {
    _TWO_LANGUAGES: "any two languages of CLDR: translate_nlja_cldr",
    _TWO_LOCALES: "any two locales of CLDR: translate_en_zh_hant_cldr, translate_pt_br_es_mx_cldr",
}
