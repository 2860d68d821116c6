"""Names pages of the documentation for messages and --help.

An installed package does not include the pages, so a bare path would lead nowhere. A message therefore says itself what
matters. If it cannot, it names the page by its title and by its file in the sources.
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
    """Returns the name of a page for use within a sentence; ``serving``, for example, is docs/serving.md."""
    return f"the documentation's page {_TITLES[name]!r} (docs/{name}.md of the sources)"
