"""Tests that start something say so: `make test-fast` leaves those out."""

import socket
import subprocess
import sys

import pytest


def test_a_test_without_the_mark_cannot_start_anything():
    with pytest.raises(pytest.fail.Exception, match="mark it `integration`"):
        subprocess.run([sys.executable, "-c", ""])
    with socket.socket() as server, pytest.raises(pytest.fail.Exception, match="mark it `integration`"):
        server.bind(("127.0.0.1", 0))


@pytest.mark.integration
def test_one_with_the_mark_can():
    assert subprocess.run([sys.executable, "-c", ""]).returncode == 0
