"""The parts of the page, and its API."""

import json
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import pytest


pytest.importorskip("gradio")

from hf_mars.demo import load_model  # noqa: E402
from hf_mars.demo.answer import Answer, Piece, Settings, stream_answer  # noqa: E402
from hf_mars.demo.knobs import Knobs  # noqa: E402
from hf_mars.demo.page import first_difference, legend, render_answer, render_counters  # noqa: E402


pytestmark = pytest.mark.integration


MESSAGES = [{"role": "user", "content": "Count from 3."}]


def stream(checkpoint, settings, threshold=lambda: 0.9, is_stopped=lambda: False):
    model, tokenizer, _ = load_model(str(checkpoint))
    return stream_answer(model, tokenizer, MESSAGES, settings, threshold, is_stopped)


@pytest.mark.parametrize("settings", [Settings(), Settings(lossless=False), Settings(threshold=None)])
def test_pieces_add_up_to_the_answer(counting_checkpoint, settings):
    model, tokenizer, _ = load_model(str(counting_checkpoint))
    lengths = [len(answer.pieces) for answer in stream(counting_checkpoint, settings)]
    *_, answer = stream(counting_checkpoint, settings)
    inputs = tokenizer.apply_chat_template(MESSAGES, add_generation_prompt=True, return_dict=True, return_tensors="pt")
    arguments = settings.arguments(lambda: 0.9)
    output = model.generate(**inputs, **arguments)[0, inputs["input_ids"].shape[1] :]
    assert answer.token_ids == output.tolist()
    assert answer.text == tokenizer.decode(output, skip_special_tokens=True)
    assert lengths == [*range(1, len(answer.pieces) + 1), len(answer.pieces)]
    assert answer.seconds > 0 and answer.tokens_per_second > 0
    assert (answer.tokens_per_forward > 1) == (settings.threshold is not None)


def test_errors_of_the_generating_thread_arrive(counting_checkpoint):
    with pytest.raises(ValueError, match="mars_threshold"):
        list(stream(counting_checkpoint, Settings(), threshold=lambda: 7.0))


def test_closing_or_stopping_ends_the_generation(counting_checkpoint):
    answers = stream(counting_checkpoint, Settings(threshold=None))
    next(answers)
    answers.close()
    *_, answer = stream(counting_checkpoint, Settings(), is_stopped=lambda: True)
    assert answer.is_stopped and not answer.pieces


def test_knobs_are_kept_by_session():
    knobs = Knobs(num_sessions=2)
    first, second = knobs.slot("a"), knobs.slot("b")
    assert first != second and knobs.slot("a") == first
    running, other = knobs.start(first, 0.9), knobs.start(second, 0.9)
    knobs.turn(second, 0.5)
    knobs.stop(second)
    assert (knobs.threshold(first), knobs.threshold(second)) == (0.9, 0.5)
    assert (knobs.is_stopped(first, running), knobs.is_stopped(second, other)) == (False, True)
    assert knobs.is_wanted(second, other), "what is there of a stopped answer is kept"
    assert knobs.slot("c") == second, "the one that was not used for longest makes room"
    knobs.release("c")
    assert knobs.slot("d") == second


def test_an_answer_that_was_dropped_stays_so_when_the_next_one_begins():
    knobs = Knobs(num_sessions=1)
    first = knobs.start(0, 0.9)
    knobs.drop(0)
    assert not knobs.is_wanted(0, first)
    second = knobs.start(0, 0.9)
    assert knobs.is_stopped(0, first) and not knobs.is_stopped(0, second)


def test_text_is_escaped_and_runs_are_marked():
    answer = Answer([Piece('<b>"x"</b>', [1, 2], [0.5, 0.25], 0.9), Piece("&", [3])], seconds=2.0)
    page = render_answer(answer, differs_at=2)
    assert "<b>" not in page and "&lt;b&gt;&quot;x&quot;&lt;/b&gt;" in page
    assert 'class="mars-run mars-run-2" data-tokens="2"' in page
    assert "confidence 0.50, 0.25; threshold 0.9" in page
    assert page.count("mars-differs") == 1 and "1 token in one forward pass; the first token that differs" in page
    assert "<b>1.50</b> tokens/forward" in render_counters(answer)
    assert render_answer(Answer([Piece("x", list(range(12)))])).count("mars-run-8") == 1
    assert "8+" in legend(16) and "8+" not in legend(8)


