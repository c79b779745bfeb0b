"""The report in a real browser: it plays, sorts, filters and votes, by mouse and by keyboard, without an error."""

import json
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elocution.report.live import open_server
from elocution.report.page import write_report
from elocution.report.preference import count_votes, read_votes
from elocution.testing.run_directory import read_rows, write_sample_run

pytestmark = pytest.mark.browser

WIDTHS = (1280, 390)  # pixels: a desk and a phone


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    pytest.importorskip("selenium", reason="needs selenium: pip install 'elocution[dev]'")
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.skip("needs chromium and chromedriver on the PATH")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    flags = ["headless=new", "disable-gpu", "no-first-run", "disable-background-networking", "disable-sync"]
    flags += ["disable-component-update", "disable-dev-shm-usage", "autoplay-policy=no-user-gesture-required"]
    flags += [f"user-data-dir={tmp_path_factory.mktemp('browser') / 'profile'}", "window-size=1280,1600"]
    if os.geteuid() == 0:
        flags.append("no-sandbox")
    for flag in flags:
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    opened = webdriver.Chrome(options, Service(driver))
    yield opened
    opened.quit()


@pytest.fixture
def browser(window: Any) -> Iterator[Any]:
    """A browser that must not have complained in the end."""
    window.set_window_size(WIDTHS[0], 1600)
    yield window
    assert window.get_log("browser") == []


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    run = tmp_path_factory.mktemp("report") / "run"
    write_sample_run(run)
    return write_report(run).as_uri()


def wait(browser: Any, script: str, *arguments: object) -> Any:
    """What `script` gives, once that is true."""
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, 20).until(lambda window: window.execute_script(f"return {script}", *arguments))


def find(browser: Any, selector: str) -> list[Any]:
    from selenium.webdriver.common.by import By

    return list(browser.find_elements(By.CSS_SELECTOR, selector))


def sentences(browser: Any) -> list[str]:
    return [row.text for row in find(browser, "#prompt-table tbody th") if row.is_displayed()]


def test_clips_play_when_asked_and_one_at_a_time(browser: Any, page: str) -> None:
    browser.get(page)
    assert find(browser, "audio") == []
    for number, button in enumerate(find(browser, "#prompt-table .play")[:2]):
        button.click()
        wait(browser, "document.querySelectorAll('audio')[arguments[0]]?.currentTime > 0", number)
    browser.execute_script("two = [...document.querySelectorAll('audio')]; two.forEach(a => a.loop = true)")
    wait(browser, "two.every(a => a.duration > 0.4)")
    browser.execute_script("two[0].play()")
    wait(browser, "!two[0].paused && two[1].paused")
    browser.execute_script("two[1].play()")
    wait(browser, "!two[1].paused && two[0].paused")


def test_a_clip_is_started_by_keyboard_and_keeps_the_focus(browser: Any, page: str) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.get(page)
    button = find(browser, "#prompt-table .play")[0]
    browser.execute_script("arguments[0].focus()", button)
    button.send_keys(Keys.ENTER)
    label = wait(
        browser, "document.activeElement.matches('audio') && document.activeElement.getAttribute('aria-label')"
    )
    assert label == "before: the doctor visited the school number 1"


def test_every_clip_in_sight_has_its_picture(browser: Any, page: str) -> None:
    browser.get(page)
    browser.execute_script("document.getElementById('prompt-table').scrollIntoView()")
    wait(browser, "document.querySelector('#prompt-table img').naturalWidth === 240")


def test_the_table_sorts_by_its_heads_and_says_so(browser: Any, page: str) -> None:
    browser.get(page)
    sentence, before = find(browser, "#prompt-table .sort")[:2]
    order = "[...document.querySelectorAll('#prompt-table th[aria-sort]')].map(head => head.ariaSort)"
    before.click()
    assert wait(browser, order) == ["none", "ascending", "none", "none", "none"]
    assert [text[-1] for text in sentences(browser)[-2:]] == ["3", "6"]  # the wrong ones
    before.click()
    assert wait(browser, order)[1] == "descending"
    assert [text[-1] for text in sentences(browser)[:2]] == ["3", "6"]
    sentence.click()
    sentence.click()
    assert [text[-1] for text in sentences(browser)] == list("87654321")


