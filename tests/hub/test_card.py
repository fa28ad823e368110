"""What a model card says, and what it never says."""

import json
import shutil

import pytest
import yaml
from huggingface_hub import EvalResult, ModelCard, parse_eval_result_entries

from hf_mars import Evaluation, MARSTrainer, load_evaluation, save_pretrained
from hf_mars.hub import CheckpointCard, CheckpointFacts
from hf_mars.hub.paths import hub_id, read_card, without_paths
from tests.sweeps import evaluation, result
from tests.tiny import tiny_model
from tests.tiny_text import byte_level_tokenizer, counting_examples, text_model
from tests.training.runs import small_config


@pytest.fixture
def checkpoint(tmp_path):
    directory = tmp_path / "checkpoint"
    save_pretrained(tiny_model(), directory, byte_level_tokenizer(), license="apache-2.0", base_model="org/base")
    return directory


def test_a_card_without_measurements_has_no_such_section(checkpoint):
    card = ModelCard.load(checkpoint / "README.md")
    assert card.data.base_model == "org/base"
    assert card.data.base_model_relation == "finetune"
    assert card.data.license == "apache-2.0"
    assert card.data.library_name == "transformers"
    assert card.data.pipeline_tag == "text-generation"
    assert {"mars", "custom_generate", "trl"} <= set(card.data.tags)
    assert card.data.eval_results is None
    for heading in (
        "## How to use it",
        "## Limits",
        "## Citation",
        "transformers serve",
        "TextStreamer",
        "vllm serve",
    ):
        assert heading in card.text
    for heading in ("## Measured", "## Training", "speedup"):
        assert heading not in card.text
    assert "None" not in card.text and "{{" not in card.text


def test_an_evaluation_becomes_a_table_a_picture_and_a_model_index(checkpoint):
    write = lambda **kwargs: save_pretrained(tiny_model(), checkpoint, evaluation=evaluation(), **kwargs)  # noqa: E731
    write()
    card = ModelCard.load(checkpoint / "README.md")
    assert "| verify 0.5 |" in card.text and "1.75" in card.text and "2.25" in card.text
    assert "![Speed against quality, by threshold](.eval_results/frontier.png)" in card.text
    assert (checkpoint / ".eval_results" / "frontier.png").stat().st_size > 5000
    assert "device a CPU" in card.text
    accuracies = [r for r in card.data.eval_results if r.metric_type == "accuracy"]
    assert [(r.dataset_type, r.metric_args["mode"], r.metric_value) for r in accuracies] == [
        ("openai/gsm8k", "AR", 0.5),
        ("openai/gsm8k", "verify 0.5", 0.5),
        ("openai/gsm8k", "lossy 0.9", 0.375),
    ]
    entry, *others = parse_eval_result_entries(yaml.safe_load((checkpoint / ".eval_results/gsm8k.yaml").read_text()))
    assert (entry.dataset_id, entry.task_id, entry.value, others) == ("openai/gsm8k", "gsm8k", 50.0, [])
    loaded = load_evaluation(checkpoint)
    assert loaded.to_dict() == evaluation(command="hf-mars bench checkpoint --limit 8").to_dict()


def test_only_benchmarks_of_the_hub_get_an_entry_in_its_format(checkpoint):
    sweep = evaluation(results=[result(), result(task="IFEval")])
    sweep.datasets["IFEval"] = "google/IFEval"
    save_pretrained(tiny_model(), checkpoint, evaluation=sweep)
    assert [path.name for path in (checkpoint / ".eval_results").glob("*.yaml")] == ["gsm8k.yaml"]


