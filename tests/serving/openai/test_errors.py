import json
import socket

import openai
import pytest

from tests.serving.conftest import MODEL_NAME
from tests.serving.requests import BODY, MESSAGES, chat


pytestmark = pytest.mark.integration


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
            ("tools", [{"type": "function", "function": {"name": "f"}}]),
            ("tool_choice", "required"),
            ("store", True),
            ("modalities", ["text", "audio"]),
            ("reasoning_effort", "high"),
            ("service_tier", "flex"),
            ("response_format", {"type": "json_object"}),
            ("top_k", 5),
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
        [
            ("prompt", ""),
            ("prompt", []),
            ("prompt", [5, -1]),
            ("prompt", [10**6]),
            ("prompt", ["a"] * 9),
            ("prompt", [[]]),
            ("prompt", [[5], []]),
            ("prompt", [[5], [10**6]]),
            ("prompt", [[5], "a"]),
            ("prompt", [[5]] * 9),
            ("prompt", ["a\ud800"]),
        ],
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
