"""The page in a real browser."""

import re
import shutil

import pytest

from hf_mars.text_stream import TextStream


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
playwright = pytest.importorskip("playwright.sync_api")
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
]

QUESTION = "Count from 3."


@pytest.fixture(scope="module")
def browser():
    options = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=[*options, "--disable-sync"])
        yield browser
        browser.close()


class Page:
    """One visitor."""

    def __init__(self, browser, url, **options):
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(30_000)
        self.page.goto(url)
        self.page.wait_for_selector("#message textarea")

    def ask(self, text):
        self.page.fill("#message textarea", text)
        self.page.click("#send")

    def wait_for_answer(self):
        """Wait until the counters stand still."""
        self.page.wait_for_selector("#conversation .mars-answer")
        before = None
        for _ in range(200):
            self.page.wait_for_timeout(400)
            now = self.page.inner_text("#counters")
            if now and now == before and not self.page.is_disabled("#send"):
                return
            before = now
        raise AssertionError("the answer does not end")

    def set_threshold(self, value):
        self.page.fill("#threshold input[type=number]", str(value))
        self.page.press("#threshold input[type=number]", "Enter")

    def runs(self, where="#conversation .mars-answer"):
        spans = self.page.query_selector_all(f"{where} .mars-run")
        return [int(span.get_attribute("data-tokens")) for span in spans]

    def titles(self):
        return [span.get_attribute("title") for span in self.page.query_selector_all("#conversation .mars-run")]


@pytest.fixture
def visitor(browser, served):
    url, *_, slow = served
    slow.seconds = 0.0
    visitor = Page(browser, url)
    yield visitor
    slow.seconds = 0.0
    visitor.context.close()


def expected(served, text, max_new_tokens=256, **arguments):
    _, model, tokenizer, _ = served
    inputs = tokenizer.apply_chat_template(
        [{"role": "user", "content": text}], add_generation_prompt=True, return_dict=True, return_tensors="pt"
    )
    return model.generate(**inputs, max_new_tokens=max_new_tokens, return_dict_in_generate=True, **arguments)


@pytest.mark.parametrize("lossless", [True, False])
def test_an_answer_streams_in_runs_with_a_colour_for_each_length(cheap_columns, visitor, served, lossless):
    if not lossless:
        visitor.page.uncheck("#lossless input")
    visitor.ask(QUESTION)
    visitor.wait_for_answer()
    output = expected(served, QUESTION, mars_threshold=0.9, mars_verify=lossless)
    if lossless:  # how far each step drafts is planned by what steps cost at the moment
        assert sum(visitor.runs()) == sum(output.acceptance_lengths[0])
    else:
        assert visitor.runs() == output.acceptance_lengths[0]
    assert max(visitor.runs()) > 1, "runs of several tokens"
    colours = {}
    for span in visitor.page.query_selector_all("#conversation .mars-run"):
        length = int(span.get_attribute("data-tokens"))
        colours.setdefault(length, set()).add(span.evaluate("node => getComputedStyle(node).backgroundColor"))
    assert all(len(values) == 1 for values in colours.values())
    assert len(set.union(*colours.values())) == len(colours), "one colour a length"
    assert re.search(r"confidence \d\.\d\d", visitor.titles()[-1])
    counters = visitor.page.inner_text("#counters")
    num_forwards = len(visitor.runs())
    assert f"{sum(visitor.runs()) / num_forwards:.2f} tokens/forward" in counters
    assert f"{num_forwards} forwards" in counters
    assert ("lossless" if lossless else "lossy") in counters
    text = visitor.page.inner_text("#conversation .mars-answer")
    assert "4 5 6" in text


def test_moving_the_threshold_changes_the_rest_of_the_answer(visitor, served):
    served[-1].seconds = 0.4
    visitor.page.uncheck("#lossless input")
    visitor.set_threshold(0.5)
    visitor.ask(QUESTION)
    visitor.page.wait_for_function("document.querySelectorAll('#conversation .mars-run').length >= 2")
    visitor.set_threshold(1.0)
    visitor.wait_for_answer()
    titles, runs = visitor.titles(), visitor.runs()
    before = [length for length, title in zip(runs, titles, strict=True) if "threshold 0.5" in title]
    after = [length for length, title in zip(runs, titles, strict=True) if title.endswith("threshold 1")]
    assert len(before) + len(after) == len(runs) and before and len(after) > 1
    assert max(before) > 1
    # The step that was under way when the knob was turned still counts with the old threshold.
    assert max(after[1:]) == 1


def test_stop_keeps_what_is_there(visitor, served):
    served[-1].seconds = 0.4
    visitor.page.uncheck("#on input")
    visitor.ask(QUESTION)
    visitor.page.wait_for_function("document.querySelectorAll('#conversation .mars-run').length >= 2")
    visitor.page.click("#stop")
    visitor.page.wait_for_function("document.querySelector('#counters').innerText.includes('stopped')")
    count = len(visitor.runs())
    assert 2 <= count < expected(served, QUESTION).sequences.shape[1]
    visitor.page.wait_for_timeout(1000)
    assert len(visitor.runs()) == count
    served[-1].seconds = 0.0
    visitor.ask("Count from 5.")
    visitor.page.wait_for_function("document.querySelectorAll('#conversation .mars-answer').length == 2")