def test_a_later_sweep_updates_the_card_in_place(checkpoint):
    save_pretrained(tiny_model(), checkpoint, evaluation=evaluation())
    card = ModelCard.load(checkpoint / "README.md")
    card.text = card.text.replace("## Limits", "## My own words\n\nKept as they are.\n\n## Limits")
    card.data.license = "mit"
    card.data.language = "en"
    card.save(checkpoint / "README.md")
    later = evaluation(results=[result(), result("verify", 0.7, speedup=1.99)])
    save_pretrained(tiny_model(), checkpoint, evaluation=later)
    updated = ModelCard.load(checkpoint / "README.md")
    assert "## My own words\n\nKept as they are." in updated.text
    assert (updated.data.license, updated.data.language) == ("mit", "en")
    assert "1.99" in updated.text and "| verify 0.5 |" not in updated.text
    assert updated.text.count("## Measured") == updated.text.count("## How to use it") == 1
    assert {r.metric_args["mode"] for r in updated.data.eval_results} == {"AR", "verify 0.7"}
    again = str(updated)
    save_pretrained(tiny_model(), checkpoint, evaluation=later)
    assert read_card(checkpoint) == again


def test_a_card_that_a_person_wrote_alone_only_gains_the_measured_section(checkpoint):
    (checkpoint / "README.md").write_text("---\nlicense: mit\n---\n\n# Mine\n\nAll of it.\n")
    save_pretrained(tiny_model(), checkpoint, evaluation=evaluation())
    text = read_card(checkpoint)
    assert "# Mine\n\nAll of it.\n" in text
    assert "## Measured" in text and "## How to use it" not in text


def test_local_paths_never_reach_a_card(tmp_path):
    tokenizer = byte_level_tokenizer()
    text_model(tokenizer).save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    counting_examples(16).to_json(tmp_path / "data.jsonl")
    trainer = MARSTrainer(
        str(tmp_path / "base"), small_config(tmp_path, logging_steps=1), train_dataset=counting_examples(16)
    )
    trainer.train()
    trainer.create_model_card(dataset_name=str(tmp_path / "data.jsonl"))
    trainer.save_model(str(tmp_path / "checkpoint"))
    save_pretrained(trainer.model, tmp_path / "checkpoint", evaluation=evaluation(), datasets=[str(tmp_path)])
    for directory in (trainer.args.output_dir, tmp_path / "checkpoint"):
        text = read_card(directory)
        assert str(tmp_path) not in text and "/home" not in text and "secret" not in text
        assert ModelCard(text).data.base_model is None
        assert "## Training" in text and "| `block_size` | 4 |" in text and "| `steps` | 2 |" in text
        assert "| `mask_loss` |" in text
    assert "hf-mars bench checkpoint --limit 8" in read_card(tmp_path / "checkpoint")


def test_a_local_base_stands_for_the_model_that_its_card_names(tmp_path):
    (tmp_path / "README.md").write_text("---\nbase_model: org/name\nlicense: mit\n---\n")
    assert hub_id(str(tmp_path)) == "org/name"
    save_pretrained(tiny_model(), tmp_path / "checkpoint", base_model=str(tmp_path))
    data = ModelCard.load(tmp_path / "checkpoint" / "README.md").data
    assert (data.base_model, data.license) == ("org/name", "mit")


def test_a_card_may_name_several_base_models(tmp_path):
    (tmp_path / "README.md").write_text("---\nbase_model:\n- org/one\n- org/two\n---\n")
    card = CheckpointCard.read(tmp_path)
    facts = CheckpointFacts(False, False, None, "<|mask|>", 0, 4)
    assert card.write(facts=facts) is None
    assert ModelCard.load(tmp_path / "README.md").data.base_model == ["org/one", "org/two"]


@pytest.mark.parametrize("name", ["/srv/models/x", "./x", "~/x", "a/b/c", "checkpoint", "", None])
def test_what_is_no_hub_id(name):
    assert hub_id(name) is None


def test_paths_in_a_command_are_cut(tmp_path):
    (tmp_path / "README.md").write_text("---\nbase_model: org/name\n---\n")
    assert (
        without_paths(f"hf-mars bench {tmp_path} --output-dir=/a/b") == f"hf-mars bench {tmp_path.name} --output-dir=b"
    )
    command = "hf-mars bench /a/b/checkpoint --output ../c/results --model org/name --limit 8"
    assert without_paths(command) == "hf-mars bench checkpoint --output results --model org/name --limit 8"


