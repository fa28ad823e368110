"""Logits processors: built in and custom, lossy and verified."""

import pytest
import torch
from transformers import (
    GenerationMixin,
    LogitsProcessor,
    LogitsProcessorList,
    NoBadWordsLogitsProcessor,
    NoRepeatNGramLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
)
from transformers.generation import SuppressTokensLogitsProcessor

from tests.oracle import decode_without_cache
from tests.tiny import EOS, MASK, PAD, VOCAB_SIZE, ragged_prompts, tiny_model


LENGTHS = [5, 9, 3]
NEW_TOKENS = 24

BUILT_IN = {
    "repetition_penalty": {"repetition_penalty": 1.3},
    "encoder_repetition_penalty": {"encoder_repetition_penalty": 1.5},
    "no_repeat_ngram_size": {"no_repeat_ngram_size": 3},
    "encoder_no_repeat_ngram_size": {"encoder_no_repeat_ngram_size": 1},
    "bad_words_ids": {"bad_words_ids": [[22], [41, 41]]},
    "sequence_bias": {"sequence_bias": [[[22], -5.0], [[41, 22], 3.0]]},
    "min_new_tokens": {"min_new_tokens": 12, "eos_token_id": [EOS, 22, 41]},
    "min_length": {"min_length": 20, "eos_token_id": [EOS, 22, 41]},
    "forced_eos_token_id": {"forced_eos_token_id": EOS},
    "exponential_decay_length_penalty": {"exponential_decay_length_penalty": (4, 1.2)},
    "suppress_tokens": {"suppress_tokens": [22, 41]},
    "begin_suppress_tokens": {"begin_suppress_tokens": [22, 41]},
    "prefix_allowed_tokens_fn": {
        # Depends on the row and on the last token.
        "prefix_allowed_tokens_fn": lambda batch_id, ids: [2 + (batch_id + ids[-1].item() + i) % 40 for i in range(5)]
    },
}


@pytest.fixture(scope="module")
def model():
    return tiny_model(sharpness=8.0, similarity=2.0)


@pytest.fixture
def prompts():
    return ragged_prompts(LENGTHS)


class TruePrefix(LogitsProcessor):
    """Prefers the token after the last one, and records what it is given."""

    def __init__(self):
        self.prefixes = []

    def __call__(self, input_ids, scores):
        assert input_ids.ndim == 2 and scores.shape == (len(input_ids), VOCAB_SIZE)
        self.prefixes += input_ids.tolist()
        favoured = (input_ids[:, -1:] + 1).clamp(max=MASK - 1)
        return scores.scatter_add(1, favoured, torch.full_like(scores[:, :1], 3.0))


@pytest.mark.parametrize("name", BUILT_IN)
def test_verified_equals_plain_generation_with_the_same_processors(model, prompts, name):
    arguments = {"max_new_tokens": NEW_TOKENS, "do_sample": False, **BUILT_IN[name]}
    expected = GenerationMixin.generate(model, **prompts, **arguments)
    without = GenerationMixin.generate(model, **prompts, max_new_tokens=NEW_TOKENS)
    assert expected.tolist() != without.tolist(), "the processor changes nothing here"
    output = model.generate(**prompts, **arguments, mars_threshold=0.3, mars_verify=True, return_dict_in_generate=True)
    assert output.sequences.tolist() == expected.tolist()
    assert output.tokens_per_forward > 1


SAME_PROCESSORS = {
    "repetition_penalty": lambda: RepetitionPenaltyLogitsProcessor(1.3),
    "no_repeat_ngram_size": lambda: NoRepeatNGramLogitsProcessor(3),
    "bad_words_ids": lambda: NoBadWordsLogitsProcessor([[22], [41, 41]], torch.tensor([EOS])),
    "suppress_tokens": lambda: SuppressTokensLogitsProcessor([22, 41]),
}


