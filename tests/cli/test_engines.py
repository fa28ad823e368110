import json
import shlex

import pytest

from hf_mars import save_pretrained
from hf_mars.cli import main
from tests.tiny import tiny_model


@pytest.mark.parametrize(("block_size", "num_tokens"), [(2, 2), (4, 6), (8, 14)])
def test_prints_the_command_line_of_vllm(tmp_path, capsys, block_size, num_tokens):
    checkpoint = tmp_path / "my checkpoint"
    save_pretrained(tiny_model(block_size=block_size), checkpoint)
    main(["engines", "vllm", str(checkpoint)])
    *command, speculation = shlex.split(capsys.readouterr().out)
    assert command == ["vllm", "serve", str(checkpoint), "--speculative-config"]
    assert json.loads(speculation) == {"model": "hf_mars_vllm.MARSProposer", "num_speculative_tokens": num_tokens}
    main(["engines", "vllm", str(checkpoint), "--draft-for", "org/bigger"])
    *command, speculation = shlex.split(capsys.readouterr().out)
    assert command == ["vllm", "serve", "org/bigger", "--speculative-config"]
    speculation = json.loads(speculation)
    assert speculation["model"] == str(checkpoint) and speculation["num_speculative_tokens"] == block_size


def test_an_adapter_is_to_be_merged_first(tmp_path, capsys):
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(SystemExit):
        main(["engines", "vllm", str(tmp_path)])
    assert "merge" in capsys.readouterr().err
