import json
import subprocess
import sys

import pytest
import torch
from transformers import AutoModelForCausalLM

from hf_mars import save_pretrained
from tests.tiny import ragged_prompts, tiny_config, tiny_model
from tests.tiny_text import byte_level_tokenizer


# Runs where neither the package nor its source can be found.
WITHOUT_PACKAGE = """
import importlib.abc, json, sys

class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "hf_mars":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refuse())
try:
    import hf_mars
except ModuleNotFoundError:
    pass
else:
    raise SystemExit("hf_mars can be imported")

import torch
from transformers import AutoModelForCausalLM

directory, prompts = sys.argv[1], json.loads(sys.argv[2])
model = AutoModelForCausalLM.from_pretrained(directory, trust_remote_code=True, dtype=torch.float64)
inputs = {name: torch.tensor(value) for name, value in prompts.items()}
arguments = json.loads(sys.argv[3])
output = model.generate(**inputs, **arguments, return_dict_in_generate=True)
ids = inputs.pop("input_ids")
positional = model.generate(ids, **inputs, **arguments)
print(json.dumps([output.sequences.tolist(), output.run_lengths, positional.tolist()]))
"""


@pytest.mark.parametrize("verify", [False, True])
def test_a_checkpoint_generates_where_the_package_cannot_be_imported(tmp_path, verify):
    model = tiny_model()
    save_pretrained(model, tmp_path / "checkpoint")
    prompts = ragged_prompts([4, 9])
    arguments = {"max_new_tokens": 20, "mars_threshold": 0.3, "mars_verify": verify}
    result = subprocess.run(
        [
            sys.executable,
            "-c",
            WITHOUT_PACKAGE,
            str(tmp_path / "checkpoint"),
            json.dumps({name: value.tolist() for name, value in prompts.items()}),
            json.dumps(arguments),
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert result.returncode == 0, result.stderr
    sequences, run_lengths, positional = json.loads(result.stdout.splitlines()[-1])
    expected = model.generate(**prompts, **arguments, return_dict_in_generate=True)
    assert sequences == positional == expected.sequences.tolist()
    assert run_lengths == expected.run_lengths
    assert expected.tokens_per_forward > 1.2


def test_writes_tokenizer_and_code_but_no_mars_generation_defaults(tmp_path):
    save_pretrained(tiny_model(), tmp_path, tokenizer=byte_level_tokenizer())
    assert (tmp_path / "tokenizer.json").exists()
    assert {"generate.py", "strategy.py", "cache.py"} <= {
        path.name for path in (tmp_path / "custom_generate").iterdir()
    }
    assert "mars_" not in (tmp_path / "generation_config.json").read_text()


def test_saving_a_loaded_checkpoint_again_keeps_everything(tmp_path):
    save_pretrained(tiny_model(), tmp_path / "first")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "first", trust_remote_code=True, dtype=torch.float64)
    save_pretrained(loaded, tmp_path / "second")
    first, second = (json.loads((tmp_path / name / "config.json").read_text()) for name in ("first", "second"))
    assert first == second


def test_a_model_without_an_entry_is_refused(tmp_path):
    with pytest.raises(ValueError, match="config.mars"):
        save_pretrained(AutoModelForCausalLM.from_config(tiny_config()), tmp_path)
