"""The page of a run, whatever there is of it; in a browser it works, asks nothing of any network, and runs nothing of a completion."""

from __future__ import annotations

import random
import re
import shutil
import threading
import urllib.error
import urllib.request
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select

from browser import chromium, complaints, ready, requests, until
from made_up_run import MadeUp
from sharpen.errors import RunError
from sharpen.records import Completion
from sharpen.reports import html
from sharpen.reports.html import Maker
from sharpen.reports.live import Server, Watched, loopback
from sharpen.tracking.events import EventLog
from tiny import tiny_tokenizer

EVIL = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\"> {{ 7 * 7 }} & <b>bold</b>"


def page_of(run: Path, *others: Path) -> str:
    return Maker(run, others).make().html


def with_tokenizer(run: Path) -> Path:
    tiny_tokenizer().save_pretrained(run / "model")
    return run


NO_MODEL = {"model": "nobody/nothing"}  # no tokenizer on any machine


class Varied(MadeUp):
    """Tokens and log-probabilities that hardly compress."""

    def _completion(self, t: float, right: bool, cut: bool, draw: random.Random) -> Completion:
        one = super()._completion(t, right, cut, draw)
        tokens = tuple(draw.randrange(5, 100) for _ in one.tokens)
        return replace(one, tokens=tokens, sampling_logprobs=tuple(-draw.expovariate(1.5) for _ in tokens))


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """200 steps of 64 completions of 100 tokens, random ones of the letters that the tokenizer knows."""
    run = Varied(steps=200, groups=16, held_out={0: 0.3, 100: 0.5, 200: 0.7}, length_right=lambda t: 100, length_wrong=lambda t: 110)
    return with_tokenizer(run.write(tmp_path_factory.mktemp("large") / "run"))


def test_200_steps_of_64_completions_fit_into_3_megabytes(large: Path, tmp_path: Path) -> None:
    page = Maker(large).make()
    assert len(page.html.encode()) < 3_000_000
    assert page.shown.of == 200 * 64 + 3 * 160
    assert 3_000 < page.shown.shown < page.shown.of
    assert f"{page.shown.shown:,} of {page.shown.of:,} completions are in this page" in page.html
    target = tmp_path / "report.html"
    html.write(page, target)
    with chromium() as browser:
        browser.get(target.as_uri())
        ready(browser)
        assert complaints(browser) == []
        assert browser.find_element(By.ID, "where").text.startswith("1–10 of ")


def test_the_page_in_a_browser(tmp_path: Path) -> None:
    run = with_tokenizer(MadeUp(steps=8, held_out={0: 0.3, 8: 0.7}, prompt="What is 2 + 2?").write(tmp_path / "run"))
    other = MadeUp(steps=5, held_out={}).write(tmp_path / "other")
    (tmp_path / "report.html").write_text(page_of(run, other), encoding="utf-8")
    with chromium() as browser:
        browser.get((tmp_path / "report.html").as_uri())
        ready(browser)
        # a plot is switched
        chart = browser.find_element(By.CSS_SELECTOR, '[data-charts="training"] .chart')
        assert chart.get_attribute("data-key") == "reward"
        assert len(chart.find_elements(By.CSS_SELECTOR, "path.line")) == 2
        Select(browser.find_element(By.CSS_SELECTOR, '[data-choose="training"]')).select_by_value("kl")
        chart = browser.find_element(By.CSS_SELECTOR, '[data-charts="training"] .chart')
        assert "KL divergence" in chart.text
        assert [item.text for item in chart.find_elements(By.CSS_SELECTOR, ".legend li")] == ["run", "other"]
        browser.find_element(By.CSS_SELECTOR, '[data-all="training"]').click()
        assert len(browser.find_elements(By.CSS_SELECTOR, '[data-charts="training"] .chart')) > 10
        # completions are filtered
        where = browser.find_element(By.ID, "where")
        assert where.text == "1–10 of 256"
        for name, value, count in (("first", "3", 192), ("last", "4", 64), ("problem", "p7", 8), ("least", "0.5", None)):
            browser.find_element(By.NAME, name).send_keys(value)
            if count is not None:
                assert where.text.endswith(f" of {count}")
        cards = browser.find_elements(By.CLASS_NAME, "card")
        assert cards and all("✓ right" in card.text and "p7" in card.text for card in cards)
        Select(browser.find_element(By.NAME, "right")).select_by_value("0")
        assert where.text == "none fits"
        browser.find_element(By.CSS_SELECTOR, "#filters [type=reset]").click()
        until(lambda: where.text == "1–10 of 256")
        browser.find_element(By.NAME, "text").send_keys("nowhere to be found")
        assert where.text == "none fits"
        browser.find_element(By.NAME, "text").clear()
        browser.find_element(By.CSS_SELECTOR, "#filters [type=reset]").click()
        until(lambda: where.text == "1–10 of 256")
        browser.find_element(By.CSS_SELECTOR, '[data-page="1"]').click()
        assert where.text == "11–20 of 256"
        # tokens are coloured by one or the other, and tell their values
        assert browser.find_elements(By.CSS_SELECTOR, ".tok.plus")
        assert not browser.find_elements(By.CSS_SELECTOR, ".tok.rare")
        Select(browser.find_element(By.NAME, "colour")).select_by_value("logprob")
        token = browser.find_element(By.CSS_SELECTOR, ".tok.rare")
        assert not browser.find_elements(By.CSS_SELECTOR, ".tok.plus")
        token.click()
        tip = browser.find_element(By.ID, "tip").text
        assert re.search(r"token \d+ of \d+\nlog π -0\.\d\d \([\d.]+ %\)\nadvantage [+−]?0?\.?\d", tip), tip
        assert complaints(browser) == []
        assert [one for one in requests(browser) if not one.startswith(("file:", "data:"))] == []


