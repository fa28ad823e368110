import asyncio
import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from transformers import AutoTokenizer

from hf_mars import AutoMARSModelForCausalLM, save_pretrained
from tests.tiny import tiny_config, tiny_model
from tests.tiny_text import byte_level_tokenizer


ray = pytest.importorskip("ray")
openai = pytest.importorskip("openai")

from ray import serve  # noqa: E402
from ray.exceptions import ActorDiedError, ActorUnavailableError  # noqa: E402
from ray.serve.exceptions import BackPressureError  # noqa: E402

from hf_mars.serving.engine import GenerationError  # noqa: E402
from hf_mars.serving.ray_app import RaySettings, build_ray_app  # noqa: E402
from hf_mars.serving.ray_engine import RayEngine  # noqa: E402
from hf_mars.serving.request import Failure, GenerationRequest, QueueFull, Run  # noqa: E402


NUM_TOKENS = 400


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A model whose text varies, so that a token too many or too few shows, and never ends by itself."""
    tokenizer = byte_level_tokenizer()
    config = tiny_config(
        vocab_size=len(tokenizer),
        num_hidden_layers=4,
        max_position_embeddings=4096,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    mask_token_id = tokenizer.convert_tokens_to_ids("<|unused|>")
    model = tiny_model(config, sharpness=8, similarity=0.3, dtype=torch.float32, mask_token_id=mask_token_id)
    with torch.no_grad():
        model.get_output_embeddings().weight[tokenizer.eos_token_id] = 0
    directory = tmp_path_factory.mktemp("checkpoint")
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
def run(url, checkpoint):
    """Runs an application, and returns a client of it and a function that asks its replicas how they are."""

    def run(**settings):
        serve.run(build_ray_app(RaySettings(checkpoint=checkpoint, model_name="tiny", **settings)))
        handle = serve.get_deployment_handle("MARSReplica", "default")
        client = openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=120)
        return client, lambda: handle.broadcast("status").results(timeout_s=60)

    yield run
    serve.delete("default")


def wait_until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "It did not happen in time."
        time.sleep(0.02)


@pytest.mark.slow
def test_killed_replica_loses_no_request(run, checkpoint):
    client, status = run(min_replicas=2, max_replicas=2, max_rows=6, max_queued_requests=2)
    prompts = [f"Count from {number}." for number in range(12)]
    texts, num_chunks = [""] * len(prompts), [0] * len(prompts)

    def complete(index):
        request = {"model": "tiny", "prompt": prompts[index], "max_tokens": NUM_TOKENS, "temperature": 0}
        if index % 3 == 0:
            answer = client.completions.create(**request)
            texts[index] = answer.choices[0].text
            assert answer.usage.completion_tokens == NUM_TOKENS
            return answer.choices[0].finish_reason
        for chunk in client.completions.create(**request, stream=True):
            texts[index] += chunk.choices[0].text
            num_chunks[index] += 1
        return chunk.choices[0].finish_reason

    with ThreadPoolExecutor(len(prompts)) as pool:
        answers = []
        for index in range(len(prompts)):
            answers.append(pool.submit(complete, index))
            wait_until(lambda: sum(each["running"] for each in status()) == len(answers))  # noqa: B023
        wait_until(lambda: all(num_chunks[index] > 5 for index in range(len(prompts)) if index % 3))
        before = status()
        victim = before[0]
        ray.kill(ray.get_actor(f"SERVE_REPLICA::default#MARSReplica#{victim['replica']}", namespace="serve"))
        assert not any(answer.done() for answer in answers)
        assert [each["running"] for each in before] == [6, 6]
        assert [answer.result() for answer in answers] == ["length"] * len(prompts)

    model, tokenizer = AutoMARSModelForCausalLM.from_pretrained(checkpoint), AutoTokenizer.from_pretrained(checkpoint)
    for prompt, text in zip(prompts, texts, strict=True):
        inputs = tokenizer(prompt, return_tensors="pt")
        alone = model.generate(**inputs, max_new_tokens=NUM_TOKENS, do_sample=False)[0, inputs["input_ids"].shape[1] :]
        assert len(set(alone.tolist())) > 5
        assert text == tokenizer.decode(alone, skip_special_tokens=True)

    wait_until(lambda: len(status()) == 2)
    after = status()
    assert victim["replica"] not in [each["replica"] for each in after]
    assert sum(each["finished"] for each in after) == len(prompts)


@pytest.mark.slow
def test_full_queue_and_closed_stream(run):
    client, status = run(max_rows=1, max_queued_requests=1)
    request = {"model": "tiny", "prompt": "Count.", "max_tokens": 1024, "stream": True, "temperature": 0}
    running = client.completions.create(**request)
    next(iter(running))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: next(iter(client.completions.create(**request))))
        time.sleep(1)
        with pytest.raises(openai.RateLimitError) as refused:
            client.completions.create(**request)
        assert refused.value.status_code == 429
        assert int(refused.value.response.headers["retry-after"]) >= 1
        assert refused.value.code == "rate_limit_exceeded"
        assert not waiting.done()
        running.close()
        waiting.result(timeout=30)
    wait_until(lambda: status()[0]["cancelled"] == 2)
    (replica,) = status()
    assert replica["running"] == replica["finished"] == 0

    with pytest.raises(openai.BadRequestError) as bad:
        client.completions.create(**request | {"temperature": 3})
    assert bad.value.param == "temperature"
    with pytest.raises(openai.BadRequestError, match="mars_threshold"):
        client.completions.create(**request, extra_body={"mars_threshold": 7})
