"""`generate` with the `mars_*` arguments, against the cache-free oracle and against plain generation."""

import pytest
import torch
from transformers import GenerationConfig, GenerationMixin
from transformers.generation import BaseStreamer

from hf_mars.decoding import MARSGenerateOutput
from tests.oracle import decode_without_cache
from tests.tiny import EOS, PAD, ragged_prompts, tiny_config, tiny_model


LENGTHS = [5, 9, 3, 12]
NEW_TOKENS = 40


@pytest.fixture(scope="module")
def model():
    return tiny_model(sharpness=16.0, similarity=1.0)


@pytest.fixture(scope="module")
def drafting_model():
    """A model whose masks often predict what the true tokens would."""
    return tiny_model(sharpness=8.0, similarity=2.0)


@pytest.fixture
def prompts():
    return ragged_prompts(LENGTHS)


def plain(model, **kwargs):
    return GenerationMixin.generate(model, do_sample=False, **kwargs)


class RecordingStreamer(BaseStreamer):
    def __init__(self):
        self.puts, self.ends = [], 0

    def put(self, value):
        self.puts.append(value.tolist())

    def end(self):
        self.ends += 1


class TestLossy:
    @pytest.mark.parametrize("block_size", [2, 4, 8])
    @pytest.mark.parametrize("threshold", [0, 0.5, 0.9])
    def test_each_row_of_a_ragged_batch_equals_its_own_oracle(self, model, prompts, threshold, block_size):
        output = model.generate(
            **prompts,
            max_new_tokens=NEW_TOKENS,
            mars_threshold=threshold,
            mars_block_size=block_size,
            return_dict_in_generate=True,
        )
        for row, length in enumerate(LENGTHS):
            prompt = prompts["input_ids"][row, -length:].tolist()
            expected, acceptance_lengths = decode_without_cache(
                model, prompt, threshold, block_size, NEW_TOKENS, [EOS]
            )
            generated = output.sequences[row, prompts["input_ids"].shape[1] :].tolist()
            assert generated == expected + [PAD] * (len(generated) - len(expected))
            assert output.acceptance_lengths[row] == acceptance_lengths
        assert output.num_forward_passes == max(map(len, output.acceptance_lengths))
        assert output.num_forward_passes < max(map(sum, output.acceptance_lengths))
        assert output.tokens_per_forward > 1.15

    def test_a_batch_equals_its_rows_alone(self, model, prompts):
        width = prompts["input_ids"].shape[1]
        batch = model.generate(**prompts, max_new_tokens=NEW_TOKENS, mars_threshold=0.6)
        for row, length in enumerate(LENGTHS):
            prompt = prompts["input_ids"][row : row + 1, -length:]
            alone = model.generate(prompt, max_new_tokens=NEW_TOKENS, mars_threshold=0.6)[0, length:].tolist()
            assert batch[row, width : width + len(alone)].tolist() == alone

    def test_rows_that_are_done_leave_the_batch(self, model, prompts):
        rows = []
        hook = model.register_forward_pre_hook(
            lambda module, args, kwargs: rows.append(len(kwargs["input_ids"])), with_kwargs=True
        )
        output = model.generate(
            **prompts,
            max_new_tokens=NEW_TOKENS,
            mars_threshold=0.5,
            eos_token_id=[EOS, 39, 41],
            return_dict_in_generate=True,
        )
        hook.remove()
        steps = [len(acceptance_lengths) for acceptance_lengths in output.acceptance_lengths]
        assert len(set(steps)) > 1
        assert rows == [sum(count > step for count in steps) for step in range(max(steps))]

    def test_runs_of_a_full_block_at_threshold_zero(self, model, prompts):
        output = model.generate(
            **prompts, max_new_tokens=10, mars_threshold=0, eos_token_id=None, return_dict_in_generate=True
        )
        assert output.acceptance_lengths == [[4, 4, 2]] * 4
        assert output.num_forward_passes == 3

    def test_block_size_defaults_to_that_of_the_training(self, prompts):
        model = tiny_model(block_size=3)
        output = model.generate(
            **prompts, max_new_tokens=9, mars_threshold=0, eos_token_id=None, return_dict_in_generate=True
        )
        assert output.acceptance_lengths == [[3, 3, 3]] * 4