def test_light_dark_and_a_phone(tmp_path: Path) -> None:
    run = MadeUp(steps=4, held_out={0: 0.3, 4: 0.7}).write(tmp_path / "run")
    other = MadeUp(steps=5, held_out={}).write(tmp_path / "another-run-with-a-long-name")
    (tmp_path / "report.html").write_text(page_of(run, other), encoding="utf-8")
    paper = "return getComputedStyle(document.body).backgroundColor"
    for dark in (False, True):
        with chromium(width=390, dark=dark) as browser:
            browser.get((tmp_path / "report.html").as_uri())
            ready(browser)
            first = browser.execute_script(paper)
            assert first == ("rgb(20, 21, 23)" if dark else "rgb(255, 255, 255)")
            assert browser.execute_script("return document.documentElement.scrollWidth") == 390
            browser.find_element(By.ID, "theme").click()
            assert browser.execute_script(paper) == ("rgb(255, 255, 255)" if dark else "rgb(20, 21, 23)")


@pytest.mark.parametrize("cut", [False, True])
def test_nothing_of_a_completion_runs(cut: bool, tmp_path: Path) -> None:
    tokens = tiny_tokenizer()(EVIL, add_special_tokens=False)["input_ids"]
    made = MadeUp(steps=2, held_out={0: 0.3, 2: 0.6}, text=lambda right: EVIL, prompt=EVIL, settings=NO_MODEL)
    if cut:
        made.tokens = lambda length, draw: tokens
    run = made.write(tmp_path / "<b>run")
    if cut:
        with_tokenizer(run)
    text = page_of(run)
    assert "owned" not in text  # completions and prompts are in base64 only
    assert "&lt;b&gt;run" in text and "<b>run" not in text
    (tmp_path / "report.html").write_text(text, encoding="utf-8")
    with chromium() as browser:
        browser.get((tmp_path / "report.html").as_uri())
        ready(browser)
        assert browser.title == "<b>run · sharpen"
        assert browser.find_element(By.CSS_SELECTOR, ".card pre").text == EVIL
        assert bool(browser.find_elements(By.CLASS_NAME, "tok")) is cut
        assert browser.find_elements(By.CSS_SELECTOR, ".card img, .card b, .card script") == []
        # even if something did come in as HTML, the policy would not let it run or ask for anything
        browser.execute_script("document.getElementById('list').innerHTML = arguments[0]", EVIL + '<img src="https://example.com/x.png">')
        until(lambda: any("Content Security Policy" in one for one in complaints(browser)))
        assert browser.title == "<b>run · sharpen"


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (MadeUp(steps=3, held_out={}, settings=NO_MODEL), ["no held-out problems", "no Pass@K"]),
        (MadeUp(steps=1, held_out={0: 0.5, 1: 0.5}, settings=NO_MODEL), ["all 1 steps are done"]),
        (MadeUp(steps=4, held_out={0: 0.5}, settings=NO_MODEL | {"training": {"steps": 9}}), ["4 of 9 steps are done"]),
    ],
)
def test_what_is_missing_is_told(made: MadeUp, told: list[str], tmp_path: Path) -> None:
    text = page_of(made.write(tmp_path / "run"))
    for words in (*told, "did not record its environment", "no timings", "not cut into tokens"):
        assert words in text


def test_a_run_without_a_step(tmp_path: Path) -> None:
    run = MadeUp(steps=2, held_out={}).write(tmp_path / "run")
    shutil.rmtree(run / "completions")
    (run / "events.jsonl").unlink()
    text = page_of(run)
    assert "No step of training is finished" in text
    assert "There are none yet." in text


