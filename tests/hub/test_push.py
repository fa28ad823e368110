"""Pushes of the real client against a local server that speaks the Hub's protocol."""

import json
import shutil

import pytest
import torch
from huggingface_hub import ModelCard, constants

from hf_mars import MARSTrainer, push_to_hub, save_pretrained
from hf_mars.cli import main
from hf_mars.hub import push_folder, remote
from tests.hub.hub_server import READ_TOKEN, WRITE_TOKEN, Fault, hub_server
from tests.hub.without_package import generate_without_package
from tests.sweeps import evaluation
from tests.tiny import ragged_prompts, tiny_model
from tests.tiny_text import byte_level_tokenizer, counting_examples, text_model
from tests.training.runs import small_config


pytestmark = pytest.mark.integration


REPO = "user/model"


@pytest.fixture
def hub(monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(remote, "FIRST_WAIT", 0.01)
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda seconds: None)
    with hub_server() as server:
        yield server


@pytest.fixture
def checkpoint(tmp_path):
    directory = tmp_path / "checkpoint"
    save_pretrained(tiny_model(), directory, byte_level_tokenizer(), license="apache-2.0", base_model="org/base")
    return directory


def arguments(hub, **overrides):
    return {"endpoint": hub.url, "token": WRITE_TOKEN, **overrides}


def test_a_pushed_checkpoint_decodes_where_the_package_is_missing(tmp_path, hub):
    model = tiny_model()
    result = push_to_hub(
        model, REPO, tokenizer=byte_level_tokenizer(), evaluation=evaluation(), **arguments(hub, private=True)
    )
    assert result.error is None
    assert result.url == f"{hub.url}/{REPO}"
    files = hub.files(REPO)
    assert {"model.safetensors", "config.json", "tokenizer.json", "README.md"} <= set(files)
    assert {"custom_generate/generate.py", "custom_generate/requirements.txt"} <= set(files)
    assert {".eval_results/sweep.json", ".eval_results/gsm8k.yaml", ".eval_results/frontier.png"} <= set(files)
    assert sorted(files) == result.uploaded
    assert hub.repositories[REPO].private
    card = ModelCard(files["README.md"].decode())
    assert f'from_pretrained("{REPO}", trust_remote_code=True)' in card.text
    weights, card_commit = hub.repositories[REPO].commits
    assert "model.safetensors" in weights[2] and "README.md" not in weights[2]
    assert "README.md" in card_commit[2]

    prompts, decoding = ragged_prompts([4, 9]), {"max_new_tokens": 20, "mars_threshold": 0.3, "mars_verify": True}
    environment = {
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(tmp_path / "home"),
        "HF_TOKEN": READ_TOKEN,
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_OFFLINE": "0",
    }
    sequences, acceptance_lengths, positional = generate_without_package(
        REPO, prompts, decoding, tmp_path, environment
    )
    expected = model.generate(**prompts, **decoding, return_dict_in_generate=True)
    assert sequences == positional == expected.sequences.tolist()
    assert acceptance_lengths == expected.acceptance_lengths
    assert expected.tokens_per_forward > 1.2


@pytest.mark.parametrize(
    "fault",
    [
        Fault("POST /api/repos/create", 500),
        Fault("POST .*/preupload/", 429),
        Fault("POST .*objects/batch", 500),
        Fault("PUT /lfs/", None),
        Fault("POST .*/commit/", 503),
        Fault("POST .*/commit/", None),
        Fault("POST .*/commit/", None, after_handling=True),
        Fault("GET .*/resolve/.*README", 500),
    ],
    ids=lambda fault: f"{fault.pattern}-{fault.status}-{fault.after_handling}",
)
def test_passing_faults_are_retried(checkpoint, hub, fault):
    hub.faults.append(fault)
    push_folder(checkpoint, REPO, **arguments(hub))
    assert push_folder(checkpoint, REPO, **arguments(hub)).error is None
    assert fault.times == 0
    assert {"model.safetensors", "README.md"} <= set(hub.files(REPO))
    assert len(hub.repositories[REPO].commits) == 2, "nothing is committed twice"


def test_an_interrupted_push_says_what_is_missing_and_resumes(checkpoint, hub):
    hub.faults.append(Fault("POST .*/commit/", 500, times=100))
    with pytest.raises(RuntimeError, match="Not there: .*model.safetensors.*sends only what is missing"):
        push_folder(checkpoint, REPO, **arguments(hub))
    hub.faults.clear()
    before = sum(request.startswith("PUT /lfs/") for request in hub.requests)
    assert push_folder(checkpoint, REPO, **arguments(hub)).error is None
    assert sum(request.startswith("PUT /lfs/") for request in hub.requests) == before, "weights are not sent again"


