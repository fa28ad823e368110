import pytest
from starlette.testclient import TestClient

from hf_mars.serving import ServingConfig
from hf_mars.serving.openai import build_app
from tests.serving.conftest import MODEL_NAME


pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def named(text_model):
    """A client of an app whose model has a name with a slash."""
    return TestClient(build_app(None, text_model[1], ServingConfig("org/name"), 512))


def test_one_model_is_described(client):
    (listed,) = client.models.list()
    assert client.models.retrieve(MODEL_NAME) == listed
    assert (listed.id, listed.object, listed.owned_by, listed.max_model_len) == (MODEL_NAME, "model", "hf_mars", 512)


@pytest.mark.parametrize("path", ["org/name", "org%2Fname"])
def test_a_name_may_have_a_slash(named, path):
    assert named.get(f"/v1/models/{path}").json()["id"] == "org/name"


@pytest.mark.parametrize("path", ["org/other", "name", "org/name/more", "org"])
def test_another_model_is_not_found(named, path):
    answer = named.get(f"/v1/models/{path}")
    assert answer.status_code == 404
    error = answer.json()["error"]
    assert (error["code"], error["param"], error["type"]) == ("model_not_found", "model", "invalid_request_error")
    assert repr(path) in error["message"]
