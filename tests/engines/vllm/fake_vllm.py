"""As much of vLLM as the proposer touches: a configuration, a model runner, and its rejection sampler."""

import sys
from types import ModuleType, SimpleNamespace

import torch

from hf_mars_vllm import MARSProposer


__all__ = ["MASK", "Model", "Runner", "engine_config", "install"]

VOCAB_SIZE, MASK = 12, 11


def fake_modules(version: str = "0.32.0") -> dict[str, ModuleType]:
    """For `sys.modules`: what `import vllm` and the import of its logits processors give."""
    names = ("vllm", "vllm.v1", "vllm.v1.sample", "vllm.v1.sample.logits_processor")
    modules = {name: ModuleType(name) for name in names}
    modules["vllm"].__version__ = version
    modules[names[-1]].LogitsProcessor = type("LogitsProcessor", (), {})
    return modules


def engine_config(
    block_size: int = 4, num_speculative_tokens: int = 6, token_budget: int = 2048, mars=True, **options
) -> SimpleNamespace:
    """vLLM's configuration of an engine, with options of the proposer."""
    entry = {"mask_token_id": MASK, "block_size": block_size} if mars else None
    return SimpleNamespace(
        model_config=SimpleNamespace(hf_config=SimpleNamespace(mars=entry)),
        speculative_config=SimpleNamespace(num_speculative_tokens=num_speculative_tokens),
        scheduler_config=SimpleNamespace(max_num_batched_tokens=token_budget),
        additional_config={"mars": options} if options else {},
    )


class RejectionSampler(torch.nn.Module):
    """Greedy verification, written out row by row."""

    def forward(self, metadata, draft_probabilities, logits, sampling_metadata):
        choices, drafted = logits.argmax(-1).tolist(), metadata.draft_token_ids.tolist()
        gained, start = [], 0
        for row, count in enumerate(metadata.num_draft_tokens):
            tokens, first = drafted[start : start + count], start + row
            held = 0
            while held < count and tokens[held] == choices[first + held]:
                held += 1
            gained.append(choices[first : first + held + 1])
            start += count
        return gained


class Model(torch.nn.Module):
    """A model whose hidden states are its logits."""

    def compute_logits(self, hidden_states):
        return hidden_states.clone()


class Runner:
    """
    Rows that count upwards: after token t comes t + 1, up to 9, then 0. At a mask the model says what is true
    `distance` tokens on, with a probability of its own.

    Args:
        config (`SimpleNamespace`): Of [`engine_config`].
        probability (`float`): Of the token that a mask predicts.
        is_right (`bool`): Whether masks predict what follows.
    """

    def __init__(self, config, probability: float = 0.9, is_right: bool = True):
        self.rejection_sampler, self.model = RejectionSampler(), Model()
        self.input_batch, self.requests = SimpleNamespace(req_ids=[]), {}
        self.probability, self.is_right = probability, is_right
        self.drafter = MARSProposer(config)
        self.load_model()
        self.tokens: dict[str, list[int]] = {}
        self.drafts: dict[str, list[int]] = {}
        self.num_columns: list[int] = []

    def load_model(self):
        self.drafter.load_model(self.model)

    def add(self, name: str, first_token: int = 0, extra_args=None) -> None:
        self.requests[name] = SimpleNamespace(sampling_params=SimpleNamespace(extra_args=extra_args))
        self.input_batch.req_ids.append(name)
        self.tokens[name], self.drafts[name] = [first_token], []

    def remove(self, name: str) -> None:
        del self.requests[name]
        self.input_batch.req_ids.remove(name)

    def step(self, reading: tuple[str, ...] = (), cut: int | None = None) -> list[list[int]]:
        """
        One forward.

        Args:
            reading (`tuple[str, ...]`): Rows whose prompts are being read: what they sample is thrown away.
            cut (`int`, *optional*): Most drafts that the scheduler lets pass for a row.

        Returns:
            What was proposed for each row.
        """
        names = list(self.input_batch.req_ids)
        drafted = [self.drafts[name][:cut] for name in names]
        logits = [
            self.logits_after(self.tokens[name][-1], tokens) for name, tokens in zip(names, drafted, strict=True)
        ]
        metadata = SimpleNamespace(
            num_draft_tokens=[len(tokens) for tokens in drafted],
            draft_token_ids=torch.tensor([token for tokens in drafted for token in tokens], dtype=torch.int32),
        )
        self.num_columns.append(len(names) + len(metadata.draft_token_ids))
        gained = self.rejection_sampler(metadata, None, self.model.compute_logits(torch.cat(logits)), None)
        gained = [[] if name in reading else tokens for name, tokens in zip(names, gained, strict=True)]
        for name, tokens in zip(names, gained, strict=True):
            self.tokens[name] += tokens
        proposals = self.drafter.propose(gained, None, None, slot_mappings=None)
        self.drafts = dict(zip(names, proposals, strict=True))
        return proposals

    def logits_after(self, last: int, drafted: list[int]) -> torch.Tensor:
        logits = torch.full((1 + len(drafted), VOCAB_SIZE), ((1 - self.probability) / 10))
        true_token = last
        for index, token in enumerate([last, *drafted]):
            true_token = (true_token + 1 if token == MASK else token + 1) % 10
            says = true_token if token != MASK or self.is_right else (true_token + 5) % 10
            logits[index, says] = self.probability
            logits[index, MASK] = 2.0  # the mask is what the model likes best, and must never be its answer
        return logits.log()


def install(monkeypatch, version: str = "0.32.0") -> None:
    """Put the fake vLLM where imports find it, whether or not there is a real one."""
    for name, module in fake_modules(version).items():
        monkeypatch.setitem(sys.modules, name, module)
