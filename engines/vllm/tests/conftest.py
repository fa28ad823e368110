"""Checkpoints and engines that the tests share."""

import gc
import json
import os
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest


# Before vLLM is imported: the engine in this process, on one thread, and no hub.
os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "HF_HUB_OFFLINE": "1"}
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
sys.path.insert(0, str(Path(__file__).parent))

from engine import MARS, load  # noqa: E402
from tiny import save_tiny_checkpoint  # noqa: E402


QUICKSTART = Path(__file__).parents[3] / "runs" / "quickstart" / "checkpoint"
PROBLEM = "{} has {} boxes with {} {} in each. {} gives {} {} to {}. How many {} does {} have left?"


@dataclass
class Checkpoint:
    """
    A checkpoint, and prompts for it.

    Args:
        path (`Path`): Where it is.
        prompts (`list[list[int]]`): Token ids of prompts that differ in length.
        words (`list[str]`): Texts that its answers contain.
        accepts (`float`): Tokens a forward that its masks bring at least.
    """

    path: Path
    prompts: list[list[int]]
    words: list[str]
    accepts: float


@pytest.fixture(scope="session")
def tiny(tmp_path_factory) -> Checkpoint:
    draw = random.Random(7)
    prompts = [[draw.randrange(2, 258) for _ in range(draw.randrange(3, 40))] for _ in range(24)]
    return Checkpoint(save_tiny_checkpoint(tmp_path_factory.mktemp("tiny")), prompts, ["a", "b"], accepts=1.3)


@pytest.fixture(scope="session")
def quickstart() -> Checkpoint:
    if not (QUICKSTART / "config.json").is_file():
        pytest.skip("runs/quickstart/checkpoint is not there: `make quickstart` makes it")
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(QUICKSTART)
    draw, prompts = random.Random(7), []
    for _ in range(8):
        (name, friend), items = draw.sample(["Ana", "Ben", "Chloe", "Kim"], 2), draw.choice(["eggs", "cards"])
        count, each = draw.randint(2, 9), draw.randint(2, 9)
        given = draw.randint(1, count * each - 1)
        text = PROBLEM.format(name, count, each, items, name, given, items, friend, items, name)
        messages = [{"role": "user", "content": text}]
        prompts.append(tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False))
    assert "mars" in json.loads((QUICKSTART / "config.json").read_text())
    return Checkpoint(QUICKSTART, prompts, ["Then", " ="], accepts=2.0)


@pytest.fixture(scope="module", params=["tiny", "quickstart"])
def checkpoint(request) -> Checkpoint:
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def plain(checkpoint) -> Iterator:
    """Plain vLLM."""
    yield from held(load(checkpoint.path))


@pytest.fixture(scope="module")
def mars(checkpoint) -> Iterator:
    """vLLM with masks."""
    yield from held(load(checkpoint.path, MARS))


def held(llm) -> Iterator:
    yield llm
    del llm
    gc.collect()
