"""The paper whose method this is, as cards and the trainer cite it."""

import textwrap


__all__ = ["PAPER"]

# From https://arxiv.org/abs/2604.07023.
PAPER = {
    "title": "MARS: Enabling Autoregressive Models Multi-Token Generation",
    "id": "2604.07023",
    "citation": textwrap.dedent("""\
        @article{jin2026mars,
            title        = {MARS: Enabling Autoregressive Models Multi-Token Generation},
            author       = {Ziqi Jin and Lei Wang and Ziwei Luo and Aixin Sun},
            year         = 2026,
            eprint       = {arXiv:2604.07023},
        }"""),
}
