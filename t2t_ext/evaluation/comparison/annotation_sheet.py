"""Creates a sheet on which evaluators count repeated and missing words, without knowing which system is which.

In Zhou et al. (2019), table 8, after Tu et al. (2016), four evaluators judged 100 sentences drawn at random. They
counted the source words that each system translated twice (over-translation) or not at all (under-translation). People
do the counting; this module draws the sentences and hides the systems, whose order changes from sentence to sentence.
"""

import csv
import io
import random
import string
from collections.abc import Mapping, Sequence

from t2t_ext.errors import UserError
from t2t_ext.reporting.table import harmless

DEFAULT_SENTENCES = 100
_SEED = 12345


def make_sheet(
    systems: Mapping[str, Sequence[str]],
    references: Sequence[Sequence[str]],
    source: Sequence[str],
    count: int = DEFAULT_SENTENCES,
) -> tuple[str, str]:
    """Draws ``count`` sentences (all if there are fewer) and hides the systems; the same texts give the same sheet.

    Returns:
      The sheet and its key, both as CSV. The columns of the sheet: line, source, number of source words, references,
      translations A, B, ..., and for each translation two empty columns: for source words translated twice and for
      those not translated. The columns of the key: line, and for A, B, ... the system that made the translation.

    Raises:
      UserError: There are more systems than letters.
    """
    letters = string.ascii_uppercase[: len(systems)]
    if len(letters) < len(systems):
        raise UserError(f"A sheet has at most {len(string.ascii_uppercase)} systems, not {len(systems)}.")
    rng = random.Random(_SEED)
    lines = sorted(rng.sample(range(len(source)), min(count, len(source))))
    named = [f"reference {number}" for number in range(1, len(references) + 1)]
    counts = [f"{letter} {what}" for letter in letters for what in ("twice", "missing")]
    sheet = [["line", "source", "words", *named, *letters, *counts]]
    key = [["line", *letters]]
    for line in lines:
        order = rng.sample(list(systems), len(systems))
        row = [str(line + 1), source[line], str(len(source[line].split())), *(each[line] for each in references)]
        sheet.append([*row, *(systems[name][line] for name in order), *[""] * len(counts)])
        key.append([str(line + 1), *order])
    return _csv(sheet), _csv(key)


def _csv(rows: Sequence[Sequence[str]]) -> str:
    text = io.StringIO()
    # A carriage return within a line would end the row, since csv does not quote it.
    cells = ([harmless(cell.replace("\r", " ")) for cell in row] for row in rows)
    csv.writer(text, lineterminator="\n").writerows(cells)
    return text.getvalue()
