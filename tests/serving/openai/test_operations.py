import json

import pytest
from starlette.requests import Request

from hf_mars.serving.openai.errors import APIError
from hf_mars.serving.openai.operations import check_admin
from tests.serving.conftest import MODEL_NAME, serve
from tests.serving.requests import chat


pytestmark = pytest.mark.integration


def test_models_and_health(server, client):
    assert [model.id for model in client.models.list()] == [MODEL_NAME]
    assert json.loads(server.get("/health")) == {"status": "ok"}


class TestOperations:
    def test_the_threshold_can_be_set_at_run_time(self, server, client):
        server.wait_for("mars_lossy_threshold", 0.95)
        status, body, _ = server.post("/admin/threshold", {"threshold": 1.0})
        assert status == 200 and body["threshold"] == 1.0
        try:
            usage = chat(client).usage
            assert usage.forward_passes == usage.completion_tokens
            assert server.metric("mars_threshold") == 1.0
            assert server.post("/admin/threshold", {"threshold": 0.5})[0] == 200
            assert chat(client).usage.tokens_per_forward > 1.2
        finally:
            status, body, _ = server.post("/admin/threshold", {"threshold": None})
        assert status == 200 and body["threshold"] is None, "steps are planned again"
        chat(client)
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


def test_an_empty_admin_token_is_none():

    def request(host):
        return Request({"type": "http", "headers": [], "client": (host, 1)})

    check_admin(request("127.0.0.1"), "")
    with pytest.raises(APIError, match="admin-token"):
        check_admin(request("203.0.113.9"), "")
