"""
`make wheel-test`: what the wheel installs decodes several tokens a forward, with no checkout in reach.

Run by the Python of a fresh environment, isolated (`-I`), with a list of the files that the package must hold.
"""

import runpy
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import torch

import hf_mars


HERE = Path(__file__).parent
tiny = runpy.run_path(str(HERE / "tiny.py"))
generate_without_package = runpy.run_path(str(HERE / "hub" / "without_package.py"))["generate_without_package"]


def check_files(names: list[str]) -> None:
    """Sources, templates and data, all but what GitHub shows beside them."""
    package = Path(hf_mars.__file__).parent
    assert package.is_relative_to(sys.prefix), f"{package} is not what was installed"
    missing = [name for name in names if not name.endswith("README.md") and not (package.parent / name).exists()]
    assert not missing, f"the wheel lacks {missing}"
    assert version("hf-mars") == hf_mars.__version__


def check_decoding(folder: str) -> None:
    """A checkpoint, saved and loaded: with the package, and with nothing but its own custom_generate/."""
    prompts = tiny["ragged_prompts"]([7, 4])
    arguments = {"max_new_tokens": 24, "do_sample": False}
    hf_mars.save_pretrained(tiny["tiny_model"](), folder)
    model = hf_mars.AutoMARSModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    expected = model.generate(**prompts, **arguments)
    arguments |= {"mars_verify": True, "mars_threshold": 0.3}
    output = model.generate(**prompts, **arguments, return_dict_in_generate=True)
    assert torch.equal(output.sequences, expected), "verified decoding must be plain decoding"
    assert output.tokens_per_forward > 1.2, f"only {output.tokens_per_forward} tokens a forward"
    sequences, lengths, _ = generate_without_package(folder, prompts, arguments, cwd=folder)
    assert sequences == expected.tolist() and lengths == output.acceptance_lengths


def check_command() -> None:
    command = Path(sys.executable).with_name("hf-mars")
    for arguments in (["--help"], ["sft", "--help"], ["bench", "--help"]):
        result = subprocess.run([command, *arguments], capture_output=True, text=True)
        assert result.returncode == 0 and result.stdout.startswith("usage: hf-mars"), result.stderr or result.stdout


if __name__ == "__main__":
    check_files(Path(sys.argv[1]).read_text().split())
    with tempfile.TemporaryDirectory() as folder:
        check_decoding(folder)
    check_command()
    print(f"hf-mars {hf_mars.__version__} runs on its own, from {Path(hf_mars.__file__).parent}")
