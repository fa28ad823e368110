"""What became of the drafts, in an answer and in `/metrics`: exact values where acceptance is forced."""

import pytest

from hf_mars.decoding import AcceptanceCounts
from hf_mars.serving.openai.responses import summarize_drafts
from tests.serving.requests import chat


pytestmark = pytest.mark.integration


COUNTERS = ("num_drafts", "num_draft_tokens", "num_accepted_tokens")
# Every mask is accepted, and the third forward has room for two tokens: 4, 4 and 2.
FORCED = {"max_tokens": 10, "mars_threshold": 0.0, "mars_verify": False}


def read_counters(server):
    positions = [f'mars_spec_decode_num_accepted_tokens_per_pos_total{{position="{p}"}}' for p in range(3)]
    names = [*(f"mars_spec_decode_{name}_total" for name in COUNTERS), *positions]
    told = server.get("/metrics")
    return [server.metric(name) if f"\n{name} " in told else 0.0 for name in names]


@pytest.mark.parametrize("stream", [False, True])
def test_forced_acceptance_is_counted_exactly(server, client, stream):
    before = read_counters(server)
    if stream:
        *_, answer = chat(client, stream=True, stream_options={"include_usage": True}, **FORCED)
    else:
        answer = chat(client, **FORCED)
    assert answer.usage.completion_tokens == 10 and answer.usage.forward_passes == 3
    assert answer.metrics["speculative_decoding"] == {
        "mean_acceptance_length": 1 + 7 / 3,
        "draft_acceptance_rate": 1.0,
        "acceptance_histogram": [0, 1, 0, 2],
        "num_spec_steps": 3,
        "num_accepted_draft_tokens": 7,
        "num_spec_tokens": 3,
        "num_drafts": 3,
        "num_draft_tokens": 7,
        "num_accepted_tokens": 7,
        "num_accepted_tokens_per_pos": [3, 2, 2],
    }
    after = read_counters(server)
    assert [new - old for new, old in zip(after, before, strict=True)] == [3, 7, 7, 3, 2, 2]


def test_a_verified_answer_has_the_counts_of_generate(client, text_model):
    model, tokenizer = text_model
    messages = [{"role": "user", "content": "Count from 3."}]
    inputs = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True, return_tensors="pt")
    arguments = {"mars_threshold": 0.1, "mars_verify": True}
    output = model.generate(**inputs, max_new_tokens=40, do_sample=False, return_dict_in_generate=True, **arguments)
    told = chat(client, **arguments).metrics["speculative_decoding"]
    for name in (*COUNTERS, "num_accepted_tokens_per_pos"):
        assert told[name] == getattr(output, name)[0]
    assert 0 < told["num_accepted_tokens"] < told["num_draft_tokens"], "some drafts hold and some fail"
    assert told["draft_acceptance_rate"] == output.acceptance_rate
    assert told["mean_acceptance_length"] == output.mean_acceptance_length


def test_several_choices_tell_none(client):
    assert "metrics" not in chat(client, n=2, temperature=1.0).model_extra


def test_the_histogram_counts_drafts_by_what_held_of_them():
    counts = AcceptanceCounts()
    for observed in ((3, 0), (3, 0), (3, 1), (2, 2), (3, 3)):
        counts.observe(*observed)
    assert summarize_drafts(counts)["acceptance_histogram"] == [2, 1, 1, 1]
    assert summarize_drafts(AcceptanceCounts())["acceptance_histogram"] == [0]
