"""A headless Chromium for the tests of pages; without one the tests that use it are skipped, saying what is missing."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def chromium(*, width: int = 1280, dark: bool = False) -> Iterator[Any]:
    """A driver of selenium, whose logs hold errors of the console and every request."""
    binary, driver = shutil.which("chromium") or shutil.which("chromium-browser"), shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("no Chromium with its driver: apt-get install chromium chromium-driver")
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = binary
    # Tests run as root in containers, where Chromium's own sandbox cannot start; the pages are the tests' own.
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(driver))
    try:
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
        yield browser
    finally:
        browser.quit()


def until(found: Callable[[], Any], seconds: float = 60) -> Any:
    """What the function gives once that is true; the test fails when it stays false."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if value := found():
            return value
        time.sleep(0.05)
    pytest.fail(f"still false after {seconds} s")


def ready(browser: Any, times: int = 1) -> None:
    """Wait until the page has drawn its data so many times."""
    until(lambda: int(browser.execute_script("return document.body.dataset.ready || 0")) >= times)


def requests(browser: Any) -> list[str]:
    """The addresses that were asked for since the last call."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    return [one["params"]["request"]["url"] for one in messages if one["method"] == "Network.requestWillBeSent"]


def complaints(browser: Any) -> list[str]:
    """What the console says: errors, and whatever the Content-Security-Policy forbade."""
    return [entry["message"] for entry in browser.get_log("browser")]
