"""Every block of code that a reader may copy runs, in the order of its document."""

import runpy

import pytest
import torch
from datasets import Dataset

from hf_mars import save_pretrained
from hf_mars.cli.quickstart import USAGE
from tests.documents import ROOT, Shell, read_blocks
from tests.hub.hub_server import WRITE_TOKEN, hub_server
from tests.sweeps import evaluation
from tests.tiny_text import byte_level_tokenizer, counting_examples, sharp_text_model, text_model


pytestmark = pytest.mark.integration

DOCUMENTS = ["README.md", "space/README.md", "hf_mars/serving/README.md"]
DOCUMENTS += [str(path.relative_to(ROOT)) for path in sorted((ROOT / "examples").glob("*.py"))]


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    """A directory in which the names that documents use are those of small models and data sets."""
    tokenizer = byte_level_tokenizer()
    torch.manual_seed(0)
    for name in ("Qwen/Qwen2.5-0.5B-Instruct", "Qwen/Qwen2.5-7B-Instruct"):
        # Wide enough for `mars_verify="exact"`.
        model = text_model(tokenizer, hidden_size=96, intermediate_size=160, max_position_embeddings=1024)
        model.save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
    for name in ("trl-lib/Capybara", "allenai/Dolci-Instruct-SFT"):
        rows = [{"messages": row["prompt"] + row["completion"]} for row in counting_examples(4)]
        for split in ("train", "test"):
            Dataset.from_list(rows).to_json(tmp_path / name / f"{split}.jsonl")
    model, tokenizer = sharp_text_model(torch.float32)
    save_pretrained(model, tmp_path / "runs/quickstart/checkpoint", tokenizer)
    evaluation().save(tmp_path / "runs/bench/results.json")
    for name in ("hf_mars", "space"):  # as in a clone
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def services(monkeypatch):
    """A Hub of our own; and a server that is started takes no port, but answers the clients made after it."""
    import openai
    import uvicorn
    from fastapi.testclient import TestClient
    from huggingface_hub import HfApi, constants

    servers, make_client = [], openai.OpenAI
    monkeypatch.setattr(uvicorn.Server, "run", lambda server: servers.append(server.config.app))
    monkeypatch.setattr(openai, "OpenAI", lambda **kwargs: make_client(http_client=TestClient(servers[-1]), **kwargs))
    with hub_server() as hub:
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr("hf_mars.hub.push.HfApi", lambda endpoint, token: HfApi(hub.url, token=WRITE_TOKEN))
        yield


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_block_runs(document, workspace, services, capsys, monkeypatch):
    blocks = read_blocks(ROOT / document)
    assert {block.language for block in blocks} <= {"python", "bash", "yaml", ""}, "and no language is new"
    shell, names = Shell(lambda: capsys.readouterr().out, monkeypatch.setattr), {}
    for block in blocks:
        try:
            if block.language == "python":
                exec(compile(block.text, block.place, "exec"), names)
            elif block.language == "bash":
                shell.run(block.text)
        except (Exception, SystemExit) as error:
            raise AssertionError(f"{block.place} fails") from error


def test_the_first_lines_are_those_that_the_quickstart_prints():
    install, snippet = read_blocks(ROOT / "README.md")[:2]
    assert install.text.startswith("pip install -e")
    assert snippet.text == USAGE.format(checkpoint="runs/quickstart/checkpoint")


def test_the_space_shows_the_checkpoint_that_is_named(workspace, monkeypatch):
    gradio = pytest.importorskip("gradio")
    monkeypatch.setenv("MARS_MODEL", "runs/quickstart/checkpoint")
    app = runpy.run_path(str(ROOT / "space" / "app.py"))["app"]
    assert isinstance(app, gradio.Blocks) and "No checkpoint" not in str(app.config)


def test_nothing_says_to_install_from_an_index_that_lacks_the_package():
    """`hf_mars/extras.py` says it to those who have it from an index."""
    for pattern in (
        "*.md",
        "hf_mars/**/*.py",
        "hf_mars/**/*.md",
        "examples/*.py",
        "space/*",
        "engines/**/*.md",
        "docs/**/*.md",
    ):
        for path in ROOT.glob(pattern):
            if path.is_file() and path.name != "extras.py":
                assert "install hf-mars" not in path.read_text() and 'install "hf-mars' not in path.read_text(), path
