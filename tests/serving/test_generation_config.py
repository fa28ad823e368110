"""What a checkpoint's generation configuration holds must not spoil requests that do not ask for it."""

import copy
import logging

import pytest
from transformers import GenerationConfig, WatermarkingConfig

from hf_mars.serving import GenerationRequest, Scheduler, ThresholdPolicy
from hf_mars.serving.generation_config import follow_generation_config
from hf_mars.serving.openai.protocol import ChatCompletionRequest
from tests.serving.scheduling import Collector


PROMPTS = [[5, 6, 7], [9, 8]]
CHAT = {"model": "m", "messages": [{"role": "user", "content": "a"}]}


@pytest.fixture
def serve(text_model):
    """Answers under a generation configuration with some values."""

    def serve(sampling, **values):
        model = copy.copy(text_model[0])
        model.generation_config = GenerationConfig(pad_token_id=model.generation_config.pad_token_id)
        for name, value in values.items():  # as they stand in a file, also those that `update` refuses
            setattr(model.generation_config, name, value)
        before = copy.deepcopy(vars(model.generation_config))
        scheduler = Scheduler(model, ThresholdPolicy("fixed", 0.0, 0.5, verify=True))
        try:
            collectors = [Collector() for _ in PROMPTS]
            requests = [GenerationRequest(prompt, 12, sampling=sampling, seed=1) for prompt in PROMPTS]
            scheduler.submit(requests, collectors)
            answers = [collector.wait() for collector in collectors]
        finally:
            scheduler.close()
        assert vars(model.generation_config) == before, "the user's own stays as it is"
        assert [answer.failure for answer in answers] == [None] * len(PROMPTS)
        return [answer.token_ids for answer in answers]

    return serve


@pytest.mark.parametrize(
    "values",
    [
        {"num_beams": 4},
        {"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 0.5},
        {"penalty_alpha": 0.6, "top_k": 4},
        {"guidance_scale": 1.5},
        {"prompt_lookup_num_tokens": 3},
        {"assistant_early_exit": 1},
        {"is_assistant": True, "assistant_confidence_threshold": 0.4},
        {"use_mtp": True},
        {"dola_layers": "low"},
        {"constraints": ["x"]},
        {"force_words_ids": [[5]]},
        {"watermarking_config": WatermarkingConfig()},
        {"output_attentions": True},
        {"output_hidden_states": True},
        {"token_healing": True},
        {"max_time": 100.0},
        {"stop_strings": ["a"]},
        {"num_return_sequences": 2, "do_sample": True},
        {"return_dict_in_generate": True, "output_scores": True, "output_logits": True},
        {"use_cache": False},
        {"cache_implementation": "static"},
        {"cache_implementation": "offloaded"},
        {"prefill_chunk_size": 2},
    ],
    ids=lambda values: "-".join(values),
)
def test_what_cannot_be_followed_is_told_once_and_left_out(serve, caplog, values):
    with caplog.at_level(logging.WARNING, "hf_mars.serving.generation_config"):
        assert serve({"do_sample": False}, **values) == serve({"do_sample": False})
    (record,) = [record for record in caplog.records if record.name == "hf_mars.serving.generation_config"]
    told = set(values) - {"diversity_penalty", "top_k", "assistant_confidence_threshold", "do_sample"}
    assert all(f"`{name}={values[name]!r}` (" in record.getMessage() for name in told)


@pytest.mark.parametrize("values", [{}, {"guidance_scale": 1}, {"num_beams": 1, "use_cache": True, "use_mtp": False}])
def test_values_that_change_nothing_are_not_told(text_model, caplog, values):
    model = copy.copy(text_model[0])
    model.generation_config = GenerationConfig(**values)
    with caplog.at_level(logging.WARNING, "hf_mars.serving.generation_config"):
        follow_generation_config(model)
    assert not [record for record in caplog.records if record.name == "hf_mars.serving.generation_config"]


@pytest.mark.parametrize("asked", [{"temperature": 1.5}, {"top_p": 0.99}])
@pytest.mark.parametrize(
    "values",
    [
        {"min_p": 0.999},
        {"typical_p": 0.001},
        {"epsilon_cutoff": 0.5},
        {"eta_cutoff": 0.9},
        {"top_h": 0.01},
        {"top_k": 1},
        {"top_p": 0.01, "temperature": 0.01},
        {"min_p": 7.0},
    ],
    ids=lambda values: "-".join(values),
)
def test_a_request_that_says_how_to_sample_is_cut_by_nothing_else(serve, asked, values):
    sampling = ChatCompletionRequest(**CHAT, **asked).sampling
    assumed = {"temperature": 1.0, "top_p": 1.0} if "temperature" in values else {}
    assert serve(sampling, **values) == serve(sampling, **assumed)


def test_what_no_request_asks_for_still_acts(serve):
    hot = {"do_sample": True, "temperature": 1.5}
    assert serve({}, **hot) != serve({}, **hot, min_p=0.999)
    banned = serve({})[0][0]
    assert banned not in serve({}, suppress_tokens=[banned])[0]


@pytest.mark.parametrize(
    "values, name",
    [({"do_sample": True, "min_p": 7.0}, "min_p"), ({"do_sample": True, "temperature": 0.0}, "temperature")],
)
def test_what_spoils_every_request_is_refused_at_the_start(serve, values, name):
    with pytest.raises(ValueError, match=f"No request can be served with this generation configuration: .*{name}"):
        serve({}, **values)
