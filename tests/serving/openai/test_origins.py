"""Pages that ask from a browser."""

import json

import pytest
from starlette.testclient import TestClient

from hf_mars.serving import ServingConfig
from hf_mars.serving.openai import build_app
from tests.serving.requests import BODY


pytestmark = pytest.mark.integration


PAGE = "https://page.example"
PREFLIGHT = {
    "Origin": PAGE,
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization,content-type",
}
ALLOWED = "Access-Control-Allow-Origin"


class BrokenEngine:
    """Fails in a way that nobody foresaw, as long as it is asked to generate."""

    is_alive = True

    async def submit(self, requests):
        raise KeyError("lost")

    def close(self):
        pass


def client_of(text_model, **options):
    config = ServingConfig("tiny", **options)
    return TestClient(build_app(BrokenEngine(), text_model[1], config, 512), raise_server_exceptions=False)


def test_a_preflight_is_answered(text_model):
    answer = client_of(text_model).options("/v1/chat/completions", headers=PREFLIGHT)
    assert answer.status_code == 200 and answer.headers[ALLOWED] == "*"
    assert "POST" in answer.headers["Access-Control-Allow-Methods"]
    assert answer.headers["Access-Control-Allow-Headers"] == "authorization,content-type"


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/v1/models", None, 200),
        ("GET", "/v1/models/other", None, 404),
        ("GET", "/nowhere", None, 404),
        ("POST", "/v1/chat/completions", {**BODY, "n": 0}, 400),
        ("POST", "/v1/chat/completions", {**BODY, "pad": "a" * 1_100_000}, 413),
        ("POST", "/v1/chat/completions", BODY, 500),
    ],
)
def test_answers_and_errors_may_be_read_by_a_page(text_model, method, path, body, status):
    answer = client_of(text_model).request(method, path, json=body, headers={"Origin": PAGE})
    assert answer.status_code == status and answer.headers[ALLOWED] == "*"
    assert status == 200 or answer.json()["error"]["message"]


@pytest.mark.parametrize("allowed", [f"{PAGE},https://other.example:8443", json.dumps([PAGE])])
def test_other_origins_are_left_out(text_model, allowed):
    client = client_of(text_model, allowed_origins=allowed)
    assert client.get("/v1/models", headers={"Origin": PAGE}).headers[ALLOWED] == PAGE
    assert client.options("/v1/models", headers=PREFLIGHT).status_code == 200
    assert ALLOWED not in client.get("/v1/models", headers={"Origin": "https://evil.example"}).headers
    refused = client.options("/v1/models", headers={**PREFLIGHT, "Origin": "https://evil.example"})
    assert refused.status_code == 400 and ALLOWED not in refused.headers


def test_the_threshold_is_not_for_pages(server):
    assert server.post("/admin/threshold", {"threshold": 0.7}, Origin=PAGE)[0] == 403
