"""Reports in Chromium: their charts are drawn, also on small and dark screens, and an open page follows its file."""

import json
from pathlib import Path

import pytest

from chromium import PROGRAM, Page
from torl.run.records import metric_names as names
from torl_lab.report.comparison import write_comparison
from torl_lab.report.figures import Bar, Point, bar_chart, calls_chart
from torl_lab.report.page import read_run, write_page, write_report
from torl_lab.view.panels import RunRecords
from viewed_runs import row, write_run

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(PROGRAM is None, reason="needs Chromium: apt-get install chromium"),
]
HOSTILE = "<img src=x onerror=alert(2)>"
DRAWN = "[...document.querySelectorAll('.chart')].every(chart => chart.querySelector('canvas, .bar-row'))"
CHART = "[...document.querySelectorAll('.chart')].find(each => each.querySelector('h3').innerText === {!r})"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
async def test_charts_fit_a_screen_of_360_pixels(page: Page, tmp_path: Path, dark: bool) -> None:
    run = write_run(tmp_path / "run", {"step_000000": [row(question=HOSTILE)], "step_000001": [row(1)]}, steps=9)
    both = write_comparison([read_run(label, run) for label in ("one", "<b>two")], tmp_path / "both.html")
    for file in (write_report(run, HOSTILE), both):
        await page.resize(360, 740, dark=dark)
        await page.open(file.as_uri())
        await page.wait_for(f"document.querySelectorAll('.chart').length > 0 && {DRAWN}")
        assert await page.evaluate("document.documentElement.scrollWidth") <= 360
        ink = await page.evaluate("getComputedStyle(document.querySelector('.chart h3')).color")
        assert (max(map(int, ink.removeprefix("rgb(").rstrip(")").split(","))) > 128) == dark
        assert await page.evaluate("document.querySelectorAll('main img').length") == 0
    await page.wait_for_text("<b>two")
    assert not [url for url in page.requests if not url.startswith(("file:", "data:"))]


async def test_report_has_its_statement_outcome_and_sample_trajectories(page: Page, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {"step_000000": [row(correct=False)], "step_000001": [row(1)]}, steps=9)
    await page.open(write_report(run, f"It shows X. {HOSTILE}").as_uri())
    for text in (
        f"It shows X. {HOSTILE}",
        "last record 1970-01-01 00:00 UTC",
        "cost: 9 steps",
        "Wrong before, right after",
        "Let me see.",
        "run: ok",
    ):
        await page.wait_for_text(text)
    assert await page.evaluate("document.querySelector('.example .answer').innerText") == r"\boxed{1}"
    assert await page.evaluate("document.querySelectorAll('.response')[1].innerText.includes('step 1')")
    await page.click("section > details summary")
    await page.wait_for_text("[model]")


async def test_a_curve_of_many_steps_is_a_mean_above_faint_values(page: Page, tmp_path: Path) -> None:
    rows = [
        {
            "step": step,
            names.REWARD_MEAN: float(step),
            names.LOGPROB_GAP_MAX: float(step),
            names.CODE_RATIO: 0.0,
            names.TIME_WAIT: 1.0,
            names.TIME_LEARN: 2.0,
        }
        for step in range(9)
    ]
    evaluated = [{"step": step, "evaluation/a/reward/accuracy": 0.1 + step / 10} for step in (0, 8)]
    runs = [RunRecords(label, [*rows, *evaluated], {}) for label in ("run", "other")]
    await page.open(write_page(tmp_path / "page.html", {}, runs[:1], 5).as_uri())
    await page.wait_for_text("Always zero: code ratio.")
    reward, gap, time = (
        CHART.format(title) for title in ("Reward", "Log-probability gap", "Seconds of a step, by phase")
    )
    assert (await page.evaluate(f"{reward}.querySelector('.readout').innerText")).split() == ["step", "8", "6"]
    assert (await page.evaluate(f"{gap}.querySelector('.readout').innerText")).split()[-1] == "8"  # not a mean
    means = "import('view/charts.js').then(m => m.movingMean([0, 1, 2, 3, 4, 5, 6, 7, 8], 5))"
    assert await page.evaluate(means) == [0, 0.5, 1, 1.5, 2, 3, 4, 5, 6]
    stacked = "import('view/charts.js').then(m => m.stacked([[1, 1], [2, null], [0, 3]]))"
    assert await page.evaluate(stacked) == [[1, 1], [3, 1], [3, 4]]
    assert await page.evaluate(f"{time}.querySelectorAll('.reading').length") == 2
    await page.open(write_page(tmp_path / "page.html", {}, runs, 5).as_uri())
    await page.wait_for_text("Dashed: before training.")


async def test_bars_and_accuracies_by_calls_have_their_intervals(page: Page, tmp_path: Path) -> None:
    bars = [Bar(series, "set", value, (value - 0.1, value + 0.2)) for series, value in (("m", 0.5), ("<b>n", 0.25))]
    points = {"m": [Point(calls, 0.2 + calls / 10, (0.1, 0.9)) for calls in (0, 1, 3)]}
    report = {
        "title": "mine",
        "bars": [bar_chart("greedy", "By set.", bars)],
        "figures": [calls_chart("N", "", points)],
    }
    await page.open(write_page(tmp_path / "page.html", report).as_uri())
    await page.wait_for(f"document.querySelectorAll('.chart').length === 2 && {DRAWN}")
    assert await page.evaluate("document.title") == "mine · torl view"
    shown = "[...document.querySelectorAll('.bar-row')].map(each => each.innerText.split(/\\s*\\n\\s*/))"
    assert await page.evaluate(shown) == [["m", "50.0 %"], ["<b>n", "25.0 %"]]
    marks = "[...document.querySelectorAll('.track b')].map(each => [each.style.left, each.style.width])"
    assert [[round(float(text[:-1])) for text in each] for each in await page.evaluate(marks)] == [[40, 30], [15, 30]]
    readout = await page.evaluate(f"{CHART.format('N')}.querySelector('.readout').innerText")
    assert "N 3" in readout
    assert "50.0 %" in readout


async def test_open_page_of_several_runs_shows_what_is_written_again(page: Page, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {"step_000000": [row()]}, steps=2)
    output = write_comparison([read_run("run", run)], tmp_path / "page.html", reload_seconds=1)
    steps = "document.querySelector('.run-card dd')?.innerText"
    await page.open(output.as_uri())
    await page.wait_for(f"{steps} === '2 of 9'")
    with (run / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"step": 2, "time": 3.0, names.TIME_STEP: 1.0, names.ACCURACY: 0.5}) + "\n")
    write_comparison([read_run("run", run)], output)
    await page.wait_for(f"{steps} === '3 of 9'")
    assert "loaded again" not in await page.evaluate("document.body.innerText")
