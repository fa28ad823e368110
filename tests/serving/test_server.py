"""A server process, and the real `openai` client over loopback."""

import asyncio
import http.client
import json
import socket
import threading
import time

import openai
import pytest
import torch

from tests.serving.conftest import MODEL_NAME, serve
from tests.tiny_text import byte_level_tokenizer


MESSAGES = [{"role": "user", "content": "Count from 3."}]
BODY = {"model": MODEL_NAME, "messages": MESSAGES}


@pytest.fixture(scope="module")
def server(checkpoint):
    with serve(checkpoint, "--max-rows", "8", "--max-queue", "64", "--max-output-tokens", "400") as server:
        yield server


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


def chat(client, content="Count from 3.", **arguments):
    messages = [{"role": "user", "content": content}]
    extra = {name: arguments.pop(name) for name in list(arguments) if name.startswith("mars_")}
    return client.chat.completions.create(
        model=MODEL_NAME, messages=messages, extra_body=extra, **{"max_tokens": 40, **arguments}
    )


def plain_answer(text_model, content, max_new_tokens=40):
    model, tokenizer = text_model
    messages = [{"role": "user", "content": content}]
    inputs = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True, return_tensors="pt")
    output = model.generate(**inputs, max_new_tokens=max_new_tokens, do_sample=False)
    ids = output[0, inputs["input_ids"].shape[1] :]
    return tokenizer.decode(ids, skip_special_tokens=True), len(ids)


