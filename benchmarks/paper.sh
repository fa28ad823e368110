#!/usr/bin/env bash
# The six benchmarks of the paper with its settings: chat template, greedy, at most 256 new tokens; BBH with three
# shots, the others with none. Needs access to the Hub and, for anything but the smallest models, a GPU.
#
#     benchmarks/paper.sh CHECKPOINT [THRESHOLD] [further arguments of lm_eval]
#
# Without a threshold it is plain decoding. HumanEval runs code that the model wrote.
set -euo pipefail
checkpoint=$1
threshold=${2:-}
shift $(($# > 1 ? 2 : 1))
generation=do_sample=False,max_gen_toks=256
if [ -n "$threshold" ]; then generation+=,mars_threshold=$threshold; fi
lm_eval() {
    HF_ALLOW_CODE_EVAL=1 python -m hf_mars.evaluation.lm_eval run --model hf-mars \
        --model_args "pretrained=$checkpoint" --apply_chat_template --gen_kwargs "$generation" \
        --batch_size 8 --confirm_run_unsafe_code --output_path runs/paper "$@"
}
lm_eval --tasks ifeval,mmlu_pro,gpqa_main_cot_zeroshot,gsm8k_cot_zeroshot,humaneval_instruct --num_fewshot 0 "$@"
lm_eval --tasks bbh_cot_fewshot --num_fewshot 3 --fewshot_as_multiturn "$@"
