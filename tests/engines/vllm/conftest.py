import pytest

from tests.engines.vllm.fake_vllm import install


@pytest.fixture(autouse=True)
def vllm(monkeypatch):
    install(monkeypatch)
