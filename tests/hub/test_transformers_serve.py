"""The `mars_*` arguments travel through `transformers serve` in the request's generation configuration."""

import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

from tests.tiny_text import save_text_checkpoint


pytest.importorskip("uvicorn")


pytestmark = pytest.mark.integration
MESSAGES = [{"role": "user", "content": "Count from 3."}]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return save_text_checkpoint(tmp_path_factory.mktemp("serve") / "checkpoint")


@pytest.fixture(scope="module")
def server(checkpoint):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = ["--trust-remote-code", "--device", "cpu", "--dtype", "float32", "--port", str(port)]
    process = subprocess.Popen(
        [sys.executable, "-m", "transformers.cli.transformers", "serve", str(checkpoint), *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://localhost:{port}"
    for _ in range(120):
        try:
            urllib.request.urlopen(f"{url}/health", timeout=1)
            break
        except OSError:
            assert process.poll() is None, "the server did not start"
            time.sleep(0.5)
    yield url
    process.terminate()
    process.wait(timeout=30)


def complete(server, checkpoint, **generation_config):
    body = {
        "model": str(checkpoint),
        "messages": MESSAGES,
        "generation_config": json.dumps({"max_new_tokens": 12, **generation_config}),
    }
    request = urllib.request.Request(
        f"{server}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)["choices"][0]["message"]["content"]


def test_a_request_may_ask_for_several_tokens_a_forward(server, checkpoint):
    plain = complete(server, checkpoint)
    assert complete(server, checkpoint, mars_threshold=0.0, mars_verify=True) == plain
    assert complete(server, checkpoint, mars_threshold=0.0) != plain, "an untrained model accepts anything at 0"
    with pytest.raises(urllib.error.HTTPError):  # the arguments are not ignored
        complete(server, checkpoint, mars_threshold=7)
