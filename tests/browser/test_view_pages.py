"""`torl view` in Chromium: every view of a trained run, filtered, compared, run again, exported, and hostile records.

Each test fails on an error in the console, and on a request to another address than the server's (`page`).
"""

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chromium import PROGRAM, Page
from torl.run.records.files import token_files
from torl.run.records.tokens import read_token_numbers, write_token_numbers
from viewed_runs import indexed, lines, row, write_run
from viewer import viewing

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(PROGRAM is None, reason="needs Chromium: apt-get install chromium"),
]
HOSTILE = "</script><img src=x onerror=alert(1)><script>alert(2)</script>\u202egnp\x1b[31m\u2066 \ud800 \u05e9\u05dc"
SMALL = {
    "run.steps": "2",
    "rollout.prompts_per_step": "12",
    "rollout.samples_per_prompt": "6",
    "evaluation.max_problems": "8",
    "evaluation.every_steps": "2",
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the demo with two steps."""
    directory = tmp_path_factory.mktemp("trained") / "demo"
    words = [word for name, value in SMALL.items() for word in (f"--{name}", value)]
    command = [sys.executable, "-m", "torl", "train", "demo", "--run.directory", str(directory), *words]
    subprocess.run(command, check=True, capture_output=True, timeout=280)
    return directory


@pytest.fixture(scope="module")
def address(trained: Path) -> Iterator[str]:
    indexed(trained).close()
    with viewing(trained) as found:
        yield found


def rows(directory: Path, name: str) -> list[Any]:
    return [json.loads(line) for line in (directory / "trajectories" / f"{name}.jsonl").read_bytes().splitlines()]


def line_with_call(directory: Path, name: str = "step_000001") -> int:
    """The first line of a file with a call that ran."""
    found = rows(directory, name)
    return next(line for line, each in enumerate(found) if any(call["tool"] for call in each["tool_calls"]))


# --- overview and list ------------------------------------------------------------------------------------------------


async def test_overview_shows_run_curves_and_changes(page: Page, address: str) -> None:
    await page.open(address)
    await page.wait_for_text("What rose, what was lost")
    await page.wait_for("document.querySelectorAll('.plot canvas').length > 8")
    await page.wait_for_text("torl:demo/base_model")
    await page.click("section > details summary")
    await page.wait_for_text("[rollout]")


async def test_point_of_a_curve_opens_the_trajectories_of_its_step(page: Page, address: str) -> None:
    await page.open(address)
    await page.wait_for("document.querySelectorAll('.plot canvas').length > 8")
    chart = "[...document.querySelectorAll('.chart')].find(c => c.innerText.includes('Entropy'))"
    await page.evaluate(f"{chart}.scrollIntoView({{block: 'center'}})")
    box = await page.evaluate(
        f"(() => {{ const b = {chart}.querySelector('.u-over').getBoundingClientRect();"
        " return [b.right - 3, b.top + 40] })()"
    )
    for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
        await page.send("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)
    await page.wait_for("location.hash.includes('step=1')")
    await page.wait_for_text("72 trajectories")


async def test_facets_words_and_expressions_select_trajectories(page: Page, address: str, trained: Path) -> None:
    found = [each for name in ("step_000000", "step_000001") for each in rows(trained, name)]
    await page.open(f"{address}/#/trajectories?set=training")
    await page.wait_for_text(f"{len(found)} trajectories")
    await page.click(".facet .value")  # right
    right = [each for each in found if each["correct"]]
    await page.wait_for_text(f"{len(right)} trajector")
    await page.wait_for("document.querySelector('.chips').innerText.includes('right')")
    await page.go("#/trajectories?set=training&words=python+print")
    called = [each for each in found if "python" in each["text"].lower() and "print" in each["text"].lower()]
    await page.wait_for_text(f"{len(called)} trajector")
    await page.go(r"#/trajectories?set=training&pattern=boxed%5C%7B%5Cd%2B%5C%7D")
    await page.wait_for_text(f"{len(found)} of {len(found)} searched")
    await page.go("#/trajectories?set=training&sort=tokens")
    longest = max(len(each["token_ids"]) for each in found)
    await page.wait_for(f"document.querySelector('.rows .tokens')?.innerText.startsWith('{longest}')")


async def test_list_and_trajectories_are_read_with_the_keyboard(page: Page, address: str) -> None:
    await page.open(f"{address}/#/trajectories")
    await page.wait_for("document.querySelectorAll('.rows li').length > 5")
    for key in ("j", "j", "k"):
        await page.press(key)
    await page.wait_for("document.querySelectorAll('.rows li')[0].className === 'selected'")
    await page.press("Enter")
    await page.wait_for("location.hash.startsWith('#/trajectory/')")
    first = await page.evaluate("location.hash")
    await page.wait_for("document.querySelector('.sequence') !== null")
    await page.press("j")
    await page.wait_for(f"location.hash !== {json.dumps(first)}")
    await page.press("u")
    await page.wait_for(
        "location.hash.startsWith('#/trajectories') && document.querySelector('[type=search]') !== null"
    )
    await page.press("/")
    await page.wait_for("document.activeElement.type === 'search'")
    await page.press("Escape")
    await page.press("?")
    await page.wait_for_text("next trajectory")


# --- one trajectory ---------------------------------------------------------------------------------------------------


async def test_tokens_are_colored_and_have_numbers(page: Page, address: str, trained: Path) -> None:
    line = line_with_call(trained)
    record = rows(trained, "step_000001")[line]
    await page.open(f"{address}/#/trajectory/demo/step_000001/{line}")
    await page.wait_for("document.querySelectorAll('.segmented button').length > 3")
    await page.evaluate("document.querySelectorAll('.segmented button')[2].click()")
    await page.wait_for(f"document.querySelectorAll('.tokens .token').length === {len(record['token_ids'])}")
    shown = await page.evaluate("[...document.querySelectorAll('.tokens .token')].map(t => t.textContent).join('')")
    assert shown.replace("↵", "").startswith(record["text"])
    sampled = sum(length for value, length in record["loss_mask"] if value)
    assert await page.evaluate("document.querySelectorAll('.tokens .scale.down').length") == sampled
    await page.press("ArrowRight")
    await page.press("ArrowRight")
    await page.wait_for_text(f"id {record['token_ids'][1]}")
    await page.wait_for_text("probability")
    await page.click(".missing summary")
    reason = "outside the batch" if record["advantage"] is None else "the run has no critic"
    await page.wait_for_text(f"value (critic): {reason}")
    await page.wait_for_text("the same token in the group")


async def test_trajectory_that_is_opened_before_it_is_indexed_gets_its_tokens(
    page: Page, trained: Path, tmp_path: Path
) -> None:
    directory = Path(shutil.copytree(trained, tmp_path / "new", ignore=shutil.ignore_patterns("view-*")))
    with viewing(directory) as address:
        await page.open(f"{address}/#/trajectory/new/step_000001/0")
        await page.wait_for("document.querySelectorAll('.segmented button').length > 3")
        await page.open("about:blank")
    page.errors = [error for error in page.errors if "404" not in error]  # before it was indexed


async def test_numbers_of_the_learner_are_shown_and_the_audit_marks_a_wrong_one(
    page: Page, trained: Path, tmp_path: Path
) -> None:
    directory = Path(shutil.copytree(trained, tmp_path / "changed", ignore=shutil.ignore_patterns("view-*")))
    (step, _), *_ = sorted(token_files(directory).items())
    numbers = read_token_numbers(directory, step)
    key = next(iter(numbers))
    wrong = numbers[key].arrays["advantages"].copy()
    wrong[1] += 1
    numbers[key] = replace(numbers[key], arrays={**numbers[key].arrays, "advantages": wrong})
    write_token_numbers(directory, step, numbers)
    name = f"step_{step:06d}"
    line = next(
        line
        for line, each in enumerate(rows(trained, name))
        if (each["group"], each["sample"]) == (key.group, key.sample)
    )
    indexed(directory).close()
    with viewing(directory) as address:
        await page.open(f"{address}/#/trajectory/changed/{name}/{line}")
        await page.wait_for("document.querySelectorAll('.segmented button').length > 5")
        script = (
            "[...document.querySelectorAll('.segmented button')].find(b => b.innerText.trim() === 'entropy').click()"
        )
        await page.evaluate(script)
        await page.wait_for("document.querySelectorAll('.tokens .scale.up').length > 2")
        await page.click("[data-action=verify]")
        await page.wait_for("document.querySelector('.check.wrong')?.innerText.includes('updates')")
        await page.wait_for("document.querySelectorAll('.token.disagrees').length === 1")
        await page.evaluate("document.querySelector('.token.disagrees').click()")
        await page.wait_for_text("disagrees with the record")
        await page.open("about:blank")


async def test_call_is_reproduced_and_changed_in_an_experiment(page: Page, address: str, trained: Path) -> None:
    line = line_with_call(trained)
    await page.open(f"{address}/#/trajectory/demo/step_000001/{line}")
    await page.click("[data-action=replay]")
    await page.wait_for_text("✓ reproduced")
    await page.click("[data-action=edit]")
    await page.wait_for_text("Experiment: not part of the record")
    await page.evaluate(
        "(() => { const area = document.querySelector('textarea'); area.value = 'print(6 * 7)';"
        " area.dispatchEvent(new Event('input', { bubbles: true })) })()"
    )
    await page.click("[data-action=experiment]")
    await page.wait_for("document.querySelector('.experiment-result')?.innerText.includes('42')")


async def test_verdict_of_the_audit_is_shown(page: Page, address: str, trained: Path) -> None:
    await page.open(f"{address}/#/trajectory/demo/step_000001/{line_with_call(trained)}")
    await page.click("[data-action=verify]")
    await page.wait_for("document.querySelectorAll('.check.right').length >= 3")
    assert await page.evaluate("document.querySelectorAll('.check.wrong').length") == 0
    checked, unchecked = (f"document.querySelectorAll('{each}').length" for each in (".check", ".unchecked li"))
    assert await page.evaluate(f"{checked} + {unchecked}") == 5
    await page.click("[data-action=verify-step]")
    await page.wait_for_text("tokens 72 of 72")
    assert await page.evaluate("document.querySelectorAll('.check.wrong').length") == 0


async def test_changed_record_differs_in_replay_and_audit(page: Page, trained: Path, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(trained, tmp_path / "changed", ignore=shutil.ignore_patterns("view-*")))
    line, path = line_with_call(trained), directory / "trajectories" / "step_000001.jsonl"
    changed = rows(trained, "step_000001")
    call = next(call for call in changed[line]["tool_calls"] if call["tool"])
    call["text"] = call["details"]["stdout"] = "never printed\n"
    call["status"] = "ok"
    path.write_bytes(lines(changed))
    indexed(directory).close()
    with viewing(directory) as address:
        await page.open(f"{address}/#/trajectory/changed/step_000001/{line}")
        await page.click("[data-action=replay]")
        await page.wait_for_text("✗ differs from the record")
        await page.wait_for("document.querySelector('.diff .removed').innerText.includes('never printed')")
        await page.click("[data-action=verify]")
        await page.wait_for("document.querySelector('.check.wrong')?.innerText.includes('tokens')")
        await page.open("about:blank")


# --- comparisons ------------------------------------------------------------------------------------------------------


async def test_group_and_problem_are_compared(page: Page, address: str, trained: Path) -> None:
    await page.open(f"{address}/#/trajectory/demo/step_000001/0")
    await page.click(".members a.button")
    await page.wait_for("document.querySelectorAll('.column').length === 6")
    firsts = await page.evaluate("[...document.querySelectorAll('.column mark')].length")
    assert firsts >= 2
    record = rows(trained, "evaluation_000002_heldout")[0]
    await page.go(f"#/problem?id={record['problem']}")
    await page.wait_for_text("first and last side by side")
    await page.click(".lane .button")
    await page.wait_for("document.querySelectorAll('.column').length === 2")


async def test_page_is_exported_as_one_file_that_needs_no_server(
    page: Page, address: str, trained: Path, tmp_path: Path
) -> None:
    line = line_with_call(trained)
    for number, (fragment, text) in enumerate(
        {
            f"#/trajectory/demo/step_000001/{line}": "log-probability (engine)",
            "#/overview": "Accuracy",
            "#/trajectories?correct=1": "trajectories",
        }.items()
    ):
        await page.open("about:blank")
        await page.open(f"{address}/{fragment}")
        await page.wait_for_text(text)
        file = tmp_path / f"{number}.html"
        file.write_text(await page.evaluate("import('view/export.js').then(m => m.exportedPage())"), encoding="utf-8")
        requests = len(page.requests)
        await page.open(file.as_uri())
        await page.wait_for_text(text)
        assert await page.evaluate("document.querySelector('.connection').title") == "exported file"
        assert [url for url in page.requests[requests:] if not url.startswith(("file:", "data:"))] == []
        if number == 0:
            await page.evaluate("document.querySelectorAll('.segmented button')[2].click()")
            await page.wait_for("document.querySelectorAll('.tokens .scale').length > 3")


# --- a run that is written, and hostile records -----------------------------------------------------------------------


async def test_list_follows_a_run_while_it_is_written(page: Page, tmp_path: Path) -> None:
    directory = write_run(tmp_path / "growing", {"step_000000": [row(sample=each) for each in range(3)]})
    with viewing(directory) as address:
        await page.open(f"{address}/#/trajectories")
        await page.wait_for_text("3 trajectories")
        data = lines(row(1, each, "q") for each in range(4))
        with (directory / "trajectories" / "step_000001.jsonl").open("wb", buffering=0) as file:
            file.write(data[:-50])
            await page.wait_for_text("6 trajectories")
            file.write(data[-50:])
            await page.wait_for_text("7 trajectories")
        (directory / "trajectories" / "step_000001.jsonl").unlink()
        await page.wait_for_text("3 trajectories")
        await page.open("about:blank")  # before its server ends


async def test_hostile_records_stay_text(page: Page, tmp_path: Path) -> None:
    calls = row()["tool_calls"]
    calls[0] |= {"text": HOSTILE, "error": HOSTILE, "arguments": {"code": HOSTILE}}
    hostile = row(
        0,
        0,
        HOSTILE,
        question=HOSTILE,
        reference_answer=HOSTILE,
        answer=HOSTILE,
        text=HOSTILE,
        tool_calls=calls,
        turns=[turn | {"text": HOSTILE} for turn in row()["turns"]],
        reward_parts={HOSTILE: 1.0, "b": 2.0},
    )
    directory = write_run(
        tmp_path / "<b>run", {"step_000000": [hostile, hostile | {"sample": 1, "text": "x" * 300_000}]}
    )
    with viewing(directory) as address:
        for fragment in (
            "#/overview",
            "#/trajectories",
            "#/trajectory/%3Cb%3Erun/step_000000/0",
            "#/group/%3Cb%3Erun/step_000000/0",
            "#/problem?id=" + "%3C%2Fscript%3E",
        ):
            await page.open("about:blank")
            await page.open(f"{address}/{fragment}")
            await page.wait_for("document.querySelector('main').innerText.length > 10")
            await asyncio.sleep(0.3)
            assert await page.evaluate("document.querySelectorAll('img, main script, iframe').length") == 0
        await page.go("#/trajectory/%3Cb%3Erun/step_000000/0")
        await page.wait_for_text("</script><img src=x onerror=alert(1)>")
        await page.wait_for_text("⟨U+202E⟩gnp⟨U+001B⟩[31m⟨U+2066⟩ ⟨U+D800⟩")
        exported = await page.evaluate("import('view/export.js').then(m => m.exportedPage())")
        assert "<img" not in exported
        (tmp_path / "hostile.html").write_text(exported, encoding="utf-8", errors="surrogatepass")
        await page.open((tmp_path / "hostile.html").as_uri())
        await page.wait_for_text("⟨U+202E⟩gnp")
        assert await page.evaluate("document.querySelectorAll('img, main script').length") == 0
    page.errors = [error for error in page.errors if "404" not in error]  # the problem that does not exist


async def test_text_cannot_become_html(page: Page, address: str) -> None:
    await page.open(address)
    await page.wait_for_text("trajectories")
    thrown = "(() => { try { document.body.innerHTML = '<b>'; return '' } catch (error) { return error.name } })()"
    assert await page.evaluate(thrown) == "TypeError"
    page.errors.clear()  # the report of this attempt


# --- sizes and colors -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
async def test_views_fit_a_screen_of_360_pixels(page: Page, address: str, trained: Path, dark: bool) -> None:
    await page.resize(360, 740, dark=dark)
    line = line_with_call(trained)
    problem = rows(trained, "step_000001")[line]["problem"]
    for fragment in (
        "#/overview",
        "#/trajectories",
        f"#/trajectory/demo/step_000001/{line}",
        f"#/group/demo/step_000001/{line}",
        f"#/problem?id={problem}",
    ):
        await page.open("about:blank")
        await page.open(f"{address}/{fragment}")
        await page.wait_for("document.querySelector('main .card, main .rows') !== null")
        await asyncio.sleep(0.3)
        assert await page.evaluate("document.documentElement.scrollWidth") <= 360, fragment
        assert await page.evaluate("document.documentElement.dataset.theme") == ("dark" if dark else "light")
