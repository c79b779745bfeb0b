"""The report in a real browser: it loads without errors, its players have sound, and one plays at a time."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elocution.report.page import write_report
from elocution.testing.run_directory import write_sample_run

pytestmark = pytest.mark.browser


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Any]:
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
    flags += [f"user-data-dir={tmp_path / 'profile'}", "window-size=1280,1600"]
    if os.geteuid() == 0:
        flags.append("no-sandbox")
    for flag in flags:
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    window = webdriver.Chrome(options, Service(driver))
    yield window
    window.quit()


def test_the_report_can_be_looked_at_and_listened_to(browser: Any, tmp_path: Path) -> None:
    from PIL import Image
    from selenium.webdriver.support.ui import WebDriverWait

    write_sample_run(tmp_path / "run")
    browser.get(write_report(tmp_path / "run").as_uri())
    loaded = "return [...document.querySelectorAll('.pair audio')].map(a => a.duration)"
    WebDriverWait(browser, 20).until(lambda page: all(d and d > 0.4 for d in page.execute_script(loaded)))
    assert len(browser.execute_script(loaded)) == 16
    # Start the first, then the second: only the second goes on.
    browser.execute_script(
        "window.two = [...document.querySelectorAll('.pair audio')].slice(0, 2); two.forEach(a => a.loop = true); two[0].play()"
    )
    WebDriverWait(browser, 10).until(lambda page: page.execute_script("return !two[0].paused"))
    browser.execute_script("two[1].play()")
    WebDriverWait(browser, 10).until(lambda page: page.execute_script("return !two[1].paused && two[0].paused"))
    assert browser.get_log("browser") == []
    picture = tmp_path / "report.png"
    browser.save_screenshot(str(picture))
    pixels = np.asarray(Image.open(picture).convert("L"), dtype=float)
    assert pixels.std() > 10  # a blank page would be flat
    browser.set_window_size(390, 844)
    assert browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
