"""Builds CoIn for English: two coordinated clauses in their original order, or inverted. Imports no TensorFlow.

SentEval selects sentences with a parser: there is one coordinating conjunction, whose conjuncts are the sentence's top
clauses. Here this is *approximated* with words only. A sentence must end with a full stop and contain one of "and",
"but", "or" and no other coordinating conjunction. Both parts must have at least three tokens and begin like a subject:
with a pronoun, determiner, possessive, or name (a word that is capitalized inside sentences). A finite verb must
follow, but no punctuation or word that begins another clause. Finite verbs are those in a closed list of auxiliaries
and a few common past forms and, if parts of speech are given, all that these mark. After I, he, she, we and they a
finite verb is assumed. Without a comma, the part after "and" or "or" must begin with one of these pronouns, "it" or
"there", since "I think Tom and Mary would" joins names. Some sentences are therefore missed, and those found are
simpler than SentEval's; a few do not consist of two top clauses ("I think you and I need to talk").
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from t2t_ext.analysis.probing.senteval import PARTITIONS
from t2t_ext.analysis.probing.senteval_corpus import DOUBLE_QUOTES, Corpus, Rows, Tokens, shuffled, too_small


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_JOINING = frozenset({"and", "but", "or"})
_COORDINATING = _JOINING | {"nor", "yet", "&", "plus", "either", "neither", "both"}
_FEWEST_TOKENS = 3
_SUBJECTS = _words(
    "i you he she it we they there this that these those the a an my your his her its our their some many most all no "
    "every each another one everyone everything someone something nobody nothing"
)
_FINITE = _words(
    "am is are was were has have had do does did will would can could may might shall should must 'm 're 've 'll 'd "
    "n't said went came saw knew thought took made got gave told felt looked seemed wanted turned asked began"
)
_NOMINATIVES = frozenset({"i", "he", "she", "we", "they"})
_SURELY_SUBJECTS = _NOMINATIVES | {"it", "there"}
_FINITE_TAGS = frozenset({"MD", "VBD", "VBP", "VBZ"})
_SUBJECT_TAGS = frozenset({"NNP", "NNPS", "PROPN", "PRP", "PRP$", "DT", "EX", "NNS"})
_OTHER_CLAUSES = _words(
    ", ; : - -- – — ( ) [ ] ... … ! ? that which who whom whose because if when while although though unless since "
    "until before after as than where why how what whether whenever wherever then"
)


@dataclasses.dataclass(frozen=True)
class _Clauses:
    """Two coordinated clauses; the first is written as it would be inside a sentence.

    ``joint`` is the conjunction with the comma before it, if any; ``capital`` says whether the sentence begins with a
    capital.
    """

    first: Tokens
    joint: Tokens
    second: Tokens
    capital: bool

    @property
    def longer(self) -> int:
        """1: the first clause is longer; -1: the second; 0: neither."""
        return (len(self.first) > len(self.second)) - (len(self.first) < len(self.second))

    def written(self, inverted: bool) -> str:
        """Returns the sentence, in its original order or inverted."""
        first, second = (self.second, self.first) if inverted else (self.first, self.second)
        begin = first[0][:1].upper() + first[0][1:] if self.capital else first[0]
        return " ".join([begin, *first[1:], *self.joint, *second, "."])


def coordination_inversion(
    corpus: Corpus, sizes: Sequence[int], tags: Mapping[str, str] | None, random: np.random.Generator
) -> Rows:
    """Builds CoIn: original sentences (O) and inverted ones (I).

    As written, both classes have in each partition the same numbers of sentences whose first clause is longer, whose
    second clause is longer, and whose clauses are equally long, except that an odd size has one O sentence more. No
    sentence is in both classes. ``tags`` are Penn parts of speech by word.

    Raises:
      UserError: The corpus is too small.
    """
    kinds: dict[int, list[_Clauses]] = {1: [], 0: [], -1: []}
    for i in random.permutation(len(corpus.sentences)):
        found = _taken_apart(corpus, corpus.sentences[i], tags or {})
        if found is not None:
            kinds[found.longer].append(found)
    # A pair consists of an original and another sentence whose inverted form has clauses like the original's.
    pairs = [(kinds[0][i], kinds[0][i + 1]) for i in range(0, len(kinds[0]) - 1, 2)]
    for number, (longer, shorter) in enumerate(zip(kinds[1], kinds[-1], strict=False)):
        pairs.append((longer, shorter) if number % 2 else (shorter, longer))
    needed = [-(-size // 2) for size in sizes]
    if len(pairs) < sum(needed):
        counts = f"longer first clause {len(kinds[1]):,}, second {len(kinds[-1]):,}, equal {len(kinds[0]):,}"
        missing = {f"pairs of sentences with two clauses ({counts})": (len(pairs), sum(needed))}
        raise too_small("coordination_inversion", corpus, sizes, missing)
    order = iter(random.permutation(len(pairs)))
    rows: Rows = {}
    for partition, size, count in zip(PARTITIONS, sizes, needed, strict=True):
        chosen = [pairs[next(order)] for _ in range(count)]
        lines = [("O", original.written(False)) for original, _ in chosen]
        rows[partition] = lines + [("I", other.written(True)) for _, other in chosen[: size // 2]]
    return shuffled(rows, random)


def _taken_apart(corpus: Corpus, sentence: Tokens, tags: Mapping[str, str]) -> _Clauses | None:
    """Returns the clauses of a sentence; None if it does not consist of two coordinated clauses by the rules above."""
    if sentence[-1] != "." or not DOUBLE_QUOTES.isdisjoint(sentence):
        return None
    lower = tuple(token.lower() for token in sentence)
    places = [place for place, token in enumerate(lower) if token in _COORDINATING]
    if len(places) != 1 or lower[places[0]] not in _JOINING:
        return None
    place = places[0]
    begin = place - 1 if sentence[place - 1] == "," else place
    first, second = sentence[:begin], sentence[place + 1 : -1]
    if begin == place and lower[place] != "but" and lower[place + 1] not in _SURELY_SUBJECTS:
        return None
    if not first or not all(_is_clause(corpus, each, tags) for each in (first, second)):
        return None
    return _Clauses(
        (_inside(corpus, first[0]), *first[1:]), sentence[begin : place + 1], second, first[0][:1].isupper()
    )


def _is_clause(corpus: Corpus, tokens: Tokens, tags: Mapping[str, str]) -> bool:
    lower = [token.lower().replace("&apos;", "'") for token in tokens]
    if len(tokens) < _FEWEST_TOKENS or not _OTHER_CLAUSES.isdisjoint(lower[1:]):
        return False
    known = [tags.get(token) or tags.get(small, "") for token, small in zip(tokens, lower, strict=True)]
    if lower[0] in _NOMINATIVES:
        return True
    name = tokens[0][:1].isupper() and _inside(corpus, tokens[0]) == tokens[0]
    finite = any(small in _FINITE or tag in _FINITE_TAGS for small, tag in zip(lower[1:], known[1:], strict=True))
    return finite and (name or lower[0] in _SUBJECTS or known[0] in _SUBJECT_TAGS)


def _inside(corpus: Corpus, token: str) -> str:
    """Returns a sentence's first token as it is written inside a sentence: "I" and names keep their capital."""
    small = token[:1].lower() + token[1:]
    return token if corpus.inner_counts[token] > corpus.inner_counts[small] else small
