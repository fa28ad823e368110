"""One JSON line for each request, without its text."""

import json
import logging
import time

from .completing import Completing


__all__ = ["log_request", "open_request_log"]

request_logger = logging.getLogger("hf_mars.serving.requests")


def open_request_log(path: str) -> None:
    """
    Write the lines to a file.

    Args:
        path (`str`): The file, to which they are added.

    Raises:
        `OSError`: If it cannot be written.
    """
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(message)s"))
    request_logger.addHandler(handler)
    request_logger.setLevel(logging.INFO)
    request_logger.propagate = False


def log_request(completing: Completing) -> None:
    """Tell of a request that has ended."""
    now = time.monotonic()
    thresholds = [threshold for answer in completing.answers for threshold in answer.thresholds]
    first = completing.first_token
    entry = {
        "id": completing.format.id,
        "complete": completing.is_complete,
        **completing.usage().to_dict(),
        "first_token_s": None if first is None else round(first - completing.arrival, 4),
        "total_s": round(now - completing.arrival, 4),
        "threshold_first": thresholds[0] if thresholds else None,
        "threshold_last": thresholds[-1] if thresholds else None,
        "threshold_min": min(thresholds, default=None),
        "threshold_max": max(thresholds, default=None),
    }
    request_logger.info(json.dumps(entry))
