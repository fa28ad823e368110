import pytest
from datasets import Dataset, DatasetDict

from hf_mars.cli.data import load_any_dataset, select_split


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.jsonl").write_text('{"text": "a"}\n{"text": "b"}\n')
    return tmp_path


@pytest.mark.parametrize("name", ["data/train.jsonl", "data", "./data"])
@pytest.mark.parametrize("streaming", [False, True])
def test_files_and_directories(data, name, streaming):
    rows = select_split(load_any_dataset(name, streaming=streaming), "train", "split")
    assert [row["text"] for row in rows] == ["a", "b"]


@pytest.mark.parametrize("splits", [False, True])
def test_what_was_saved_to_disk(data, splits):
    dataset = Dataset.from_list([{"text": "a"}])
    (DatasetDict(train=dataset) if splits else dataset).save_to_disk("saved")
    assert select_split(load_any_dataset("saved"), "train", "split")["text"] == ["a"]


@pytest.mark.parametrize(
    "name", ["data/trian.jsonl", "trian.json", "./dta", "../data", "/nowhere", "~/data", "a/b/c", "dta\\train.csv", ""]
)
def test_a_path_that_is_not_there_is_never_looked_up(data, monkeypatch, name):
    monkeypatch.setattr("hf_mars.cli.data.load_dataset", None)
    with pytest.raises(ValueError, match="`dataset_name` is .* no such file"):
        load_any_dataset(name, argument="dataset_name")


@pytest.mark.parametrize("name", ["org/name", "data/trian", "squad", "org/data-v1.5"])
def test_what_the_hub_does_not_give_is_named(data, name):
    with pytest.raises(ValueError, match=f"`--dataset` '{name}' could not be loaded.*Hub"):
        load_any_dataset(name, argument="--dataset")


def test_a_missing_split_is_named_with_those_that_exist():
    one = Dataset.from_list([{"text": "a"}])
    with pytest.raises(ValueError, match="`dataset_test_split`.*'test', only train, valid"):
        select_split(DatasetDict(train=one, valid=one), "test", "dataset_test_split")
    with pytest.raises(ValueError, match="'test', only train"):
        select_split(one, "test", "split")
