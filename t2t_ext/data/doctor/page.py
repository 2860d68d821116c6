"""A diagnosis as files: figures, pictures and one page that opens without a network."""

import base64
import errno
import html
import io
import json
import os
import pathlib
from collections.abc import Sequence

import numpy as np

from t2t_ext.data.doctor import report as doctor_report
from t2t_ext.data.doctor.diagnosis import Diagnosis
from t2t_ext.data.doctor.examination import RATIOS, SIDES
from t2t_ext.errors import UserError
from t2t_ext.io import files

# Lengths beyond this share of the texts are left out of the picture.
_SHOWN_SHARE = 0.999
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1a1a1a}"
    "pre{font:13px/1.35 ui-monospace,monospace;background:#f6f6f4;padding:1rem;overflow-x:auto}img{max-width:100%}"
)


def report_directory(path: str) -> pathlib.Path:
    """Makes the directory of a report, before all the work for it.

    Raises:
      UserError: It cannot be made or written to.
    """
    directory = pathlib.Path(path).expanduser()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if not os.access(directory, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise UserError(
            f"--report={path} cannot be written to: {error.strerror or error}. Give another DIR."
        ) from error
    return directory


def write_report(diagnosis: Diagnosis, directory: pathlib.Path) -> list[pathlib.Path]:
    """Writes ``report.json``, ``lengths.png``, ``ratios.png`` and ``report.html`` (which needs no other file).

    Args:
      diagnosis: What to write.
      directory: Where to, made by ``report_directory``.

    Returns:
      The files.

    Raises:
      UserError: They cannot be written.
    """
    pictures = {"lengths.png": lengths_picture(diagnosis), "ratios.png": ratios_picture(diagnosis)}
    text = json.dumps(doctor_report.as_json(diagnosis), indent=1, ensure_ascii=False) + "\n"
    contents = {
        "report.json": text.encode("utf-8", "backslashreplace"),
        **pictures,
        "report.html": _page(diagnosis, pictures),
    }
    for name, content in contents.items():
        files.write_bytes_atomically(directory / name, content)
    return [directory / name for name in contents]


def lengths_picture(diagnosis: Diagnosis) -> bytes:
    """Returns a PNG of how long the training texts are, in words and in subwords."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.6), layout="constrained")
    for axes, row, unit in zip(
        figure.subplots(1, 2), (doctor_report.WORDS, doctor_report.SUBWORDS), ("words", "subwords"), strict=True
    ):
        histograms = [side.lengths[row] for side in diagnosis.train.sides]
        last = max(2, *(doctor_report.quantiles(counts, (_SHOWN_SHARE,))[0] for counts in histograms))
        for side, counts in zip(SIDES, histograms, strict=True):
            axes.step(np.arange(last + 1), counts[: last + 1], where="mid", label=side)
        axes.set_xlabel(f"length in {unit}")
        axes.set_ylabel("training texts")
        axes.legend()
    return _png(figure)


def ratios_picture(diagnosis: Diagnosis) -> bytes:
    """Returns a PNG of how many words the targets have for each word of their sources."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 2.6), layout="constrained")
    axes = figure.subplots()
    axes.bar(np.log2(RATIOS), diagnosis.train.ratios, width=0.22)
    ticks = np.arange(-4, 5)
    axes.set_xticks(ticks, [f"{2.0**tick:g}" for tick in ticks])
    axes.set_xlabel("words of the target for each word of the source")
    axes.set_ylabel("training pairs")
    return _png(figure)


def _png(figure: object) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110, metadata={"Software": None})
    return buffer.getvalue()


def _page(diagnosis: Diagnosis, pictures: dict[str, bytes]) -> bytes:
    title = html.escape(f"{diagnosis.problem}: the data")
    figures = "".join(
        f'<img alt="{html.escape(name)}" src="data:image/png;base64,{base64.b64encode(picture).decode()}">\n'
        for name, picture in pictures.items()
    )
    notes = "".join(
        f"<h2>{heading}</h2>\n<ul>\n{_items(sentences)}</ul>\n"
        for heading, sentences in (
            ("Must be mended", list(doctor_report.faults(diagnosis))),
            ("Look at", list(doctor_report.findings(diagnosis))),
        )
        if sentences
    )
    text = html.escape("\n".join(doctor_report.lines(diagnosis)))
    page = (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
        f"</head><body>\n<h1>{title}</h1>\n{notes}{figures}<h2>Everything</h2>\n<pre>{text}</pre>\n</body></html>\n"
    )
    return page.encode("utf-8", "backslashreplace")


def _items(sentences: Sequence[str]) -> str:
    return "".join(f"<li>{html.escape(sentence)}</li>\n" for sentence in sentences)
