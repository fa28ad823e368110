"""A MARS checkpoint as parallel drafter of another model, by vLLM's own code: `pard_token` of config.json."""

import json
from pathlib import Path

from engine import Request, greedy, load, run, tokens_per_forward
from tiny import BLOCK_SIZE


def with_pard_token(checkpoint: Path, directory: Path) -> Path:
    """The checkpoint as hf_mars saves it today, whenever it was saved."""
    directory.mkdir()
    for path in checkpoint.iterdir():
        (directory / path.name).symlink_to(path)
    config = json.loads((checkpoint / "config.json").read_text())
    config["pard_token"] = config["mars"]["mask_token_id"]
    (directory / "config.json").unlink()
    (directory / "config.json").write_text(json.dumps(config))
    return directory


def test_a_checkpoint_drafts_for_a_model_of_the_same_vocabulary(checkpoint, plain, tmp_path):
    drafter = {
        "method": "draft_model",
        "model": str(with_pard_token(checkpoint.path, tmp_path / "drafter")),
        "num_speculative_tokens": BLOCK_SIZE,
        "parallel_drafting": True,
    }
    drafted = load(checkpoint.path, drafter)
    requests = lambda: [Request(prompt, greedy(32)) for prompt in checkpoint.prompts[:8]]  # noqa: E731
    expected, answered = run(plain, requests()), run(drafted, requests())
    assert [one.token_ids for one in answered] == [one.token_ids for one in expected]
    assert tokens_per_forward(answered) > checkpoint.accepts
    del drafted
