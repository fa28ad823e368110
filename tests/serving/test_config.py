import pytest
from trl import TrlParser

from hf_mars.cli import main
from hf_mars.serving import ServerConfig, ServingConfig


def parse(*arguments):
    (config,) = TrlParser(ServerConfig).parse_args_and_config(["--checkpoint", "x", *map(str, arguments)])
    return config


class TestParsing:
    def test_both_spellings(self):
        config = parse("--max-rows", 3, "--max_n", 2, "--threshold-min", 0.25, "--verify", "--policy", "fixed")
        assert (config.max_rows, config.max_n, config.threshold_min) == (3, 2, 0.25)
        assert config.verify and config.policy == "fixed"

    def test_the_command_line_wins_over_the_file(self, tmp_path):
        path = tmp_path / "server.yaml"
        path.write_text("max_rows: 3\nkv_memory: 2\npolicy: adaptive\n")
        config = parse("--config", path, "--max-rows", 5)
        assert (config.max_rows, config.kv_memory, config.policy) == (5, 2, "adaptive")

    def test_the_token_comes_from_the_environment_and_is_not_shown(self, monkeypatch):
        monkeypatch.setenv("MARS_ADMIN_TOKEN", "secret")
        assert parse().admin_token == "secret"
        assert parse("--admin-token", "other").admin_token == "other"
        assert "secret" not in repr(parse())

    def test_every_option_has_a_help(self, capsys):
        with pytest.raises(SystemExit) as done:
            main(["serve", "--help"])
        assert done.value.code == 0
        text = capsys.readouterr().out
        assert all(f"--{name}" in text for name in vars(parse()))
        assert "[CHECKPOINT]" in text and "--config" in text
        assert all(field.metadata["help"] for field in ServerConfig.__dataclass_fields__.values())


@pytest.mark.parametrize(
    "options, name",
    [
        ({"dtype": "int8"}, "dtype"),
        ({"policy": "bold"}, "policy"),
        ({"threshold_min": 0.99}, "threshold_min"),
        ({"policy": "adaptive", "verify": True}, "verify"),
        ({"max_rows": 0}, "max_rows"),
        ({"prefill_chunk": -1}, "prefill_chunk"),
        ({"kv_memory": float("nan")}, "kv_memory"),
        ({"max_prompt_tokens": 0}, "max_prompt_tokens"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"max_n": 0}, "max_n"),
        ({"max_body_bytes": 0}, "max_body_bytes"),
        ({"drain_timeout": float("inf")}, "drain_timeout"),
        ({"max_queue": 0}, "max_queue"),
        ({"port": 0}, "port"),
        ({"allowed_origins": "example.org"}, "allowed_origins"),
        ({"allowed_origins": "https://example.org/page"}, "allowed_origins"),
        ({"allowed_origins": '["*", 5]'}, "allowed_origins"),
    ],
)
def test_wrong_options_are_named(options, name):
    with pytest.raises(ValueError, match=f"`{name}`"):
        ServerConfig(checkpoint="x", **options)


@pytest.mark.parametrize(
    "options",
    [
        {"max_rows": [3]},
        {"max_rows": 2.5},
        {"max_rows": True},
        {"kv_memory": "much"},
        {"threshold_min": None},
        {"host": 5},
        {"verify": 1},
        {"allowed_origins": ["*"]},
        {"model_name": 5},
    ],
)
def test_options_of_another_type_are_named(options):
    with pytest.raises(TypeError, match=f"`{next(iter(options))}` must be .*, got"):
        ServerConfig(checkpoint="x", **options)


def test_the_policy_is_that_of_the_options():
    config = ServingConfig("x", policy="adaptive", threshold_min=0.25, threshold_max=0.75)
    policy = config.make_policy()
    assert (policy.kind, policy.threshold_min, policy.threshold_max, policy.verify) == ("adaptive", 0.25, 0.75, False)


def test_the_name_is_the_checkpoint_unless_another_is_given():
    assert ServingConfig("x").served_model_name == "x"
    assert ServingConfig("x", model_name="y").served_model_name == "y"


