import dataclasses

import pytest

from hf_mars import MARSConfig


def test_defaults(tmp_path):
    config = MARSConfig(output_dir=str(tmp_path))
    assert (config.block_size, config.ar_weight, config.block_phase, config.mask_token) == (4, 1.0, "random", None)


def test_every_field_has_a_help_text_and_a_docstring_entry():
    own = {"block_size", "ar_weight", "block_phase", "mask_token"}
    for field in dataclasses.fields(MARSConfig):
        if field.name in own:
            assert field.metadata["help"]
            assert f"{field.name} (" in MARSConfig.__doc__


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"block_size": 1}, ValueError),
        ({"block_size": 2.5}, TypeError),
        ({"ar_weight": -1.0}, ValueError),
        ({"ar_weight": float("nan")}, ValueError),
        ({"block_phase": "sometimes"}, ValueError),
    ],
)
def test_bad_values_are_named(tmp_path, arguments, error):
    with pytest.raises(error, match=next(iter(arguments))):
        MARSConfig(output_dir=str(tmp_path), **arguments)