def test_demonstrations_have_no_log_probabilities(tmp_path: Path) -> None:
    made = MadeUp(steps=2, held_out={}, entropy=lambda t: float("nan"), settings={"method": {"name": "sft"}})
    page = Maker(made.write(tmp_path / "run")).make()
    assert page.shown.shown == page.shown.of
    assert "behaviour_entropy" not in {plot.key for plot in page.plots}


def test_what_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no run here"):
        page_of(tmp_path)
    run = MadeUp(steps=2, held_out={}).write(tmp_path / "run")
    with pytest.raises(RunError, match="no run here"):
        page_of(run, tmp_path)
    (run / "evaluation").mkdir()
    (run / "evaluation" / "comparison.json").write_text("{}")
    with pytest.raises(RunError, match="no comparison"):
        page_of(run)


def serve(run: Path) -> Server:
    server = Server(Watched(run), 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def test_a_new_step_appears(tmp_path: Path) -> None:
    run = MadeUp(steps=3, held_out={}).write(tmp_path / "run")
    lines = (run / "events.jsonl").read_text().splitlines(keepends=True)
    (run / "events.jsonl").write_text("".join(lines[:-1]))
    server = serve(run)
    with chromium() as browser:
        browser.get(server.url)
        ready(browser)
        assert "2 of 3 steps are done" in browser.find_element(By.ID, "summary").text
        Select(browser.find_element(By.CSS_SELECTOR, '[data-choose="training"]')).select_by_value("entropy")
        with (run / "events.jsonl").open("a") as file:
            file.write(lines[-1])
        ready(browser, 2)
        assert "all 3 steps are done" in browser.find_element(By.ID, "summary").text
        chart = browser.find_element(By.CSS_SELECTOR, '[data-charts="training"] .chart')
        assert chart.get_attribute("data-key") == "entropy"  # what was chosen stays
        assert len(chart.find_elements(By.CSS_SELECTOR, "path.mark")) == 3
        assert browser.find_element(By.ID, "where").text == "1–10 of 96"
        assert complaints(browser) == []
        assert all(one.startswith((server.url, "data:")) for one in requests(browser))
    server.shutdown()
    server.server_close()


def test_only_the_page_and_only_to_this_machine(tmp_path: Path) -> None:
    run = MadeUp(steps=2, held_out={}).write(tmp_path / "run")
    server = serve(run)

    def status(method: str = "GET", path: str = "/version", **headers: str) -> int:
        connection = HTTPConnection("127.0.0.1", server.server_port, timeout=60)
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return answer.status

    assert status() == status(Host="localhost") == status(Host="[::1]:99") == 200
    assert status(Host="evil.example") == status(Host=f"evil.example:{server.server_port}") == status(Host="127.0.0.1.evil.example") == 403
    assert status("POST") == status("HEAD") == status("DELETE") == 405
    assert status(path="/recipe.toml") == status(path="/../recipe.toml") == status(path="/events.jsonl") == 404
    with urllib.request.urlopen(server.url, timeout=60) as answer:
        assert answer.headers["Cache-Control"] == "no-store"
        assert "connect-src &#39;self&#39;" in answer.read().decode()
    (run / "recipe.toml").write_text("no recipe")
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(server.url, timeout=60)
    assert error.value.code == 500
    with pytest.raises(RunError, match=f"port {server.server_port} of 127.0.0.1"):
        Server(Watched(run), server.server_port)
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("host", "ours"),
    [
        ("127.0.0.1", True),
        ("LOCALHOST:80", True),
        ("[::1]", True),
        ("[::1]:8700", True),
        (None, False),
        ("", False),
        ("localhost:", False),
        ("localhost:80:80", False),
        ("localhost.evil", False),
        ("0.0.0.0", False),
        ("[::2]", False),
    ],
)
def test_names_of_this_machine(host: str | None, ours: bool) -> None:
    assert loopback(host) is ours


def test_an_environment_is_shown(tmp_path: Path) -> None:
    from sharpen.training import environment
    from sharpen.training.run_folder import RunFolder

    run = MadeUp(steps=2, held_out={}).write(tmp_path / "run")
    for step in (1, 2):
        environment.add(RunFolder(run), environment.describe({"dtype": "float32", "threads": 2}, from_step=step))
    with EventLog(run / "timings.jsonl") as log:
        log.append("step", step=1, seconds={"step": 3.5, "rollout": 2.5, "training": 1.0, "tokens_per_second": 10.0})
    starts = environment.read(RunFolder(run))
    assert [one["from_step"] for one in starts] == [1, 2]
    text = page_of(run)
    assert "float32" in text and starts[0]["packages"]["torch"] in text
    assert "did not record its environment" not in text
    environment.add(RunFolder(run), environment.describe({}, from_step=1))
    assert len(environment.read(RunFolder(run))) == 1  # a run that begins anew
    (run / "environment.json").write_text('{"starts": 3}')
    with pytest.raises(RunError, match="no record of an environment"):
        page_of(run)
