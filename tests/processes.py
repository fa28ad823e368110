"""Other processes that have imported the package already: a server imports it once, and each of them is its fork."""

import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist


__all__ = ["PROCESSES", "run_processes"]

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["hf_mars", "tests.tiny_text"])
TIMEOUT = timedelta(minutes=2)


def run_processes(directory: Path, function: Callable, *args, num_processes: int = 2) -> list[Any]:
    """
    What a function returns in each of several processes, which can reach each other through `torch.distributed`.

    Args:
        directory (`Path`): An empty place where they meet.
        function (`Callable`): Called with the rank of its process and `args`; of a module, so that it can be found.
    """
    with ProcessPoolExecutor(num_processes, mp_context=PROCESSES) as pool:
        places = (directory / "rendezvous", num_processes)
        futures = [pool.submit(call_in_group, *places, rank, function, *args) for rank in range(num_processes)]
        return [future.result() for future in futures]


def call_in_group(rendezvous: Path, num_processes: int, rank: int, function: Callable, *args) -> Any:
    torch.set_num_threads(1)
    # As a launcher sets them.
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(num_processes)}
    os.environ |= {"LOCAL_WORLD_SIZE": str(num_processes), "ACCELERATE_USE_CPU": "true"}
    # One that fails does not keep the others waiting for longer than this.
    group = {"init_method": f"file://{rendezvous}", "rank": rank, "world_size": num_processes, "timeout": TIMEOUT}
    dist.init_process_group("gloo", **group)
    try:
        return function(rank, *args)
    finally:
        dist.destroy_process_group()
