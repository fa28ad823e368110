import socket
import threading

import pytest

from hf_mars.evaluation.metrics.code_tests.code_tests import build_program
from hf_mars.evaluation.metrics.code_tests.sandbox import run_program


pytestmark = pytest.mark.integration  # answers run in a process of their own

PROBLEM = {
    "prompt": (
        "from typing import List\n\n\ndef helper(values):\n    return sum(values)\n\n\n"
        'def total(values: List[int]) -> int:\n    """Sum them."""\n'
    ),
    "entry_point": "total",
    "test": "def check(candidate):\n    assert candidate([1, 2]) == 3\n    assert candidate([]) == 0\n",
}


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("    return sum(values)\n", True),
        ("```python\ndef total(values: List[int]) -> int:\n    return sum(values)\n```\nIt sums.", True),
        ("Here:\n```\ndef total(values):\n    return sum(values)\n```", True),
        ("```python\n    return sum(values)\n```", True),
        ("```Python\ndef total(values):\n    return helper(values)\n```", True),
        ("    import os, sys; os.write(3, b'passed'); os._exit(0)\n", False),
        ("    return len(values)\n", False),
        ("```python\ndef total(values):\n    return 3\n```", False),
        ("I cannot write code.", False),
        ("", False),
        ("    import sys; sys.exit(0)\n", False),
        ("    while True: pass\n", False),
    ],
)
def test_functions_are_run_against_their_tests(answer, right):
    assert run_program(build_program(PROBLEM, answer), timeout=5) is right


def test_programs_are_kept_from_harm(tmp_path):
    assert run_program("pass")
    assert not run_program("x = bytearray(10 ** 10)")
    assert not run_program("import os; os.system('true')")
    assert not run_program("open('big', 'wb').write(bytes(5_000_000))")
    assert run_program("open('small', 'w').write('in a directory of its own')")
    assert not run_program("import time; time.sleep(30)", timeout=1)
    assert run_program("import os; assert 'HOME' not in os.environ")


def test_programs_have_no_network():
    connections = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(5)

        def accept():
            try:
                connections.append(server.accept())
            except OSError:
                pass

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        port = server.getsockname()[1]
        assert not run_program(f"import socket; socket.create_connection(('127.0.0.1', {port}), timeout=2)")
        # Not even where the program brings its own socket.
        assert not run_program(
            "import _socket\n"
            "s = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)\n"
            f"s.settimeout(2); s.connect(('127.0.0.1', {port}))"
        )
    assert not connections
