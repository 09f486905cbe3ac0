"""Reports in Chromium: their charts are drawn, also on small and dark screens, and an open page follows its file."""

import json
from pathlib import Path

import pytest

from chromium import PROGRAM, Page
from torl.run.records import metric_names as names
from torl_lab.report.comparison import read_run, write_comparison
from torl_lab.report.page import write_report
from viewed_runs import row, write_run

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(PROGRAM is None, reason="needs Chromium: apt-get install chromium"),
]
DRAWN = "[...document.querySelectorAll('.chart')].every(chart => chart.querySelector('.main-svg .trace'))"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
async def test_charts_fit_a_screen_of_360_pixels(page: Page, tmp_path: Path, dark: bool) -> None:
    run = write_run(tmp_path / "run", {"step_000000": [row()], "step_000001": [row(1)]}, steps=9)
    both = write_comparison([read_run(label, run) for label in ("one", "<b>two")], tmp_path / "both.html")
    for file in (write_report(run), both):
        await page.resize(360, 740, dark=dark)
        await page.open(file.as_uri())
        await page.wait_for(f"document.querySelectorAll('.chart').length > 0 && {DRAWN}")
        assert await page.evaluate("document.documentElement.scrollWidth") <= 360
        ink = await page.evaluate("getComputedStyle(document.querySelector('.chart .xtick text')).fill")
        assert (max(map(int, ink.removeprefix("rgb(").rstrip(")").split(","))) > 128) == dark
    assert await page.evaluate("document.querySelectorAll('b').length") == 0
    assert not [url for url in page.requests if not url.startswith(("file:", "data:"))]


async def test_open_page_of_several_runs_shows_what_is_written_again(page: Page, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {"step_000000": [row()]}, steps=2)
    output = write_comparison([read_run("run", run)], tmp_path / "page.html", reload_seconds=1)
    await page.open(output.as_uri())
    await page.wait_for_text("run 2 of 9 steps")
    with (run / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"step": 2, "time": 3.0, names.TIME_STEP: 1.0, names.ACCURACY: 0.5}) + "\n")
    write_comparison([read_run("run", run)], output)
    await page.wait_for("document.body?.innerText.includes('run 3 of 9 steps')")  # while it is loaded, there is no body
    assert "loaded again" not in await page.evaluate("document.body.innerText")
