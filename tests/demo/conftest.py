"""A small checkpoint that has learned to count, and the page that shows it."""

import os
import time

import pytest
import torch
from filelock import FileLock

from hf_mars import MARSTrainer, save_pretrained
from tests.tiny_text import byte_level_tokenizer, counting_examples, text_model
from tests.training.runs import small_config


@pytest.fixture(scope="session")
def counting_checkpoint(tmp_path_factory):
    """Path of a checkpoint, trained until it accepts several tokens a forward: once, for all processes that test."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    with FileLock(shared / "demo.lock"):
        if not (shared / "demo").exists():
            train_to_count(tmp_path_factory.mktemp("demo")).rename(shared / "demo")
    return shared / "demo"


def train_to_count(folder):
    torch.manual_seed(0)
    tokenizer = byte_level_tokenizer()
    trainer = MARSTrainer(
        text_model(tokenizer),
        small_config(folder, per_device_train_batch_size=8, learning_rate=5e-3, max_steps=600, logging_steps=200),
        train_dataset=counting_examples(120),
        processing_class=tokenizer,
    )
    trainer.train()
    save_pretrained(trainer.model, folder / "checkpoint", tokenizer)
    return folder / "checkpoint"


class Slow:
    """Makes every forward take a while, so that an answer can be watched, and counts them."""

    def __init__(self, model):
        self.seconds, self.num_forwards = 0.0, 0
        model.register_forward_pre_hook(self.wait)

    def wait(self, *args):
        self.num_forwards += 1
        time.sleep(self.seconds)


@pytest.fixture(scope="session")
def served(counting_checkpoint):
    """Address of the running page, its model and tokenizer, and the brake on the model."""
    pytest.importorskip("gradio")
    from hf_mars.demo import build_app, load_model

    model, tokenizer, source = load_model(str(counting_checkpoint))
    app = build_app(model, tokenizer, source)
    _, url, _ = app.launch(prevent_thread_lock=True, quiet=True, server_name="127.0.0.1")
    yield url, model, tokenizer, Slow(model)
    app.close()
