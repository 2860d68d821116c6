"""Compares the test set of IWSLT14 German-English, read from WIT3's XML, with the lines of a prepared one.

    python benchmarks/iwslt14_lines.py --xml_dir=orig/de-en --plain_dir=iwslt14.tokenized.de-en

Prints how many lines there are and how many differ, and shows the first differing lines.
"""

import argparse
import itertools
import pathlib

from t2t_ext import registry
from t2t_ext.data.corpora import compression
from t2t_ext.data.corpora.readers import ReadReport, read_lines
from t2t_ext.data.text.text_steps import TextSteps
from t2t_ext.problem import TEST

SHOWN = 5


def main() -> int:
    """Runs the comparison; returns the exit status, 1 if lines differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--xml_dir", required=True, help="Where IWSLT14.TED*.xml are.")
    parser.add_argument("--plain_dir", required=True, help="Where test.de and test.en are, plain or compressed.")
    args = parser.parse_args()
    problem = registry.problem("translate_deen_iwslt14")
    report = ReadReport(strict=True)
    pairs = [pair for files in problem.pair_files(TEST, args.xml_dir) for pair in files.read(report)]
    languages = (problem.source_language, problem.target_language)
    steps = (problem.source_steps, problem.target_steps)
    differing = 0
    for language, names, texts in zip(languages, steps, zip(*pairs, strict=True), strict=True):
        ours = TextSteps(names, language).prepare(texts)
        path = pathlib.Path(args.plain_dir, f"test.{language}")
        theirs = [line.decode() for line in read_lines(compression.with_suffix_of_file(path) or path)]
        different = [(a, b) for a, b in itertools.zip_longest(ours, theirs) if a != b]
        differing += len(different)
        print(f"{language}: {len(ours):,} lines from XML, {len(theirs):,} prepared, {len(different):,} differ")
        for a, b in different[:SHOWN]:
            print(f"  from XML: {a}\n  prepared: {b}")
    return int(differing > 0)


if __name__ == "__main__":
    raise SystemExit(main())
