"""
The scorers of the tasks, and tokens per forward, as modules of Hugging Face `evaluate`.

Each folder is what a Space of the Hub would hold: `evaluate` copies its files elsewhere before it runs them, so they
import nothing of hf_mars. From outside:

```python
>>> import evaluate
>>> final_number = evaluate.load("hf_mars/evaluation/metrics/final_number")
>>> final_number.compute(predictions=["She pays $18."], references=["#### 18"])
{'accuracy': 1.0}
```

All scorers take `predictions` and `references`, and with `use_aggregator=False` return `accuracy` as one `bool` for
each prediction.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...extras import check_installed


if TYPE_CHECKING:
    from evaluate import EvaluationModule


__all__ = ["are_correct", "load_metric"]


def load_metric(name: str) -> "EvaluationModule":
    """
    Load a module of this folder; no network is needed.

    Args:
        name (`str`): Name of its folder, such as `"final_number"`.

    Raises:
        `ImportError`: If `evaluate`, or a package that the module needs, is not installed.
    """
    check_installed("eval", "evaluate")
    import evaluate

    return evaluate.load(str(Path(__file__).parent / name), keep_in_memory=True)


def are_correct(name: str, answers: list[str], references: list[Any]) -> list[bool]:
    """
    Which answers a scorer takes for right.

    Args:
        name (`str`): Name of the scorer's folder.
        answers (`list[str]`): What a model said.
        references (`list`): For each answer, what the scorer compares it with.
    """
    scores: Any = load_metric(name).compute(predictions=answers, references=references, use_aggregator=False)
    return scores["accuracy"]