def test_the_first_difference_of_two_answers():
    one, two = Answer([Piece("", [1, 2, 3])]), Answer([Piece("", [1]), Piece("", [2])])
    assert first_difference(one, two) is None
    two.pieces.append(Piece("", [4]))
    assert first_difference(one, two) == 2


def test_the_measured_frontier_marks_the_current_threshold(counting_checkpoint):
    from hf_mars.demo.events import DemoEvents
    from tests.sweeps import evaluation

    model, tokenizer, _ = load_model(str(counting_checkpoint))
    events = DemoEvents(model, tokenizer, evaluation())
    pictures = [Path(events.draw(threshold)).read_bytes() for threshold in (0.5, 0.9)]
    assert all(picture.startswith(b"\x89PNG") for picture in pictures)
    assert pictures[0] == Path(events.draw(0.5)).read_bytes()
    assert DemoEvents(model, tokenizer).draw(0.5) is None


def test_without_a_checkpoint_it_says_how_to_get_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MARS_MODEL", raising=False)
    with pytest.raises(OSError, match="make quickstart.*MARS_MODEL"):
        load_model()
    monkeypatch.setenv("MARS_MODEL", str(tmp_path / "nowhere"))
    with pytest.raises(OSError, match="nowhere"):
        load_model()


def test_the_api_takes_the_same_arguments(served):
    from gradio_client import Client

    url, model, tokenizer, _ = served
    client = Client(url, verbose=False)
    result = client.predict("Count from 3.", threshold=0.9, lossless=True, max_new_tokens=64, api_name="/generate")
    inputs = tokenizer.apply_chat_template(MESSAGES, add_generation_prompt=True, return_dict=True, return_tensors="pt")
    output = model.generate(
        **inputs, max_new_tokens=64, mars_threshold=0.9, mars_verify=True, return_dict_in_generate=True
    )
    assert result["acceptance_lengths"] == output.acceptance_lengths[0]
    assert result["num_forward_passes"] == output.num_forward_passes
    assert result["tokens_per_forward"] > 1
    assert "4 5 6" in result["text"]
    for arguments, words in (
        ({"max_new_tokens": 9999}, "512"),
        ({"metric": "luck"}, "metric"),
        ({"threshold": 2.0}, "threshold"),
        ({"block_size": 1000}, "block size"),
    ):
        with pytest.raises(Exception, match=words):
            client.predict("Count from 3.", **arguments, api_name="/generate")


@pytest.mark.parametrize(("message", "words"), [("caf\udce9", "surrogate"), ("\ud800", "surrogate"), (5, "text")])
def test_a_message_that_is_no_text_is_refused_in_one_line(served, message, words):
    url, *_ = served
    calls = f"{url.rstrip('/')}/gradio_api/call/generate"
    body = json.dumps({"data": [message, 0.9, None, True, "probability", 0.0, 16]}).encode()
    request = urllib.request.Request(calls, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        event_id = json.load(answer)["event_id"]
    with urllib.request.urlopen(f"{calls}/{event_id}", timeout=30) as answer:
        told = answer.read().decode()
    assert told.startswith("event: error") and words in told and "Traceback" not in told


def test_what_is_no_text_is_refused_on_the_page_and_can_be_sent_back(counting_checkpoint):
    from hf_mars.demo.events import DemoEvents

    events = DemoEvents(*load_model(str(counting_checkpoint))[:2])
    settings = (True, 0.9, 4, True, "probability", 0.0, 16, False)
    (told,) = events.respond("caf\udce9", [], *settings, SimpleNamespace(session_hash="a"))
    assert told[0] == "caf?" and "surrogate" in told[2] and "mars-problem" in told[2]
    "".join(text for text in told if isinstance(text, str)).encode()


def test_the_space_is_one_that_can_be_pushed():
    import tomllib
    from importlib.metadata import version
    from pathlib import Path

    import yaml

    space = Path(__file__).parents[2] / "space"
    data = yaml.safe_load((space / "README.md").read_text().split("---")[1])
    assert data["sdk"] == "gradio" and data["app_file"] == "app.py"
    assert data["sdk_version"] == version("gradio")
    assert len(data["short_description"]) <= 60
    project = tomllib.loads((space.parent / "pyproject.toml").read_text())["project"]
    needed = project["dependencies"] + project["optional-dependencies"]["demo"]
    assert (space / "requirements.txt").read_text().split() == needed, "the package lies beside the page"
    assert {path.name for path in space.iterdir() if path.is_file()} == {"README.md", "app.py", "requirements.txt"}
