from pathlib import Path

import plotly.graph_objects
import pytest

from elocution.report.charts import draw_charts, draw_guards, draw_others
from elocution.report.run_reader import RunRecord, read_run
from elocution.testing.run_directory import write_sample_run


@pytest.fixture
def run(tmp_path: Path) -> RunRecord:
    write_sample_run(tmp_path / "run")
    return read_run(tmp_path / "run")


def test_every_number_that_a_step_recorded_is_in_one_chart(run: RunRecord) -> None:
    charts = [*draw_charts(run), *draw_others(run)]
    curves = [curve for chart in charts for curve in chart.figure["data"]]
    held_out = 1
    assert len(curves) - held_out == len(run.metrics[0]) - len({"step"})
    assert len({chart.key for chart in charts}) == len(charts)


def test_figures_are_what_plotly_draws(run: RunRecord) -> None:
    for chart in [*draw_charts(run), *draw_guards(run)]:
        plotly.graph_objects.Figure(chart.figure)  # raises on a name or value that it does not know


def test_words_say_what_a_curve_shows(run: RunRecord) -> None:
    reward = draw_charts(run)[0]
    assert reward.title == "Reward"
    assert "mean: 0.55 at step 1, 0.8 at step 6" in reward.summary


def test_the_held_out_rate_has_its_interval(run: RunRecord) -> None:
    chart = next(chart for chart in draw_charts(run) if chart.title == "Word error rate")
    held_out = chart.figure["data"][1]
    assert held_out["x"] == [0, 3, 6]
    assert held_out["customdata"][0] == pytest.approx([26, 34])
    assert held_out["error_y"]["array"] == pytest.approx([4, 4, 4])


def test_guards_have_the_limits_that_stop_a_run(run: RunRecord) -> None:
    charts = {chart.title: chart for chart in draw_guards(run)}
    assert set(charts) == {"f0_spread", "rate", "no_speech_share", "kl", "entropy", "hacking_gap"}
    # The base's spread is 2.7 semitones: a quarter lower warns, half stops, and more is no harm.
    assert [shape["y0"] for shape in charts["f0_spread"].figure["layout"]["shapes"]] == pytest.approx([2.025, 1.35])
    # The base's rate is 15.7: 15 and 30 % either way.
    bounds = [shape["y0"] for shape in charts["rate"].figure["layout"]["shapes"]]
    assert bounds == pytest.approx([13.345, 18.055, 10.99, 20.41])
