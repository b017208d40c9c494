#!/usr/bin/env bash
# The German→English tables of docs/notebook/results.md: a teacher, its corpus, students that start from it, their texts.
#
#     bash benchmarks/german_english.sh DATA OUT
#
# DATA has tatoeba/ and multi30k/ as `noise2text data` writes them (train.jsonl, valid.jsonl); further folders with
# a valid.jsonl, named in ELSEWHERE, are translated, too. The same command continues where it stopped. MORE is added
# to every training command: MORE="--set optim.steps=20" tries the script, in an OUT of its own and with few pairs.
set -euo pipefail
DATA=$1 OUT=$2 PYTHON=${PYTHON:-python}
N="$PYTHON -m noise2text" HERE=$(dirname "$0")
SHAPE="model_dim=512 ffn_dim=2048 heads=8 encoder_layers=6 decoder_layers=6 max_source=64"
mkdir -p "$OUT"

train() { # RECIPE FOLDER CORPUS SETTING...
  local recipe=$1 folder=$2 corpus=$3 sets=() setting
  shift 3
  for setting in "$@"; do sets+=(--set "$setting"); done
  # shellcheck disable=SC2086
  $N train "$recipe" --preset iwslt14-de-en --train "$corpus" --valid "$DATA/tatoeba/valid.jsonl" --out "$OUT/$folder" \
    --resume "${sets[@]}" ${MORE:-}
}

both=$OUT/both.jsonl
whole() { [ -e "$1" ] || { cat "${@:2}" > "$1.part" && mv "$1.part" "$1"; }; }
whole "$both" "$DATA/tatoeba/train.jsonl" "$DATA/multi30k/train.jsonl"
train transformer teacher "$both" $SHAPE max_target=64 tokenizer=bpe vocabulary=10000 dropout=0.2 max_tokens=32768 \
  warmup=800 lr=7e-4 clip_norm=1.0 lr_schedule=cosine optim.steps=2300 validate_every=2300 validation_sentences=300
[ -e "$OUT/distilled.jsonl" ] ||
  $N distill "$OUT/teacher" --input "$both" --output "$OUT/distilled.jsonl" --beam 5 --batch 512
whole "$OUT/mixed.jsonl" "$both" "$OUT/distilled.jsonl"
START="tokenizer=folder from_folder=$OUT/teacher"
train difformer student "$OUT/mixed.jsonl" $SHAPE $START max_target=64 dropout=0.3 max_tokens=16384 warmup=500 lr=7e-4 \
  lr_schedule=cosine optim.steps=18000 validate_every=3000 validation_sentences=2000
train seqdiffuseq seqdiffuseq "$OUT/mixed.jsonl" $SHAPE $START max_target=47 embedding_dim=64 dropout=0.2 \
  max_tokens=16384 warmup=400 lr=5e-4 clip_norm=1.0 ema_decay=0.999 lr_schedule=cosine refit_start=1500 \
  refit_every=1000 optim.steps=6500 validate_every=6500 validation_sentences=300 generation.steps=50

few="steps=5 stop_early=0 eta=0 solver=multistep"
for set in tatoeba multi30k ${ELSEWHERE:-}; do
  pairs=$DATA/$set/valid.jsonl texts=$OUT/texts/$set
  echo "$set: the teacher"
  echo "beam beam=5" | $PYTHON "$HERE/ways.py" "$OUT/teacher" "$pairs" "$texts"
  echo "$set: Difformer, and the difference to the teacher's beam"
  $PYTHON "$HERE/ways.py" "$OUT/student" "$pairs" "$texts" --against "$texts/beam.jsonl" \
    --teacher "$OUT/teacher" << WAYS
one length_beam=1 noise_beam=1
mbr
mbr-few $few
mbr-4 sampling_noise_factor=4
weighted select=weighted-mbr
weighted-few select=weighted-mbr $few
weighted-2 sampling_noise_factor=2 select=weighted-mbr
weighted-2-few sampling_noise_factor=2 select=weighted-mbr $few
weighted-4 sampling_noise_factor=4 select=weighted-mbr
weighted-4-few sampling_noise_factor=4 select=weighted-mbr $few
weighted-21 sampling_noise_factor=4 select=weighted-mbr length_beam=7 noise_beam=3
teacher select=teacher
WAYS
  echo "$set: SeqDiffuSeq"
  printf 'seq-one noise_beam=1\nseq-mbr noise_beam=10\n' |
    $PYTHON "$HERE/ways.py" "$OUT/seqdiffuseq" "$pairs" "$texts" --against "$texts/beam.jsonl"
done
$PYTHON "$HERE/latency.py" "$OUT/student" "$OUT/teacher" "$DATA/tatoeba/valid.jsonl" --way "" --way "$few" \
  --way "select=weighted-mbr" --way "select=weighted-mbr $few" \
  --way "sampling_noise_factor=4 select=weighted-mbr $few" \
  --way "length_beam=1 noise_beam=1 steps=2 stop_early=0" --way "length_beam=1 noise_beam=1 steps=1 stop_early=0"