class TestVerify:
    @pytest.mark.parametrize("block_size", [2, 4, 8])
    @pytest.mark.parametrize("threshold", [0, 0.5, 0.9])
    def test_equals_plain_greedy(self, drafting_model, prompts, threshold, block_size):
        output = drafting_model.generate(
            **prompts,
            max_new_tokens=NEW_TOKENS,
            mars_threshold=threshold,
            mars_block_size=block_size,
            mars_verify=True,
            return_dict_in_generate=True,
        )
        assert output.sequences.tolist() == plain(drafting_model, **prompts, max_new_tokens=NEW_TOKENS).tolist()
        if threshold <= 0.5:
            assert output.tokens_per_forward > 1.3
            assert output.num_forward_passes < max(map(sum, output.acceptance_lengths))

    def test_equals_plain_greedy_where_drafts_often_fail(self, model, prompts):
        output = model.generate(
            **prompts, max_new_tokens=NEW_TOKENS, mars_threshold=0, mars_verify=True, return_dict_in_generate=True
        )
        assert output.sequences.tolist() == plain(model, **prompts, max_new_tokens=NEW_TOKENS).tolist()
        assert any(run_length == 1 for row in output.acceptance_lengths for run_length in row[1:])
        assert any(run_length > 1 for row in output.acceptance_lengths for run_length in row)

    def test_without_a_threshold_it_drafts_at_its_own(self, cheap_columns, drafting_model, prompts):
        output = drafting_model.generate(
            **prompts, max_new_tokens=NEW_TOKENS, mars_verify=True, return_dict_in_generate=True
        )
        assert output.sequences.tolist() == plain(drafting_model, **prompts, max_new_tokens=NEW_TOKENS).tolist()
        assert output.tokens_per_forward > 1.3


class TestAutoregressive:
    @pytest.mark.parametrize("arguments", [{"mars_threshold": 1.0}, {"mars_threshold": 0.5, "mars_block_size": 1}])
    @pytest.mark.parametrize("verify", [False, True])
    def test_one_token_a_step_equals_plain_greedy(self, model, prompts, arguments, verify):
        output = model.generate(
            **prompts, max_new_tokens=NEW_TOKENS, mars_verify=verify, return_dict_in_generate=True, **arguments
        )
        assert isinstance(output, MARSGenerateOutput)
        expected = plain(model, **prompts, max_new_tokens=NEW_TOKENS)
        assert output.sequences.tolist() == expected.tolist()
        assert output.num_forward_passes == expected.shape[1] - prompts["input_ids"].shape[1]
        assert output.tokens_per_forward == 1.0
        for row, acceptance_lengths in zip(output.sequences.tolist(), output.acceptance_lengths, strict=True):
            generated = row[prompts["input_ids"].shape[1] :]
            assert sum(acceptance_lengths) == (generated.index(EOS) + 1 if EOS in generated else len(generated))

    def test_end_of_sequence_ids_of_the_call_are_counted(self, model, prompts):
        arguments = {
            **prompts,
            "max_new_tokens": NEW_TOKENS,
            "eos_token_id": [EOS, 22],
            "return_dict_in_generate": True,
        }
        one = model.generate(**arguments, mars_threshold=1.0)
        expected = model.generate(**arguments, mars_threshold=0.99999, mars_verify=True)
        assert one.sequences.tolist() == expected.sequences.tolist()
        assert [sum(run) for run in one.acceptance_lengths] == [sum(run) for run in expected.acceptance_lengths]

    def test_without_mars_arguments_it_is_plain_generation(self, model, prompts):
        output = model.generate(**prompts, max_new_tokens=NEW_TOKENS, return_dict_in_generate=True)
        assert not isinstance(output, MARSGenerateOutput)
        assert output.sequences.tolist() == plain(model, **prompts, max_new_tokens=NEW_TOKENS).tolist()

    def test_without_mars_arguments_sampling_is_plain_too(self, model, prompts):
        torch.manual_seed(0)
        output = model.generate(**prompts, max_new_tokens=8, do_sample=True)
        torch.manual_seed(0)
        assert output.tolist() == GenerationMixin.generate(model, **prompts, max_new_tokens=8, do_sample=True).tolist()


