import json

import pytest

from hf_mars import extras


class Installed:
    """What pip recorded of an installation."""

    def __init__(self, origin):
        self.origin = origin

    def read_text(self, name):
        return None if self.origin is None else json.dumps(self.origin)


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, 'pip install "hf-mars[eval]"'),
        ({"url": "file:///a%20b/c", "dir_info": {"editable": True}}, 'pip install -e "/a b/c[eval]"'),
        ({"url": "file:///a", "dir_info": {}}, 'pip install "/a[eval]"'),
        ({"url": "file:///x.whl", "archive_info": {}}, 'pip install "hf-mars[eval] @ file:///x.whl"'),
        (
            {"url": "https://host/x.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            'pip install "hf-mars[eval] @ git+https://host/x.git@abc"',
        ),
    ],
)
def test_the_command_fits_the_installation(monkeypatch, origin, command):
    monkeypatch.setattr(extras, "distribution", lambda name: Installed(origin))
    assert extras.install_command("eval") == command


def test_what_is_missing_is_said_before_the_work(monkeypatch):
    extras.check_installed("eval", "json")
    with pytest.raises(ImportError, match=r"no_such_module must be installed first: `pip install .*\[eval\]"):
        extras.check_installed("eval", "json", "no_such_module")
