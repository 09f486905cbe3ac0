"""`torl view` in Chromium on a run of a million trajectories: list, filters, comparisons, calls run again, export.

Writing and indexing the run takes about two minutes and 2.4 GB below pytest's temporary directory.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.view.viewer import PROMPTS, SAMPLES, write_run
from chromium import PROGRAM, Page
from torl.run.config import TrainConfig
from torl.run.config.loading import find_config, load_config
from viewer import viewing

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(PROGRAM is None, reason="needs Chromium: apt-get install chromium"),
]
COUNT = 1_000_000
STEP = 300


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("million") / "million"
    write_run(directory, COUNT, 60)
    config = load_config(TrainConfig, find_config("demo"))  # calls run again in its sandbox
    (directory / "config.toml").write_text(str(config), encoding="utf-8")
    command = [sys.executable, "-m", "torl", "view", str(directory), "--index-only"]
    subprocess.run(command, check=True, capture_output=True, timeout=550)
    with viewing(directory) as found:
        yield found
    shutil.rmtree(directory)


async def line_with_call(page: Page, address: str) -> str:
    """The address of the first response of a step that calls the tool and whose call succeeded."""
    await page.open(f"{address}/#/trajectories?step={STEP}&status=ok")
    await page.wait_for("document.querySelectorAll('.rows li').length > 5")
    return str(await page.evaluate("document.querySelector('.rows a').getAttribute('href')"))


async def test_filters_count_all_responses(page: Page, address: str) -> None:
    await page.open(f"{address}/#/trajectories")
    await page.wait_for_text("1,000,000 trajectories")
    await page.click(".facet .value")
    await page.wait_for("document.querySelector('.chips').innerText.length > 0")
    await page.go(f"#/trajectories?step={STEP}")
    await page.wait_for_text(f"{PROMPTS * SAMPLES:,} trajectories")
    await page.go("#/trajectories?words=compute+123")
    await page.wait_for_text("trajectories")
    await page.wait_for("document.querySelectorAll('.rows li').length > 5")


async def test_curves_lead_to_a_step(page: Page, address: str) -> None:
    await page.open(address)
    await page.wait_for("document.querySelectorAll('.plot canvas').length > 0")
    await page.wait_for_text("Accuracy")


async def test_group_and_problem_are_compared(page: Page, address: str) -> None:
    await page.go(await line_with_call(page, address))
    await page.click(".members a.button")
    await page.wait_for(f"document.querySelectorAll('.column').length === {SAMPLES}")
    await page.go("#/problem?id=train-00007")
    await page.wait_for_text("first and last side by side")
    await page.click(".lane .button")
    await page.wait_for("document.querySelectorAll('.column').length === 2")


async def test_call_is_run_again_and_changed(page: Page, address: str) -> None:
    """The outputs of the generated responses are not those of their programs."""
    await page.go(await line_with_call(page, address))
    await page.click("[data-action=replay]")
    await page.wait_for_text("✗ differs from the record")
    await page.click("[data-action=edit]")
    await page.wait_for_text("Experiment: not part of the record")


async def test_list_is_exported_as_one_file(page: Page, address: str, tmp_path: Path) -> None:
    await page.open(f"{address}/#/trajectories?step={STEP}")
    await page.wait_for_text(f"{PROMPTS * SAMPLES:,} trajectories")
    file = tmp_path / "list.html"
    file.write_text(await page.evaluate("import('view/export.js').then(m => m.exportedPage())"), encoding="utf-8")
    await page.open(file.as_uri())
    await page.wait_for_text(f"{PROMPTS * SAMPLES:,} trajectories")
    assert await page.evaluate("document.querySelector('.connection').title") == "exported file"