@pytest.mark.parametrize("threshold", [0.3, 0.7])
@pytest.mark.parametrize("name", SAME_PROCESSORS)
def test_lossy_equals_the_oracle_with_the_same_processors(model, prompts, name, threshold):
    output = model.generate(
        **prompts,
        max_new_tokens=NEW_TOKENS,
        mars_threshold=threshold,
        return_dict_in_generate=True,
        **BUILT_IN[name],
    )
    processors = LogitsProcessorList([SAME_PROCESSORS[name]()])
    for row, length in enumerate(LENGTHS):
        prompt = prompts["input_ids"][row, -length:].tolist()
        expected, acceptance_lengths = decode_without_cache(model, prompt, threshold, 4, NEW_TOKENS, [EOS], processors)
        generated = output.sequences[row, prompts["input_ids"].shape[1] :].tolist()
        assert generated[: len(expected)] == expected
        assert output.acceptance_lengths[row] == acceptance_lengths
    assert output.tokens_per_forward > 1


@pytest.mark.parametrize("verify", [False, True])
def test_custom_processors_see_the_true_prefix_of_every_decided_token(model, prompts, verify):
    processor = TruePrefix()
    output = model.generate(
        **prompts,
        max_new_tokens=NEW_TOKENS,
        mars_threshold=0.3,
        mars_verify=verify,
        logits_processor=LogitsProcessorList([processor]),
        return_dict_in_generate=True,
    )
    assert output.num_forward_passes < max(map(sum, output.acceptance_lengths))
    width = prompts["input_ids"].shape[1]
    sequences = output.sequences.tolist()
    for prefix in processor.prefixes:
        assert MASK not in prefix
        assert any(sequence[: len(prefix)] == prefix for sequence in sequences), "a prefix that was never returned"
    for sequence, acceptance_lengths in zip(sequences, output.acceptance_lengths, strict=True):
        for length in range(width, width + sum(acceptance_lengths)):
            assert sequence[:length] in processor.prefixes
    if verify:
        expected = GenerationMixin.generate(
            model, **prompts, max_new_tokens=NEW_TOKENS, logits_processor=LogitsProcessorList([TruePrefix()])
        )
        assert sequences == expected.tolist()


class Automaton(LogitsProcessor):
    """Like a grammar that keeps its own place: each call moves it on by one, whatever the tokens are."""

    def __init__(self):
        self.place = 0

    def __call__(self, input_ids, scores):
        self.place += 1
        allowed = torch.arange(scores.shape[-1]) % 5 == self.place % 5
        return scores.masked_fill(~allowed, -torch.inf)


def asked_positions(acceptance_lengths, start, verify):
    """Positions that one row's processors are asked for: one after the other, an unconfident mask's once more."""
    position, end, asked = start, start + sum(acceptance_lengths), []
    for length in acceptance_lengths:
        asked += range(position, position + length)
        is_whole_block = length == min(4, end - position)
        position += length
        if not verify and not is_whole_block:
            asked.append(position)
    return asked


SAMPLED = {"do_sample": True, "temperature": 0.7, "top_k": 0}


@pytest.mark.parametrize("verify", [False, True])
@pytest.mark.parametrize("arguments", [{}, SAMPLED, {"cache_implementation": "static"}, {"prefill_chunk_size": 2}])
def test_which_positions_processors_are_asked_for(model, prompts, arguments, verify):
    torch.manual_seed(0)
    processor = TruePrefix()
    output = model.generate(
        **prompts,
        max_new_tokens=NEW_TOKENS,
        eos_token_id=None,
        mars_threshold=0.3 if verify else 0.7,
        mars_verify=verify,
        logits_processor=LogitsProcessorList([processor]),
        return_dict_in_generate=True,
        **arguments,
    )
    width, repeated = prompts["input_ids"].shape[1], 0
    for row, acceptance_lengths in enumerate(output.acceptance_lengths):
        prompt = prompts["input_ids"][row].tolist()
        asked = [len(prefix) for prefix in processor.prefixes if prefix[:width] == prompt]
        assert asked == asked_positions(acceptance_lengths, width, verify)
        repeated += len(asked) - len(set(asked))
    assert repeated == 0 if verify else repeated > 0
    assert output.tokens_per_forward > 1


