"""Stopping criteria are judged after each token although several come at once; streamers get what is returned."""

import threading
from types import SimpleNamespace

import pytest
import torch
from transformers import (
    GenerationConfig,
    GenerationMixin,
    StoppingCriteria,
    StoppingCriteriaList,
    TextIteratorStreamer,
    TextStreamer,
)

from hf_mars import enable_mars
from hf_mars.modeling import add_mask_token
from tests.tiny import EOS, PAD, ragged_prompts, tiny_model
from tests.tiny_text import byte_level_tokenizer, text_model


NEW_TOKENS = 24


@pytest.fixture(scope="module")
def model():
    return tiny_model(sharpness=8.0, similarity=2.0)


@pytest.fixture
def prompts():
    return ragged_prompts([5, 9, 3])


@pytest.fixture(scope="module")
def text():
    """A model and a tokenizer whose text can be stopped at strings."""
    tokenizer = byte_level_tokenizer()
    model = text_model(tokenizer).double().eval()
    model.generation_config.eos_token_id = None
    enable_mars(model, mask_token_id=add_mask_token(model, tokenizer), block_size=4)
    return model, tokenizer


class StopAfter(StoppingCriteria):
    """Stops a row once it has a given token, and records what it is called with."""

    def __init__(self, token):
        self.token, self.calls = token, []

    def __call__(self, input_ids, scores, **kwargs):
        self.calls.append(input_ids.tolist())
        return input_ids[:, -1] == self.token


class Recorder:
    def __init__(self, fail_at=None):
        self.puts, self.ends, self.fail_at = [], 0, fail_at

    def put(self, value):
        if len(self.puts) == self.fail_at:
            raise RuntimeError("the reader is gone")
        self.puts.append(value.tolist())

    def end(self):
        self.ends += 1


