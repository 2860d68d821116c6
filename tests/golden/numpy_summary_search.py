"""The search rules for summaries in plain Python: n-grams of words, and OpenNMT's coverage penalty at every step.

Written from the descriptions: OpenNMT-py's documentation of ``-block_ngram_repeat``, ``-ignore_when_blocking``,
``-coverage_penalty summary`` and ``-stepwise_penalty``, and Gehrmann et al. 2018, section 5.3. The code processes one
sentence at a time.
"""

from numpy_beam_search import EOS, Found, beam_search, greedy, score_of


def split_words(ids, begins, ends):
    """Returns a sequence's words, tuples of tokens; a word begins at a token of `begins` and after one of `ends`."""
    words = []
    for place, token in enumerate(ids):
        if place == 0 or token in begins or ids[place - 1] in ends:
            words.append(())
        words[-1] = (*words[-1], token)
    return words


def no_word_ngram_again(size, begins, ends, ignored=()):
    """Returns a function (prefix, token) -> whether the token repeats no n-gram of the preceding whole words."""

    def allowed(prefix, token):
        if token == EOS:
            return True
        words = split_words((*prefix, token), begins, ends)
        gram, before = words[-size:], words[:-1]
        if len(gram) < size or any(word in ignored for word in gram):
            return True
        return gram not in [before[i : i + size] for i in range(len(before) - size + 1)]

    return allowed


def repeated_ngrams(ids, size, begins, ends, ignored=()):
    """Returns the n-grams of words that a whole sequence has more than once."""
    words = split_words([token for token in ids if token != EOS], begins, ends)
    grams = [tuple(words[i : i + size]) for i in range(len(words) - size + 1)]
    return {gram for gram in grams if grams.count(gram) > 1 and not any(word in ignored for word in gram)}


def summary_penalty(coverage, beta):
    """Returns beta (sum_i max(c_i, 1) - S), where c_i is the attention that word i of the S words has got."""
    return beta * (sum(max(float(c), 1.0) for c in coverage) - len(coverage))


def stepwise_search(log_probs, penalty_of, *, beam, **settings):
    """Searches for one sentence and ranks hypotheses at every step by log P minus their penalty.

    Args:
      log_probs: function (prefix) -> log-probabilities [V].
      penalty_of: function (ids) -> the penalty of a sequence.
      beam: the beam size; 1 is greedy search.
      settings: the other arguments of `beam_search`.

    Returns:
      A list of `Found`; log_prob is the model's log P, and score is (log P - penalty) / length penalty.
    """

    def less(prefix):
        step = log_probs(prefix)
        grown = penalty_of((*prefix, 0)) - (penalty_of(prefix) if prefix else 0.0)
        return [value - grown for value in step]

    if beam == 1:
        settings.pop("wanted", None)
        found = [greedy(less, **settings)]
    else:
        found = beam_search(less, beam=beam, **settings)
    return [Found(each.ids, score_of(log_probs, each.ids), each.score, each.finished) for each in found]
