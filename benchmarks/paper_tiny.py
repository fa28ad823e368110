"""
Three made-up items for each of the paper's six benchmarks, under lm-eval's own names and with its own scoring, so that
`paper.sh --tiny` runs from end to end without the Hub.
"""

import json
import sys
from importlib.resources import files
from pathlib import Path


ITEMS = {
    "ifeval": [
        {"key": 1, "prompt": "Describe rain without any comma.", "instruction_id_list": ["punctuation:no_comma"]},
        {"key": 2, "prompt": "Describe snow in lower case.", "instruction_id_list": ["change_case:english_lowercase"]},
        {"key": 3, "prompt": "Describe wind as JSON.", "instruction_id_list": ["detectable_format:json_format"]},
    ],
    "mmlu_pro_biology": [
        {"question": "Which organ pumps blood?", "options": ["Liver", "Heart"], "answer": "B"},
        {"question": "What do plants take from the air?", "options": ["Carbon dioxide", "Iron"], "answer": "A"},
        {"question": "How many legs has a spider?", "options": ["Six", "Eight"], "answer": "B"},
    ],
    "gpqa_main_cot_zeroshot": [
        {"Question": "What is 7 times 8?", "Correct Answer": "56"},
        {"Question": "What is 9 times 6?", "Correct Answer": "54"},
        {"Question": "What is 8 times 8?", "Correct Answer": "64"},
    ],
    "gsm8k_cot_zeroshot": [
        {"question": "Ana has 3 apples and gets 4. How many has she?", "answer": "3 + 4 = 7\n#### 7"},
        {"question": "Ben has 9 eggs and eats 2. How many are left?", "answer": "9 - 2 = 7\n#### 7"},
        {"question": "Kim buys 2 bags of 5 nuts. How many nuts?", "answer": "2 * 5 = 10\n#### 10"},
    ],
    "humaneval_instruct": [
        {"entry_point": "double", "prompt": "def double(x):\n", "test": "def check(f):\n    assert f(2) == 4"},
        {"entry_point": "negate", "prompt": "def negate(x):\n", "test": "def check(f):\n    assert f(2) == -2"},
        {"entry_point": "first", "prompt": "def first(x):\n", "test": "def check(f):\n    assert f([1, 2]) == 1"},
    ],
    "bbh_cot_fewshot_boolean_expressions": [
        {"input": "not True is", "target": "False"},
        {"input": "True and False is", "target": "False"},
        {"input": "True or False is", "target": "True"},
    ],
}
# What every item of a task has besides.
COMMON = {
    "ifeval": {"kwargs": [{}]},
    "mmlu_pro_biology": {"category": "biology", "cot_content": "A: Let's think step by step. The answer is (A)."},
    "gpqa_main_cot_zeroshot": {f"Incorrect Answer {number}": str(number) for number in (1, 2, 3)},
    "humaneval_instruct": {"task_id": "tiny", "canonical_solution": ""},
}
SPLITS = ("train", "validation", "test")
SOURCES = {
    "ifeval": "ifeval/ifeval.yaml",
    "mmlu_pro_biology": "mmlu_pro/mmlu_pro_biology.yaml",
    "gpqa_main_cot_zeroshot": "gpqa/cot_zeroshot/gpqa_main_cot_zeroshot.yaml",
    "gsm8k_cot_zeroshot": "gsm8k/gsm8k-cot-zeroshot.yaml",
    "humaneval_instruct": "humaneval/humaneval_instruct.yaml",
    "bbh_cot_fewshot_boolean_expressions": "bbh/cot_fewshot/boolean_expressions.yaml",
}
GROUPS = {"mmlu_pro": "mmlu_pro_biology", "bbh_cot_fewshot": "bbh_cot_fewshot_boolean_expressions"}
METRIC = '''"""HumanEval's metric under the name that lm-eval loads it by: the share of programs without an error."""

import datasets
import evaluate

from hf_mars.evaluation.tasks.sandbox import run_program


class CodeEval(evaluate.Metric):
    def _info(self):
        features = {"predictions": datasets.Sequence(datasets.Value("string")), "references": datasets.Value("string")}
        return evaluate.MetricInfo(
            description=__doc__, citation="", inputs_description="", features=datasets.Features(features)
        )

    def _compute(self, predictions, references, k=(1,)):
        pairs = [(program, test) for programs, test in zip(predictions, references) for program in programs]
        passed = [run_program(program + "\\n" + test) for program, test in pairs]
        return {"pass@1": sum(passed) / len(passed)}, {}
'''


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    tasks = folder / "tasks"
    tasks.mkdir(parents=True, exist_ok=True)
    (folder / "code_eval").mkdir(exist_ok=True)
    (folder / "code_eval" / "code_eval.py").write_text(METRIC)
    for name, items in ITEMS.items():
        data = tasks / f"{name}.jsonl"
        data.write_text("".join(json.dumps({**COMMON.get(name, {}), **item}) + "\n" for item in items))
        task = {
            "include": str(files("lm_eval") / "tasks" / SOURCES[name]),
            "task": name,
            "dataset_path": "json",
            "dataset_name": None,
            "dataset_kwargs": {"data_files": {split: str(data) for split in SPLITS}},
        }
        (tasks / f"{name}.yaml").write_text(json.dumps(task))  # JSON is YAML
    for name, member in GROUPS.items():
        (tasks / f"{name}.yaml").write_text(json.dumps({"group": name, "task": [member]}))


if __name__ == "__main__":
    main()
