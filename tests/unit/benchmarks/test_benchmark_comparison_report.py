"""Tests of benchmarks/comparison.py: tables and conclusions from stored results."""

import pytest
from made_up_results import counts_of, made_up

ROOT = "comparison_transformer"


@pytest.fixture(scope="module")
def reports(benchmark):
    return benchmark._comparison_report


@pytest.fixture
def full_store(make_plan, stores, plans, tmp_path):
    """Returns a store with results of a few rows with three seeds, of an ablation, and of the grid."""
    store = stores.Store(tmp_path / "docs" / "results" / "comparison_multi30k.json")
    noises = {ROOT: 0.3, "comparison_cross_view": 0.1, "comparison_enc_dc": 0.3, "comparison_layer_coordination": 0.6}
    for row, noise in noises.items():
        for cell in ((0.2, 0.0075), (0.3, 0.0075), (0.2, 0.00375), (0.2, 0.015)):
            job = plans.Job(row, plans.TUNING, cell, 1)
            store.add(made_up(stores, job, 30 - 10 * noise + (cell == (0.2, 0.015)), loss=1.4, noise=noise))
        for seed in (1, 2, 3):
            job = plans.Job(row, "plain", (0.2, 0.015), seed)
            store.add(made_up(stores, job, 40 + seed / 10 - 10 * noise, noise=noise))
    store.add(made_up(stores, plans.Job("comparison_dec_dc", "plain", (0.2, 0.015), 1), 33.0))
    store.add(made_up(stores, plans.Job("comparison_full_dc", plans.TUNING, (0.2, 0.0075), 1), 31.0))
    return store


def test_hours_of_a_cell_that_a_row_goes_on_with_count_once(reports):
    cell = {"minutes": 60.0, "minutes_before": 0.0, "curve": [[500, 30.0, 2.0, 20.0], [1000, 60.0, 1.5, 30.0]]}
    row = {"minutes": 90.0, "minutes_before": 0.0, "curve": [*cell["curve"], [1500, 90.0, 1.4, 31.0]]}
    assert reports._own_minutes(row, cell) == 30
    rounded = {**row, "curve": [[500, 30.006, 2.0, 20.0], *row["curve"][1:]]}
    assert reports._own_minutes(rounded, cell) == 30
    with_teachers = [{**each, "minutes_before": 40.0} for each in (row, cell)]  # both learn from the same teachers
    assert reports._own_minutes(*with_teachers) == 30
    anew = {**row, "curve": [[500, 31.0, 2.0, 20.0], *row["curve"][1:]]}  # the same scores, another time
    continued = {**row, "minutes_before": 40.0}
    assert [reports._own_minutes(anew, cell), reports._own_minutes(continued, None)] == [90, 50]


def test_a_mistake_on_the_command_line_writes_no_tables(benchmark, full_store, capsys):
    assert benchmark.main(["--no_tuning", f"--results={full_store.path}"]) == 2
    assert "--work_dir=DIR says" in capsys.readouterr().err
    assert not full_store.path.with_suffix(".md").exists()


@pytest.mark.parametrize(("flags", "written"), [([], True), (["--no_tuning"], False), (["--full_grid"], False)])
def test_the_repositorys_tables_keep_their_plan(benchmark, full_store, tmp_path, monkeypatch, capsys, flags, written):
    wrote = []
    monkeypatch.setattr(benchmark._comparison_report, "write", lambda *args: wrote.append("report"))
    for module in ("_comparison_readme", "_comparison_claims"):
        monkeypatch.setattr(getattr(benchmark, module), "update", lambda *args: wrote.append("page"))
    full_store.path.rename(tmp_path / "comparison_multi30k.json")
    monkeypatch.setattr(benchmark, "_RESULTS", tmp_path)
    assert benchmark.main(["--report", *flags]) == 0
    assert wrote == (["report", "page", "page"] if written else [])
    assert ("--report writes their tables" in capsys.readouterr().out) != written


