import gc
import os
import sys
import tempfile

import pytest


# Tests never reach for a hub, and leave no copies of checkpoint code behind.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Test processes share the cores, and a tiny model is no faster on several.
os.environ.setdefault("OMP_NUM_THREADS", "1")
MODULES_CACHE = tempfile.TemporaryDirectory()
os.environ["HF_MODULES_CACHE"] = MODULES_CACHE.name


@pytest.fixture
def cheap_columns(monkeypatch):
    """Planned steps go by these costs, and not by what this machine takes at the moment."""
    import numpy as np

    from hf_mars.decoding.step_costs import MAX_COLUMNS, StepCosts

    monkeypatch.setattr(StepCosts, "estimate", lambda self, rows: 1 + np.arange(MAX_COLUMNS) / 1000)
    monkeypatch.setattr(StepCosts, "is_known", lambda self, rows: True)


STARTS = {"os.fork", "os.posix_spawn", "socket.bind", "subprocess.Popen"}
running = None  # the test that runs now, where it must start nothing


def refuse_to_start(event, args):
    if event in STARTS and running is not None:
        pytest.fail(f"{running} starts a process or a server ({event}): mark it `integration`.")


sys.addaudithook(refuse_to_start)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """What `make test-fast` runs starts nothing."""
    global running
    running = None if item.get_closest_marker("integration") or item.get_closest_marker("slow") else item.nodeid
    try:
        return (yield)
    finally:
        running = None


def pytest_collection_finish(session):
    # A trainer collects garbage whenever it starts: what was imported is not garbage, and need not be looked at again.
    gc.freeze()
