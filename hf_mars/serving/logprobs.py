"""Log-probabilities of generated tokens, for the rows that want them."""

from collections.abc import Mapping

import torch

from ..decoding import StepOutput
from .request import TokenLogprob


__all__ = ["read_logprobs"]


def read_logprobs(
    output: StepOutput, num_alternatives: Mapping[int, int], mask_token_id: int
) -> dict[int, list[TokenLogprob]]:
    """
    What OpenAI's `logprobs` asks for.

    Args:
        output ([`StepOutput`]): A step, with its logits.
        num_alternatives (`Mapping[int, int]`): For each row that wants them, how many alternatives of a token.
        mask_token_id (`int`): Id of the mask token, which is never generated.

    Returns:
        `dict[int, list[TokenLogprob]]`: For each of those rows, one entry for each accepted token.
    """
    told: dict[int, list[TokenLogprob]] = {}
    if output.logits is None:
        return told
    for index, row in enumerate(output.ids.tolist()):
        if row not in num_alternatives:
            continue
        length = int(output.acceptance_lengths[index])
        logits = output.logits[index, :length]
        logits[:, mask_token_id] = -torch.inf
        logprobs = logits.log_softmax(-1)
        tokens = output.accepted_tokens[index, :length].to(logprobs.device)
        chosen = logprobs.gather(1, tokens[:, None]).squeeze(1).tolist()
        best = logprobs.topk(num_alternatives[row], dim=-1)
        alternatives = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        told[row] = [
            TokenLogprob(logprob, list(zip(token_ids, others, strict=True)))
            for logprob, (token_ids, others) in zip(chosen, alternatives, strict=True)
        ]
    return told
