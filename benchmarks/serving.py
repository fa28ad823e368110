"""
A server under load: requests arrive at random (Poisson), at rates that rise and fall again, and each way to serve them
sees the same arrivals of the same prompts, with the same continuous batching.

```bash
python benchmarks/serving.py runs/quickstart/checkpoint
```

`AR` is the scheduler with multi-token decoding switched off. A first part shows that this costs nothing: a batch that
arrives at once, against `generate` of transformers.
"""

import argparse
import json
import random
import statistics
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from record import describe_run
from tqdm.auto import tqdm

from hf_mars.cli.checkpoints import add_checkpoint_arguments, load_checkpoint
from hf_mars.evaluation.tasks import load_task
from hf_mars.serving import Failure, GenerationRequest, Run, Scheduler, ThresholdPolicy


AR = "AR"


def make_policies(options: argparse.Namespace) -> dict[str, ThresholdPolicy]:
    """Every way to serve."""
    low, high = options.threshold_min, options.threshold_max
    return {
        AR: ThresholdPolicy("fixed", threshold_max=1.0),
        f"verify {low}": ThresholdPolicy("fixed", threshold_min=0.0, threshold_max=low, verify=True),
        f"lossy {high}": ThresholdPolicy("fixed", threshold_max=high),
        f"adaptive {high} to {low}": ThresholdPolicy("adaptive", low, high),
    }


@dataclass
class Served:
    """One request: when it came, when its tokens came, in seconds since the start, and which."""

    arrival: float
    phase: int
    times: list[float] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)

    @property
    def first_token(self) -> float:
        return self.times[0] - self.arrival

    @property
    def per_token(self) -> float | None:
        num_later = len(self.token_ids) - self.counts[0]
        return (self.times[-1] - self.times[0]) / num_later if num_later else None


@dataclass
class Phase:
    """What one way to serve reached at one rate."""

    system: str
    rate: float
    num_requests: int
    tokens_per_second: float
    tokens_per_forward: float
    first_token_median: float
    first_token_95: float
    per_token_median: float
    per_token_95: float
    threshold: float
    identical: float


def draw_arrivals(rates: list[float], seconds: float, seed: int) -> list[tuple[float, int]]:
    """Times of arrival and their phases."""
    generator, arrivals = random.Random(seed), []
    for phase, rate in enumerate(rates):
        now = phase * seconds + generator.expovariate(rate)
        while now < (phase + 1) * seconds:
            arrivals.append((now, phase))
            now += generator.expovariate(rate)
    return arrivals


def serve(scheduler: Scheduler, arrivals, prompts, max_new_tokens: int, name: str) -> tuple[list[Served], list]:
    """Send every request at its time, and return what came back, and samples of threshold and load."""
    start = time.perf_counter()
    served = [Served(arrival, phase) for arrival, phase in arrivals]
    pending = threading.Semaphore(0)
    samples, is_done = [], threading.Event()

    def make_sink(record: Served):
        def sink(event: Run | Failure) -> None:
            if isinstance(event, Failure):
                raise RuntimeError(event.message)
            record.times.append(time.perf_counter() - start)
            record.counts.append(len(event.token_ids))
            record.token_ids += event.token_ids
            if event.finish_reason is not None:
                pending.release()

        return sink

    def sample() -> None:
        while not is_done.wait(0.1):
            load = scheduler.load()
            threshold = scheduler.policy.threshold()
            samples.append((time.perf_counter() - start, threshold, load.running, load.queued))

    watcher = threading.Thread(target=sample)
    watcher.start()
    for index, record in enumerate(served):
        time.sleep(max(0.0, start + record.arrival - time.perf_counter()))
        request = GenerationRequest(prompts[index % len(prompts)], max_new_tokens, sampling={"do_sample": False})
        scheduler.submit([request], [make_sink(record)])
    for _ in tqdm(served, desc=name, unit="request", disable=None):
        pending.acquire()
    is_done.set()
    watcher.join()
    return served, samples


def summarize(name: str, rates, seconds: float, served: list[Served], samples, reference: list[Served]) -> list[Phase]:
    """One entry for each phase."""
    phases = []
    for phase, rate in enumerate(rates):
        here = [(one, other) for one, other in zip(served, reference, strict=True) if one.phase == phase]
        begin, end = phase * seconds, (phase + 1) * seconds
        tokens = sum(
            count
            for one in served
            for moment, count in zip(one.times, one.counts, strict=True)
            if begin <= moment < end
        )
        first, later = [one.first_token for one, _ in here], [one.per_token for one, _ in here]
        later = [value for value in later if value is not None]
        phases.append(
            Phase(
                system=name,
                rate=rate,
                num_requests=len(here),
                tokens_per_second=tokens / seconds,
                tokens_per_forward=sum(len(one.token_ids) for one, _ in here) / sum(len(one.times) for one, _ in here),
                first_token_median=statistics.median(first),
                first_token_95=percentile(first, 0.95),
                per_token_median=statistics.median(later),
                per_token_95=percentile(later, 0.95),
                threshold=statistics.fmean(t for moment, t, *_ in samples if begin <= moment < end),
                identical=statistics.fmean(one.token_ids == other.token_ids for one, other in here),
            )
        )
    return phases


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def measure_overhead(model, prompts, max_rows: int, max_new_tokens: int, rounds: int) -> list[float]:
    """Speed of the scheduler with multi-token decoding switched off over that of `generate`, by round."""
    prompt = prompts[0]
    input_ids = torch.tensor([prompt] * max_rows, device=model.device)
    arguments = {"max_new_tokens": max_new_tokens, "do_sample": False, "eos_token_id": None}
    # As in a server, one scheduler for all rounds: the first forwards of a new thread are slower.
    scheduler = Scheduler(model, ThresholdPolicy("fixed", threshold_max=1.0), max_rows=max_rows)
    ratios = []
    for _ in tqdm(range(rounds + 1), desc="overhead", disable=None):
        sampling = {"do_sample": False, "eos_token_id": None}
        done = threading.Semaphore(0)
        request = GenerationRequest(prompt, max_new_tokens, sampling=sampling)
        start = time.perf_counter()

        def sink(run: Run, done: threading.Semaphore = done) -> None:
            if run.finish_reason is not None:
                done.release()

        scheduler.submit([request] * max_rows, [sink] * max_rows)
        for _ in range(max_rows):
            done.acquire()
        middle = time.perf_counter()
        with torch.no_grad():
            model.generate(input_ids, attention_mask=torch.ones_like(input_ids), **arguments)
        ratios.append((time.perf_counter() - middle) / (middle - start))
    scheduler.close()
    return ratios[1:]  # the first round warms up