@pytest.mark.parametrize("verify", [False, True])
class TestStopping:
    def test_several_end_of_sequence_ids_cut_within_a_run(self, drafting_model, prompts, verify):
        reference = drafting_model.generate(
            **prompts, max_new_tokens=NEW_TOKENS, mars_threshold=0.3, mars_verify=verify, eos_token_id=None
        )
        generated = reference[:, prompts["input_ids"].shape[1] :]
        # One id that the first row emits in the middle, one that the third does.
        stops = [generated[0, 6].item(), generated[2, 9].item()]
        output = drafting_model.generate(
            **prompts,
            max_new_tokens=NEW_TOKENS,
            mars_threshold=0.3,
            mars_verify=verify,
            eos_token_id=stops,
            return_dict_in_generate=True,
        )
        for row, tokens in enumerate(generated.tolist()):
            end = next((i + 1 for i, token in enumerate(tokens) if token in stops), len(tokens))
            result = output.sequences[row, prompts["input_ids"].shape[1] :].tolist()
            assert result == tokens[:end] + [PAD] * (len(result) - end)
            assert sum(output.acceptance_lengths[row]) == end

    def test_max_new_tokens_and_max_length_agree(self, model, prompts, verify):
        arguments = {"mars_threshold": 0.2, "mars_verify": verify, "eos_token_id": None}
        width = prompts["input_ids"].shape[1]
        for limit in (1, 2, 3, 11):
            by_new_tokens = model.generate(**prompts, max_new_tokens=limit, **arguments)
            by_length = model.generate(**prompts, max_length=width + limit, **arguments)
            assert by_new_tokens.shape[1] == width + limit
            assert by_new_tokens.tolist() == by_length.tolist()

    def test_streamer_gets_the_prompt_and_then_each_run(self, model, prompts, verify):
        streamer = RecordingStreamer()
        output = model.generate(
            prompts["input_ids"][3:],
            max_new_tokens=NEW_TOKENS,
            mars_threshold=0.3,
            mars_verify=verify,
            streamer=streamer,
            return_dict_in_generate=True,
        )
        prompt, *runs = streamer.puts
        assert prompt == prompts["input_ids"][3:].tolist()
        assert [len(run) for run in runs] == output.acceptance_lengths[0]
        assert prompt[0] + sum(runs, []) == output.sequences[0].tolist()
        assert streamer.ends == 1


class TestInputs:
    def test_a_generation_config_object_is_used(self, model, prompts):
        config = GenerationConfig(max_new_tokens=7, eos_token_id=None, pad_token_id=PAD)
        output = model.generate(**prompts, generation_config=config, mars_threshold=0.5)
        assert output.shape[1] == prompts["input_ids"].shape[1] + 7

    def test_positional_input_ids(self, model, prompts):
        ids = prompts["input_ids"][3:]
        assert model.generate(ids, max_new_tokens=8, mars_threshold=0.5).tolist() == (
            model.generate(input_ids=ids, max_new_tokens=8, mars_threshold=0.5).tolist()
        )

    def test_prompts_longer_than_a_cache_block(self):
        model = tiny_model(tiny_config(max_position_embeddings=1024), sharpness=16.0, similarity=1.0)
        prompts = ragged_prompts([250, 300])
        output = model.generate(
            **prompts, max_new_tokens=30, mars_threshold=0.5, mars_verify=True, return_dict_in_generate=True
        )
        assert output.sequences.tolist() == plain(model, **prompts, max_new_tokens=30).tolist()
        assert output.tokens_per_forward > 1.1

    @pytest.mark.parametrize("attn_implementation", ["eager", "sdpa"])
    def test_attention_backends_agree(self, prompts, attn_implementation):
        model = tiny_model(sharpness=16.0, similarity=1.0, attn_implementation=attn_implementation)
        output = model.generate(**prompts, max_new_tokens=NEW_TOKENS, mars_threshold=0.5)
        reference = tiny_model(sharpness=16.0, similarity=1.0)
        assert output.tolist() == reference.generate(**prompts, max_new_tokens=NEW_TOKENS, mars_threshold=0.5).tolist()


