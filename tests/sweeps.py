"""Sweeps that were never measured, for the tests of what is made of them."""

from hf_mars import Evaluation
from hf_mars.evaluation import MethodResult


def result(mode="AR", threshold=None, **overrides):
    values = {
        "mode": mode,
        "threshold": threshold,
        "batch_size": 4,
        "task": "GSM8K",
        "num_examples": 8,
        "accuracy": 0.5,
        "tokens_per_forward": 1.0 if threshold is None else 2.25,
        "tokens_per_second": 30.0,
        "speedup": 1.0 if threshold is None else 1.75,
        "identical": 1.0,
        "texts": [],
    }
    return MethodResult(**{**values, **overrides})


def evaluation(**overrides):
    values = {
        "results": [result(), result("verify", 0.5), result("lossy", 0.9, accuracy=0.375, identical=0.625)],
        "environment": {"device": "a CPU", "torch": "2.13"},
        "command": "hf-mars bench /home/someone/secret/checkpoint --limit 8",
        "datasets": {"GSM8K": "openai/gsm8k"},
    }
    return Evaluation(**{**values, **overrides})