def test_report_from_stored_results_alone(benchmark, differences, full_store, tmp_path, monkeypatch):
    monkeypatch.setattr(differences, "TRIALS", 2000)
    (tmp_path / "docs" / "images").mkdir()
    assert benchmark.main(["--report", f"--results={full_store.path}"]) == 0
    page = full_store.path.with_suffix(".md").read_text()
    assert max(map(len, page.splitlines())) <= 160
    lines = {line.split(" | ")[1]: line for line in page.splitlines() if line.count(" | ") > 9}
    assert "| 3 | 37.20 ± 0.10 |" in lines["Transformer"]
    assert "\n| 1 | 1, 2, 3 | 37.10, 37.20, 37.30 | " in page
    assert lines["GCA, soft (Liu et al. 2020)"].endswith("**above** |")
    assert lines["Layer-wise coordination (He et al. 2018)"].endswith("**below** |")
    assert lines["Enc-DC (Ampomah et al. 2021)"].endswith("no difference shown |")
    assert "| 22 | Dec-DC |" not in page
    # Runs that ended early are compared with runs that ended early, too.
    assert "| 1 | 31.00 | 1 | +" in lines["Full-DC †"]
    assert lines["Full-DC †"].endswith("too few seeds |")
    assert "| Dec-DC | 1,896,448 | 34.00 | 33.00 | 5 |" in page
    assert "| He 2018 | Layer-wise coordination > Transformer | +2.21 | IWSLT14 De-En | -" in page
    assert "**contradicted** |" in page
    assert "too few seeds |" in page  # Enc-DC > Dec-DC
    assert "Enc-DC > Full-DC" not in page  # one of them ended early
    assert "| Transformer | 0.2 | 0.015 | 1.4000 | 29.00 | 29.00 | 9,000 | chosen |" in page
    assert "| dual context | 0.2 | 0.0075 | 1.4000 | 28.00 | 28.00 | 9,000 |  |" in page
    assert "| dual context: Full-DC | 0.2 | 0.0075 | 1.5000 | 32.00 | 32.00 | 9,000 |  |" in page
    assert "BLEU by the length of the source" in page
    text = " ".join(page.split("\n"))
    assert "†: the first of several settings" in text
    assert "Not trained yet: DynamicConv (Wu et al. 2019); Transformer, right to left;" in text
    assert "the rows are those of the first cell: DynamicConv; synchronous; ABD-NMT; pseudo references." in text
    for name in ("comparison_multi30k.png", "comparison_multi30k_differences.png"):
        assert (tmp_path / "docs" / "images" / name).read_bytes().startswith(b"\x89PNG")
        assert f"(../images/{name})" in page
    before = page
    assert benchmark.main(["--report", f"--results={full_store.path}"]) == 0
    assert full_store.path.with_suffix(".md").read_text() == before


def test_further_seeds_are_in_the_table_of_other_seeds_alone(
    plans, stores, reports, full_store, make_plan, monkeypatch, differences
):
    monkeypatch.setattr(differences, "TRIALS", 500)
    plan, (further, *_) = make_plan(), make_plan().further_seeds[ROOT]
    before = reports.markdown(plan, full_store.records, reports.rows(plan, full_store.records), {"": "picture.png"})
    job = plans.Job(ROOT, "plain", (0.2, 0.015), further)
    records = {**full_store.records, job: made_up(stores, job, 50.0, noise=0.3)}
    made = reports.rows(plan, records)
    assert [len(row.runs) for row in made["plain"] if row.name == ROOT] == [3]
    page = reports.markdown(plan, records, made, {"": "picture.png"})
    where = page.index("More seeds: ")
    assert "| without seed 3 | more seeds |" in page[where:]
    assert f"Transformer: 40.40 ± 6.40 with seeds 1, 2, 3, {further}: 37.10, 37.20, 37.30, 50.00" in " ".join(
        page.split("\n")
    )
    assert "more seeds" not in before
    assert (
        page[page.index("## Main rows") : page.index("## Other seeds")]
        == before[before.index("## Main rows") : before.index("## Other seeds")]
    )


def test_what_a_difference_owes_to_the_length(make_plan, stores, plans, reports):
    """If only the references are longer, the difference in BLEU comes from the brevity penalty."""
    plan, records = make_plan(tune=False), {}
    for row, longer in ((ROOT, 0), ("comparison_enc_dc", 2)):
        job = plans.Job(row, "plain", (), 1)
        counts = counts_of(stores, plans, 0.3, 1)
        counts[:, 1] += longer
        counts[:2, [0, 2, 3, 4, 5]] = 0  # two empty translations
        record = made_up(stores, job, 40.0)
        records[job] = {**record, "test": {**record["test"], "counts": stores.pack(counts)}}
    made = reports.rows(plan, records)
    control, row = made["plain"]
    assert row.difference.value < -5
    assert (row.unpenalized.value, row.unpenalized.low, row.unpenalized.high) == (0, 0, 0)
    assert row.precision() == control.precision() > 0
    assert control.unpenalized is None
    page = reports.markdown(plan, records, made, {"": "picture.png"})
    assert f"| 5 | 0.980 | 2.0 | {row.precision():.2f} | 1 | +0.00 | +0.00 to +0.00 | 1.000 | 1.000 | -" in page


