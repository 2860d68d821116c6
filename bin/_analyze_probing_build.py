"""t2t_ext-analyze probing --build_from: probing tasks from a tokenized corpus (Conneau et al. 2018)."""

import argparse
import pathlib

from t2t_ext.bin._flags import Flag, FlagTable
from t2t_ext.errors import UserError
from t2t_ext.io import log, outputs
from t2t_ext.pages import page

# Used only if ``--build_from`` is given.
BUILD_FLAGS: FlagTable = {
    f"Building tasks, instead of probing a run; for what is approximated see {page('analysis')}": {
        "build_from=FILE": "Tokenized corpus, one sentence per line, to make tasks from; they go to --out_dir.",
        "build_tasks=NAME[,NAME]": Flag(
            "Tasks to build; there are also coordination_inversion (English) and, with --pos_file, odd_man_out.",
            "sentence_length,word_content,bigram_shift",
        ),
        "build_sizes=N,N,N": Flag(
            "Numbers of training, validation and test sentences.", "100000,10000,10000", minimum=1, many=True
        ),
        "build_words": Flag("word_content: number of words that are classes.", 1000, minimum=2),
        "build_first_rank": Flag("word_content: vocabulary rank of the first of these words.", 2001, minimum=1),
        "pos_file=FILE": "Parts of speech, one line per word: WORD TAB TAG.",
    },
}


def build_tasks(flags: argparse.Namespace) -> None:
    """Builds the tasks that the flags ask for."""
    from t2t_ext.analysis.probing import senteval_build, senteval_corpus

    tasks = list(dict.fromkeys(name.strip() for name in flags.build_tasks.split(",") if name.strip()))
    if not tasks:
        raise UserError(f"--build_tasks names none; there are {', '.join(senteval_build.BUILT)}.")
    senteval_build.check_tasks(tasks, bool(flags.pos_file))
    if len(flags.build_sizes) != 3:
        raise UserError(
            "--build_sizes: write three numbers, of training, validation and test sentences: 100000,10000,10000."
        )
    if not flags.out_dir:
        raise UserError("--build_from needs --out_dir=DIR, the folder that the tasks are written to.")
    tags = senteval_corpus.read_tags(flags.pos_file) if flags.pos_file else None
    settings = senteval_build.BuildSettings(
        sizes=flags.build_sizes,
        seed=flags.random_seed,
        words=flags.build_words,
        first_rank=flags.build_first_rank,
        tags=tags,
    )
    out_dir = pathlib.Path(flags.out_dir)
    try:
        out_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"Cannot make the directory {out_dir}: {error.strerror}. Choose another --out_dir.") from error
    outputs.check_all([str(out_dir / f"{task}.txt") for task in tasks], [flags.build_from, flags.pos_file])
    corpus = senteval_corpus.read_corpus(flags.build_from)
    left_out = "".join(f"; {count:,} left out, {reason}" for reason, count in corpus.left_out.items())
    log.info(f"{corpus.path}: {corpus.lines:,} lines, {len(corpus.sentences):,} sentences{left_out}")
    failed = []
    for task in tasks:
        try:
            rows = senteval_build.build(task, corpus, settings)
        except UserError as error:
            failed.append(str(error))
            continue
        path = out_dir / f"{task}.txt"
        senteval_corpus.write_rows(path, rows)
        counts = ", ".join(f"{name} {len(lines):,}" for name, lines in rows.items())
        print(
            f"{path}: {counts}; {len({label for lines in rows.values() for label, _ in lines}):,} classes", flush=True
        )
    if failed:
        raise UserError(" ".join(failed))
