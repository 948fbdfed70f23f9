"""The page in a real browser: its controls work, nothing is fetched, it is accessible."""

import json
import shutil
from pathlib import Path

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.select import Select
from selenium.webdriver.support.ui import WebDriverWait

from eos.evaluation.reproduction import Trajectory
from eos.report.page import write_page
from eos.report.reproduction import load
from tests.browser import NO_BROWSER, find_programs, open_browser, visit
from tests.test_page import add_studies

pytestmark = pytest.mark.skipif(find_programs() is None, reason=NO_BROWSER)

AXE = (Path(__file__).parent / "axe" / "axe.min.js").read_text(encoding="utf-8")
RUN_AXE = "const done = arguments[0]; axe.run().then((found) => done(found.violations));"
SCREENS = [(theme, width) for theme in ("light", "dark") for width in (1280, 360)]
PATIENCE = 60  # seconds to wait for what must come
STEPS = 300  # of a search: playing it takes far longer than finding that it plays


@pytest.fixture(scope="module")
def driver():
    with open_browser() as found:
        yield found


@pytest.fixture(scope="module")
def page(reproduced, tmp_path_factory):
    """The page of a folder with every kind of study."""
    folder = tmp_path_factory.mktemp("page")
    shutil.copytree(reproduced, folder / "all")
    add_studies(folder / "all")
    trajectory = Trajectory.load(folder / "all" / "trajectory.json")
    steps = [
        trajectory.steps[place % len(trajectory.steps)].model_copy(update={"step": place})
        for place in range(STEPS)
    ]
    trajectory.model_copy(update={"steps": tuple(steps)}).save(folder / "all" / "trajectory.json")
    return write_page(load([folder / "all"]), folder / "page.html")


def by_id(driver, name):
    return driver.find_element(By.ID, name)


def markup(driver, *names):
    return [by_id(driver, name).get_attribute("innerHTML") for name in names]


def press(driver, name, *keys):
    driver.execute_script("arguments[0].focus()", by_id(driver, name))
    driver.switch_to.active_element.send_keys(*keys)


def console_errors(driver):
    return [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]


