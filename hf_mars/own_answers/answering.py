"""Who answers: a model in this process, or a server."""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..evaluation.methods import cut, end_of_sequence_ids
from ..extras import install_command
from ..one_line import one_line
from .prompts import Prompt


if TYPE_CHECKING:  # PEFT takes seconds to import, and only adapters need it
    from peft import PeftModel


__all__ = ["Answer", "Answerer", "AnswerSettings", "ModelAnswerer", "ServerAnswerer"]


@dataclass
class Answer:
    """
    One answer.

    Args:
        text (`str`): Without special tokens.
        is_finished (`bool`): Whether it came to its end, rather than to the limit.
        num_tokens (`int`): How many tokens it took.
    """

    text: str
    is_finished: bool
    num_tokens: int


@dataclass
class AnswerSettings:
    """
    How answers are generated.

    Args:
        temperature (`float`, *optional*, defaults to 1.0): 0 is greedy.
        top_p (`float`, *optional*, defaults to 1.0): Nucleus sampling.
        max_new_tokens (`int`, *optional*, defaults to 512): Limit of an answer.
        seed (`int`, *optional*, defaults to 0): The same seed and batch size give the same answers.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    max_new_tokens: int = 512
    seed: int = 0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class Answerer(Protocol):
    """Answers a batch of prompts; the number of the batch goes into the seed."""

    def answer(self, prompts: list[Prompt], batch: int) -> list[Answer]: ...


class ModelAnswerer:
    """
    Answers with `generate`, and where the model has MARS, several tokens a forward, losslessly.

    Args:
        model ([`PreTrainedModel`] or [`~peft.PeftModel`]): The model.
        tokenizer ([`PreTrainedTokenizerBase`]): Its tokenizer.
        settings ([`AnswerSettings`]): How to generate.
        threshold (`float`, *optional*): `mars_threshold`, for a model that has MARS.
    """

    def __init__(
        self,
        model: "PreTrainedModel | PeftModel",
        tokenizer: PreTrainedTokenizerBase,
        settings: AnswerSettings,
        threshold: float | None = None,
    ):
        self.model: Any = model  # one that generates
        self.tokenizer, self.settings = tokenizer, settings
        self.arguments: dict[str, Any] = {"max_new_tokens": settings.max_new_tokens, "do_sample": False}
        if settings.temperature > 0:
            # The whole distribution, whatever the model's own configuration cuts away.
            self.arguments |= {"do_sample": True, "temperature": settings.temperature, "top_p": settings.top_p}
            self.arguments |= {"top_k": 0}
        if threshold is not None:
            self.arguments |= {"mars_threshold": threshold, "mars_verify": True}

    def answer(self, prompts: list[Prompt], batch: int) -> list[Answer]:
        torch.manual_seed(self.settings.seed + batch)
        inputs = self._tokenize(prompts).to(self.model.device)
        output = self.model.generate(**inputs, **self.arguments)
        eos = end_of_sequence_ids(self.model)
        return [self._read(cut(row, eos), eos) for row in output[:, inputs["input_ids"].shape[1] :].tolist()]

    def _read(self, tokens: list[int], eos: set[int]) -> Answer:
        is_finished = tokens[-1] in eos
        text = self.tokenizer.decode(tokens[:-1] if is_finished else tokens, skip_special_tokens=True)
        return Answer(str(text), is_finished, len(tokens))

    def _tokenize(self, prompts: list[Prompt]):
        is_chat = not isinstance(prompts[0], str)
        texts: Any = prompts
        if is_chat:
            texts = self.tokenizer.apply_chat_template(texts, add_generation_prompt=True, tokenize=False)
        # A chat template writes the special tokens itself.
        return self.tokenizer(
            texts, padding=True, padding_side="left", add_special_tokens=not is_chat, return_tensors="pt"
        )


class ServerAnswerer:
    """
    Answers with any server that has OpenAI's API, all prompts of a batch at once.

    Args:
        url (`str`): Address of the API, such as `http://127.0.0.1:8000/v1`.
        model (`str`): What the server calls the model.
        settings ([`AnswerSettings`]): How to generate.

    Raises:
        `ImportError`: If `openai` is not installed.
    """

    def __init__(self, url: str, model: str, settings: AnswerSettings):
        try:
            from openai import OpenAI
        except ImportError as error:
            raise ImportError(f"`--engine` needs `{install_command('serve')}`.") from error
        # Servers of one's own ask for no key, but the client does.
        self.client = OpenAI(base_url=url, api_key=os.environ.get("OPENAI_API_KEY", "none"))
        self.model, self.settings = model, settings

    def answer(self, prompts: list[Prompt], batch: int) -> list[Answer]:
        with ThreadPoolExecutor(len(prompts)) as pool:
            seeds = [self.settings.seed + batch * len(prompts) + index for index in range(len(prompts))]
            return list(pool.map(self._ask, prompts, seeds))

    def _ask(self, prompt: Prompt, seed: int) -> Answer:
        from openai import OpenAIError

        arguments: dict[str, Any] = {
            "model": self.model,
            "temperature": self.settings.temperature,
            "top_p": self.settings.top_p,
            "max_tokens": self.settings.max_new_tokens,
            "seed": seed,
        }
        try:
            if isinstance(prompt, str):
                response = self.client.completions.create(prompt=prompt, **arguments)
                text = response.choices[0].text
            else:
                messages: Any = prompt
                response = self.client.chat.completions.create(messages=messages, **arguments)
                text = response.choices[0].message.content
        except OpenAIError as error:
            raise RuntimeError(f"{self.client.base_url} did not answer: {one_line(error)}") from error
        num_tokens = response.usage.completion_tokens if response.usage else 0
        return Answer(text or "", response.choices[0].finish_reason == "stop", num_tokens)