def test_what_another_recipe_changes(make_plan, stores, plans, reports):
    """Each row is compared with itself under the other recipe, with the seeds that both have."""
    plan, records = make_plan(tune=False), {}
    for row, variant, seed, noise in (
        (ROOT, "plain", 1, 0.3),
        (ROOT, "plain", 2, 0.5),
        (ROOT, "best", 1, 0.3),
        ("comparison_enc_dc", "plain", 2, 0.1),
        ("comparison_enc_dc", "best", 1, 0.1),  # the recipes have no seed in common
        ("comparison_layer_coordination", "plain", 1, 0.6),
        ("comparison_layer_coordination", "best", 1, 0.1),
    ):
        job = plans.Job(row, variant, (), seed)
        records[job] = made_up(stores, job, 40.0 + seed + (variant == "best"), noise=noise)
    same = records[plans.Job(ROOT, "plain", (), 1)]["test"]["counts"]
    records[plans.Job(ROOT, "best", (), 1)]["test"]["counts"] = same
    page = reports.markdown(plan, records, reports.rows(plan, records), {"": "picture.png"})
    _, of_best = page.split("What this recipe changes")
    table = of_best.split("\n\n")[1].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    assert [line[0] for line in cells] == ["1", "3"]
    assert cells[0][1:] == ["1", "41.00", "+0.00", "+0.00 to +0.00", "1.000", "1.000", "+1.00", "+0.00", "+0"]
    assert float(cells[1][3]) > 5
    assert cells[1][4].startswith("+")
    assert cells[1][2] == "41.00"


def test_the_first_cell_is_shown_until_a_row_is_trained(make_plan, stores, plans, reports, tmp_path):
    """All rows that ended early are shown with equal settings, even if another cell is better by then."""
    plan, store = make_plan(), stores.Store(tmp_path / "results.json")
    cells = [(dropout, 0.0075) for dropout in (0.2, 0.3)] + [(0.3, rate) for rate in (0.00375, 0.015)]

    def shown():
        made = reports.rows(plan, store.records)["plain"]
        return {row.name: (row.early, *next(iter(row.runs.values()))["cell"].values()) for row in made}

    for row, cell in [("comparison_full_dc", cells[0]), *(("comparison_enc_dc", cell) for cell in cells)]:
        store.add(made_up(stores, plans.Job(row, plans.TUNING, cell, 1), 40.0 + 10 * cell[0]))
        assert shown()[row] == (True, 0.2, 0.0075)
    store.add(made_up(stores, plans.Job("comparison_enc_dc", "plain", (0.3, 0.0075), 1), 40.0))
    assert shown() == {"comparison_enc_dc": (False, 0.3, 0.0075), "comparison_full_dc": (True, 0.2, 0.0075)}


@pytest.mark.parametrize(
    ("bootstrap", "randomization", "seeds", "said"),
    [
        ([0.001, 0.2, 0.2], [0.001, 0.001, 0.001], 3, ["**above**", "no difference shown", "no difference shown"]),
        ([0.001, 0.001, 0.001], [0.02, 0.02, 0.03], 3, ["no difference shown"] * 3),
        ([0.001, 0.001, 0.02], [0.001, 0.01, 0.01], 3, ["**above**"] * 3),
        ([0.001, 0.001, 0.03], [0.001, 0.01, 0.01], 3, ["**above**", "**above**", "no difference shown"]),
        ([0.001] * 3, [0.001] * 3, 2, ["too few seeds"] * 3),
    ],
)
def test_what_is_concluded(reports, pairs, differences, bootstrap, randomization, seeds, said):
    """Both tests must find a difference, corrected for the number of all tests, including those with too few seeds."""
    tests = [differences.Difference(1.0, 0.1, 2.0, *pair, seeds) for pair in zip(bootstrap, randomization, strict=True)]
    tests.append(differences.Difference(1.0, 0.1, 2.0, 0.0, 0.0, 1))  # one seed
    enough = [p if test.seeds >= 3 else None for test, p in zip(tests, pairs.corrected(tests), strict=True)]
    found = [reports.said_of(test, p) for test, p in zip(tests, enough, strict=True)]
    assert [words for _, words in found] == [*said, "too few seeds"]


