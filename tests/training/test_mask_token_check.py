"""Data that contain the mask token: one warning a data set, with the count."""

import datasets
import pytest
from datasets import Dataset

from hf_mars import MARSTrainer
from hf_mars.training import mask_token_check
from hf_mars.training.mask_token_check import count_token
from tests.tiny_text import byte_level_tokenizer, counting_examples, text_model
from tests.training.runs import small_config


TOKEN = "<|unused|>"


@pytest.fixture(scope="module")
def tokenizer():
    return byte_level_tokenizer()


@pytest.fixture
def warnings(monkeypatch):
    told = []
    monkeypatch.setattr(mask_token_check.logger, "warning", told.append)
    return told


def texts(*counts):
    """Texts with the given numbers of mask tokens."""
    return Dataset.from_dict({"text": ["one two three" + f"{TOKEN} four" * count for count in counts]})


def make_trainer(tmp_path, tokenizer, train_dataset, eval_dataset=None, **overrides):
    overrides = {"mask_token": TOKEN, "eval_thresholds": [], "gradient_checkpointing": False, **overrides}
    return MARSTrainer(
        text_model(tokenizer),
        small_config(tmp_path, **{"per_device_train_batch_size": 2, "max_steps": 3, **overrides}),
        train_dataset=train_dataset,
        eval_dataset=eval_dataset,
        processing_class=tokenizer,
    )


def starts(warnings):
    return [warning.split(". ")[0] for warning in warnings]


@pytest.mark.parametrize(
    ("overrides", "where"),
    [
        ({}, "in 2 of 5 rows"),
        ({"packing": True, "max_length": 256}, "in 1 of 1 rows"),
        ({"padding_free": True, "max_length": None}, "in 2 of 5 rows"),
        ({"shuffle_dataset": True}, "in 2 of 5 rows"),
        ({"dataloader_num_workers": 1}, "in 2 of 5 rows"),
    ],
)
@pytest.mark.integration
def test_a_data_set_is_counted_at_the_start(tmp_path, tokenizer, warnings, overrides, where):
    trainer = make_trainer(tmp_path, tokenizer, texts(0, 3, 0, 1, 0), **overrides)
    expected = [f"`train_dataset` contains the mask token '{TOKEN}' 4 times, {where}"]
    assert starts(warnings) == expected
    trainer.train()
    assert starts(warnings) == expected, "it is told once"


def test_supervised_or_not_does_not_matter(tmp_path, tokenizer, warnings):
    rows = {"prompt": [f"one {TOKEN}", "one"], "completion": [" two", f" two {TOKEN} {TOKEN}"]}
    make_trainer(tmp_path, tokenizer, Dataset.from_dict(rows))
    assert "3 times, in 2 of 2 rows" in warnings[0]


def test_what_truncation_cuts_off_is_not_counted(tmp_path, tokenizer, warnings):
    mask = tokenizer.convert_tokens_to_ids(TOKEN)
    rows = [{"input_ids": [5, mask, mask, 6, mask, mask], "labels": [5, -100, -100, 6, -100, -100]}]
    make_trainer(tmp_path, tokenizer, Dataset.from_list(rows), max_length=5)
    assert "3 times, in 1 of 1 rows" in warnings[0]


def test_data_without_it_are_no_news(tmp_path, tokenizer, warnings):
    trainer = make_trainer(tmp_path, tokenizer, counting_examples(6).to_iterable_dataset(), counting_examples(2))
    trainer.train()
    trainer.evaluate()
    assert warnings == []


@pytest.mark.parametrize("layout", [{}, {"padding_free": True, "max_length": None}])
def test_a_stream_is_counted_up_to_the_first_batch_that_has_some(tmp_path, tokenizer, warnings, layout):
    stream = texts(0, 0, 2, 1, 5, 5).to_iterable_dataset()
    trainer = make_trainer(tmp_path, tokenizer, stream, **layout)
    assert warnings == []
    trainer.train()
    message = f"`train_dataset` contains the mask token '{TOKEN}' 3 times, in batch 2, the first with any"
    assert starts(warnings) == [message]


def test_a_packed_stream(tmp_path, tokenizer, warnings):
    stream = texts(0, 2, 1).to_iterable_dataset()
    make_trainer(tmp_path, tokenizer, stream, packing=True, max_length=64, max_steps=1).train()
    assert "3 times, in batch 1" in warnings[0] and len(warnings) == 1


def test_what_is_tokenised_as_it_is_read_is_counted_like_a_stream(tmp_path, tokenizer, warnings):
    lazy = texts(0, 1).with_transform(
        lambda rows: tokenizer(rows["text"]) | {"labels": tokenizer(rows["text"])["input_ids"]}
    )
    arguments = {"dataset_kwargs": {"skip_prepare_dataset": True}, "remove_unused_columns": False, "max_steps": 1}
    make_trainer(tmp_path, tokenizer, lazy, **arguments).train()
    assert starts(warnings) == [
        f"`train_dataset` contains the mask token '{TOKEN}' once, in batch 1, the first with any"
    ]


def test_each_evaluated_data_set_is_told_by_its_name(tmp_path, tokenizer, warnings):
    evaluated = {"none": texts(0), "held": texts(2, 0), "streamed": texts(1, 1).to_iterable_dataset()}
    trainer = make_trainer(tmp_path, tokenizer, texts(0, 0), evaluated, eval_strategy="steps", eval_steps=1)
    assert starts(warnings) == [f"`eval_dataset['held']` contains the mask token '{TOKEN}' 2 times, in 1 of 2 rows"]
    trainer.train()
    assert len(warnings) == 2 and "`eval_dataset['streamed']`" in warnings[1]
    assert "2 times, in batch 1" in warnings[1]


def test_data_that_come_later(tmp_path, tokenizer, warnings):
    trainer = make_trainer(tmp_path, tokenizer, texts(0, 0))
    for _ in range(2):
        trainer.evaluate(texts(3, 0))
    trainer.predict(trainer._prepare_dataset(texts(1), tokenizer, trainer.args, False, None, "test"))
    assert starts(warnings) == [
        f"`eval_dataset` contains the mask token '{TOKEN}' 3 times, in 1 of 2 rows",
        f"`test_dataset` contains the mask token '{TOKEN}' once, in 1 of 1 rows",
    ]


def test_only_the_first_process_tells(tmp_path, tokenizer, warnings, monkeypatch):
    monkeypatch.setattr(MARSTrainer, "is_world_process_zero", lambda self: False)
    make_trainer(tmp_path, tokenizer, texts(2, 0)).train()
    make_trainer(tmp_path, tokenizer, texts(2, 0).to_iterable_dataset()).train()
    assert warnings == []


@pytest.mark.parametrize("feature", [datasets.List, datasets.LargeList])
def test_counting_follows_the_table(feature):
    features = datasets.Features({"input_ids": feature(datasets.Value("int32"))})
    rows = [[7, 1, 7], [], [2], [7], [1, 1]]
    dataset = Dataset.from_dict({"input_ids": rows}, features=features)
    assert count_token(dataset, 7) == (3, 2)
    assert count_token(dataset.select([3, 2, 3]), 7) == (2, 2)
    assert count_token(dataset.select(range(1, 4)).with_format("torch"), 7) == (1, 1)
    assert count_token(datasets.concatenate_datasets([dataset, dataset]), 7) == (6, 4)
    assert count_token(dataset.select([]), 7) == (0, 0)