def test_a_card_or_evaluation_that_fails_never_costs_the_weights(tmp_path, caplog):
    (tmp_path / "README.md").write_text("---\n[not, a, mapping]\n---\n\n# Mine\n")
    save_pretrained(tiny_model(), tmp_path)
    assert (tmp_path / "model.safetensors").exists() and (tmp_path / "custom_generate").is_dir()
    assert read_card(tmp_path).endswith("# Mine\n")
    for broken in ({"results": []}, {"results": [{"mode": "AR"}], "environment": {}}, tmp_path / "missing.json"):
        save_pretrained(tiny_model(), tmp_path / "other", evaluation=broken)
        assert (tmp_path / "other" / "model.safetensors").exists()
    reports = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(reports) == 4
    assert all("model card" in report for report in reports)


def test_other_weights_take_the_old_sweep_away(checkpoint):
    save_pretrained(tiny_model(), checkpoint, evaluation=evaluation())
    save_pretrained(tiny_model(), checkpoint)
    assert "| verify 0.5 |" in read_card(checkpoint), "the same weights keep it"
    model = tiny_model()
    model.lm_head.weight.data.mul_(2)
    save_pretrained(model, checkpoint)
    card = ModelCard(read_card(checkpoint))
    assert "| verify 0.5 |" not in card.text and card.data.eval_results is None
    assert not (checkpoint / ".eval_results").exists()
    assert "## How to use it" in card.text


def test_results_and_data_that_a_person_added_stay(checkpoint):
    card = ModelCard(read_card(checkpoint))
    theirs = EvalResult("text-generation", "cais/mmlu", "MMLU", "accuracy", 0.25, metric_name="Accuracy")
    card.data.eval_results, card.data.model_name, card.data.datasets = [theirs], "mine", "org/data"
    card.save(checkpoint / "README.md")
    save_pretrained(tiny_model(), checkpoint, evaluation=evaluation(), datasets=["org/more"])
    data = ModelCard(read_card(checkpoint)).data
    assert data.datasets == ["org/data", "org/more"]
    assert sum(result.dataset_type == "cais/mmlu" for result in data.eval_results) == 1
    assert len(data.eval_results) > 3


def test_merging_keeps_what_stands_in_the_repository(checkpoint):
    remote = read_card(checkpoint).replace("## Limits", "## Added on the Hub\n\nBy a person.\n\n## Limits")
    remote = remote.replace("license: apache-2.0", "license: mit")
    save_pretrained(tiny_model(), checkpoint, evaluation=evaluation())
    merged = ModelCard(CheckpointCard.read(checkpoint).merged_into(remote).text)
    assert "## Added on the Hub\n\nBy a person." in merged.text
    assert "| verify 0.5 |" in merged.text
    assert merged.data.license == "mit"
    assert merged.data.eval_results
    assert CheckpointCard(checkpoint, "x").merged_into(None).text == "x"
    assert CheckpointCard(checkpoint, None).merged_into("x").text == "x"


def test_the_evaluation_names_what_is_wrong_with_it(tmp_path):
    with pytest.raises(ValueError, match="environment"):
        Evaluation.from_dict({"results": []})
    with pytest.raises(ValueError, match="plain decoding"):
        evaluation(results=[result("verify", 0.5)])
    with pytest.raises(FileNotFoundError, match="sweep.json"):
        load_evaluation(tmp_path)
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(ValueError, match="broken.json"):
        load_evaluation(tmp_path / "broken.json")


def test_an_adapter_says_so(tmp_path, checkpoint):
    shutil.copytree(checkpoint, tmp_path / "adapter")
    (tmp_path / "adapter" / "README.md").unlink()
    values = {"base_model_name_or_path": "org/base", "mars": {"mask_token_id": 3, "block_size": 4}}
    (tmp_path / "adapter" / "adapter_config.json").write_text(json.dumps(values))
    CheckpointCard.read(tmp_path / "adapter").write()
    card = ModelCard.load(tmp_path / "adapter" / "README.md")
    assert (card.data.base_model, card.data.base_model_relation) == ("org/base", "adapter")
    assert card.data.library_name == "peft"
    assert "trust_remote_code" not in card.text and "AutoMARSModelForCausalLM" in card.text
