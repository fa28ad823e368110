"""A MARS model as `assistant_model` of another one."""

import pytest
import torch
from peft import PromptTuningConfig, get_peft_model
from transformers import GenerationConfig, GenerationMixin, MistralConfig, PreTrainedModel

from hf_mars.evaluation.clock import ForwardClock
from tests.tiny import ragged_prompts, tiny_config, tiny_model


PROMPT = ragged_prompts([9])
ARGUMENTS = {"max_new_tokens": 32, "do_sample": False, "eos_token_id": None}


def plain(model: PreTrainedModel, **kwargs) -> torch.Tensor:
    return GenerationMixin.generate(model, **{**PROMPT, **ARGUMENTS, **kwargs})


def assisted(model: PreTrainedModel, drafter: PreTrainedModel, **kwargs) -> tuple[list, ForwardClock, ForwardClock]:
    """Tokens, and what the forwards of the two models were."""
    with ForwardClock(model) as verifying, ForwardClock(drafter) as drafting:
        sequences = plain(model, assistant_model=drafter, **kwargs)
    return sequences.tolist(), verifying, drafting


def count_drafts(verifying: ForwardClock) -> int:
    """Draft tokens that were verified: all columns but the prompt, and one of each later forward."""
    return sum(verifying.widths) - PROMPT["input_ids"].shape[1] - (verifying.num_forwards - 1)


def make_drafter(num_assistant_tokens: int = 4, confidence: float = 0.0, **kwargs) -> PreTrainedModel:
    drafter = tiny_model(**kwargs)
    drafter.generation_config.update(
        num_assistant_tokens=num_assistant_tokens, assistant_confidence_threshold=confidence
    )
    return drafter


def test_a_forward_drafts_a_block():
    model, drafter = tiny_model(), make_drafter()
    reference = plain(model).tolist()
    sequences, verifying, drafting = assisted(model, drafter)
    assert sequences == reference
    assert verifying.num_forwards < 32 / 2
    assert drafting.num_forwards <= verifying.num_forwards
    assert count_drafts(verifying) > 3.5 * drafting.num_forwards

    drafter.generation_config.mars_block_size = 1
    sequences, verifying, drafting = assisted(model, drafter)
    assert sequences == reference
    assert count_drafts(verifying) == drafting.num_forwards


def test_long_drafts_take_a_forward_a_block_until_one_is_not_confident():
    model = tiny_model()
    _, verifying, drafting = assisted(model, make_drafter(num_assistant_tokens=8))
    assert verifying.widths[:2] == [9 + 8, 1 + 8]
    assert drafting.widths[:2] == [9 + 3, 4 + 3], "the second forward reads the drafts of the first"
    assert drafting.num_forwards <= 2 * verifying.num_forwards
    _, verifying, drafting = assisted(model, make_drafter(num_assistant_tokens=8, confidence=1.0))
    assert drafting.num_forwards <= verifying.num_forwards and count_drafts(verifying) <= drafting.num_forwards


@pytest.mark.parametrize(
    "arguments",
    [
        {"repetition_penalty": 1.3, "no_repeat_ngram_size": 3, "min_new_tokens": 30},
        {"attention_mask": torch.ones(1, 9).long().index_fill(1, torch.tensor([0, 1]), 0)},
        {"cache_implementation": "static"},
        {"eos_token_id": list(range(5, 10))},
    ],
    ids=lambda arguments: next(iter(arguments)),
)
def test_the_bigger_model_says_what_it_would_say_alone(arguments):
    model, arguments = tiny_model(), {"max_new_tokens": 20, **arguments}
    sequences, verifying, _ = assisted(model, make_drafter(num_assistant_tokens=7), **arguments)
    assert sequences == plain(model, **arguments).tolist()
    assert verifying.num_forwards < len(sequences[0]) - 9


def test_sliding_windows_are_cropped():
    model, drafter = (
        tiny_model(tiny_config(MistralConfig, sliding_window=6)),
        make_drafter(num_assistant_tokens=7, config=tiny_config(MistralConfig, sliding_window=6)),
    )
    sequences, verifying, _ = assisted(model, drafter)
    assert sequences == plain(model).tolist() and verifying.num_forwards < 32 / 2


def test_drafts_are_drawn_from_the_scores_that_are_told():
    config = GenerationConfig(is_assistant=True, return_dict_in_generate=True, output_scores=True)
    config.assistant_confidence_threshold = 0.0
    drafter, num_draws = tiny_model(sharpness=2.0), 2000
    output = drafter.generate(
        PROMPT["input_ids"].expand(num_draws, -1),
        generation_config=config,
        do_sample=True,
        temperature=0.8,
        top_k=8,
        max_new_tokens=4,
    )
    drafts = output.sequences[:, 9:]
    assert len(output.scores) == drafts.shape[1] == 4
    assert output.cache.get_seq_length() == 9, "what was computed for masks is gone"
    for column, scores in zip(drafts.T, output.scores, strict=True):
        told = scores.softmax(-1)
        assert torch.equal(told[0], told[-1]) and told.max() < 0.9
        drawn = column.bincount(minlength=told.shape[1]) / num_draws
        assert (drawn - told[0]).abs().sum() < 0.09


def test_sampling_has_drafts_that_hold():
    torch.manual_seed(0)
    _, verifying, drafting = assisted(tiny_model(), make_drafter(), do_sample=True)
    assert verifying.num_forwards < 24 and drafting.num_forwards <= verifying.num_forwards


def test_what_the_drafter_would_do_alone_does_not_matter():
    model, drafter = tiny_model(), make_drafter()
    widths = assisted(model, drafter)[2].widths
    drafter.generation_config.mars_verify = "exact"
    drafter.generation_config.mars_threshold = 1.0
    assert assisted(model, drafter)[2].widths == widths


def test_a_head_of_another_vocabulary_drafts_one_token_a_forward():
    """As transformers puts it there, to sample from what two vocabularies have in common."""
    model, drafter = tiny_model(), make_drafter()
    drafter.set_output_embeddings(torch.nn.Sequential(drafter.get_output_embeddings()))
    sequences, verifying, drafting = assisted(model, drafter)
    assert sequences == plain(model).tolist()
    assert count_drafts(verifying) == drafting.num_forwards


def test_what_is_not_available():
    model, drafter = tiny_model(), make_drafter()
    with pytest.raises(ValueError, match="batch_size = 1"):
        plain(model, assistant_model=drafter, **ragged_prompts([4, 7]))
    with pytest.raises(ValueError, match="`inputs_embeds`"):
        embeddings = model.get_input_embeddings()(PROMPT["input_ids"])
        plain(model, assistant_model=drafter, input_ids=None, inputs_embeds=embeddings)
    with pytest.raises(ValueError, match="`assistant_model`"):
        model.generate(**PROMPT, **ARGUMENTS, assistant_model=drafter, mars_verify=True)
    tuned = get_peft_model(drafter, PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4)).double()
    with pytest.raises(ValueError, match="PromptTuningConfig"):
        plain(model, assistant_model=tuned)