@pytest.mark.parametrize("verify", [False, True])
class TestCriteria:
    def test_a_custom_criterion_is_judged_after_each_token(self, model, prompts, verify):
        arguments = {**prompts, "max_new_tokens": NEW_TOKENS, "mars_threshold": 0.3, "mars_verify": verify}
        free = model.generate(**arguments, return_dict_in_generate=True)
        assert free.tokens_per_forward > 1.2
        criterion = StopAfter(free.sequences[1, 9 + 6].item())
        output = model.generate(
            **arguments, stopping_criteria=StoppingCriteriaList([criterion]), return_dict_in_generate=True
        )
        for row, tokens in enumerate(free.sequences[:, 9:].tolist()):
            tokens = tokens[: sum(free.acceptance_lengths[row])]
            end = tokens.index(criterion.token) + 1 if criterion.token in tokens else len(tokens)
            result = output.sequences[row, 9:].tolist()
            assert result == tokens[:end] + [PAD] * (len(result) - end)
            assert sum(output.acceptance_lengths[row]) == end
        # Called with all rows, once for each returned token
        assert all(len(call) == len(free.sequences) for call in criterion.calls)
        lengths = [len(call[0]) - 9 for call in criterion.calls]
        assert sorted(lengths) == sorted(i + 1 for row in output.acceptance_lengths for i in range(sum(row)))

    def test_a_criterion_may_keep_count_of_every_row(self, model, prompts, verify):
        class TrackRows(StoppingCriteria):
            """Looks back two tokens, and remembers which rows are done."""

            def __init__(self, pair):
                self.pair, self.done = pair, [False] * 8

            def __call__(self, input_ids, scores, **kwargs):
                for row, tokens in enumerate(input_ids[:, 9:][:, -2:].tolist()):
                    self.done[row] |= tokens == self.pair
                return torch.tensor(self.done[: len(input_ids)])

        arguments = {**prompts, "max_new_tokens": NEW_TOKENS, "mars_threshold": 0.3, "mars_verify": verify}
        free = model.generate(**arguments, return_dict_in_generate=True)
        for row in range(len(free.sequences)):
            pair = free.sequences[row, 9 + 5 : 9 + 7].tolist()
            output = model.generate(**arguments, stopping_criteria=[TrackRows(pair)], return_dict_in_generate=True)
            assert output.tokens_per_forward > 1
            for index, tokens in enumerate(free.sequences[:, 9:].tolist()):
                tokens = tokens[: sum(free.acceptance_lengths[index])]
                ends = [i + 1 for i in range(1, len(tokens)) if tokens[i - 1 : i + 1] == pair]
                assert sum(output.acceptance_lengths[index]) == (ends[0] if ends else len(tokens))

    def test_a_criterion_may_decide_for_the_whole_batch(self, model, prompts, verify):
        class AllAt(StoppingCriteria):
            def __call__(self, input_ids, scores, **kwargs):
                return input_ids.shape[1] >= 9 + 7

        output = model.generate(
            **prompts,
            max_new_tokens=NEW_TOKENS,
            mars_threshold=0.3,
            mars_verify=verify,
            stopping_criteria=[AllAt()],
            return_dict_in_generate=True,
        )
        assert max(map(sum, output.acceptance_lengths)) == 7

    def test_end_of_sequence_comes_before_other_criteria(self, model, prompts, verify):
        arguments = {**prompts, "max_new_tokens": NEW_TOKENS, "mars_threshold": 0.3, "mars_verify": verify}
        expected = model.generate(**arguments, eos_token_id=[EOS, 22])
        criterion = StopAfter(22)
        assert model.generate(**arguments, stopping_criteria=[criterion]).tolist() == expected.tolist()

    def test_a_criterion_may_read_the_scores(self, model, prompts, verify):
        lengths = []

        class ReadScores(StoppingCriteria):
            def __call__(self, input_ids, scores, **kwargs):
                assert all(score.shape == (len(input_ids), 48) for score in scores)
                lengths.append((input_ids.shape[1], len(scores)))
                return torch.tensor([False])

        model.generate(
            **prompts,
            max_new_tokens=NEW_TOKENS,
            mars_threshold=0.3,
            mars_verify=verify,
            stopping_criteria=[ReadScores()],
            output_scores=True,
            return_dict_in_generate=True,
        )
        assert lengths and all(length == 9 + num_scores for length, num_scores in lengths)

    def test_max_time_stops_early(self, model, prompts, verify, monkeypatch):
        # The clock moves by a second a forward.
        forwards = []
        hook = model.register_forward_hook(lambda *args: forwards.append(1))
        clock = SimpleNamespace(time=lambda: float(len(forwards)))
        monkeypatch.setattr("transformers.generation.stopping_criteria.time", clock)
        arguments = {"mars_threshold": 0.3, "mars_verify": verify, "eos_token_id": None}
        output = model.generate(**prompts, max_new_tokens=200, max_time=4.5, **arguments, return_dict_in_generate=True)
        hook.remove()
        assert output.num_forward_passes == 5
        assert 9 + 5 < output.sequences.shape[1] < 9 + 5 * 4

    def test_stop_strings_cut_within_a_run(self, text, verify):
        model, tokenizer = text
        inputs = tokenizer("Count from 3", return_tensors="pt")
        arguments = {**inputs, "max_new_tokens": 30, "mars_threshold": 0.0, "mars_verify": verify}
        free = model.generate(**arguments)[0, inputs["input_ids"].shape[1] :]
        stop = tokenizer.decode(free[9:11])
        output = model.generate(**arguments, stop_strings=[stop], tokenizer=tokenizer)
        expected = GenerationMixin.generate(
            model, **inputs, max_new_tokens=30, stop_strings=[stop], tokenizer=tokenizer
        )
        # Like plain generation, the criterion sees the end of the prompt too.
        last = inputs["input_ids"][0, -1:]
        end = next(end for end in range(1, len(free)) if stop in tokenizer.decode(torch.cat([last, free[:end]])))
        assert output[0, inputs["input_ids"].shape[1] :].tolist() == free[:end].tolist()
        if verify:
            assert output.tolist() == expected.tolist()

    def test_stop_strings_of_a_configuration(self, text, verify):
        model, tokenizer = text
        inputs = tokenizer("Count from 3", return_tensors="pt")
        arguments = {**inputs, "mars_threshold": 0.0, "mars_verify": verify}
        expected = model.generate(**arguments, max_new_tokens=30, stop_strings=["33"], tokenizer=tokenizer)
        config = GenerationConfig(max_new_tokens=30, stop_strings=["33"])
        output = model.generate(**arguments, generation_config=config, tokenizer=tokenizer)
        assert output.tolist() == expected.tolist()
        assert output.shape[1] < inputs["input_ids"].shape[1] + 30

    def test_stop_strings_without_a_tokenizer_are_an_error(self, model, prompts, verify):
        with pytest.raises(ValueError, match="tokenizer"):
            model.generate(**prompts, max_new_tokens=4, mars_threshold=0.3, mars_verify=verify, stop_strings=["a"])


