"""How messages and --help name pages of the documentation.

An installed package does not have the pages, so that a bare path would lead nowhere: a message says what matters
itself, and where it cannot, names the page by its title and by its file in the sources.
"""

_TITLES = {
    "analysis": "Analysis: looking inside a model",
    "captioning": "Captions of images",
    "corpora": "Published corpora",
    "data": "Data",
    "decoding": "Decoding",
    "extending": "Your own problems, models and hparams sets",
    "keras": "Models as Keras models",
    "serving": "Serving translations",
    "summarization": "Summaries",
    "text": "From text to subwords",
    "training": "Training",
}


def page(name: str) -> str:
    """Returns a page's name for the middle of a sentence, such as of ``serving``, which is docs/serving.md."""
    return f"the documentation's page {_TITLES[name]!r} (docs/{name}.md of the sources)"