class TestChat:
    def test_the_default_answer_is_that_of_plain_generation(self, client, text_model):
        text, num_tokens = plain_answer(text_model, "Count from 3.")
        response = chat(client)
        assert response.object == "chat.completion"
        assert response.choices[0].message.role == "assistant"
        assert response.choices[0].message.content == text
        assert response.choices[0].finish_reason in ("stop", "length")
        assert response.usage.completion_tokens == num_tokens
        assert response.usage.total_tokens == response.usage.prompt_tokens + num_tokens
        assert response.usage.forward_passes < num_tokens
        assert response.usage.tokens_per_forward == pytest.approx(num_tokens / response.usage.forward_passes, abs=1e-3)

    def test_a_stream_has_its_first_text_usage_and_final_chunks(self, client):
        whole = chat(client)
        chunks = list(chat(client, stream=True, stream_options={"include_usage": True}))
        assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
        assert len({chunk.id for chunk in chunks}) == 1
        first, *middle, final, last = chunks
        assert first.choices[0].delta.role == "assistant" and first.choices[0].delta.content == ""
        assert all(chunk.choices[0].finish_reason is None for chunk in (first, *middle))
        assert "".join(chunk.choices[0].delta.content for chunk in middle) == whole.choices[0].message.content
        assert final.choices[0].finish_reason == whole.choices[0].finish_reason
        assert final.choices[0].delta.content is None
        assert last.choices == [] and last.usage == whole.usage
        assert len(middle) > 1

    def test_without_the_option_no_usage_is_streamed(self, client):
        chunks = list(chat(client, stream=True))
        assert all(chunk.choices and chunk.usage is None for chunk in chunks)

    def test_content_in_parts_is_joined(self, client):
        parts = [{"type": "text", "text": "Count "}, {"type": "text", "text": "from 3."}]
        assert chat(client, parts).choices[0].message == chat(client).choices[0].message

    @pytest.mark.parametrize("stream", [False, True])
    def test_the_answer_ends_before_a_stop_string(self, client, text_model, stream):
        text, num_tokens = plain_answer(text_model, "Count from 3.")
        stop = text[len(text) // 2 : len(text) // 2 + 3]
        response = chat(client, stop=[stop, "never there"], stream=stream)
        if stream:
            chunks = list(response)
            content = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
            assert chunks[-1].choices[0].finish_reason == "stop"
        else:
            content = response.choices[0].message.content
            assert response.choices[0].finish_reason == "stop"
            assert response.usage.completion_tokens < num_tokens
        assert content == text[: text.index(stop)]

    def test_seeds_and_choices(self, client):
        sampling = {"temperature": 1.2, "top_p": 0.95, "n": 3}
        first, again, other = (chat(client, seed=seed, **sampling) for seed in (5, 5, 6))
        texts = [[choice.message.content for choice in response.choices] for response in (first, again, other)]
        assert texts[0] == texts[1] != texts[2]
        assert len(set(texts[0])) == 3
        assert [choice.index for choice in first.choices] == [0, 1, 2]
        chunks = list(chat(client, seed=5, stream=True, **sampling))
        streamed = ["", "", ""]
        for chunk in chunks:
            streamed[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
        assert streamed == texts[0]

    def test_greedy_by_temperature_zero(self, client):
        assert chat(client, temperature=0, top_p=0.5).choices[0].message == chat(client).choices[0].message

    @pytest.mark.parametrize("stream", [False, True])
    def test_logprobs(self, client, stream):
        response = chat(client, logprobs=True, top_logprobs=2, stream=stream)
        if stream:
            chunks = [chunk.choices[0] for chunk in response]
            entries = [entry for choice in chunks if choice.logprobs for entry in choice.logprobs.content]
        else:
            entries = response.choices[0].logprobs.content
        whole = chat(client)
        assert len(entries) == whole.usage.completion_tokens
        text = b"".join(bytes(entry.bytes) for entry in entries).decode(errors="replace")
        assert text == whole.choices[0].message.content
        for entry in entries:
            assert len(entry.top_logprobs) == 2
            assert entry.logprob == entry.top_logprobs[0].logprob <= 0, "greedy"

    def test_a_conversation_goes_on_with_the_answer_as_it_came(self, client):
        answer = chat(client).choices[0].message
        messages = [*MESSAGES, answer, {"role": "user", "content": "Go on."}]
        unset = dict.fromkeys(("tools", "tool_choice", "metadata", "service_tier", "functions"))
        response = client.chat.completions.create(model=MODEL_NAME, messages=messages, max_tokens=8, extra_body=unset)
        assert response.usage.prompt_tokens > chat(client).usage.total_tokens

    def test_a_temperature_near_zero_is_greedy(self, client):
        assert chat(client, temperature=1e-40).choices[0].message == chat(client, temperature=0).choices[0].message

    def test_a_request_may_turn_the_threshold(self, client):
        lossy = chat(client, mars_threshold=0.0, mars_verify=False)
        plain = chat(client, mars_threshold=1.0)
        assert plain.usage.forward_passes == plain.usage.completion_tokens
        assert lossy.usage.tokens_per_forward > 3
        wide = chat(client, mars_threshold=0.0, mars_verify=False, mars_block_size=8)
        assert wide.usage.tokens_per_forward > 6
        verified = chat(client, mars_threshold=0.0, mars_verify=True, mars_metric="margin")
        assert verified.choices[0].message == plain.choices[0].message


class TestCompletions:
    def test_text_and_tokens(self, client):
        response = client.completions.create(model=MODEL_NAME, prompt="Count from 3. 4", max_tokens=20)
        ids = byte_level_tokenizer()("Count from 3. 4")["input_ids"]
        same = client.completions.create(model=MODEL_NAME, prompt=ids, max_tokens=20)
        assert response.object == "text_completion"
        assert response.choices[0].text == same.choices[0].text != ""
        assert response.usage.prompt_tokens == len(ids)

    def test_several_prompts(self, client):
        prompts = ["Count from 3.", "Count from 11. 12"]
        both = client.completions.create(model=MODEL_NAME, prompt=prompts, max_tokens=20)
        for index, prompt in enumerate(prompts):
            alone = client.completions.create(model=MODEL_NAME, prompt=prompt, max_tokens=20)
            assert both.choices[index].text == alone.choices[0].text
            assert both.choices[index].index == index

    def test_streams(self, client):
        arguments = {"model": MODEL_NAME, "prompt": "Count from 3.", "max_tokens": 30}
        whole = client.completions.create(**arguments)
        chunks = list(client.completions.create(**arguments, stream=True))
        assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text
        assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason

    def test_logprobs(self, client):
        response = client.completions.create(model=MODEL_NAME, prompt="Count", max_tokens=8, logprobs=2)
        logprobs = response.choices[0].logprobs
        assert "".join(logprobs.tokens) == response.choices[0].text
        assert logprobs.text_offset[1] == len(logprobs.tokens[0])
        assert all(len(alternatives) <= 2 for alternatives in logprobs.top_logprobs)


def test_models_and_health(server, client):
    assert [model.id for model in client.models.list()] == [MODEL_NAME]
    assert json.loads(server.get("/health")) == {"status": "ok"}


class TestManyClients:
    def test_32_streams_equal_their_solo_runs(self, server, text_model):
        contents = [f"Count from {number}." + " again" * (number % 7) for number in range(32)]

        async def stream(client, content):
            chunks = await client.chat.completions.create(
                model=MODEL_NAME,
                messages=[{"role": "user", "content": content}],
                max_tokens=40,
                stream=True,
                stream_options={"include_usage": True},
            )
            text, usage = "", None
            async for chunk in chunks:
                text += (chunk.choices[0].delta.content or "") if chunk.choices else ""
                usage = chunk.usage or usage
            return text, usage

        async def together():
            async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
                return await asyncio.gather(*(stream(client, content) for content in contents))

        forwards = server.metric("mars_forward_passes_total")
        answers = asyncio.run(together())
        forwards = server.metric("mars_forward_passes_total") - forwards
        for content, (text, usage) in zip(contents, answers, strict=True):
            assert (text, usage.completion_tokens) == plain_answer(text_model, content)
        assert len({text for text, _ in answers}) > 28, "they are not all the same"
        num_tokens = sum(usage.completion_tokens for _, usage in answers)
        assert sum(usage.forward_passes for _, usage in answers) < 0.8 * num_tokens
        assert forwards < num_tokens / 8, "several rows and several tokens a forward"

    def test_clients_that_go_away_free_their_rows(self, server, client):
        before = server.metric("mars_cancelled_total")
        long = {"max_tokens": 400, "temperature": 1.5, "mars_threshold": 1.0, "stream": True}
        streams = [chat(client, **long) for _ in range(3)]
        for stream in streams:
            next(iter(stream))
        assert server.metric("mars_requests_running") == 3
        for stream in streams:
            stream.close()
        server.wait_for("mars_requests_running", 0, seconds=2)
        assert server.metric("mars_cancelled_total") == before + 3

    def test_so_does_one_that_waits_for_a_whole_answer(self, server):
        before = server.metric("mars_cancelled_total")
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        body = {**BODY, "max_tokens": 400, "temperature": 1.5, "mars_threshold": 1.0}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        server.wait_for("mars_requests_running", 1)
        connection.close()
        server.wait_for("mars_requests_running", 0, seconds=2)
        assert server.metric("mars_cancelled_total") == before + 1


class TestBadRequests:
    @pytest.mark.parametrize(
        "field, value",
        [
            ("temperature", "hot"),
            ("temperature", -1),
            ("top_p", 0),
            ("n", 0),
            ("n", 100),
            ("n", 1.5),
            ("max_tokens", 0),
            ("max_tokens", 100_000),
            ("max_tokens", True),
            ("stop", 7),
            ("stop", [""]),
            ("seed", "seven"),
            ("stream", "yes"),
            ("stream_options", {"include_usage": True}),
            ("logprobs", 3),
            ("top_logprobs", 3),
            ("frequency_penalty", 0.5),
            ("logit_bias", {"5": 1}),
            ("tools", []),
            ("model", "other"),
            ("model", None),
            ("messages", []),
            ("messages", "Count"),
            ("messages", [{"role": "user"}]),
            ("messages", [{"role": "robot", "content": "a"}]),
            ("messages", [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "a"}}]}]),
            ("messages", [{"role": "user", "content": "word " * 2000}]),
            ("messages", [{"role": "user", "content": "a\ud800b"}]),
            ("mars_threshold", 1.5),
            ("mars_threshold", "high"),
            ("mars_threshold", float("nan")),
            ("mars_treshold", 0.5),
            ("mars_verify", 1),
            ("mars_metric", "perplexity"),
            ("mars_block_size", 0),
            ("mars_block_size", 10_000),
        ],
    )
    def test_the_error_names_the_field(self, server, field, value):
        status, body, _ = server.post("/v1/chat/completions", {**BODY, field: value})
        assert status == (404 if body["error"]["code"] == "model_not_found" else 400)
        error = body["error"]
        assert error["param"].split(".")[0] == field
        assert field in error["message"]
        assert error["type"] == "invalid_request_error"

    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"{",
            b"[]",
            b"null",
            b'"text"',
            b"\xff\xfe",
            b"[" * 100_000,
            b'{"model": "tiny"}',
            b"{}",
            b'{"\\ud800": 1}',
        ],
    )
    def test_malformed_bodies(self, server, body):
        status, answer, _ = server.post("/v1/chat/completions", body)
        assert status == 400 and answer["error"]["message"]

    @pytest.mark.parametrize(
        "field, value",
        [("prompt", ""), ("prompt", []), ("prompt", [5, -1]), ("prompt", [10**6]), ("prompt", ["a"] * 9)],
    )
    def test_bad_prompts(self, server, field, value):
        status, body, _ = server.post("/v1/completions", {"model": MODEL_NAME, field: value})
        assert status == 400 and body["error"]["param"].split(".")[0] == field

    def test_too_large_a_body(self, server):
        status, body, _ = server.post("/v1/completions", {"model": MODEL_NAME, "prompt": "a" * 1_100_000})
        assert status == 413 and "bytes" in body["error"]["message"]

    def test_garbage_on_the_wire_does_not_stop_the_server(self, server):
        for data in (b"\x00\x01\x02\r\n\r\n", b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 50\r\n\r\n{"):
            with socket.create_connection(("127.0.0.1", server.port)) as connection:
                connection.sendall(data)
        assert json.loads(server.get("/health")) == {"status": "ok"}

    def test_the_client_sees_its_own_errors(self, client):
        with pytest.raises(openai.BadRequestError, match="temperature"):
            chat(client, temperature=9.0)
        with pytest.raises(openai.NotFoundError):
            client.chat.completions.create(model="other", messages=MESSAGES)


class TestOperations:
    def test_the_threshold_can_be_set_at_run_time(self, server, client):
        server.wait_for("mars_threshold", 0.5)
        status, body, _ = server.post("/admin/threshold", {"threshold": 1.0})
        assert status == 200 and body["threshold"] == 1.0
        try:
            usage = chat(client).usage
            assert usage.forward_passes == usage.completion_tokens
            assert server.metric("mars_threshold") == 1.0
        finally:
            assert server.post("/admin/threshold", {"threshold": None})[0] == 200
        assert chat(client).usage.tokens_per_forward > 1.2
        assert server.post("/admin/threshold", {"threshold": 2})[0] == 400

    def test_metrics_count(self, server, client):
        tokens = server.metric("mars_generated_tokens_total")
        usage = chat(client).usage
        assert server.metric("mars_generated_tokens_total") == tokens + usage.completion_tokens
        assert server.metric("mars_time_to_first_token_seconds_count") > 0


def test_a_token_guards_the_threshold(checkpoint):
    with serve(checkpoint, "--admin-token", "secret", "--host", "0.0.0.0") as server:
        assert server.post("/admin/threshold", {"threshold": 0.7})[0] == 401
        assert server.post("/admin/threshold", {"threshold": 0.7}, Authorization="Bearer wrong")[0] == 401
        assert server.post("/admin/threshold", {"threshold": 0.7}, Authorization="Bearer secret")[0] == 200


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


def test_sigterm_lets_running_answers_finish_and_a_restart_serves_again(checkpoint, text_model):
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
    with serve(checkpoint) as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
        assert chat(client).choices[0].message.content == plain_answer(text_model, "Count from 3.")[0]


def test_what_is_not_done_when_the_drain_ends_is_answered_too(checkpoint):
    with serve(checkpoint, "--drain-timeout", "0.5", "--max-rows", "2") as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
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
        ("--drain-timeout", "nan", "drain-timeout"),
        ("--drain-timeout", "-1", "drain-timeout"),
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
