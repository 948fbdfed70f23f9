"""A real browser for tests and screenshots: Debian's chromium, driven by selenium, offline."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

FLAGS = (
    "--headless=new",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-prefers-no-reduced-motion",
)
SLOWEST = 600  # seconds that a script may take on a busy machine
NO_BROWSER = "no browser: expected chromium and chromedriver (apt-get install chromium-driver)"


def find_programs() -> tuple[str, str] | None:
    """Find a browser and its driver; selenium is never asked to download one."""
    names = ("chromium", "chromium-browser", "google-chrome")
    browser = next((path for name in names if (path := which(name))), None)
    driver = which("chromedriver")
    return (browser, driver) if browser and driver else None


@contextmanager
def open_browser() -> Iterator[webdriver.Chrome]:
    """Start a browser with an empty profile, which keeps a log of its requests and console."""
    programs = find_programs()
    assert programs is not None, NO_BROWSER
    options = webdriver.ChromeOptions()
    options.binary_location = programs[0]
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        if os.geteuid() == 0:
            options.add_argument("--no-sandbox")
        driver = webdriver.Chrome(options=options, service=Service(programs[1]))
        driver.set_script_timeout(SLOWEST)
        try:
            yield driver
        finally:
            driver.quit()


def visit(
    driver: Any, page: Path, *, width: int = 1280, height: int = 900, theme: str = "light"
) -> None:
    """Open a page in a window of a size and a colour scheme; earlier log entries are dropped."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    scheme = [{"name": "prefers-color-scheme", "value": theme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
    for kind in ("browser", "performance"):
        driver.get_log(kind)
    driver.get(page.as_uri())
