# /// script
# dependencies = ["hf-mars"]
#
# [tool.uv.sources]
# hf-mars = { path = "..", editable = true }
# ///
"""
The paper's recipe in two stages: autoregressive fine-tuning with TRL's `SFTTrainer`, then MARS on the same data.

```bash
python examples/two_stage.py --model Qwen/Qwen2.5-0.5B-Instruct --dataset allenai/Dolci-Instruct-SFT
```

The paper trains each stage for five epochs with a learning rate of 5e-6, a cosine schedule, a warm-up share of 0.03, a
batch of 384 and at most 512 tokens. Where the first stage has been done already, as for any instruction-tuned model,
run `sft_mars.py` alone: the clean stream of the second stage carries the loss of the first.
"""

import torch
from trl import SFTConfig, SFTTrainer

from hf_mars import MARSConfig, MARSTrainer
from hf_mars.cli.data import load_any_dataset, select_split
from hf_mars.cli.errors import CommandParser, one_line_errors
from hf_mars.missing_paths import check_path


def main() -> None:
    parser = CommandParser(description="Two-stage MARS training")
    parser.add_argument("--model", required=True, help="local path or Hub id")
    parser.add_argument("--dataset", required=True, help="local path or Hub id, with a split `train`")
    parser.add_argument("--output-dir", default="mars-two-stage")
    parser.add_argument("--block-size", type=int, default=4)
    parser.add_argument("--mask-token", help="where the model has no spare embedding row, a special token of its own")
    parser.add_argument("--max-steps", type=int, default=-1, help="steps of each stage; by default five epochs")
    options = parser.parse_args()
    with one_line_errors(parser.prog):
        check_path(options.model, "--model")
        dataset = select_split(load_any_dataset(options.dataset, argument="--dataset"), "train", "--dataset")
    recipe = {
        "learning_rate": 5e-6,
        "lr_scheduler_type": "cosine",
        "warmup_steps": 0.03,
        "num_train_epochs": 5,
        "max_steps": options.max_steps,
        "max_length": 512,
    }

    first = f"{options.output_dir}/stage1"
    bf16 = torch.accelerator.is_available()
    with one_line_errors(parser.prog):
        trainer = SFTTrainer(options.model, args=SFTConfig(first, bf16=bf16, **recipe), train_dataset=dataset)
    trainer.train()
    trainer.save_model(first)

    second = f"{options.output_dir}/stage2"
    trainer = MARSTrainer(
        first,
        args=MARSConfig(second, block_size=options.block_size, mask_token=options.mask_token, **recipe),
        train_dataset=dataset,
    )
    trainer.train()
    trainer.save_model(second)


if __name__ == "__main__":
    main()
