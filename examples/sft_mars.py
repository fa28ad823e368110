# /// script
# dependencies = ["hf-mars", "trackio"]
#
# [tool.uv.sources]
# hf-mars = { path = "..", editable = true }
# ///
"""
Fine-tune a model with MARS, in the shape of TRL's `sft.py`. `hf-mars sft` takes the same arguments.

One GPU, all weights:

```bash
python examples/sft_mars.py \
    --model_name_or_path Qwen/Qwen2.5-0.5B-Instruct \
    --dataset_name trl-lib/Capybara \
    --block_size 4 \
    --learning_rate 5e-6 \
    --lr_scheduler_type cosine \
    --warmup_steps 0.03 \
    --max_length 512 \
    --packing \
    --eval_strategy steps \
    --output_dir Qwen2.5-0.5B-MARS
```

LoRA; the mask token's embedding is trained beside the adapter:

```bash
python examples/sft_mars.py \
    --model_name_or_path Qwen/Qwen2.5-7B-Instruct \
    --dataset_name trl-lib/Capybara \
    --learning_rate 1e-4 \
    --use_peft --lora_r 32 --lora_alpha 64 --lora_target_modules all-linear \
    --packing \
    --output_dir Qwen2.5-7B-MARS-LoRA
```

Several GPUs, with FSDP2 (`fsdp2.yaml`) or DeepSpeed (`zero2.yaml`, `zero3.yaml`):

```bash
accelerate launch --config_file examples/accelerate_configs/fsdp2.yaml examples/sft_mars.py \
    --model_name_or_path Qwen/Qwen2.5-7B-Instruct \
    --dataset_name trl-lib/Capybara \
    --learning_rate 5e-6 \
    --packing \
    --output_dir Qwen2.5-7B-MARS
```
"""

from hf_mars.cli.sft import main


if __name__ == "__main__":
    main()
