"""Decoding with an adapter on the masks alone: the text, and every logit, are the base model's."""

import copy

import pytest
import torch
from transformers import GenerationMixin

from hf_mars.decoding import get_gated_adapter
from hf_mars.evaluation.clock import ForwardClock
from tests.gated import ARCHITECTURES, base_and_gated
from tests.tiny import MASK, ragged_prompts


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.integration
def test_plain_logits_are_those_of_the_base_to_the_bit(architecture, dtype):
    base, model = base_and_gated(architecture, dtype)
    settings = {"max_new_tokens": 12, "return_dict_in_generate": True, "output_logits": True}
    prompts = ragged_prompts([5, 9, 3])
    prompts["input_ids"][1, 4] = MASK  # where PEFT alone would wake the adapter
    expected, output = base.generate(**prompts, **settings), model.generate(**prompts, **settings)
    assert output.sequences.equal(expected.sequences)
    assert torch.stack(output.logits).equal(torch.stack(expected.logits)), "the mask token's own logit, too"


@pytest.mark.parametrize(
    "arguments", [{}, {"mars_threshold": 0.3}, {"mars_threshold": 0.3, "cache_implementation": "static"}]
)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_verified_text_is_that_of_the_base(architecture, arguments, cheap_columns):
    base, model = base_and_gated(architecture)
    prompts = ragged_prompts([5, 9, 3, 7])
    expected = GenerationMixin.generate(base, **prompts, max_new_tokens=32)
    output = model.generate(**prompts, **arguments, max_new_tokens=32, mars_verify=True, return_dict_in_generate=True)
    assert output.sequences.tolist() == expected.tolist() and output.tokens_per_forward > 1.2


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_masks_say_what_they_say_in_peft(architecture):
    base, model = base_and_gated(architecture)
    for seed in range(4):
        prompt = ragged_prompts([6], seed=seed)["input_ids"]
        window = torch.cat([prompt, torch.full((1, 3), MASK)], dim=1)
        with torch.no_grad():
            logits = model(input_ids=window, alora_offsets=[3]).logits[:, -4:]
            unadapted = base(input_ids=window).logits[:, -4:]
        logits[..., MASK] = -torch.inf
        output = model.generate(
            input_ids=prompt,
            mars_threshold=0.0,
            max_new_tokens=4,
            eos_token_id=None,
            return_dict_in_generate=True,
            output_logits=True,
        )
        assert output.num_forward_passes == 1
        assert output.sequences[0, -4:].tolist() == logits[0].argmax(-1).tolist()
        theirs = torch.stack(output.logits, dim=1)
        torch.testing.assert_close(theirs[..., :MASK], logits[..., :MASK].to(theirs.dtype), rtol=1e-4, atol=1e-4)
        assert not torch.allclose(logits[:, 1, :MASK], unadapted[:, 1, :MASK]), "the adapter does something"


def test_a_seed_gives_the_text_of_the_base(cheap_columns):
    base, model = base_and_gated()
    prompts, settings = ragged_prompts([5, 9, 3]), {"do_sample": True, "temperature": 0.7, "max_new_tokens": 24}
    torch.manual_seed(0)
    expected = base.generate(**prompts, **settings, mars_verify=True)
    torch.manual_seed(0)
    assert model.generate(**prompts, **settings, mars_verify=True).tolist() == expected.tolist()


def test_one_base_model_switches_between_adapters():
    base, model = base_and_gated()
    model.add_adapter("other", copy.deepcopy(model.peft_config["default"]))  # untrained
    prompts = ragged_prompts([5, 9, 3])
    expected = GenerationMixin.generate(base, **prompts, max_new_tokens=32).tolist()
    forwards = {}
    for name in ("default", "other", "default"):
        model.set_adapter(name)
        output = model.generate(
            **prompts, max_new_tokens=32, mars_verify=True, mars_threshold=0.3, return_dict_in_generate=True
        )
        assert output.sequences.tolist() == expected
        forwards.setdefault(name, set()).add(output.num_forward_passes)
    assert len(forwards["default"]) == 1 and forwards["default"] != forwards["other"]


def test_peft_is_what_it_was_afterwards_even_after_an_error():
    _, model = base_and_gated()
    window = torch.cat([ragged_prompts([6])["input_ids"], torch.full((1, 3), MASK)], dim=1)

    def state():
        with torch.no_grad():
            logits = model(input_ids=window, alora_offsets=[3]).logits
        return logits.tolist(), [parameter.requires_grad for parameter in model.parameters()]

    def fail(*args):
        raise RuntimeError("a processor fails")

    before = state()
    model.generate(input_ids=window[:, :6], mars_verify=True, max_new_tokens=8)
    assert state() == before
    with pytest.raises(RuntimeError, match="a processor fails"):
        model.generate(input_ids=window[:, :6], mars_verify=True, max_new_tokens=8, prefix_allowed_tokens_fn=fail)
    assert state() == before
    for _ in range(2):  # nested, as a server and a call beside it
        with get_gated_adapter(model.get_base_model()).attached():
            model.generate(input_ids=window[:, :6], mars_verify=True, max_new_tokens=8)
    assert state() == before


def test_what_does_not_go_together_is_refused():
    _, model = base_and_gated(dtype=torch.bfloat16)
    prompts = ragged_prompts([5])
    with pytest.raises(ValueError, match="adapter on masks alone is not available with `mars_verify='exact'`"):
        model.generate(**prompts, mars_verify="exact")


def test_it_drafts_for_its_own_base():
    base, model = base_and_gated()
    settings = {**ragged_prompts([9]), "max_new_tokens": 32, "eos_token_id": None}
    expected = GenerationMixin.generate(base, **settings).tolist()
    model.generation_config.update(num_assistant_tokens=4, assistant_confidence_threshold=0.0)
    with ForwardClock(base) as verifying, ForwardClock(model.get_base_model()) as drafting:
        assert GenerationMixin.generate(base, **settings, assistant_model=model).tolist() == expected
    assert drafting.num_forwards <= verifying.num_forwards < 32 / 1.2
    assert model.generate(**settings, assistant_model=model).tolist() == expected, "as its own drafter"