@pytest.mark.parametrize(("token", "words"), [("hf_wrong", "hf auth login"), (READ_TOKEN, "write access")])
def test_a_token_that_does_not_serve_gives_a_clear_message(checkpoint, hub, token, words):
    with pytest.raises(PermissionError, match=words):
        push_folder(checkpoint, REPO, endpoint=hub.url, token=token)
    assert REPO not in hub.repositories


def test_no_token_at_all(checkpoint, hub, monkeypatch):
    monkeypatch.setattr("huggingface_hub.utils._headers.get_token", lambda: None)
    with pytest.raises(PermissionError, match="hf auth login"):
        push_folder(checkpoint, REPO, endpoint=hub.url)


def test_a_card_that_the_hub_refuses_never_costs_the_weights(checkpoint, hub, caplog):
    result = push_folder(checkpoint, REPO, license="No Such License!", **arguments(hub))
    assert "license" in result.error
    assert "model.safetensors" in hub.files(REPO) and "README.md" not in hub.files(REPO)
    assert "README.md" not in result.uploaded
    assert any("model card" in record.getMessage() for record in caplog.records)
    result = push_folder(checkpoint, "user/other", evaluation={"results": []}, **arguments(hub))
    assert "evaluation" in result.error and "model.safetensors" in hub.files("user/other")
    result = push_to_hub(tiny_model(), "user/third", evaluation={"results": []}, **arguments(hub))
    assert "evaluation" in result.error and "model.safetensors" in hub.files("user/third")


def test_pull_requests_branches_and_messages(checkpoint, hub):
    push_folder(checkpoint, REPO, **arguments(hub, commit_message="First"))
    assert [commit[1] for commit in hub.repositories[REPO].commits] == ["First", "First"]
    main = dict(hub.files(REPO))
    (checkpoint / "notes.txt").write_text("new")
    result = push_folder(checkpoint, REPO, license="mit", **arguments(hub, create_pr=True))
    assert result.url.endswith("/discussions/1")
    assert hub.files(REPO) == main
    assert b"new" == hub.files(REPO, "refs/pr/1")["notes.txt"]
    assert b"license: mit" in hub.files(REPO, "refs/pr/1")["README.md"]
    push_folder(checkpoint, REPO, **arguments(hub, revision="v2"))
    assert "notes.txt" in hub.files(REPO, "v2") and hub.files(REPO) == main


def test_a_pull_request_holds_what_differs_and_none_is_opened_for_nothing(checkpoint, hub, caplog, capsys):
    push_folder(checkpoint, REPO, **arguments(hub))
    main_before = dict(hub.files(REPO))
    result = push_folder(checkpoint, REPO, **arguments(hub, create_pr=True))
    assert result.pull_request is None and result.error is None and result.url == f"{hub.url}/{REPO}"
    assert any("No pull request was opened" in record.getMessage() for record in caplog.records)
    options = ["push", str(checkpoint), REPO, "--endpoint", hub.url, "--token", WRITE_TOKEN, "--create-pr"]
    main(options)
    assert f"No pull request was opened: nothing differs from {hub.url}/{REPO}." in capsys.readouterr().out
    assert list(hub.repositories[REPO].revisions) == ["main"]

    result = push_folder(checkpoint, REPO, license="mit", **arguments(hub, create_pr=True))
    assert result.url == result.pull_request == f"{hub.url}/{REPO}/discussions/1"
    proposed = hub.files(REPO, "refs/pr/1")
    assert b"license: mit" in proposed["README.md"], "the card alone differs"
    assert {name for name in proposed if proposed[name] != main_before[name]} == {"README.md"}
    assert hub.files(REPO) == main_before, "nothing goes past the pull request"


def test_what_a_person_wrote_on_the_hub_stays(checkpoint, hub):
    push_folder(checkpoint, REPO, **arguments(hub))
    files = hub.files(REPO)
    files["README.md"] = files["README.md"].replace(b"## Limits", b"## Mine\n\nWritten by hand.\n\n## Limits")
    assert push_folder(checkpoint, REPO, evaluation=evaluation(), **arguments(hub)).error is None
    assert b"Written by hand." in files["README.md"] and b"| verify 0.5 |" in files["README.md"]
    assert "Written by hand" not in (checkpoint / "README.md").read_text()


@pytest.mark.parametrize("fault", [Fault("HEAD .*/resolve/.*README", None, times=100), None])
def test_a_card_that_cannot_be_read_is_left_as_it_is(checkpoint, hub, fault):
    push_folder(checkpoint, REPO, **arguments(hub))
    files = hub.files(REPO)
    files["README.md"] = b"---\n[broken\n---\n# Mine\n" if fault is None else files["README.md"] + b"# Mine\n"
    before = files["README.md"]
    hub.faults.extend([fault] if fault else [])
    (checkpoint / "notes.txt").write_text("new")
    result = push_folder(checkpoint, REPO, **arguments(hub))
    assert "could not be read" in result.error
    assert files["README.md"] == before and files["notes.txt"] == b"new"


