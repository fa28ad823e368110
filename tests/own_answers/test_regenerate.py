"""Own answers: those of `generate`, whatever interrupts them."""

import json

import pytest
import torch
from datasets import load_dataset

from hf_mars.own_answers import Answer, AnswerSettings, ModelAnswerer, regenerate
from tests.tiny_text import counting_examples, sharp_text_model


PROMPTS = list(counting_examples(7)["prompt"])


@pytest.fixture(scope="module")
def model():
    return sharp_text_model()


class Interrupted(Exception):
    pass


class Fake:
    """Answers with the number of the batch, and stops where it is told to."""

    def __init__(self, last_batch=100):
        self.last_batch, self.batches = last_batch, []

    def answer(self, prompts, batch):
        if batch > self.last_batch:
            raise Interrupted
        self.batches.append(batch)
        return [Answer(f"{batch}", is_finished=True, num_tokens=1) for _ in prompts]


def run(directory, answerer, batch_size=3, **settings):
    return regenerate(PROMPTS, answerer, directory, {"model": "tiny", **settings}, batch_size=batch_size)


def test_an_interrupted_run_goes_on_also_in_the_middle_of_a_batch(tmp_path, capsys):
    with pytest.raises(Interrupted):
        run(tmp_path, Fake(last_batch=1))
    path = tmp_path / "train.jsonl"
    lines = path.read_text().splitlines()
    assert len(lines) == 6
    path.write_text("\n".join(lines[:4]) + "\n" + lines[4][:20])  # as a kill leaves it
    answerer = Fake()
    dataset = run(tmp_path, answerer)
    assert answerer.batches == [1, 2]
    assert [messages[0]["content"] for messages in dataset["completion"]] == ["0"] * 3 + ["1"] * 3 + ["2"]
    assert list(dataset["prompt"]) == PROMPTS
    answerer = Fake()
    run(tmp_path, answerer)
    assert answerer.batches == []
    assert "answers: 7 of 7" in capsys.readouterr().out


def test_it_is_an_ordinary_data_set_with_its_settings_on_the_card(tmp_path):
    run(tmp_path, Fake(), temperature=0.5)
    dataset = load_dataset(str(tmp_path), split="train")
    assert dataset.column_names == ["prompt", "completion", "is_finished"] and len(dataset) == 7
    card = (tmp_path / "README.md").read_text()
    assert "| temperature | 0.5 |" in card and "| batch size | 3 |" in card


def test_other_settings_and_other_directories_are_refused(tmp_path):
    run(tmp_path / "answers", Fake(), temperature=0.5)
    with pytest.raises(ValueError, match="another temperature"):
        run(tmp_path / "answers", Fake(), temperature=0.7)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(ValueError, match="something else"):
        run(tmp_path / "other", Fake())


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("threshold", [None, 0.5])
def test_the_model_answers_as_generate_does(model, temperature, threshold):
    model, tokenizer = model
    settings = AnswerSettings(temperature=temperature, max_new_tokens=12, seed=3)
    answers = ModelAnswerer(model, tokenizer, settings, threshold).answer(PROMPTS[:3], batch=2)
    inputs = tokenizer.apply_chat_template(
        PROMPTS[:3], add_generation_prompt=True, padding=True, return_dict=True, return_tensors="pt",
        tokenizer_kwargs={"padding_side": "left"},
    )  # fmt: skip
    torch.manual_seed(5)
    arguments = {"do_sample": True, "temperature": 1.0, "top_k": 0} if temperature else {"do_sample": False}
    if threshold is not None and temperature:
        arguments |= {"mars_threshold": threshold, "mars_verify": True}
    output = model.generate(**inputs, max_new_tokens=12, **arguments)[:, inputs["input_ids"].shape[1] :]
    assert [answer.text for answer in answers] == tokenizer.batch_decode(output, skip_special_tokens=True)
    ends = [tokenizer.eos_token_id in row for row in output.tolist()]
    assert [answer.is_finished for answer in answers] == ends
    assert all(answer.num_tokens <= 12 for answer in answers)


def test_texts_are_answered_as_texts(tmp_path, model):
    answerer = ModelAnswerer(*model, AnswerSettings(temperature=0.0, max_new_tokens=4))
    dataset = regenerate(["one two", "three"], answerer, tmp_path, {"model": "tiny"}, num_answers=2, batch_size=4)
    assert list(dataset["prompt"]) == ["one two", "one two", "three", "three"]
    assert all(isinstance(text, str) for text in dataset["completion"])
    assert json.loads((tmp_path / "train.jsonl").read_text().splitlines()[0])["prompt"] == "one two"
