#!/usr/bin/env bash
# The shipped model de-en: a Transformer of Tatoeba and Europarl, its corpus, and a Difformer that starts from it.
#
#     bash benchmarks/shipped_model.sh DATA OUT
#
# DATA has tatoeba.jsonl and europarl.jsonl to train on, and valid.jsonl, a mixture of validation pairs. The same command
# continues where it stopped. MORE is added to both trainings, CORPUS to the making of the corpus, and PROCESSES share
# the GPU while the teacher writes: MORE="--set optim.steps=20" CORPUS="--sentences 200" tries the script.
#
# On an H200 it takes about twenty minutes (docs/notebook/shipped_model.md).
set -euo pipefail
DATA=$1 OUT=$2 PYTHON=${PYTHON:-python} MIN_BLEU=${MIN_BLEU:-20}
N="$PYTHON -m noise2text" HERE=$(dirname "$0")
SHAPE="model_dim=512 ffn_dim=2048 heads=8 encoder_layers=10 decoder_layers=3 max_source=64 max_target=64"
mkdir -p "$OUT"

train() { # RECIPE FOLDER CORPUS SETTING...
  local recipe=$1 folder=$2 corpus=$3 sets=() setting
  shift 3
  for setting in "$@"; do sets+=(--set "$setting"); done
  # shellcheck disable=SC2086
  $N train "$recipe" --preset iwslt14-de-en --train "$corpus" --valid "$DATA/valid.jsonl" --out "$OUT/$folder" --resume \
    "${sets[@]}" --set validation_sentences=500 --set save_every=2000 ${MORE:-}
}

# shellcheck disable=SC2086
[ -e "$OUT/variants.jsonl" ] || $PYTHON "$HERE/german_english_corpus.py" "$OUT" --tatoeba "$DATA/tatoeba.jsonl" \
  --europarl "$DATA/europarl.jsonl" ${CORPUS:-}
cat "$OUT/raw.jsonl" "$OUT/variants.jsonl" > "$OUT/pairs.jsonl"

# shellcheck disable=SC2086
train transformer teacher "$OUT/pairs.jsonl" $SHAPE tokenizer=bpe vocabulary=10000 dropout=0.2 max_tokens=32768 \
  warmup=2000 lr=5e-4 clip_norm=1.0 lr_schedule=cosine optim.steps=7000 validate_every=7000
$PYTHON - "$OUT/teacher/metrics.jsonl" "$MIN_BLEU" << 'CODE'
import json
import sys

bleu = max(row.get("valid_bleu", 0.0) for row in map(json.loads, open(sys.argv[1], encoding="utf-8")))
if bleu < float(sys.argv[2]):
    sys.exit(f"The teacher has {bleu:.1f} BLEU, less than {sys.argv[2]}: nothing can be learned from its texts.")
CODE

if [ ! -e "$OUT/distilled.jsonl" ]; then
  share=() && [ "${PROCESSES:-1}" = 1 ] || share=(-m torch.distributed.run --nproc-per-node "$PROCESSES")
  $PYTHON "${share[@]}" -m noise2text distill "$OUT/teacher" --input "$OUT/raw.jsonl" --output "$OUT/distilled.jsonl" \
    --beam 4 --batch 512 ${DEVICE:+--device "$DEVICE"}
fi
# Sentences of Tatoeba are short and few: they come with both targets, those of Europarl with the teacher's.
cat "$OUT/distilled.jsonl" "$OUT/tatoeba.jsonl" "$OUT/variants.jsonl" > "$OUT/mixed.jsonl"
# shellcheck disable=SC2086
train difformer student "$OUT/mixed.jsonl" $SHAPE tokenizer=folder from_folder="$OUT/teacher" dropout=0.1 \
  noise_factor=4.5 max_tokens=16384 warmup=1000 lr=7e-4 clip_norm=1.0 lr_schedule=cosine \
  optim.steps=${STUDENT_STEPS:-39600} validate_every=${STUDENT_STEPS:-39600}
[ -e "$OUT/de-en" ] || $N convert "$OUT/student" "$OUT/de-en" --weights int8
cp "$HERE/../src/noise2text/shipped_models/de-en/generation_config.json" "$OUT/de-en/"