def test_what_a_trainer_leaves_to_resume_with_stays_at_home(checkpoint, hub):
    (checkpoint / "checkpoint-5").mkdir()
    (checkpoint / "checkpoint-5" / "model.safetensors").write_bytes(b"x")
    for name in ("optimizer.pt", "training_args.bin", "rng_state.pth", "trainer_state.json"):
        (checkpoint / name).write_bytes(b"x")
    (checkpoint / "custom_generate" / "__init__.py").write_text("")
    push_folder(checkpoint, REPO, **arguments(hub))
    assert "custom_generate/__init__.py" in hub.files(REPO)
    assert not any(word in " ".join(hub.files(REPO)) for word in ("checkpoint-5", ".pt", ".bin", "trainer_state"))


def test_what_is_no_checkpoint_is_refused(tmp_path, checkpoint, hub):
    with pytest.raises(ValueError, match="not a directory"):
        push_folder(tmp_path / "nowhere", REPO, **arguments(hub))
    with pytest.raises(ValueError, match="no MARS checkpoint"):
        push_folder(tmp_path, REPO, **arguments(hub))
    with pytest.raises(ValueError, match="base_model"):
        push_folder(checkpoint, REPO, base_model="./local", **arguments(hub))
    adapter = {"base_model_name_or_path": str(checkpoint), "mars": {"mask_token_id": 3, "block_size": 4}}
    shutil.copytree(checkpoint, tmp_path / "adapter")
    (tmp_path / "adapter" / "adapter_config.json").write_text(json.dumps(adapter))
    with pytest.raises(ValueError, match="is no file"):
        push_folder(checkpoint, REPO, evaluation="nowhere.json", **arguments(hub))
    with pytest.raises(ValueError, match="nobody else can load"):
        push_folder(tmp_path / "adapter", REPO, **arguments(hub))
    push_folder(tmp_path / "adapter", REPO, base_model="org/base", **arguments(hub))
    assert json.loads(hub.files(REPO)["adapter_config.json"])["base_model_name_or_path"] == "org/base"
    assert json.loads((tmp_path / "adapter" / "adapter_config.json").read_text()) == adapter


def test_the_trainer_pushes_every_save_and_the_end(tmp_path, hub, monkeypatch):
    monkeypatch.setattr("hf_mars.training.mars_trainer.push_folder", with_endpoint(hub))
    monkeypatch.setattr("transformers.trainer.hf_api", lambda: api(hub))
    tokenizer = byte_level_tokenizer()
    trainer = MARSTrainer(
        text_model(tokenizer),
        small_config(
            tmp_path,
            push_to_hub=True,
            hub_model_id=REPO,
            hub_token=WRITE_TOKEN,
            save_strategy="steps",
            save_steps=1,
            hub_always_push=True,
        ),
        train_dataset=counting_examples(16),
        processing_class=tokenizer,
    )
    trainer.train()
    trainer._finish_current_push()
    assert "custom_generate/generate.py" in hub.files(REPO), "also a checkpoint in the middle of a run decodes"
    result = trainer.push_to_hub(dataset_name="org/data")
    assert result.error is None
    card = ModelCard(hub.files(REPO)["README.md"].decode())
    assert card.data.datasets == ["org/data"]
    assert "## Training" in card.text and str(tmp_path) not in card.text
    assert "training_args.bin" not in hub.repositories[REPO].commits[-1][2]


def api(hub):
    from huggingface_hub import HfApi

    return HfApi(endpoint=hub.url, token=WRITE_TOKEN)


def with_endpoint(hub):
    return lambda *args, **kwargs: push_folder(*args, **kwargs, endpoint=hub.url)


def test_the_command(checkpoint, hub, capsys, tmp_path):
    path = tmp_path / "results.json"
    evaluation().save(path)
    options = ["push", str(checkpoint), REPO, "--endpoint", hub.url, "--token", WRITE_TOKEN]
    main([*options, "--evaluation", str(path)])
    printed = capsys.readouterr().out
    assert f"Uploaded to {hub.url}/{REPO}" in printed and "model.safetensors" in printed
    assert b"| verify 0.5 |" in hub.files(REPO)["README.md"]
    with pytest.raises(SystemExit, match="model card"):
        main([*options, "--license", "No Such License!"])
    with pytest.raises(SystemExit, match="hf auth login"):
        main(["push", str(checkpoint), REPO, "--endpoint", hub.url, "--token", "hf_wrong"])


def test_weights_are_the_same_after_the_journey(tmp_path, hub):
    model = tiny_model()
    push_to_hub(model, REPO, **arguments(hub))
    (tmp_path / "model.safetensors").write_bytes(hub.files(REPO)["model.safetensors"])
    from safetensors.torch import load_file

    loaded = load_file(tmp_path / "model.safetensors")
    for name, value in model.state_dict().items():
        if name in loaded:
            assert torch.equal(loaded[name], value)
