"""Continuous batching: requests join the running batch and leave it, one forward pass at a time."""

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Literal

import torch
from transformers import PreTrainedModel

from ..decoding import MARSDecoder, StepOutput, decoding_mode
from .counts import Counts
from .generation_config import follow_generation_config
from .job import Job, Sink, count_slots, get_max_length, try_to_start
from .logprobs import read_logprobs
from .memory import KVBudget
from .policy import Load, ThresholdPolicy
from .prefix_cache import PrefixCache
from .request import Failure, GenerationRequest, QueueFull, RequestOutput, TokenLogprob


__all__ = ["Scheduler"]

logger = logging.getLogger(__name__)

SECONDS_AFTER_A_FAULT = 0.1  # one that lasts must not keep a core busy
PREFIX_SHARE = 0.2  # of the memory for keys and values


class Scheduler:
    """
    Decodes requests as they come, in a thread of its own. Each turn

    1. lets go of requests that nobody waits for,
    2. admits waiting requests, first come first served, while there are rows and memory,
    3. tells the policy the load,
    4. reads at most `prefill_chunk` tokens of new prompts, in a cache of their own, so that a long prompt does not
       stall the others, and lets those that are read join the batch,
    5. runs one step of the batch, the same one that `generate` runs, and hands out what each row gained.

    What a request generates does not depend on the requests around it.

    Args:
        model ([`PreTrainedModel`]): A MARS model, in evaluation mode.
        policy ([`ThresholdPolicy`], *optional*): Turns the threshold.
        budget ([`KVBudget`], *optional*): Memory for keys and values.
        max_rows (`int`, *optional*, defaults to 16): Requests that decode at once.
        max_queue (`int`, *optional*, defaults to 64): Requests that may wait.
        prefill_chunk (`int`, *optional*, defaults to 256): Tokens of prompts to read between two steps.
        enable_prefix_caching (`bool`, *optional*, defaults to `True`):
            Whether a fifth of the memory remembers prompts, so that what another one begins with is not read again.

    Raises:
        `ValueError`: If a number is not positive, or the checkpoint's generation configuration spoils every request.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        policy: ThresholdPolicy | None = None,
        budget: KVBudget | None = None,
        max_rows: int = 16,
        max_queue: int = 64,
        prefill_chunk: int = 256,
        enable_prefix_caching: bool = True,
    ):
        for name, value in (("max_rows", max_rows), ("max_queue", max_queue), ("prefill_chunk", prefill_chunk)):
            if value < 1:
                raise ValueError(f"`{name}` must be at least 1, got {value}.")
        self.model, self.policy = follow_generation_config(model), policy or ThresholdPolicy()
        self.budget = budget or KVBudget(model)
        self.max_rows, self.max_queue, self.prefill_chunk = max_rows, max_queue, prefill_chunk
        self.prefixes = PrefixCache(self.budget.set_aside(PREFIX_SHARE) if enable_prefix_caching else 0)
        self.max_length = get_max_length(model)
        self.counts = Counts()
        try_to_start(self.model, self.policy)
        self._condition = threading.Condition()
        self._waiting: deque[Job] = deque()
        self._joining: list[Job] = []
        self._running: dict[int, Job] = {}  # by row of the batch
        self._decoder: MARSDecoder | None = None  # of the batch
        self._is_closing = self._is_aborting = False
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)
        self._thread.start()

    def submit(self, requests: Sequence[GenerationRequest], sinks: Sequence[Sink]) -> list[Job]:
        """
        Take in requests, all or none of them.

        Args:
            requests (`Sequence[GenerationRequest]`): The requests.
            sinks (`Sequence[Callable]`): For each, what gets its outputs; called from another thread.

        Returns:
            `list[Job]`: For [`~Scheduler.cancel`].

        Raises:
            `ValueError`: If a request can never be served.
            [`QueueFull`]: If too many wait.
            `RuntimeError`: If the scheduler is closed.
        """
        capacity = self.max_rows + self.max_queue
        if len(requests) > capacity:
            raise ValueError(f"`n` asks for {len(requests)} answers at once, and at most {capacity} can run or wait.")
        jobs = [Job(request, sink, self._check(request)) for request, sink in zip(requests, sinks, strict=True)]
        with self._condition:
            if not self.is_alive:
                raise RuntimeError("The server is shutting down.")
            load = self.load()
            if load.running + load.queued + len(jobs) > capacity:
                raise QueueFull(retry_after=math.ceil((load.queued + len(jobs)) / self.max_rows))
            self._waiting.extend(jobs)
            self._condition.notify()
        return jobs

    def cancel(self, jobs: Sequence[Job]) -> None:
        """Free the rows of these jobs at the next step."""
        with self._condition:
            for job in jobs:
                job.cancel()
            self._condition.notify()

    def load(self) -> Load:
        """How busy it is."""
        active = [*self._joining, *list(self._running.values())]
        longest = max((job.num_slots for job in active), default=0)
        return Load(len(active), len(self._waiting), self.max_rows, self.budget.use(len(active), longest))

    @property
    def is_alive(self) -> bool:
        """Whether it takes requests."""
        return self._thread.is_alive() and not self._is_closing

    @property
    def _has_jobs(self) -> bool:
        return bool(self._waiting or self._joining or self._running)

    def close(self, timeout: float | None = None) -> None:
        """
        Take no more requests, and return when those that are there are done.

        Args:
            timeout (`float`, *optional*): Seconds after which they are given up, with a [`Failure`] of status 503.
        """
        with self._condition:
            self._is_closing = True
            self._condition.notify()
        self._thread.join(timeout)
        with self._condition:
            self._is_aborting = True
            self._condition.notify()
        self._thread.join()

    def _check(self, request: GenerationRequest) -> int:
        num_slots = count_slots(request, self.max_length, self.model.config.mars["block_size"])
        if not self.budget.fits(1, num_slots):
            raise ValueError(f"The request needs memory for {num_slots} tokens, more than the server has.")
        return num_slots

    def _run(self) -> None:
        with torch.no_grad(), decoding_mode(self.model):
            is_open = True
            while is_open:
                try:
                    is_open = self._turn()
                except Exception as error:  # of the scheduler itself: what is there ends, what comes is served
                    self._give_up(error, status=500)
                    time.sleep(SECONDS_AFTER_A_FAULT)

    def _turn(self) -> bool:
        """One turn, once there is something to do. Returns `False` when it is closed and all is done."""
        with self._condition:
            while not (self._has_jobs or self._is_closing):
                self.policy.update(self.load())
                self._condition.wait(self.policy.patience if self.policy.level > 0 else None)
        if self._is_aborting:
            self._give_up(RuntimeError("The server is shutting down."), status=503)
        if not self._has_jobs:
            return False
        self._drop_cancelled()
        self._admit()
        self.policy.update(self.load())
        self._read_prompts()
        self._step()
        return True

    def _give_up(self, error: Exception, status: int) -> None:
        with self._condition:
            jobs = [*self._waiting, *self._joining, *self._running.values()]
            self._waiting.clear()
            self._joining, self._running, self._decoder = [], {}, None
        for job in jobs:
            self._fail(job, error, status)

    def _drop_cancelled(self) -> None:
        with self._condition:
            kept = deque(job for job in self._waiting if not job.is_cancelled)
            self.counts.add(cancelled=len(self._waiting) - len(kept))
            self._waiting = kept
        gone = [job for job in self._joining if job.is_cancelled]
        self._joining = [job for job in self._joining if not job.is_cancelled]
        rows = [row for row, job in self._running.items() if job.is_cancelled]
        self.counts.add(cancelled=len(gone) + len(rows))
        if rows and self._decoder is not None:
            self._decoder.batch.remove(rows)
            for row in rows:
                del self._running[row]
            self._tidy()

    def _admit(self) -> None:
        with self._condition:
            while self._waiting:
                active = [*self._joining, *self._running.values(), self._waiting[0]]
                longest = max(job.num_slots for job in active)
                if len(active) > self.max_rows or not self.budget.fits(len(active), longest):
                    return
                self._joining.append(self._waiting.popleft())

    def _read_prompts(self) -> None:
        """Read a chunk of the first prompt, or several prompts whole that fit into a chunk together."""
        group = self._start_group()
        if not group:
            return
        decoder = group[0].decoder
        try:
            for job in group[1:]:
                decoder.batch.add(job.decoder.batch)
            if decoder.batch.num_unread > 0:
                decoder.prefill(self.prefill_chunk)
        except Exception as error:
            for job in group:
                if len(group) == 1:
                    self._joining.remove(job)
                    self._fail(job, error)
                job.start_over_alone()
            return
        if decoder.batch.num_unread == 0:
            for row, job in enumerate(group):
                self.prefixes.add(job.request.prompt_ids, decoder.batch.cache, row)
                self.counts.add(prompt_tokens=len(job.request.prompt_ids), cached_tokens=job.num_cached)
            self._joining = [job for job in self._joining if job not in group]
            self._join(group, decoder)

    def _start_group(self) -> list[Job]:
        """The first prompts that are read together, each with a decoder."""
        group: list[Job] = []
        for job in list(self._joining):
            try:
                if not job.is_started:
                    if self.prefixes.will_know(job.request.prompt_ids, [one.request.prompt_ids for one in group]):
                        break
                    job.start(self.model, self.policy, self.prefixes)
            except Exception as error:
                self._joining.remove(job)
                self._fail(job, error)
                continue
            width = max(member.decoder.batch.num_unread for member in [*group, job])
            if group and ((len(group) + 1) * width > self.prefill_chunk or job.reads_alone):
                break
            group.append(job)
            if job.reads_alone:
                break
        return group

    def _join(self, jobs: list[Job], decoder: MARSDecoder) -> None:
        """Let jobs, whose decoder has read their prompts, decode with the others."""
        try:
            if self._decoder is None:
                self._decoder, rows = decoder, decoder.batch.host.ids.tolist()
            else:
                rows = self._decoder.batch.add(decoder.batch)
            self._running |= dict(zip(rows, jobs, strict=True))
            for job in jobs:
                job.leave_decoder()
            self._tidy()
        except Exception as error:  # the batch may have half of them by now
            self._running = {row: job for row, job in self._running.items() if job not in jobs}
            for job in jobs:
                self._fail(job, error, status=500)
            self._isolate()

    def _step(self) -> None:
        if self._decoder is None:
            return
        try:
            output, logprobs = self._forward(self._decoder, self._running)
        except Exception:
            logger.exception("A step of the batch failed; its requests go on one by one.")
            self._isolate()
            return
        self.counts.add(forward_passes=1)
        self._hand_out(output, logprobs, self._decoder, self._running)
        self._tidy()

    def _forward(self, decoder: MARSDecoder, jobs: dict[int, Job]) -> tuple[StepOutput, dict[int, list[TokenLogprob]]]:
        wanted = {row: job.request.num_logprobs for row, job in jobs.items() if job.request.num_logprobs is not None}
        output = decoder.step(return_logits=bool(wanted))
        return output, read_logprobs(output, wanted, self.model.config.mars["mask_token_id"])

    def _hand_out(
        self,
        output: StepOutput,
        logprobs: dict[int, list[TokenLogprob]],
        decoder: MARSDecoder,
        jobs: dict[int, Job],
    ) -> None:
        """Give every job its tokens, and forget those that are done."""
        batch = decoder.batch
        alive = set() if batch.is_done else set(batch.host.ids.tolist())
        columns = (output.ids, output.acceptance_lengths, output.num_draft_tokens, output.num_accepted_tokens)
        state = torch.stack(columns, dim=1).tolist()
        for (row, length, drafted, accepted), tokens in zip(state, output.accepted_tokens.tolist(), strict=True):
            job, token_ids = jobs[row], tokens[:length]
            job.add(token_ids)
            self.counts.add(row_forward_passes=1, generated_tokens=length)
            self.counts.spec_decode.observe(drafted, accepted)
            finish_reason: Literal["stop", "length"] | None = None
            if row not in alive:
                del jobs[row]
                self.counts.add(finished=1)
                finish_reason = "stop" if token_ids[-1] in job.params.eos_token_ids else "length"
            threshold = job.read_threshold()
            job.deliver(RequestOutput(token_ids, threshold, finish_reason, logprobs.get(row), drafted, accepted))

    def _isolate(self) -> None:
        """After a step that failed: every request of the batch takes its next step alone, so that one alone fails."""
        jobs, self._running, self._decoder = list(self._running.values()), {}, None
        for job in jobs:
            try:
                job.start(self.model, self.policy)
                while job.decoder.batch.num_unread > 0:
                    job.decoder.prefill(self.prefill_chunk)
                alone = {0: job}
                output, logprobs = self._forward(job.decoder, alone)
            except Exception as error:
                self._fail(job, error)
                continue
            self._hand_out(output, logprobs, job.decoder, alone)
            if alone:
                self._join([job], job.decoder)

    def _fail(self, job: Job, error: Exception, status: int | None = None) -> None:
        status = status or (400 if isinstance(error, ValueError | TypeError) else 500)
        if status == 500:
            logger.error("A request failed.", exc_info=error)
        self.counts.add(failed=1)
        job.deliver(Failure(str(error) or type(error).__name__, status))

    def _tidy(self) -> None:
        """Give memory back: all of it when no row is left, else what the budget does not allow for."""
        if self._decoder is None or not self._running:
            self._decoder = None
            return
        cache = self._decoder.batch.cache
        rows, length = cache.storage_shape
        longest = max(length, *(self.budget.slots(job.num_slots) for job in self._running.values()))
        if rows * longest > self.budget.num_slots:
            cache.trim()
