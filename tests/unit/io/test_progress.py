"""Tests of the plain progress lines that replace a bar when standard error is not a terminal."""

import pytest

from t2t_ext.io import progress


@pytest.mark.parametrize(
    ("total", "amount", "said"),
    [
        (40, 20, "Translating: 20 of 40 lines, 20 s left (1.0 lines/s)"),
        (None, 20, "Translating: 20 lines (1.0 lines/s)"),
        (4000, 3000, "Translating: 3,000 of 4,000 lines, 7 s left (150 lines/s)"),
        (40, 1, "Translating: 1 of 40 lines, 780 s left (0.1 lines/s)"),
    ],
)
def test_a_line_says_how_far_it_is_and_how_fast(monkeypatch, capsys, total, amount, said):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with progress.running_total("Translating", total, "lines") as update:
        now[0] += 5
        update(0, 0)  # too early to report anything
        now[0] += 15
        update(amount, 0)
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", said + "\n")


def test_nothing_done_yet_has_no_rate(monkeypatch, capsys):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with progress.progress("Translating", 40, "lines") as advance:
        now[0] += 20  # something else took long
        advance(0)
        advance(10)
    assert capsys.readouterr().err == "Translating: 10 of 40 lines, 60 s left (0.5 lines/s)\n"