def plot(path: Path, options: argparse.Namespace, phases: list[Phase], samples: dict[str, list]) -> None:
    """Throughput and waiting by rate, and the adaptive threshold over time."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(14, 4), layout="constrained", width_ratios=[1, 1, 1.5])
    rising = options.rates[: options.rates.index(max(options.rates)) + 1]
    for name, color in zip(samples, ("0.15", "#1b9e77", "#d95f02", "#7570b3"), strict=True):
        points = [phase for phase in phases if phase.system == name][: len(rising)]
        left.plot(rising, [point.tokens_per_second for point in points], "o-", color=color, label=name)
        middle.plot(rising, [point.first_token_95 for point in points], "o-", color=color, label=name)
    left.set(xlabel="requests per second", ylabel="tokens per second", title="Throughput")
    middle.set(xlabel="requests per second", ylabel="seconds, 95th percentile", title="Time to first token")
    middle.set_yscale("log")
    left.legend(frameon=False, loc="upper left")
    *_, (name, adaptive) = samples.items()
    moments = [sample[0] for sample in adaptive]
    right.fill_between(moments, [sample[2] + sample[3] for sample in adaptive], color="0.88", step="post")
    right.set(xlabel="seconds", ylabel="requests in the server (grey)", title=f"Threshold of {name}")
    threshold = right.twinx()
    threshold.plot(moments, [sample[1] for sample in adaptive], color="#7570b3", drawstyle="steps-post")
    threshold.set(ylim=(0, 1), ylabel="threshold")
    for phase, rate in enumerate(options.rates):
        right.axvline(phase * options.seconds, color="0.8", linewidth=0.8)
        right.annotate(
            f"{rate:g}/s", (phase * options.seconds, 1), (3, -10), ("data", "axes fraction"), "offset points"
        )
    for axes in (left, middle):
        axes.grid(color="0.93")
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_checkpoint_arguments(parser)
    parser.add_argument("--rates", type=float, nargs="+", default=[0.5, 1, 2, 3, 0.5], help="requests per second")
    parser.add_argument("--seconds", type=float, default=25.0, help="length of each rate")
    parser.add_argument("--max-rows", type=int, default=8)
    parser.add_argument("--max-new-tokens", type=int, default=96)
    parser.add_argument("--threshold-max", type=float, default=0.95)
    parser.add_argument("--threshold-min", type=float, default=0.5)
    parser.add_argument("--overhead-rounds", type=int, default=7)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output-dir", type=Path, default=Path(__file__).parent / "results" / "serving")
    options = parser.parse_args()

    model, tokenizer = load_checkpoint(options.checkpoint, options.dtype, options.device)
    prompts = [
        tokenizer.apply_chat_template(prompt, add_generation_prompt=True, return_dict=True)["input_ids"]
        for prompt in load_task("word_problems", 128).prompts
    ]
    overhead = measure_overhead(model, prompts, options.max_rows, 64, options.overhead_rounds)
    print(f"switched off, over generate: median {statistics.median(overhead):.2f} of {[f'{r:.2f}' for r in overhead]}")
    arrivals = draw_arrivals(options.rates, options.seconds, options.seed)
    phases, samples, reference = [], {}, None
    for name, policy in make_policies(options).items():
        scheduler = Scheduler(model, policy, max_rows=options.max_rows, max_queue=len(arrivals))
        served, samples[name] = serve(scheduler, arrivals, prompts, options.max_new_tokens, name)
        scheduler.close()
        reference = reference or served
        phases += summarize(name, options.rates, options.seconds, served, samples[name], reference)

    lines = [
        "| requests/s | way | tokens/s | tokens/forward | first token, s (median, 95th) | "
        "per token, ms (median, 95th) | threshold | identical to AR |",
        "| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for index, rate in enumerate(options.rates):
        for p in phases[index :: len(options.rates)]:
            lines.append(
                f"| {rate:g} | {p.system} | {p.tokens_per_second:.0f} | {p.tokens_per_forward:.2f} | "
                f"{p.first_token_median:.2f}, {p.first_token_95:.2f} | "
                f"{1000 * p.per_token_median:.0f}, {1000 * p.per_token_95:.0f} | "
                f"{p.threshold:.2f} | {p.identical:.0%} |"
            )
    print("\n".join(lines))
    options.output_dir.mkdir(parents=True, exist_ok=True)
    record = {
        "environment": describe_run(options, model),
        "speed_switched_off_over_generate": overhead,
        "phases": [asdict(phase) for phase in phases],
        "samples": {
            name: [[round(value, 3) for value in sample] for sample in taken] for name, taken in samples.items()
        },
    }
    (options.output_dir / "results.json").write_text(json.dumps(record) + "\n")
    (options.output_dir / "results.md").write_text("\n".join(lines) + "\n")
    plot(options.output_dir / "serving.png", options, phases, samples)


if __name__ == "__main__":
    main()