def test_a_processor_that_counts_its_calls_needs_verification(model):
    prompts = ragged_prompts([5])
    arguments = {**prompts, "max_new_tokens": NEW_TOKENS, "eos_token_id": None}
    expected = GenerationMixin.generate(model, **arguments, logits_processor=LogitsProcessorList([Automaton()]))
    arguments["return_dict_in_generate"] = True
    processor = Automaton()
    verified = model.generate(**arguments, mars_verify=True, logits_processor=LogitsProcessorList([processor]))
    assert verified.sequences.tolist() == expected.tolist()
    assert processor.place == NEW_TOKENS > verified.num_forward_passes
    processor = Automaton()
    lossy = model.generate(**arguments, mars_threshold=0.9, logits_processor=LogitsProcessorList([processor]))
    assert processor.place == len(asked_positions(lossy.acceptance_lengths[0], 5, verify=False)) > NEW_TOKENS


@pytest.mark.parametrize("verify", [False, True])
def test_a_criterion_that_ends_a_row_within_a_forward_comes_after_its_processors(model, verify):
    processor = TruePrefix()
    output = model.generate(
        **ragged_prompts([5]),
        max_new_tokens=NEW_TOKENS,
        eos_token_id=None,
        mars_threshold=0.0,
        mars_verify=verify,
        logits_processor=LogitsProcessorList([processor]),
        stopping_criteria=[lambda input_ids, scores: torch.tensor([input_ids.shape[1] >= 5 + 2])],
        return_dict_in_generate=True,
    )
    asked = [len(prefix) for prefix in processor.prefixes]
    assert output.sequences.shape[1] == 5 + 2
    assert asked == list(range(5, 5 + len(asked))) and 2 < len(asked) <= 2 + 3


def test_the_mask_token_never_comes_out(prompts):
    model = tiny_model(sharpness=16.0, similarity=1.0)
    with torch.no_grad():
        model.get_output_embeddings().weight[MASK] = 3 * model.get_output_embeddings().weight[22]
    assert (GenerationMixin.generate(model, **prompts, max_new_tokens=NEW_TOKENS)[:, 9:] == MASK).any()
    for arguments in ({"mars_threshold": 0.3}, {"mars_threshold": 0.3, "mars_verify": True}, {"mars_threshold": 1.0}):
        for do_sample in (False, True):
            output = model.generate(**prompts, max_new_tokens=NEW_TOKENS, do_sample=do_sample, **arguments)
            assert not (output[:, prompts["input_ids"].shape[1] :] == MASK).any()


@pytest.mark.parametrize("verify", [False, True])
@pytest.mark.parametrize(
    "arguments",
    [{"forced_eos_token_id": MASK}, {"prefix_allowed_tokens_fn": lambda batch_id, ids: [MASK]}],
    ids=["forced_eos_token_id", "prefix_allowed_tokens_fn"],
)
def test_processors_that_allow_the_mask_token_alone_are_an_error(model, prompts, arguments, verify):
    for do_sample in (False, True):
        with pytest.raises(ValueError, match="mask token"):
            model.generate(
                **prompts, max_new_tokens=5, do_sample=do_sample, mars_threshold=0.3, mars_verify=verify, **arguments
            )


def test_processors_with_a_state_are_refused_by_name(model, prompts):
    with pytest.raises(ValueError, match="guidance_scale"):
        model.generate(**prompts, max_new_tokens=4, mars_threshold=0.5, guidance_scale=1.5)


def test_padding_follows_the_end_of_a_row(model, prompts):
    output = model.generate(**prompts, max_new_tokens=NEW_TOKENS, mars_threshold=0.3, **BUILT_IN["min_new_tokens"])
    for row in output[:, prompts["input_ids"].shape[1] :].tolist():
        ends = [index for index, token in enumerate(row) if token in (EOS, 22, 41)]
        assert not ends or row[ends[0] + 1 :] == [PAD] * (len(row) - ends[0] - 1)
