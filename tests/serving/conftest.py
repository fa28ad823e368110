"""A small model with text, whose runs of several tokens really occur, and a server of it in a process of its own."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest

from hf_mars import save_pretrained
from hf_mars.serving import Scheduler, ThresholdPolicy
from tests.tiny_text import sharp_text_model


MODEL_NAME = "tiny"


@pytest.fixture(scope="session")
def text_model():
    return sharp_text_model()


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory, text_model):
    model, tokenizer = text_model
    directory = tmp_path_factory.mktemp("serving") / "checkpoint"
    save_pretrained(model, directory, tokenizer)
    return directory


@pytest.fixture
def make_scheduler(text_model):
    """Makes schedulers of the model, which are closed at the end."""
    made = []

    def make(**arguments):
        made.append(
            Scheduler(
                text_model[0],
                **{"policy": ThresholdPolicy("fixed", 0.0, 0.5, verify=True), "max_queue": 100, **arguments},
            )
        )
        return made[-1]

    yield make
    for scheduler in made:
        scheduler.close(timeout=0)


class Server:
    """A running `hf-mars serve`."""

    def __init__(self, process, port):
        self.process, self.port = process, port
        self.url = f"http://127.0.0.1:{port}"

    def get(self, path, **headers):
        with urllib.request.urlopen(urllib.request.Request(self.url + path, headers=headers), timeout=30) as response:
            return response.read().decode()

    def post(self, path, body, **headers):
        """Status, parsed body and headers, whatever the status."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **headers}
        request = urllib.request.Request(self.url + path, data, headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return response.status, json.load(response), response.headers
        except urllib.error.HTTPError as error:
            return error.code, json.load(error), error.headers

    def metric(self, name):
        lines = [line for line in self.get("/metrics").splitlines() if line.startswith(f"{name} ")]
        return float(lines[0].split()[1])

    def wait_for(self, name, value, seconds=20):
        end = time.monotonic() + seconds
        while self.metric(name) != value:
            assert time.monotonic() < end, f"{name} is {self.metric(name)}, not {value}"
            time.sleep(0.05)

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)


@contextmanager
def serve(checkpoint, *options, dtype="float64"):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-c", "from hf_mars.cli import main; main()", "serve", str(checkpoint)]
    command += ["--model-name", MODEL_NAME, "--port", str(port), "--dtype", dtype, "--device", "cpu", *options]
    # The requests are small: threads of their own for each operation would only get in each other's way.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    server = Server(process, port)
    try:
        for _ in range(240):
            try:
                server.get("/health")
                break
            except OSError:
                assert process.poll() is None, "the server did not start"
                time.sleep(0.25)
        yield server
    finally:
        process.kill()
        process.wait()