def requests(driver):
    """What the browser asked for since the last visit, and why a request was blocked, if it was."""
    messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    sent = [m["params"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    failed = [m["params"] for m in messages if m["method"] == "Network.loadingFailed"]
    blocked = {params["requestId"]: params.get("blockedReason") for params in failed}
    found = {params["request"]["url"]: blocked.get(params["requestId"]) for params in sent}
    return {url: reason for url, reason in found.items() if not url.startswith("data:")}


def violations(driver):
    """The rules that axe-core finds broken with serious or critical impact."""
    driver.execute_script(AXE)
    found = driver.execute_async_script(RUN_AXE)
    return {
        rule["id"]: [node["html"][:120] for node in rule["nodes"]]
        for rule in found
        if rule["impact"] in ("serious", "critical")
    }


def overflow(driver):
    script = "const page = document.documentElement; return page.scrollWidth - page.clientWidth"
    return driver.execute_script(script)


def test_the_budget_slider_redraws_strip_and_picture(driver, page):
    visit(driver, page)
    shown = ("strip", "picture", "film", "plan-live", "steps")
    before = markup(driver, *shown)
    press(driver, "budget", Keys.ARROW_RIGHT)
    after = markup(driver, *shown)
    assert all(old != new for old, new in zip(before, after, strict=True))
    assert by_id(driver, "budget-out").text.startswith("16 of 576")
    assert "16 tokens:" in by_id(driver, "plan-live").text
    press(driver, "budget", Keys.ARROW_RIGHT)  # already at the end
    assert markup(driver, *shown) == after


def test_layers_pictures_and_flows_are_chosen_by_key(driver, page):
    visit(driver, page)
    last = markup(driver, "picture", "layer-out", "strip")
    press(driver, "layer", Keys.HOME)
    first = markup(driver, "picture", "layer-out", "strip")
    assert all(old != new for old, new in zip(last, first, strict=True))
    assert by_id(driver, "layer-out").text == "the whole picture, 576 tokens"
    while "576" in by_id(driver, "layer-out").text:  # up to the first step of the plan
        press(driver, "layer", Keys.ARROW_RIGHT)
    plain = markup(driver, "picture")
    press(driver, "flows", Keys.SPACE)
    assert markup(driver, "picture") != plain
    answers = markup(driver, "answers")
    driver.find_element(By.CSS_SELECTOR, "#thumbs input").send_keys(Keys.ARROW_RIGHT)
    assert markup(driver, "answers") != answers


def column(driver, table, place):
    cells = by_id(driver, table).find_elements(By.CSS_SELECTOR, f"tbody tr > :nth-child({place})")
    return [cell.get_attribute("textContent") for cell in cells]


def test_tables_sort_by_click_and_by_key(driver, page):
    visit(driver, page)
    Select(by_id(driver, "table-budget")).select_by_visible_text("all")
    heads = by_id(driver, "main-table").find_elements(By.CSS_SELECTOR, "th[aria-sort]")
    flops = next(place for place, head in enumerate(heads) if head.text.startswith("FLOPs"))
    given = column(driver, "main-table", flops + 1)
    button = heads[flops].find_element(By.TAG_NAME, "button")
    driver.execute_script(
        "arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", button
    )
    button.click()
    assert heads[flops].get_attribute("aria-sort") == "descending"
    falling = column(driver, "main-table", flops + 1)
    assert falling == sorted(given, key=float, reverse=True) != given
    driver.switch_to.active_element.send_keys(Keys.ENTER)
    assert heads[flops].get_attribute("aria-sort") == "ascending"
    assert column(driver, "main-table", flops + 1) == falling[::-1]
    assert heads[0].get_attribute("aria-sort") == "none"


def test_families_and_costs_are_chosen(driver, page):
    visit(driver, page)
    before = markup(driver, "main-table", "curve")
    press(driver, "families", Keys.SPACE)
    Select(by_id(driver, "cost")).select_by_value("mean_tokens")
    after = markup(driver, "main-table", "curve")
    assert all(old != new for old, new in zip(before, after, strict=True))
    assert "counting" in after[0]


def test_hovering_a_chart_shows_values(driver, page):
    visit(driver, page)
    chart = by_id(driver, "curve").find_element(By.TAG_NAME, "svg")
    assert "FLOPs ×" not in chart.get_attribute("textContent")
    point = chart.find_element(By.TAG_NAME, "circle")
    show = "arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})"
    driver.execute_script(show, point)
    ActionChains(driver).move_to_element(point).perform()
    told = WebDriverWait(driver, PATIENCE)
    told.until(lambda _: "FLOPs ×" in chart.get_attribute("textContent"))


@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
def test_the_trajectory_plays_and_pauses(driver, page, motion):
    visit(driver, page)
    features = [{"name": "prefers-reduced-motion", "value": motion}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    bars = markup(driver, "bars")
    assert shown_step(driver) == 0
    press(driver, "play", Keys.ENTER)
    assert by_id(driver, "play").text == "Pause"
    WebDriverWait(driver, PATIENCE).until(lambda _: shown_step(driver) > 0)
    assert markup(driver, "bars") != bars
    press(driver, "play", Keys.ENTER)
    assert by_id(driver, "play").text == "Play"
    paused = shown_step(driver)
    assert 0 < paused < STEPS - 1
    driver.execute_async_script("setTimeout(arguments[0], 1500)")  # more than a step
    assert shown_step(driver) == paused
    press(driver, "step", Keys.END)
    assert by_id(driver, "step-out").text == f"{STEPS - 1} of {STEPS - 1}"
    press(driver, "play", Keys.ENTER)  # at the end it starts anew
    assert shown_step(driver) < STEPS - 1


def shown_step(driver):
    return int(by_id(driver, "step").get_attribute("value"))


@pytest.mark.parametrize(("theme", "width"), SCREENS)
def test_the_page_is_accessible_and_fits(driver, page, theme, width):
    visit(driver, page, width=width, theme=theme)
    assert driver.execute_script("return document.documentElement.dataset.theme") == theme
    driver.execute_script("document.querySelectorAll('details').forEach((x) => (x.open = true))")
    assert overflow(driver) == 0
    assert violations(driver) == {}
    assert console_errors(driver) == []
    assert requests(driver) == {page.as_uri(): None}


def test_the_narrowest_phone(driver, page):
    visit(driver, page, width=320)
    assert overflow(driver) == 0


def test_the_theme_is_toggled_by_key(driver, page):
    visit(driver, page)
    press(driver, "theme", Keys.SPACE)
    assert driver.execute_script("return document.documentElement.dataset.theme") == "dark"
    assert by_id(driver, "theme").get_attribute("aria-pressed") == "true"


def test_the_checks_notice_what_they_are_for(driver, page, tmp_path):
    """Negative controls: planted violations, overflow, errors and requests."""
    text = page.read_text(encoding="utf-8")
    head, _, rest = text.partition('<meta http-equiv="Content-Security-Policy"')
    planted = '<img src="http://127.0.0.1:9/x.png"><p style="width:3000px">wide</p>'
    broken = tmp_path / "broken.html"
    broken.write_text(head + rest.partition(">")[2].replace("</main>", f"{planted}</main>", 1))
    visit(driver, broken)
    assert requests(driver)["http://127.0.0.1:9/x.png"] != "csp"
    assert "image-alt" in violations(driver)
    assert overflow(driver) > 0
    assert console_errors(driver) != []


def test_the_policy_refuses_requests_and_scripts(driver, page, tmp_path):
    planted = '<img src="http://127.0.0.1:9/x.png" alt=""><script>window.planted = 1</script>'
    attacked = tmp_path / "attacked.html"
    text = page.read_text(encoding="utf-8")
    attacked.write_text(text.replace("</main>", f"{planted}</main>", 1))
    visit(driver, attacked)
    assert driver.execute_script("return window.planted") is None
    blocked = {"http://127.0.0.1:9/x.png": "csp"}
    assert requests(driver) == {attacked.as_uri(): None, **blocked}
    refused = " ".join(entry["message"] for entry in console_errors(driver))
    assert refused.count("Content Security Policy") >= 2


def test_names_are_text(driver, reproduced, tmp_path):
    hostile = "</script><img src=x onerror=window.planted=1>"
    shutil.copytree(reproduced, tmp_path / "hostile")
    add_studies(tmp_path / "hostile", name=hostile)
    visit(driver, write_page(load([tmp_path / "hostile"]), tmp_path / "page.html"))
    shown = by_id(driver, "studies").get_attribute("textContent")
    assert shown.count(hostile) >= 2  # in charts and tables
    assert driver.find_elements(By.CSS_SELECTOR, "img[src=x]") == []
    assert driver.execute_script("return window.planted") is None
    assert console_errors(driver) == []


def test_what_is_missing_is_said_and_the_rest_works(driver, reproduced, tmp_path):
    (tmp_path / "part" / "studies").mkdir(parents=True)
    shutil.copy(reproduced / "studies" / "main.json", tmp_path / "part" / "studies")
    visit(driver, write_page(load([tmp_path / "part"]), tmp_path / "part.html"))
    notes = [own.text for own in driver.find_elements(By.CLASS_NAME, "missing")]
    files = ("examples.json", "trajectory.json", "profile.json", "verify.json")
    assert all(any(file in note for note in notes) for file in files)
    before = markup(driver, "strip")
    press(driver, "budget", Keys.ARROW_RIGHT)
    assert markup(driver, "strip") != before
    assert violations(driver) == {}
    assert console_errors(driver) == []


def test_results_of_several_settings_are_shown_one_at_a_time(driver, reproduced, tmp_path):
    shutil.copytree(reproduced, tmp_path / "first")
    shutil.copytree(reproduced, tmp_path / "second")
    file = tmp_path / "second" / "studies" / "main.json"
    file.write_text(file.read_text().replace('"fingerprint": "', '"fingerprint": "other-'))
    both = load([tmp_path / "first", tmp_path / "second"])
    visit(driver, write_page(both, tmp_path / "both.html"))
    choice = Select(by_id(driver, "source"))
    assert len(choice.options) == 2
    before = by_id(driver, "setting").text
    choice.select_by_index(1)
    assert by_id(driver, "setting").text != before
    assert console_errors(driver) == []