class TestStreamers:
    def arguments(self, prompts):
        return {"inputs": prompts["input_ids"][1:2], "max_new_tokens": NEW_TOKENS, "mars_threshold": 0.3}

    def test_a_run_is_cut_before_it_is_streamed(self, model, prompts):
        streamer = Recorder()
        output = model.generate(**self.arguments(prompts), eos_token_id=[EOS, 41], streamer=streamer)
        assert prompts["input_ids"][1].tolist() + sum(streamer.puts[1:], []) == output[0].tolist()
        assert output[0, -1] == 41

    def test_end_comes_once_after_an_exception(self, model, prompts):
        streamer = Recorder(fail_at=2)
        with pytest.raises(RuntimeError, match="the reader is gone"):
            model.generate(**self.arguments(prompts), streamer=streamer)
        assert streamer.ends == 1

        def broken():
            raise RuntimeError("the knob is broken")

        streamer = Recorder()
        with pytest.raises(RuntimeError, match="the knob is broken"):
            model.generate(**{**self.arguments(prompts), "mars_threshold": broken}, streamer=streamer)
        assert streamer.ends == 1

    def test_put_accepted_gets_the_confidences(self, model, prompts):
        class Runs(Recorder):
            def __init__(self):
                super().__init__()
                self.runs = []

            def put_accepted(self, token_ids, confidences):
                self.runs.append((token_ids.tolist(), confidences.tolist()))

        streamer = Runs()
        output = model.generate(**self.arguments(prompts), streamer=streamer, return_dict_in_generate=True)
        assert [len(tokens) for tokens, _ in streamer.runs] == output.acceptance_lengths[0]
        assert [len(tokens) for tokens, _ in streamer.runs] == [len(values) for _, values in streamer.runs]
        for _, confidences in streamer.runs:
            assert all(confidence >= 0.3 for confidence in confidences[1:])
            assert all(0 <= confidence <= 1 for confidence in confidences)
        assert len(streamer.puts) == 1, "only the prompt is put"

    def test_text_streamer_prints_the_text(self, text, capsys):
        model, tokenizer = text
        inputs = tokenizer("Count from 3", return_tensors="pt")
        output = model.generate(
            **inputs, max_new_tokens=30, mars_threshold=0.0, streamer=TextStreamer(tokenizer, skip_prompt=True)
        )
        printed = capsys.readouterr().out.rstrip("\n")
        assert printed == tokenizer.decode(output[0, inputs["input_ids"].shape[1] :]).rstrip("\n")

    def test_an_iterator_streamer_can_be_cancelled(self, text):
        model, tokenizer = text
        cancelled = threading.Event()

        class Cancel(StoppingCriteria):
            def __call__(self, input_ids, scores, **kwargs):
                return torch.full((len(input_ids),), cancelled.is_set())

        streamer = TextIteratorStreamer(tokenizer, skip_prompt=True, timeout=30)
        inputs = tokenizer("Count from 3", return_tensors="pt")
        results = []
        # Once there is text to read, nothing goes on before it is read, however slow the reader is.
        hook = model.register_forward_pre_hook(
            lambda *args: None if streamer.text_queue.empty() else cancelled.wait(timeout=30) and None
        )
        thread = threading.Thread(
            target=lambda: results.append(
                model.generate(
                    **inputs,
                    max_new_tokens=5000,
                    mars_threshold=0.0,
                    streamer=streamer,
                    stopping_criteria=[Cancel()],
                )
            )
        )
        thread.start()
        next(iter(streamer))
        cancelled.set()
        for _ in streamer:
            pass
        thread.join(timeout=30)
        hook.remove()
        assert not thread.is_alive()
        assert results[0].shape[1] < 500