def test_the_bootstraps_p_agrees_with_its_interval(differences, stores, plans):
    for seed in range(1, 9):
        one, other = (counts_of(stores, plans, noise, seed) for noise in (0.28, 0.3))
        found = differences.difference({1: one}, {1: other})
        assert (found.p_bootstrap < 0.05) == (not found.low <= 0 <= found.high)


def test_every_row_fits_into_the_tables(make_plan, stores, plans, reports, differences, monkeypatch):
    monkeypatch.setattr(differences, "SAMPLES", 500)
    monkeypatch.setattr(differences, "TRIALS", 500)
    plan, records = make_plan(tune=False), {}
    for variant in plan.variants:
        for row in [*plan.main, *(plan.ablations if variant == "plain" else ())]:
            job = plans.Job(row, variant, (), 1)
            records[job] = made_up(stores, job, 40.0, loss=None if row == "comparison_rerank" else 1.5)
    made = reports.rows(plan, records)
    page = reports.markdown(plan, records, made, {"": "picture.png"})
    assert max(map(len, page.splitlines())) <= 160
    rows = [line.split(" | ")[0] for line in page.splitlines() if line.startswith("| ")]
    assert {f"| {number}" for number in range(1, len(plan.main) + len(plan.ablations) + 1)} <= set(rows)
    assert "## Main rows, SimCut" in page
    assert page.count("too few seeds |") >= 2 * len(plan.main) - 2 + sum(map(len, plan.orders.values()))
    assert "Controls | Enc-DC > " in page
    pictures = reports._comparison_figures
    looks = [pictures._style(plan, "plain", row) for row in made["plain"] if row.main]
    assert len({(look["color"], look["marker"]) for look in looks}) == len(looks) > 14
    fillings = [str(pictures._filling(plan, variant)) for variant in plan.variants]
    assert len(set(fillings)) == len(fillings) > 2  # the training recipes look different
    assert pictures.costs(plan, made).startswith(b"\x89PNG")
    assert pictures.differences(plan, made["plain"][:1]) is None  # the Transformer has no control
    assert pictures.differences(plan, made["plain"]).startswith(b"\x89PNG")


def test_rows_of_one_size_stand_side_by_side(reports):
    pictures = reports._comparison_figures
    places, bands = pictures._columns([2.41e6, 4.8e6, 2.40e6, 2.80e6, 2.42e6], [42.0, 43.0, 41.0, 44.0, 43.0])
    assert places == [2.0, 7.0, 1.0, 5.0, 3.0]  # ordered by BLEU within a size, with a gap between sizes
    assert [(band.left, band.right, round(band.size)) for band in bands] == [
        (1.0, 3.0, 2_410_000),
        (5.0, 5.0, 2_800_000),
        (7.0, 7.0, 4_800_000),
    ]
    assert pictures._columns([], []) == ([], [])


def test_a_label_is_where_nothing_else_is(reports):
    from t2t_ext.reporting import figures

    pictures = reports._comparison_figures
    with figures.new_figure(4, 4) as figure:
        axes = figure.subplots()
        axes.set(xlim=(0, 10), ylim=(0, 10))
        figure.draw_without_rendering()
        pictures._label(axes, [(5.0, 5.0, 1.0, "1"), (5.0, 6.4, 0.0, "2"), (1.0, 1.0, 0.0, "3")])
        first, second, third = (each.xyann for each in axes.texts)
    assert first[1] < 10  # beside its point, since the second point is above its error bar
    assert second == third == (-2.6, 5.0)
    assert pictures._overlap((0, 0, 2, 2), (1, 1, 5, 5)) == 1
    assert pictures._overlap((0, 0, 2, 2), (3, 0, 5, 5)) == 0


def test_published_differences_have_the_sign_of_the_row(make_plan):
    plan = make_plan()
    assert plan.published("comparison_layer_coordination") == (2.21, "IWSLT14 De-En")
    assert plan.published("comparison_transformer_r2l") == (-0.59, "WMT14 En-De")  # the paper has the reverse order
    assert plan.published("comparison_cross_view_continued") == (1.2, "IWSLT14 De-En")  # the baseline continues, too
    assert plan.published("comparison_transformer_longer") is None


def test_no_two_rows_have_the_same_name_where_it_is_cut(make_plan, reports):
    plan = make_plan()
    names = [*plan.main, *plan.ablations]
    for width in (reports.BRIEF, 40):  # the narrowest table and figure
        assert len({reports.figures.short(plan.brief(name), width) for name in names}) == len(names)
