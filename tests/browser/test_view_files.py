"""`torl view` on files of other libraries in Chromium: shown, verified, replayed."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from chromium import PROGRAM, Page
from foreign_files import FILES, QUESTION
from viewer import own_cache, viewing

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(PROGRAM is None, reason="needs Chromium: apt-get install chromium"),
]
MODEL = "torl:demo/base_model"
HAVE_TOKENS, HAVE_CALLS = {"traces.jsonl", "12.pt"}, {"log.eval", "results.jsonl", "trajectory.json", "traces.jsonl"}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of one file of each format, with an empty cache for their copies."""
    directory = tmp_path_factory.mktemp("foreign")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", own_cache(directory))
        for name, write in FILES.items():
            write(directory / name)
        with viewing(*(directory / name for name in FILES), options=("--tokenizer", MODEL)) as found:
            yield found


@pytest.mark.parametrize("name", FILES)
async def test_trajectory_is_shown_verified_and_run_again(page: Page, address: str, name: str) -> None:
    await page.open(f"{address}/#/trajectories?run={name}")
    await page.wait_for("document.querySelectorAll('.rows li').length > 0")
    await page.go(await page.evaluate("document.querySelector('.rows a').getAttribute('href')"))
    await page.wait_for_text(QUESTION)
    if name in HAVE_TOKENS:
        await page.wait_for("document.querySelectorAll('.segmented button').length > 3")
        await page.evaluate("document.querySelectorAll('.segmented button')[2].click()")
        await page.wait_for("document.querySelectorAll('.tokens .scale.down').length > 0")
        await page.evaluate("document.querySelectorAll('.segmented button')[0].click()")
    else:
        await page.wait_for_text("the record has no token ids")
    await page.click("[data-action=verify]")
    await page.wait_for("document.querySelectorAll('.check.right').length >= 2")
    shown = await page.evaluate("document.querySelector('.audit').innerText")
    assert "✓ structure" in shown
    assert "✓ groups" in shown
    assert ("✓ tokens" in shown) == (name in HAVE_TOKENS)
    assert "not checked:" in shown
    assert await page.evaluate("document.querySelectorAll('.check.wrong').length") == 0
    if name in HAVE_CALLS:
        await page.click("[data-action=replay]")
        await page.wait_for_text("✓ reproduced")


async def test_changed_grade_is_found_in_the_whole_file(page: Page, tmp_path: Path) -> None:
    line = {"input": QUESTION, "output": "\\boxed{2}", "gts": "2", "score": 1.0, "step": 1}
    path = tmp_path / "1.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in (line, line | {"score": -1.0})))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", own_cache(tmp_path))
        with viewing(path) as address:
            await page.open(f"{address}/#/trajectories")
            await page.wait_for_text("2 trajectories")
            await page.go("#/trajectory/1.jsonl/1/0")
            await page.click("[data-action=verify-step]")
            await page.wait_for("document.querySelector('.whole .check.wrong')?.innerText.includes('rewards 1 of 2')")
            await page.click("[data-action=verify]")  # of the first, which is right
            await page.wait_for("document.querySelectorAll('.audit > .check.right').length === 3")
            await page.open("about:blank")  # before its server ends