@pytest.mark.parametrize("threshold", [0.5, 1.0])
class TestStreamerContract:
    """The same with one and with several tokens a forward."""

    def test_a_batch_is_refused(self, model, prompts, threshold):
        streamer = RecordingStreamer()
        with pytest.raises(ValueError, match="streamer"):
            model.generate(**prompts, max_new_tokens=4, mars_threshold=threshold, streamer=streamer)
        assert (streamer.puts, streamer.ends) == ([], 1)

    def test_put_accepted_replaces_put(self, model, prompts, threshold):
        class Runs(RecordingStreamer):
            runs = ()

            def put_accepted(self, token_ids, confidences):
                self.runs += (token_ids.tolist(),)

        streamer = Runs()
        output = model.generate(
            prompts["input_ids"][3:], max_new_tokens=8, mars_threshold=threshold, streamer=streamer
        )
        assert streamer.puts == prompts["input_ids"][3:].unsqueeze(0).tolist()
        assert sum(streamer.runs, []) == output[0, prompts["input_ids"].shape[1] :].tolist()

    def test_end_comes_once_if_a_processor_fails(self, model, prompts, threshold):
        def fail(input_ids, scores):
            raise RuntimeError("broken")

        streamer = RecordingStreamer()
        arguments = {"max_new_tokens": 8, "mars_threshold": threshold, "logits_processor": [fail]}
        with pytest.raises(RuntimeError, match="broken"):
            model.generate(prompts["input_ids"][3:], streamer=streamer, **arguments)
        assert streamer.ends == 1


@pytest.mark.parametrize("threshold", [0.99999, 1.0])
def test_rows_that_a_criterion_ends_are_counted_without_their_padding(model, prompts, threshold):
    output = model.generate(
        **prompts,
        max_new_tokens=NEW_TOKENS,
        mars_threshold=threshold,
        stopping_criteria=[lambda input_ids, scores, **kwargs: input_ids[:, -1] == 22],
        return_dict_in_generate=True,
    )
    width = prompts["input_ids"].shape[1]
    for row, acceptance_lengths in zip(output.sequences[:, width:].tolist(), output.acceptance_lengths, strict=True):
        assert sum(acceptance_lengths) == (row.index(22) + 1 if 22 in row else len(row))


@pytest.mark.parametrize("threshold", [0.5, 1.0])
def test_without_a_prompt_generation_begins_with_its_own_token(threshold):
    model = tiny_model(tiny_config(bos_token_id=3))
    output = model.generate(max_new_tokens=6, mars_threshold=threshold, return_dict_in_generate=True)
    assert output.sequences[0, 0] == 3
    assert sum(output.acceptance_lengths[0]) == output.sequences.shape[1] - 1


def test_thirty_two_bit_ids_and_labels_are_taken_as_by_plain_generation(model, prompts):
    expected = model.generate(**prompts, max_new_tokens=8, mars_threshold=0.5)
    prompts = {"input_ids": prompts["input_ids"].int(), "attention_mask": prompts["attention_mask"]}
    output = model.generate(**prompts, labels=prompts["input_ids"], max_new_tokens=8, mars_threshold=0.5)
    assert output.tolist() == expected.tolist()
