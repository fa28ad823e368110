"""A server process from its start to its end."""

import json
import threading
import time

import openai
import pytest
import torch

from tests.serving.conftest import serve
from tests.serving.requests import BODY, chat, plain_answer


pytestmark = pytest.mark.integration


def test_a_full_queue_answers_429(checkpoint):
    with serve(checkpoint, "--max-rows", "1", "--max-queue", "1") as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
        long = {"max_tokens": 400, "temperature": 1.5, "mars_threshold": 1.0, "stream": True}
        running = chat(client, **long)
        next(iter(running))
        waiting = threading.Thread(target=lambda: chat(client, max_tokens=5))
        waiting.start()
        server.wait_for("mars_requests_queued", 1)
        status, body, headers = server.post("/v1/chat/completions", BODY)
        assert status == 429 and int(headers["Retry-After"]) >= 1
        running.close()
        waiting.join()
        status, body, _ = server.post("/v1/chat/completions", {**BODY, "n": 4})
        assert status == 400 and body["error"]["param"] == "n", "it could never run"
        patient = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=3)
        assert chat(patient).usage.completion_tokens > 0


def test_sigterm_lets_running_answers_finish(checkpoint, text_model):
    with serve(checkpoint) as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
        long = {"max_tokens": 300, "mars_threshold": 1.0, "stop": ["never there"]}
        stream = chat(client, stream=True, **long)
        chunks = [next(iter(stream))]
        whole = []
        waiting = threading.Thread(target=lambda: whole.append(chat(client, "Count from 7.", **long)))
        waiting.start()
        server.wait_for("mars_requests_running", 2)
        server.terminate()
        chunks += list(stream)
        waiting.join()
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        assert text == plain_answer(text_model, "Count from 3.", 300)[0]
        assert whole[0].choices[0].message.content == plain_answer(text_model, "Count from 7.", 300)[0]
        assert server.process.wait(timeout=20) is not None
        with pytest.raises(openai.APIConnectionError):
            chat(client)


def test_a_restart_serves_again_and_what_is_not_done_when_the_drain_ends_is_answered_too(checkpoint, text_model):
    with serve(checkpoint, "--drain-timeout", "0.5", "--max-rows", "2") as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
        assert chat(client).choices[0].message.content == plain_answer(text_model, "Count from 3.")[0]
        long = {"max_tokens": 450, "mars_threshold": 1.0, "mars_verify": False}
        errors = []

        def ask():
            with pytest.raises(openai.InternalServerError) as error:
                chat(client, n=8, **long)
            errors.append(error.value)

        stream = chat(client, n=8, stream=True, **long)
        waiting = [threading.Thread(target=ask) for _ in range(2)]
        for thread in waiting:
            thread.start()
        server.wait_for("mars_requests_queued", 22)
        server.terminate()
        with pytest.raises(openai.APIError, match="shutting down"):
            list(stream)
        for thread in waiting:
            thread.join()
        assert [error.status_code for error in errors] == [503, 503]
        assert all("shutting down" in str(error) for error in errors)
        assert server.process.wait(timeout=20) is not None


def test_the_request_log_shows_the_threshold_move_and_come_back(checkpoint, tmp_path):
    log = tmp_path / "requests.jsonl"
    with serve(
        checkpoint, "--policy", "adaptive", "--threshold-max", "0.9", "--max-rows", "4", "--request-log", str(log)
    ) as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
        chat(client)
        threads = [threading.Thread(target=lambda: chat(client, max_tokens=100)) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for _ in range(60):
            chat(client)
            if server.metric("mars_threshold") == 0.9:
                break
            time.sleep(0.1)
        chat(client)
        entries = [json.loads(line) for line in log.read_text().splitlines()]
    assert entries[0]["threshold_first"] == 0.9, "idle"
    assert min(entry["threshold_min"] for entry in entries) == pytest.approx(0.5), "under load"
    assert entries[-1]["threshold_first"] == entries[-1]["threshold_last"] == 0.9, "idle again"
    assert all(entry["complete"] and entry["tokens_per_forward"] >= 1 for entry in entries)
    assert "Count" not in log.read_text(), "no text in the log"


def test_a_missing_checkpoint_is_one_line():
    from hf_mars.cli import main

    with pytest.raises(SystemExit, match="hf-mars serve: error"):
        main(["serve", "nowhere/there"])
    with pytest.raises(SystemExit, match="threshold_min"):
        main(["serve", "nowhere/there", "--threshold-min", "2"])


@pytest.mark.parametrize(
    "option, value, name",
    [
        ("--kv-memory", "1e-9", "kv_memory"),
        ("--kv-memory", "inf", "kv_memory"),
        ("--drain-timeout", "nan", "drain_timeout"),
        ("--drain-timeout", "-1", "drain_timeout"),
        ("--port", "99999", "port"),
        ("--device", "nonsense", "device"),
        ("--request-log", "/nowhere/there/log", "/nowhere/there"),
    ],
)
def test_bad_values_on_the_command_line_are_one_line(checkpoint, option, value, name):
    from hf_mars.cli import main

    with pytest.raises(SystemExit, match=name):
        main(["serve", str(checkpoint), option, value])


def test_float64_is_what_makes_answers_comparable(text_model):
    assert text_model[0].dtype == torch.float64