@pytest.mark.parametrize("compare", [False, True])
def test_clear_drops_a_running_answer(visitor, served, compare):
    slow = served[-1]
    slow.seconds = 0.15
    if compare:
        visitor.page.check("#compare input")
    visitor.ask(QUESTION)
    visitor.page.wait_for_selector("#plain .mars-run" if compare else "#conversation .mars-run")
    visitor.page.click("#clear")
    visitor.page.wait_for_function("document.querySelector('#conversation .mars-message') === null")
    visitor.page.wait_for_timeout(1000)
    before = slow.num_forwards
    visitor.page.wait_for_timeout(1000)
    assert slow.num_forwards == before, "nothing is generated for nobody"
    assert visitor.page.query_selector(".mars-message") is None, "nothing comes back"
    assert visitor.page.inner_text("#counters") == ""
    slow.seconds = 0.0
    visitor.ask("Count from 5.")
    visitor.wait_for_answer()
    assert len(visitor.page.query_selector_all("#conversation .mars-message")) == 2
    output = expected(served, "Count from 5.", mars_threshold=0.9, mars_verify=True)
    assert sum(visitor.runs()) == sum(output.acceptance_lengths[0]), "an answer without a past"


def test_a_question_soon_after_clear_is_answered_alone(visitor, served):
    served[-1].seconds = 0.15
    visitor.ask(QUESTION)
    visitor.page.wait_for_selector("#conversation .mars-run")
    visitor.page.click("#clear")
    visitor.page.wait_for_timeout(500)
    visitor.ask("Count from 5.")
    visitor.page.wait_for_selector("#conversation .mars-run")
    visitor.wait_for_answer()
    assert QUESTION not in visitor.page.inner_text("#conversation")
    output = expected(served, "Count from 5.", mars_threshold=0.9, mars_verify=True)
    assert sum(visitor.runs()) == sum(output.acceptance_lengths[0])


def test_two_sessions_keep_to_themselves(browser, visitor, served):
    served[-1].seconds = 0.15
    other = Page(browser, served[0])
    visitor.set_threshold(0.5)
    other.set_threshold(1.0)
    visitor.page.uncheck("#lossless input")
    other.page.uncheck("#lossless input")
    visitor.ask("Count from 2.")
    other.ask("Count from 7.")
    visitor.wait_for_answer()
    other.wait_for_answer()
    assert "Count from 7." not in visitor.page.inner_text("#conversation")
    assert visitor.runs() == expected(served, "Count from 2.", mars_threshold=0.5).acceptance_lengths[0]
    assert set(other.runs()) == {1}
    assert "8 9" in other.page.inner_text("#conversation .mars-answer")
    other.context.close()


def test_plain_decoding_beside_it_is_the_same_in_lossless_mode(visitor):
    visitor.page.check("#compare input")
    visitor.ask(QUESTION)
    visitor.page.wait_for_function("document.querySelector('#plain-counters').innerText.includes('same tokens')")
    assert visitor.page.inner_text("#plain .mars-answer") == visitor.page.inner_text("#conversation .mars-answer")
    assert set(visitor.runs("#plain")) == {1}
    assert visitor.page.query_selector(".mars-differs") is None


def test_an_overlong_prompt_is_refused_with_a_message(visitor):
    visitor.ask("word " * 3000)
    visitor.page.wait_for_selector("#conversation .mars-problem")
    problem = visitor.page.inner_text("#conversation .mars-problem")
    assert "1024" in problem and "Traceback" not in visitor.page.content()
    visitor.ask("   ")
    visitor.page.wait_for_function("document.querySelector('.mars-problem').innerText.includes('Write something')")


def test_markup_is_shown_and_never_rendered(visitor, monkeypatch):
    push = TextStream.push
    markup = '<img src=x onerror="window.hacked=1"><b>bold</b>${window.hacked=2}{{value}}'
    monkeypatch.setattr(TextStream, "push", lambda *args: markup + push(*args))
    visitor.ask(markup)
    visitor.wait_for_answer()
    assert visitor.page.inner_text("#conversation .mars-user") == markup
    assert visitor.page.inner_text("#conversation .mars-answer").startswith(markup)
    assert visitor.page.query_selector("#conversation img") is None
    assert visitor.page.query_selector("#conversation b") is None
    assert visitor.page.evaluate("window.hacked") is None


def test_it_fits_a_phone_and_a_dark_theme(browser, served):
    phone = Page(browser, f"{served[0]}?__theme=dark", viewport={"width": 390, "height": 844}, device_scale_factor=2)
    phone.ask(QUESTION)
    phone.wait_for_answer()
    assert phone.page.evaluate("document.documentElement.scrollWidth") <= 390
    text, background = (
        phone.page.eval_on_selector("#conversation .mars-answer", f"node => getComputedStyle(node).{name}")
        for name in ("color", "backgroundColor")
    )
    assert brightness(text) > brightness(background) + 100
    phone.context.close()


def brightness(colour):
    return sum(map(float, re.findall(r"[\d.]+", colour)[:3])) / 3


def test_the_measured_tab_says_what_is_missing(visitor):
    visitor.page.get_by_role("tab", name="Measured").click()
    visitor.page.wait_for_selector("text=Nothing was measured")
