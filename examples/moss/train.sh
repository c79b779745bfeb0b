#!/usr/bin/env bash
# The MOSS-VoiceGenerator recipe under its published flags: bash examples/moss/train.sh [FLAG VALUE]… [--dry-run] [--set KEY=VALUE]…
#
#  MVG_DIR       the checkpoint                      CODEC_DIR  MOSS-Audio-Tokenizer
#  EMOLIA_DIR    train.jsonl and held_out.jsonl: texts, emotions and the recordings of voices (docs/prompts.md)
#  CLAP_DIR      the CLAP folder of emotion and quality
#
# Published flags, as --flag VALUE or --flag=VALUE: --output-dir --batch-size --group-size --lr --max-steps --sync-every
# --save-every --channelwise-loss-weight --w-speaker --w-clap --w-quality --beta-wer --train-device --sglang-gpus
# --reward-device --lr-schedule --warmup-steps --lr-min --seed --lora-init --resume-step. A weight of 0 leaves its part out, and
# with it its model. --lora-init FOLDER takes a merged checkpoint in place of MVG_DIR; --resume-step N goes on with the run in
# --output-dir, whose newest checkpoint must be step N. What follows --set wins over all of them.
set -euo pipefail

CONFIG=${CONFIG:-configs/moss/published.toml}
ELOCUTION=${ELOCUTION:-elocution}
settings=() rest=() output_dir= resume_step= w_speaker=0.5 w_clap=0.4 w_quality=0.1

fail() { echo "examples/moss/train.sh: $1" >&2; exit 2; }
set_key() { settings+=(--set "$1=$2"); }
set_text() { set_key "$1" "'$2'"; }

[[ -z ${MVG_DIR:-} ]] || set_text model.path "$MVG_DIR"
[[ -z ${CODEC_DIR:-} ]] || set_text codec.path "$CODEC_DIR"
[[ -z ${CLAP_DIR:-} ]] || set_text reward.clap_path "$CLAP_DIR"
if [[ -n ${EMOLIA_DIR:-} ]]; then
    set_text data.train "$EMOLIA_DIR/train.jsonl"
    set_text data.held_out "$EMOLIA_DIR/held_out.jsonl"
fi

while [[ $# -gt 0 ]]; do
    flag=${1%%=*}
    case $flag in
        --dry-run) rest+=("$1"); shift; continue ;;
        --help | -h) sed -n '2,14s/^# \{0,1\}//p' "$0"; exit 0 ;;
    esac
    if [[ $1 == --*=* ]]; then value=${1#*=}; shift
    elif [[ $# -ge 2 ]]; then value=$2; shift 2
    else fail "$1 needs a value"; fi
    case ${flag//_/-} in
        --set) rest+=(--set "$value") ;;
        --output-dir) output_dir=$value ;;
        --resume-step) resume_step=$value ;;
        --lora-init)
            [[ ! -e $value/adapter_config.json ]] || fail "--lora-init $value is an adapter: fold it into its base first, docs/lora.md"
            set_text model.path "$value" ;;
        --batch-size) set_key train.prompts_per_step "$value" ;;
        --group-size) set_key rollout.group_size "$value" ;;
        --lr) set_key train.learning_rate "$value" ;;
        --max-steps) set_key train.steps "$value" ;;
        --sync-every) set_key train.sync_every "$value"; set_key train.max_lag "$value" ;;
        --save-every) set_key train.save_every "$value" ;;
        --channelwise-loss-weight) set_text algorithm.channel_weights "$value" ;;
        --w-speaker) w_speaker=$value ;;
        --w-clap) w_clap=$value ;;
        --w-quality) w_quality=$value ;;
        --beta-wer) set_key reward.gate_beta "$value" ;;
        --train-device) set_text train.device "$value" ;;
        --sglang-gpus) set_key rollout.server.devices "['${value//,/"','"}']" ;;
        --reward-device) set_key reward.devices "['$value']" ;;
        --lr-schedule) set_text train.lr_schedule "$value" ;;
        --warmup-steps) set_key train.warmup_steps "$value" ;;
        --lr-min) set_key train.lr_min "$value" ;;
        --seed) set_key seed "$value" ;;
        *) fail "there is no flag $flag; see --help" ;;
    esac
done

parts=
for part in "speaker speaker_similarity $w_speaker" "emotion clap_similarity $w_clap" "quality clap_quality $w_quality"; do
    read -r name fact weight <<< "$part"
    [[ $weight =~ ^[0-9]*\.?[0-9]+$ ]] || fail "the weight of $name is $weight, expected a number from 0"
    [[ $weight =~ ^0*\.?0*$ ]] || parts+="${parts:+, }$name = {fact = '$fact', weight = $weight, utility = 'linear', low = -1.0, high = 1.0}"
done
[[ -n $parts ]] || fail "all weights are 0, so that nothing would be rewarded"
set_key reward.components "{$parts}"

if [[ -n $resume_step ]]; then
    [[ -n $output_dir ]] || fail "--resume-step needs --output-dir, the run to go on with"
    newest=$( (ls "$output_dir/checkpoints" 2>/dev/null || true) | sed -n "s/^step_\([0-9]*\)$/\1/p" | sort -n | tail -1)
    [[ $newest == "$resume_step" ]] || fail "the newest checkpoint of $output_dir is step ${newest:-none}, not $resume_step"
    exec $ELOCUTION train --resume --output-dir "$output_dir"
fi
exec $ELOCUTION train "$CONFIG" ${output_dir:+--output-dir "$output_dir"} "${settings[@]}" ${rest[@]+"${rest[@]}"}
