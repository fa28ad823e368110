#!/usr/bin/env bash
# The six benchmarks of the paper with its settings: chat template, greedy, at most 256 new tokens; BBH with three
# shots, the others with none. Needs access to the Hub and, for anything but the smallest models, a GPU.
#
#     benchmarks/paper.sh [--tiny] CHECKPOINT [THRESHOLD] [further arguments of lm_eval]
#
# Without a threshold it is plain decoding. HumanEval runs code that the model wrote. Every answer is kept at once, so the
# same command after an interruption goes on with the rest; `runs/paper` holds answers and scores.
#
# --tiny: three made-up items a task and 16 new tokens, without the Hub, to see that it all runs.
#
# Cost: 21,015 prompts. Plain, with answers of 256 tokens in batches of 8, that is 672,000 forwards: 5.6 GPU hours at 30
# ms a forward, which is what transformers needs to launch the kernels of 28 layers, and more for models that take longer
# (a forward reads all weights once). Divide by the tokens a forward that you expect. No figure of it is measured here.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
tiny=()
if [ "${1:-}" = --tiny ]; then tiny=(yes) && shift; fi
checkpoint=${1:?CHECKPOINT is missing}
threshold=${2:-}
shift $(($# > 1 ? 2 : 1))
if [ -d "$checkpoint" ]; then checkpoint=$(cd "$checkpoint" && pwd); fi
output=$PWD/runs/paper/$(basename "$checkpoint")-${threshold:-plain}${tiny:+-tiny}
tokens=256
common=()
if [ ${#tiny[@]} -gt 0 ]; then
    tokens=16
    python "$here/paper_tiny.py" "$output/tiny"
    # Where `evaluate` finds HumanEval's metric without the Hub.
    cd "$output/tiny"
    common+=(--include_path "$output/tiny/tasks" --device cpu)
fi
generation=do_sample=False,max_gen_toks=$tokens
if [ -n "$threshold" ]; then generation+=,mars_threshold=$threshold; fi
lm_eval() {
    local name=$1
    shift
    if compgen -G "$output/$name/*/results_*.json" > /dev/null; then
        echo "$output/$name is complete."
        return
    fi
    mkdir -p "$output/$name"
    HF_ALLOW_CODE_EVAL=1 python -m hf_mars.evaluation.lm_eval run --model hf-mars \
        --model_args "pretrained=$checkpoint" --apply_chat_template --gen_kwargs "$generation" --batch_size 8 \
        --confirm_run_unsafe_code --use_cache "$output/$name/answers" --output_path "$output/$name" \
        ${common[@]+"${common[@]}"} "$@"
}
for task in ifeval mmlu_pro gpqa_main_cot_zeroshot gsm8k_cot_zeroshot humaneval_instruct; do
    lm_eval $task --tasks $task --num_fewshot 0 "$@"
done
lm_eval bbh_cot_fewshot --tasks bbh_cot_fewshot --num_fewshot 3 --fewshot_as_multiturn "$@"
