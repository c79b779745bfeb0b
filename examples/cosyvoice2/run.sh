#!/usr/bin/env bash
# The CosyVoice2 recipe: bash examples/cosyvoice2/run.sh START STOP runs the stages from START to STOP.
#
#  -2 environment   what is installed and what is missing
#  -1 convert       llm.pt -> the Hugging Face folder that is trained
#   0 data          texts -> train.parquet, test.parquet
#   2 train         GRPO with our own engine
#   4 evaluate      the base and every checkpoint on the held-out texts, a table; the best becomes `best`
#   5 export        the best checkpoint -> llm.pt
#   1, 3            reward server and merge: for rewards of other machines and for veRL, docs/cosyvoice2.md
#
# A stage whose result is there is not run again; a training that was cut short goes on. By default all of it is the tiny
# checkpoint on a CPU. For a released one:
#   MODEL=CosyVoice2-0.5B TRAIN=aishell-3.jsonl TEST= LANGUAGE=zh CONFIG=my.toml bash examples/cosyvoice2/run.sh -1 5
set -euo pipefail

MODEL=${MODEL:-builtin:tiny-cosyvoice2}   # folder with llm.pt and CosyVoice-BlankEN
TRAIN=${TRAIN:-builtin:tiny-train}        # JSON lines with `text`
TEST=${TEST-builtin:tiny-held-out}        # empty: the last rows of TRAIN
TEST_ROWS=${TEST_ROWS:-256}
LANGUAGE=${LANGUAGE:-en}
CONFIG=${CONFIG:-configs/cosyvoice2/tiny.toml}
EVAL_SET=${EVAL_SET:-held-out}              # or a set of docs/evaluation.md, such as seedtts_testset/zh/meta.lst
WORK=${WORK:-runs/cosyvoice2}
ELOCUTION=${ELOCUTION:-elocution}

if [[ $# -ne 2 || ! $1 =~ ^-?[0-9]+$ || ! $2 =~ ^-?[0-9]+$ || $1 -gt $2 ]]; then
    sed -n '2,14s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
start=$1 stop=$2
runs() { [[ $start -le $1 && $1 -le $stop ]] && echo "== stage $1: $2"; }

if runs -2 environment; then
    $ELOCUTION doctor --recipe cosyvoice2
fi
if runs -1 convert; then
    [[ -e $WORK/hf ]] && echo "$WORK/hf is there" || $ELOCUTION convert cosyvoice2 to-hf "$MODEL" --to "$WORK/hf"
fi
if runs 0 data; then
    if [[ -e $WORK/data/test.parquet && -e $WORK/data/train.parquet ]]; then
        echo "$WORK/data is there"
    else
        $ELOCUTION data prepare cosyvoice2 "$TRAIN" ${TEST:+--test-source "$TEST"} --test "$TEST_ROWS" \
            --language "$LANGUAGE" --to "$WORK/data"
    fi
fi
if runs 2 train; then
    if [[ -e $WORK/run/config.toml ]]; then
        $ELOCUTION train --resume --output-dir "$WORK/run"
    else
        $ELOCUTION train "$CONFIG" --output-dir "$WORK/run" --set "model.path=$WORK/hf" \
            --set "data.train=$WORK/data/train.parquet" --set "data.held_out=$WORK/data/test.parquet"
    fi
fi
if runs 4 evaluate; then
    # For several GPUs: EVALUATE='torchrun --nproc-per-node 8 -m elocution eval'
    ${EVALUATE:-$ELOCUTION eval} "$WORK/run" --sweep --set-name "$EVAL_SET"
fi
if runs 5 export; then
    [[ -e $WORK/llm.pt ]] && echo "$WORK/llm.pt is there" \
        || $ELOCUTION convert cosyvoice2 to-native "$WORK/run" --to "$WORK/llm.pt"
fi
