import gc
import os
import tempfile


# Tests never reach for a hub, and leave no copies of checkpoint code behind.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Test processes share the cores, and a tiny model is no faster on several.
os.environ.setdefault("OMP_NUM_THREADS", "1")
MODULES_CACHE = tempfile.TemporaryDirectory()
os.environ["HF_MODULES_CACHE"] = MODULES_CACHE.name


def pytest_collection_finish(session):
    # A trainer collects garbage whenever it starts: what was imported is not garbage, and need not be looked at again.
    gc.freeze()
