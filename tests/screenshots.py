"""Screenshots of a page, light and dark, wide and narrow: ``python -m tests.screenshots PAGE OUT``.

``make screenshots`` makes the page of the committed results and puts its pictures into docs/page.
"""

import sys
from io import BytesIO
from pathlib import Path

from PIL import Image

from tests.browser import open_browser, visit

LARGEST = 400_000  # bytes of a picture
WIDE, NARROW = (1280, 1480), (360, 1480)
VIEWS = {
    "wide-light": (WIDE, "light", None),
    "wide-dark": (WIDE, "dark", None),
    "curves-light": (WIDE, "light", "curves"),
    "search-light": (WIDE, "light", "trajectory"),
    "operators-dark": (WIDE, "dark", "operators"),
    "narrow-light": (NARROW, "light", None),
    "narrow-dark": (NARROW, "dark", "curves"),
}
SCROLL = "document.getElementById(arguments[0]).scrollIntoView({behavior: 'instant'})"


def capture(driver, page, *, size, theme, section):
    """Draw the page from a section on, or from its top."""
    width, height = size
    visit(driver, page, width=width, height=height, theme=theme)
    if section:
        driver.execute_script(SCROLL, section)
    return Image.open(BytesIO(driver.get_screenshot_as_png())).convert("RGB")


def save_small(image, path):
    """Save a picture; where it would be too large, with few colours."""
    image.save(path, optimize=True)
    if path.stat().st_size >= LARGEST:
        image.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
    assert path.stat().st_size < LARGEST, path


def main(page, out):
    """Write all views of a page into a folder."""
    out.mkdir(parents=True, exist_ok=True)
    with open_browser() as driver:
        for name, (size, theme, section) in VIEWS.items():
            image = capture(driver, page, size=size, theme=theme, section=section)
            save_small(image, out / f"{name}.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]))
