"""A server process for all tests of this room, and the real `openai` client over loopback."""

import openai
import pytest

from tests.serving.conftest import serve


@pytest.fixture(scope="package")
def server(checkpoint):
    options = ("--max-rows", "8", "--max-queue", "64", "--max-output-tokens", "400")
    with serve(checkpoint, *options, "--per-request-spec-decode-metrics", "summary") as server:
        yield server


@pytest.fixture(scope="package")
def client(server):
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
