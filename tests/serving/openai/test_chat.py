import asyncio
import http.client
import json

import openai
import pytest

from tests.serving.conftest import MODEL_NAME
from tests.serving.requests import BODY, MESSAGES, chat, plain_answer


pytestmark = pytest.mark.integration


class TestChat:
    def test_the_default_answer_is_that_of_plain_generation(self, client, text_model):
        text, num_tokens = plain_answer(text_model, "Count from 3.")
        response = chat(client)
        assert response.object == "chat.completion"
        assert response.choices[0].message.role == "assistant"
        assert response.choices[0].message.content == text
        assert response.choices[0].finish_reason in ("stop", "length")
        assert response.usage.completion_tokens == num_tokens
        assert response.usage.total_tokens == response.usage.prompt_tokens + num_tokens
        held = chat(client, mars_threshold=0.5)  # planned steps may be plain ones
        assert held.choices[0].message.content == text and held.usage.forward_passes < num_tokens
        assert response.usage.tokens_per_forward == pytest.approx(num_tokens / response.usage.forward_passes, abs=1e-3)

    def test_a_stream_has_its_first_text_usage_and_final_chunks(self, client):
        held = {"mars_threshold": 0.5}  # else the load of an earlier test still moves it, and the forwards with it
        whole = chat(client, **held)
        chunks = list(chat(client, stream=True, stream_options={"include_usage": True}, **held))
        assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
        assert len({chunk.id for chunk in chunks}) == 1
        first, *middle, final, last = chunks
        assert first.choices[0].delta.role == "assistant" and first.choices[0].delta.content == ""
        assert all(chunk.choices[0].finish_reason is None for chunk in (first, *middle))
        assert "".join(chunk.choices[0].delta.content for chunk in middle) == whole.choices[0].message.content
        assert final.choices[0].finish_reason == whole.choices[0].finish_reason
        assert final.choices[0].delta.content is None
        assert last.choices == [] and last.usage == whole.usage
        assert len(middle) > 1

    def test_without_the_option_no_usage_is_streamed(self, client):
        chunks = list(chat(client, stream=True))
        assert all(chunk.choices and chunk.usage is None for chunk in chunks)

    def test_content_in_parts_is_joined(self, client):
        parts = [{"type": "text", "text": "Count "}, {"type": "text", "text": "from 3."}]
        assert chat(client, parts).choices[0].message == chat(client).choices[0].message

    @pytest.mark.parametrize("stream", [False, True])
    def test_the_answer_ends_before_a_stop_string(self, client, text_model, stream):
        text, num_tokens = plain_answer(text_model, "Count from 3.")
        stop = text[len(text) // 2 : len(text) // 2 + 3]
        response = chat(client, stop=[stop, "never there"], stream=stream)
        if stream:
            chunks = list(response)
            content = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
            assert chunks[-1].choices[0].finish_reason == "stop"
        else:
            content = response.choices[0].message.content
            assert response.choices[0].finish_reason == "stop"
            assert response.usage.completion_tokens < num_tokens
        assert content == text[: text.index(stop)]

    def test_seeds_and_choices(self, client):
        sampling = {
            "temperature": 1.2,
            "top_p": 0.95,
            "n": 3,
            "mars_threshold": 0.5,
        }  # a seed repeats at one threshold
        first, again, other = (chat(client, seed=seed, **sampling) for seed in (5, 5, 6))
        texts = [[choice.message.content for choice in response.choices] for response in (first, again, other)]
        assert texts[0] == texts[1] != texts[2]
        assert len(set(texts[0])) == 3
        assert [choice.index for choice in first.choices] == [0, 1, 2]
        chunks = list(chat(client, seed=5, stream=True, **sampling))
        streamed = ["", "", ""]
        for chunk in chunks:
            streamed[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
        assert streamed == texts[0]

    def test_greedy_by_temperature_zero(self, client):
        assert chat(client, temperature=0, top_p=0.5).choices[0].message == chat(client).choices[0].message

    @pytest.mark.parametrize("stream", [False, True])
    def test_logprobs(self, client, stream):
        response = chat(client, logprobs=True, top_logprobs=2, stream=stream)
        if stream:
            chunks = [chunk.choices[0] for chunk in response]
            entries = [entry for choice in chunks if choice.logprobs for entry in choice.logprobs.content]
        else:
            entries = response.choices[0].logprobs.content
        whole = chat(client)
        assert len(entries) == whole.usage.completion_tokens
        text = b"".join(bytes(entry.bytes) for entry in entries).decode(errors="replace")
        assert text == whole.choices[0].message.content
        for entry in entries:
            assert len(entry.top_logprobs) == 2
            assert entry.logprob == entry.top_logprobs[0].logprob <= 0, "greedy"

    def test_a_conversation_goes_on_with_the_answer_as_it_came(self, client):
        answer = chat(client).choices[0].message
        messages = [*MESSAGES, answer, {"role": "user", "content": "Go on."}]
        unset = dict.fromkeys(("tools", "tool_choice", "metadata", "service_tier", "functions"))
        response = client.chat.completions.create(model=MODEL_NAME, messages=messages, max_tokens=8, extra_body=unset)
        assert response.usage.prompt_tokens > chat(client).usage.total_tokens

    def test_a_temperature_near_zero_is_greedy(self, client):
        assert chat(client, temperature=1e-40).choices[0].message == chat(client, temperature=0).choices[0].message

    def test_a_request_may_turn_the_threshold(self, client):
        lossy = chat(client, mars_threshold=0.0, mars_verify=False)
        plain = chat(client, mars_threshold=1.0)
        assert plain.usage.forward_passes == plain.usage.completion_tokens
        assert lossy.usage.tokens_per_forward > 3
        wide = chat(client, mars_threshold=0.0, mars_verify=False, mars_block_size=8)
        assert wide.usage.tokens_per_forward > 6
        verified = chat(client, mars_threshold=0.0, mars_verify=True, mars_metric="margin")
        assert verified.choices[0].message == plain.choices[0].message


class TestManyClients:
    def test_32_streams_equal_their_solo_runs(self, server, text_model):
        contents = [f"Count from {number}." + " again" * (number % 7) for number in range(32)]

        async def stream(client, content, number):
            # Every other one goes by a threshold, and not by what steps cost at the moment.
            held = {"mars_threshold": 0.5} if number % 2 else {}
            chunks = await client.chat.completions.create(
                model=MODEL_NAME,
                messages=[{"role": "user", "content": content}],
                max_tokens=40,
                stream=True,
                stream_options={"include_usage": True},
                extra_body=held,
            )
            text, usage = "", None
            async for chunk in chunks:
                text += (chunk.choices[0].delta.content or "") if chunk.choices else ""
                usage = chunk.usage or usage
            return text, usage

        async def together():
            async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
                return await asyncio.gather(
                    *(stream(client, content, number) for number, content in enumerate(contents))
                )

        forwards = server.metric("mars_forward_passes_total")
        answers = asyncio.run(together())
        forwards = server.metric("mars_forward_passes_total") - forwards
        for content, (text, usage) in zip(contents, answers, strict=True):
            assert (text, usage.completion_tokens) == plain_answer(text_model, content)
        assert len({text for text, _ in answers}) > 28, "they are not all the same"
        num_tokens = sum(usage.completion_tokens for _, usage in answers)
        held = [usage for _, usage in answers[1::2]]
        assert sum(usage.forward_passes for usage in held) < 0.8 * sum(usage.completion_tokens for usage in held)
        assert forwards < num_tokens / 8, "several rows and several tokens a forward"

    def test_clients_that_go_away_free_their_rows(self, server, client):
        before = server.metric("mars_cancelled_total")
        long = {"max_tokens": 400, "temperature": 1.5, "mars_threshold": 1.0, "stream": True}
        streams = [chat(client, **long) for _ in range(3)]
        for stream in streams:
            next(iter(stream))
        assert server.metric("mars_requests_running") == 3
        for stream in streams:
            stream.close()
        server.wait_for("mars_requests_running", 0, seconds=2)
        assert server.metric("mars_cancelled_total") == before + 3

    def test_so_does_one_that_waits_for_a_whole_answer(self, server):
        before = server.metric("mars_cancelled_total")
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        body = {**BODY, "max_tokens": 400, "temperature": 1.5, "mars_threshold": 1.0}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        server.wait_for("mars_requests_running", 1)
        connection.close()
        server.wait_for("mars_requests_running", 0, seconds=2)
        assert server.metric("mars_cancelled_total") == before + 1
