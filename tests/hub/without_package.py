"""Decoding a checkpoint in a process of its own, where hf_mars cannot be imported."""

import json
import os
import subprocess
import sys


SCRIPT = """
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

source, prompts = sys.argv[1], json.loads(sys.argv[2])
model = AutoModelForCausalLM.from_pretrained(source, trust_remote_code=True, dtype=torch.float64)
inputs = {name: torch.tensor(value) for name, value in prompts.items()}
arguments = json.loads(sys.argv[3])
output = model.generate(**inputs, **arguments, return_dict_in_generate=True)
ids = inputs.pop("input_ids")
positional = model.generate(ids, **inputs, **arguments)
print(json.dumps([output.sequences.tolist(), output.acceptance_lengths, positional.tolist()]))
"""


def generate_without_package(source, prompts, arguments, cwd, environment=None):
    """Sequences and acceptance lengths of `generate`, and the sequences again with positional inputs."""
    inputs = json.dumps({name: value.tolist() for name, value in prompts.items()})
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(source), inputs, json.dumps(arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, **(environment or {})},
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])