def test_the_table_is_filtered_by_text_and_by_what_became_of_a_sentence(browser: Any, page: str) -> None:
    from selenium.webdriver.support.ui import Select

    browser.get(page)
    field, kind = find(browser, "#filter-text")[0], Select(find(browser, "#filter-kind")[0])
    field.send_keys("Number 7")
    assert sentences(browser) == ["the doctor visited the school number 7"]
    assert find(browser, "#filter-count")[0].text == "1 of 8 sentences"
    field.clear()
    field.send_keys("daughter")  # what was heard counts too
    assert len(sentences(browser)) == 2
    field.clear()
    for value, count in (("better", 2), ("worse", 0), ("wrong", 0), ("all", 8)):
        kind.select_by_value(value)
        assert len(sentences(browser)) == count


def test_curves_show_values_on_hover_and_as_a_table(browser: Any, page: str) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    browser.get(page)
    chart = find(browser, "#curves figure")[0]
    browser.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", chart)
    wait(browser, "arguments[0].querySelectorAll('.scatterlayer .trace').length === 2", chart)
    ActionChains(browser).move_to_element(find(browser, "#curves figure .nsewdrag")[0]).perform()
    shown = wait(browser, "arguments[0].querySelector('.hoverlayer').textContent", chart)
    assert "mean" in shown
    find(browser, "#curves figure .values summary")[0].click()
    cells = wait(
        browser,
        "[...document.querySelectorAll('#curves figure .values tbody tr:last-child *')].map(c => c.textContent)",
    )
    assert cells == ["6", "0.8000", "0.1500"]


def test_a_blind_test_by_keyboard_ends_in_a_file_with_its_share(browser: Any, page: str, tmp_path: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    browser.get(page)
    stage = find(browser, "#blind-stage")[0]
    browser.execute_script("arguments[0].focus()", stage)
    texts = []
    for number in range(1, 9):
        assert wait(browser, "document.getElementById('blind-status').textContent") == f"Pair {number} of 8"
        texts.append(find(browser, "#blind-text")[0].text)
        stage.send_keys(Keys.ARROW_LEFT)  # too early: nothing was heard
        for key in "12":
            stage.send_keys(key)
        wait(browser, "!document.querySelector('[data-choice]').disabled")
        stage.send_keys(Keys.ARROW_DOWN if number == 8 else Keys.ARROW_LEFT)
    assert len(set(texts)) == 8
    shown = wait(browser, "document.getElementById('blind-result').textContent")
    find(browser, "#blind-save")[0].click()
    saved = tmp_path / "preference-run.json"
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(browser, 10).until(lambda _: saved.is_file() and saved.stat().st_size)
    votes = read_votes(saved)
    assert [vote.text for vote in votes.votes] == texts
    assert [vote.choice for vote in votes.votes] == [*(vote.first for vote in votes.votes[:7]), None]
    found = count_votes(votes.votes, votes.sides)
    assert shown == (
        f"“last” preferred over “before” in {found.preferred} of 7 pairs: {100 * found.share:.1f} % "
        f"[{100 * found.low:.1f}, {100 * found.high:.1f}]; 1 without a preference."
    )


def test_a_choice_can_be_undone(browser: Any, page: str) -> None:
    browser.get(page)
    for selector in ("[data-play='0']", "[data-play='1']"):
        find(browser, selector)[0].click()
    wait(browser, "!document.querySelector('[data-choice]').disabled")
    first = find(browser, "#blind-text")[0].text
    find(browser, "[data-choice='1']")[0].click()
    assert find(browser, "#blind-text")[0].text != first
    find(browser, "#blind-undo")[0].click()
    assert find(browser, "#blind-text")[0].text == first
    assert find(browser, "[data-choice='1']")[0].get_attribute("disabled")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_fits_and_has_the_colours_that_are_preferred(
    browser: Any, page: str, width: int, scheme: str, tmp_path: Path
) -> None:
    from PIL import Image

    browser.set_window_size(width, 1200)
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )
    browser.get(page)
    assert browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
    browser.execute_script("document.getElementById('curves').scrollIntoView({behavior: 'instant'})")
    wait(browser, "document.querySelector('#curves .scatterlayer') !== null")
    picture = tmp_path / "report.png"
    browser.save_screenshot(str(picture))
    pixels = np.asarray(Image.open(picture).convert("L"), dtype=float)
    assert pixels.std() > 10  # a blank page would be flat
    assert (np.median(pixels) > 200) == (scheme == "light")