def test_the_scheduler_is_that_of_the_options(text_model):
    scheduler = ServingConfig("x", max_rows=3, prefill_chunk=64, kv_memory=0.01).make_scheduler(text_model[0], 5)
    try:
        assert (scheduler.max_rows, scheduler.max_queue, scheduler.prefill_chunk) == (3, 5, 64)
        assert scheduler.budget.num_slots * scheduler.budget.bytes_per_slot <= 1e7
        assert scheduler.policy.kind == "lossless"
    finally:
        scheduler.close()


FILES = {
    "list.yaml": b"max_rows: [1]",
    "words.yaml": b"max_rows: many",
    "fraction.yaml": b"max_rows: 2.5",
    "host.yaml": b"host: 5",
    "unknown.yaml": b"max_rwos: 2",
    "malformed.yaml": b"a: [1\nb: }",
    "latin.yaml": b"host: caf\xe9",
    "sequence.yaml": b"- 1",
    "key.yaml": b"1: 2",
    "empty.yaml": b"",
}


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["x", "--max-rwos", "3"], "max-rwos"),
        (["x", "y"], "y"),
        (["x", "--config", "nowhere/there.yaml"], "nowhere"),
        (["x", "--config=nowhere/there.yaml"], "nowhere"),
        (["--threshold-min", "2", "x"], "threshold_min"),
        (["x", "--config"], "--config"),
        (["x", "--config", "--max-rows", "3"], "--config"),
        (["x", "--config", "list.yaml"], r"`max_rows` in 'list.yaml'.*\[1\]"),
        (["x", "--config", "words.yaml"], "max_rows.*many"),
        (["x", "--config", "fraction.yaml"], "`max_rows`.*2.5"),
        (["x", "--config", "host.yaml"], "`host`.*5"),
        (["x", "--config", "unknown.yaml"], "unknown.yaml.*max_rwos"),
        *((["x", "--config", f"{name}.yaml"], f"{name}.yaml") for name in ("malformed", "latin", "sequence", "key")),
        (["x", "--config", "empty.yaml"], "empty.yaml"),
        (["x", "--allowed-origins", "example.org"], "allowed_origins.*example.org"),
    ],
)
def test_errors_are_one_line(arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(SystemExit, match=f"^hf-mars serve: error: .*{words}[^\n]*$") as ended:
        main(["serve", *arguments])
    assert ended.value.code == 2


@pytest.mark.parametrize(
    "flag, verify",
    [(["--verify"], True), (["--verify", "true"], True), (["--verify", "no"], False), (["--verify=true"], True)],
)
@pytest.mark.integration
def test_a_flag_leaves_the_checkpoint_alone(monkeypatch, flag, verify):
    made = []
    monkeypatch.setattr("hf_mars.cli.serve.load_checkpoint", lambda *arguments: (None, None))
    monkeypatch.setattr(ServerConfig, "make_scheduler", lambda config, *arguments: made.append(config) or 1 / 0)
    for arguments in ([*flag, "there"], ["there", *flag], [*flag, "--port", "8123", "there"]):
        with pytest.raises(ZeroDivisionError):
            main(["serve", "--policy", "fixed", *arguments])
    assert {(config.checkpoint, config.verify) for config in made} == {("there", verify)}


@pytest.mark.parametrize(
    "arguments",
    [["there", "--max-rows", "3"], ["--max-rows", "3", "there"], ["--checkpoint", "there"], ["--config", "FILE"]],
)
@pytest.mark.integration
def test_the_checkpoint_comes_by_place_by_option_or_from_a_file(arguments, tmp_path, monkeypatch):
    def load(checkpoint, dtype, device):
        raise ValueError(f"load {checkpoint}")

    path = tmp_path / "server.yaml"
    path.write_text("checkpoint: there\n")
    monkeypatch.setattr("hf_mars.cli.serve.load_checkpoint", load)
    with pytest.raises(SystemExit, match="load there"):
        main(["serve", *[str(path) if argument == "FILE" else argument for argument in arguments]])
