"""An independent rendering of word alignment: byte spans instead of counts, loops instead of matrix products.

A word is a run of bytes that are not ASCII whitespace. A piece belongs to all words of which it contains bytes. A piece
that consists only of whitespace belongs to the next word.
"""

import re

import numpy as np


def surface(piece, silent=False):
    """Returns the bytes that a piece of the vocabulary stands for."""
    if silent:
        return b""
    byte = re.fullmatch("<0x(..)>", piece)
    return bytes.fromhex(byte[1]) if byte else piece.replace("▁", " ").encode()


def words_of_pieces(surfaces):
    """Returns, for each piece, the set of its words, and the total number of words."""
    text = b"".join(surfaces)
    words = [match.span() for match in re.finditer(rb"[^ \t\n\r\x0b\x0c]+", text)]
    result, start = [], 0
    for piece in surfaces:
        end = start + len(piece)
        own = {i for i, (left, right) in enumerate(words) if piece and left < end and right > start}
        if piece and not own:
            own = {i for i, (left, _) in enumerate(words) if left >= end and (i == 0 or words[i - 1][0] < end)}
        result.append(own)
        start = end
    return result, len(words)


def links(attention, source_surfaces, target_surfaces):
    """Returns the alignment of one sentence in Pharaoh format from attention [T, S], rows in text order."""
    source, source_words = words_of_pieces(source_surfaces)
    target, target_words = words_of_pieces(target_surfaces)
    sums = np.zeros([target_words, source_words])
    for t, target_set in enumerate(target):
        for s, source_set in enumerate(source):
            for i in target_set:
                for j in source_set:
                    sums[i, j] += attention[t, s]
    best = [max(range(source_words), key=lambda j, row=row: (row[j], -j)) for row in sums] if source_words else []
    return " ".join(f"{j}-{i}" for i, j in enumerate(best))
