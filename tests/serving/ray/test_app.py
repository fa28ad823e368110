import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from transformers import AutoTokenizer

from hf_mars import AutoMARSModelForCausalLM, save_pretrained
from tests.tiny_text import sharp_text_model


ray = pytest.importorskip("ray")
openai = pytest.importorskip("openai")

from ray import serve  # noqa: E402

from hf_mars.serving.ray import RayServingConfig  # noqa: E402
from hf_mars.serving.ray.app import build_ray_app  # noqa: E402


NUM_TOKENS = 800


@pytest.fixture(scope="module")
def endless(tmp_path_factory):
    """A checkpoint whose answers never end by themselves."""
    model, tokenizer = sharp_text_model(torch.float32)
    model.config.max_position_embeddings = 4096
    with torch.no_grad():
        model.get_output_embeddings().weight[tokenizer.eos_token_id] = 0
    directory = tmp_path_factory.mktemp("endless")
    save_pretrained(model, directory, tokenizer)
    return str(directory)


@pytest.fixture(scope="module")
def url():
    """A cluster on this machine, without an application."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ray.init(num_cpus=4, include_dashboard=False, object_store_memory=200 * 2**20, log_to_driver=False)
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    yield f"http://127.0.0.1:{port}/v1"
    serve.shutdown()
    ray.shutdown()


@pytest.fixture
def run(url, endless):
    """Runs an application, and returns a client of it and a function that asks its replicas how they are."""

    def run(**settings):
        serve.run(build_ray_app(RayServingConfig(checkpoint=endless, model_name="tiny", **settings)))
        handle = serve.get_deployment_handle("MARSReplica", "default")
        client = openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=120)
        return client, lambda: handle.broadcast("status").results(timeout_s=60)

    yield run
    serve.delete("default")


def test_the_command_line_gives_a_dictionary():
    assert isinstance(build_ray_app({"checkpoint": "x", "max_replicas": "2", "num_cpus": "0.5"}), serve.Application)
    with pytest.raises(ValueError, match="max_rows"):
        build_ray_app({"checkpoint": "x", "max_rows": "0"})


def wait_until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "It did not happen in time."
        time.sleep(0.02)


@pytest.mark.slow
def test_killed_replica_loses_no_request(run, endless):
    max_rows = 6
    client, status = run(min_replicas=2, max_replicas=2, max_rows=max_rows, max_queued_requests=4, max_n=1)
    prompts = [f"Count from {number}." for number in range(2 * max_rows)]
    request = {"model": "tiny", "max_tokens": NUM_TOKENS, "temperature": 0}
    streamed, num_chunks = [""] * len(prompts), [0] * len(prompts)

    def complete(index):
        answer = client.completions.create(**request, prompt=prompts[index])
        assert answer.usage.completion_tokens == NUM_TOKENS
        return answer.choices[0].text

    def stream(index):
        for chunk in client.completions.create(**request, prompt=prompts[index], stream=True):
            streamed[index] += chunk.choices[0].text
            num_chunks[index] += 1
        assert chunk.choices[0].finish_reason == "length"
        return streamed[index]

    victim = status()[0]["replica"]
    with ThreadPoolExecutor(len(prompts)) as pool:
        answers = [pool.submit(complete, index) for index in range(4)]
        for index in range(4, len(prompts)):
            answers.append(pool.submit(stream, index))
            wait_until(lambda: num_chunks[index] > 5)  # noqa: B023
        # Eight requests stream, and one replica has six rows: both of them serve some.
        ray.kill(ray.get_actor(f"SERVE_REPLICA::default#MARSReplica#{victim}", namespace="serve"))
        assert not any(answer.done() for answer in answers)
        texts = [answer.result() for answer in answers]

    model, tokenizer = AutoMARSModelForCausalLM.from_pretrained(endless), AutoTokenizer.from_pretrained(endless)
    for prompt, text in zip(prompts, texts, strict=True):
        inputs = tokenizer(prompt, return_tensors="pt")
        alone = model.generate(**inputs, max_new_tokens=NUM_TOKENS, do_sample=False)[0, inputs["input_ids"].shape[1] :]
        assert len(set(alone.tolist())) > 5
        assert text == tokenizer.decode(alone, skip_special_tokens=True)

    wait_until(lambda: len(status()) == 2)
    after = status()
    assert victim not in [each["replica"] for each in after]
    assert sum(each["finished"] for each in after) == len(prompts)


@pytest.mark.slow
def test_full_queue_and_closed_stream(run):
    client, status = run(max_rows=1, max_queued_requests=2, max_n=2)
    request = {"model": "tiny", "prompt": "Count.", "max_tokens": 1024, "stream": True, "temperature": 0}

    def start():
        stream = client.completions.create(**request)
        next(iter(stream))
        return stream

    running = start()
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(start)
        time.sleep(1)
        with pytest.raises(openai.APITimeoutError):  # one that is given up while it waits
            client.with_options(timeout=0.5).completions.create(**request)
        with pytest.raises(openai.RateLimitError) as refused:  # all or none: there is room for one of them
            client.completions.create(**request, n=2)
        assert refused.value.code == "rate_limit_exceeded"
        assert int(refused.value.response.headers["retry-after"]) == 2
        assert not waiting.done()
        running.close()
        waiting.result(timeout=60).close()
    wait_until(lambda: status()[0]["cancelled"] == 2)
    (replica,) = status()
    assert replica["running"] == replica["queued"] == replica["finished"] == 0

    with pytest.raises(openai.BadRequestError) as bad:
        client.completions.create(**request | {"temperature": 3})
    assert bad.value.param == "temperature"
    with pytest.raises(openai.BadRequestError) as bad:
        client.completions.create(**request | {"max_tokens": 5000})
    assert bad.value.param == "max_tokens"
