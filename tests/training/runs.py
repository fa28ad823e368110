"""Settings of the small runs that the training tests share."""

from pathlib import Path

from hf_mars import MARSConfig


def small_config(tmp_path: Path, **overrides) -> MARSConfig:
    """A quiet run of a few steps that saves nothing."""
    arguments = {
        "output_dir": str(tmp_path / "trainer"),
        "per_device_train_batch_size": 4,
        "max_steps": 2,
        "logging_steps": 1,
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
    }
    return MARSConfig(**{**arguments, **overrides})
