"""What stands around saved weights: a card or files that are not as expected never cost a save."""

from pathlib import Path

import pytest

from hf_mars import decoding, save_pretrained
from hf_mars.hub.former_files import FORMER_FILES
from hf_mars.hub.frame import CheckpointFrame
from hf_mars.hub.paths import hub_id, read_card
from tests.sweeps import evaluation
from tests.tiny import tiny_model


BROKEN = "---\nlicense: [mit\n---\n"


@pytest.fixture
def measured(tmp_path):
    save_pretrained(tiny_model(), tmp_path, evaluation=evaluation())
    return tmp_path


def other_weights():
    model = tiny_model()
    model.lm_head.weight.data.mul_(2)
    return model


def test_front_matter_that_cannot_be_read_costs_neither_the_save_nor_the_card(measured, caplog):
    text = read_card(measured)
    (measured / "README.md").write_text(BROKEN + text[text.index("---\n", 4) + 4 :])
    before = (measured / "model.safetensors").read_bytes()
    save_pretrained(other_weights(), measured)
    assert (measured / "model.safetensors").read_bytes() != before
    card = read_card(measured)
    assert card.startswith(BROKEN) and "## How to use it" in card
    assert "| verify 0.5 |" not in card and not (measured / ".eval_results").exists(), "it was of other weights"
    assert any("was not written" in record.getMessage() for record in caplog.records)


def test_an_error_of_the_save_is_the_one_that_is_raised(measured):
    (measured / "README.md").write_text(BROKEN)
    with pytest.raises(OSError, match="disk full"), CheckpointFrame(measured, {}):
        (measured / "model.safetensors").write_bytes(b"half")
        raise OSError("disk full")
    assert read_card(measured) == BROKEN


@pytest.mark.parametrize(
    "text", [b"# Caf\xe9\n", b"---\nlicense: mit\n---\n# Caf\xe9\n", b"---\ntitle: caf\xe9\n---\n"]
)
def test_a_card_that_is_not_utf8_stays_as_it_is(tmp_path, text):
    (tmp_path / "README.md").write_bytes(text)
    save_pretrained(tiny_model(), tmp_path)
    assert (tmp_path / "model.safetensors").exists()
    assert (tmp_path / "README.md").read_bytes() == text


def test_a_base_whose_card_is_broken_has_no_hub_id(tmp_path):
    (tmp_path / "README.md").write_text(BROKEN)
    assert hub_id(str(tmp_path)) is None


def test_files_of_earlier_versions_go_and_others_stay(tmp_path):
    folder = tmp_path / "custom_generate"
    folder.mkdir()
    for name, (beginning, *_) in FORMER_FILES.items():
        (folder / name).write_text(beginning + "\n\nimport torch\n")
    (folder / "mine.py").write_text("MINE = 1\n")
    save_pretrained(tiny_model(), tmp_path)
    sources = {path.name for path in Path(decoding.__file__).parent.glob("*.py")}
    assert {path.name for path in folder.iterdir()} == {*sources, "mine.py", "requirements.txt"}

    for name in FORMER_FILES:
        (folder / name).write_text("# a file of my own\n")
    save_pretrained(tiny_model(), tmp_path)
    assert FORMER_FILES.keys() <= {path.name for path in folder.iterdir()}


def test_a_module_that_goes_is_named_as_a_former_file():
    """Who takes a module out of `hf_mars/decoding` names it in `FORMER_FILES`, and changes this list."""
    shipped = """
        __init__ acceptance acceptance_counts attention batch cache context deciding decode decoder draft_forecast
        drafting exact gated_adapter generate masks options output plain plan planner positions processing
        row_arguments rows sampling step_costs stopping streaming support window
    """
    sources = {path.stem for path in Path(decoding.__file__).parent.glob("*.py")}
    assert sources == set(shipped.split())
    assert not sources & {Path(name).stem for name in FORMER_FILES}