def test_what_can_be_used_has_a_name_for_a_screen_reader(browser: Any, page: str) -> None:
    browser.get(page)
    browser.execute_cdp_cmd("Accessibility.enable", {})
    nodes = browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    used = {
        "button",
        "link",
        "searchbox",
        "combobox",
        "figure",
        "table",
        "columnheader",
        "rowheader",
        "image",
        "region",
    }
    nameless = [
        node["role"]["value"]
        for node in nodes
        if not node.get("ignored")
        and node["role"]["value"] in used - {"figure", "table"}
        and not node.get("name", {}).get("value")
    ]
    assert nameless == []
    assert {node["role"]["value"] for node in nodes} >= {"button", "searchbox", "combobox", "columnheader", "region"}


@pytest.mark.slow
def test_a_page_with_five_hundred_clips_opens_in_three_seconds(browser: Any, tmp_path: Path) -> None:
    write_sample_run(tmp_path / "run", probes=170)
    browser.get(write_report(tmp_path / "run").as_uri())
    assert len(find(browser, ".clip")) > 500
    assert browser.execute_script("return performance.getEntriesByType('navigation')[0].loadEventEnd") < 3000


def test_a_page_without_any_record_opens_too(browser: Any, tmp_path: Path) -> None:
    write_sample_run(tmp_path / "run")
    for name in ("metrics.jsonl", "rollouts.jsonl", "evaluations.jsonl", "alarms.jsonl"):
        (tmp_path / "run" / name).write_text("")
    browser.get(write_report(tmp_path / "run").as_uri())
    assert "No held-out evaluation yet." in find(browser, "#summary")[0].text


@pytest.fixture
def watched(browser: Any, tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A run of which one step is recorded so far, and where it can be watched."""
    run = tmp_path / "run"
    write_sample_run(run)
    for name in ("metrics.jsonl", "evaluations.jsonl"):
        (run / name).rename(run / f"all-{name}")
        grow(run, name)
    with open_server(run, 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield run, f"http://127.0.0.1:{server.server_port}/"
        browser.get("about:blank")  # before the server is gone
        server.shutdown()
        thread.join()


def grow(run: Path, name: str) -> None:
    """Records one more of the rows that a run would."""
    done = len(read_rows(run / name)) if (run / name).is_file() else 0
    with (run / name).open("a") as stream:
        stream.write(json.dumps(read_rows(run / f"all-{name}")[done]) + "\n")


def test_a_watched_page_follows_its_run_and_leaves_what_is_in_use(browser: Any, watched: tuple[Path, str]) -> None:
    run, address = watched
    browser.get(address)
    assert "There is no evaluation after training yet." in find(browser, "#summary")[0].text
    assert "1 steps recorded" in find(browser, "header")[0].text
    find(browser, "#prompt-table .play")[0].click()
    wait(browser, "document.querySelector('audio')?.duration > 0.4")
    grow(run, "metrics.jsonl")
    grow(run, "evaluations.jsonl")
    wait(browser, "document.querySelector('header').textContent.includes('2 steps recorded')")
    wait(browser, "document.getElementById('summary').textContent.includes('Better: fewer words are wrong.')")
    assert find(browser, "#prompt-table audio")  # the clip that has the focus stays
    assert len(find(browser, "#prompt-table thead th")) == 3
    browser.execute_script("document.activeElement.blur()")
    wait(browser, "document.querySelectorAll('#prompt-table thead th').length === 4")
    find(browser, "#prompt-table .play")[-1].click()
    wait(browser, "document.querySelector('audio')?.duration > 0.4")
