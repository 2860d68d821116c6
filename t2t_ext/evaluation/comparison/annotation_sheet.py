"""A sheet for people who count what translations repeat and leave out, without knowing whose they are.

Zhou et al. (2019), table 8, after Tu et al. (2016): of 100 sentences drawn at random four evaluators counted the source
words that each system translated twice (over-translation) or not at all (under-translation). The counting is theirs;
this draws the sentences and hides the systems, whose order is another one in every sentence.
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
    """Draws sentences, or takes all where there are fewer, and hides the systems; the same files give the same sheet.

    Returns:
      The sheet and its key, CSV each. The sheet: line, source, its words, references, translations A, B, ..., and for
      each an empty column for the source words translated twice and one for those not translated. The key: line, and
      whose translation A, B, ... is.

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
    # A carriage return within a line would end a row, as csv leaves it without quotes.
    cells = ([harmless(cell.replace("\r", " ")) for cell in row] for row in rows)
    csv.writer(text, lineterminator="\n").writerows(cells)
    return text.getvalue()
