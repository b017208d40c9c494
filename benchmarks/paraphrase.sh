#!/usr/bin/env bash
# The paraphrase table of docs/notebook/results.md: a Transformer, its corpus, Difformer and SeqDiffuSeq that start from it,
# and DiffuSeq.
#
#     bash benchmarks/paraphrase.sh DATA OUT
#
# DATA has qqp/train.jsonl and qqp/valid.jsonl, as `noise2text data qqp` writes them. Each pair is used in both
# directions. The same command continues where it stopped. MORE is added to every training command:
# MORE="--set optim.steps=20" tries the script, in an OUT of its own and with a DATA of a few hundred pairs, since all
# are distilled.
set -euo pipefail
DATA=$1 OUT=$2 PYTHON=${PYTHON:-python}
N="$PYTHON -m noise2text" HERE=$(dirname "$0")
SHAPE="model_dim=384 ffn_dim=1536 heads=6 encoder_layers=4 decoder_layers=4 max_source=40"
mkdir -p "$OUT"

[ -e "$OUT/pairs.jsonl" ] || $PYTHON - "$DATA/qqp" "$OUT" << 'CODE'
import json
import sys
from pathlib import Path

data, out = map(Path, sys.argv[1:])


def read(name: str) -> list[tuple[str, str]]:
    with (data / f"{name}.jsonl").open(encoding="utf-8") as lines:
        return [(pair["src"].lower(), pair["trg"].lower()) for pair in map(json.loads, lines)]


def write(name: str, pairs: list[tuple[str, str]]) -> None:
    lines = (json.dumps({"src": a, "trg": b}, ensure_ascii=False) + "\n" for a, b in pairs)
    part = out / f"{name}.part"
    part.write_text("".join(lines), encoding="utf-8")
    part.rename(out / f"{name}.jsonl")


valid = read("valid")
known = {(b, a) for a, b in valid}  # reversed validation pairs are left out, and so are copies
write("valid", valid)
write("pairs", [(a, b) for pair in read("train") for a, b in (pair, pair[::-1]) if a != b and (a, b) not in known])
CODE

train() { # RECIPE PRESET FOLDER CORPUS SETTING...
  local recipe=$1 preset=$2 folder=$3 corpus=$4 sets=() setting
  shift 4
  for setting in "$@"; do sets+=(--set "$setting"); done
  # shellcheck disable=SC2086
  $N train "$recipe" --preset "$preset" --train "$corpus" --valid "$OUT/valid.jsonl" --out "$OUT/$folder" \
    --resume "${sets[@]}" --set validation_sentences=2048 ${MORE:-}
}

pairs=$OUT/pairs.jsonl WORDS="tokenizer=bpe vocabulary=8000" START="tokenizer=folder from_folder=$OUT/teacher"
train transformer iwslt14-de-en teacher "$pairs" $SHAPE $WORDS max_target=40 dropout=0.3 max_tokens=16384 warmup=800 \
  lr=7e-4 lr_schedule=cosine optim.steps=5000 validate_every=5000
[ -e "$OUT/distilled.jsonl" ] ||
  $N distill "$OUT/teacher" --input "$pairs" --output "$OUT/distilled.jsonl" --beam 5 --batch 512
[ -e "$OUT/mixed.jsonl" ] || {
  cat "$pairs" "$OUT/distilled.jsonl" > "$OUT/mixed.part" && mv "$OUT/mixed.part" "$OUT/mixed.jsonl"
}
for corpus in mixed pairs; do
  train difformer iwslt14-de-en "difformer-$corpus" "$OUT/$corpus.jsonl" $SHAPE $START max_target=40 dropout=0.2 \
    max_tokens=16384 warmup=500 lr=8e-4 lr_schedule=cosine optim.steps=18000 validate_every=6000
done
train seqdiffuseq qqp seqdiffuseq "$pairs" $SHAPE $START max_target=39 embedding_dim=64 dropout=0.1 max_tokens=16384 \
  warmup=400 lr=5e-4 clip_norm=1.0 ema_decay=0.999 lr_schedule=cosine refit_start=2000 refit_every=1500 \
  optim.steps=6000 validate_every=6000 generation.steps=50
train diffuseq qqp diffuseq "$pairs" $WORDS max_source=40 max_target=40 model_dim=384 ffn_dim=1536 heads=6 layers=6 \
  accumulate=1 embedding_dim=64 noise_factor=4 anchor_weight=1 align_targets=true clamp=false dropout=0.1 \
  max_tokens=16384 warmup=500 lr=1e-3 clip_norm=1.0 lr_schedule=cosine ema_decay=0.999 optim.steps=20000 \
  validate_every=20000 generation.steps=20

ways() { $PYTHON "$HERE/ways.py" "$OUT/$1" "$OUT/valid.jsonl" "$OUT/texts" "${@:2}"; }
printf 'beam beam=5\nbeam-10 beam=10\nsamples samples=10 select=mbr\n' | ways teacher
for corpus in mixed pairs; do
  ways "difformer-$corpus" --against "$OUT/texts/beam.jsonl" --teacher "$OUT/teacher" << WAYS
$corpus-one length_beam=1 noise_beam=1
$corpus-mbr
$corpus-mbr-new copies=no
$corpus-mbr-2 sampling_noise_factor=2
$corpus-mbr-4 sampling_noise_factor=4
$corpus-weighted select=weighted-mbr
$corpus-weighted-2-new sampling_noise_factor=2 select=weighted-mbr copies=no
$corpus-weighted-21 sampling_noise_factor=2 select=weighted-mbr length_beam=7 noise_beam=3
$corpus-teacher sampling_noise_factor=2 select=teacher
WAYS
done
for name in seqdiffuseq diffuseq; do
  printf "$name-one noise_beam=1\n$name-mbr noise_beam=10\n$name-mbr-new noise_beam=10 copies=no\n" |
    ways $name --against "$OUT/texts/beam.jsonl"
done
for texts in "$OUT"/texts/*.jsonl; do
  echo "$texts"
  $N evaluate --hyp "$texts" --ref "$OUT/valid.jsonl" --src "$OUT/valid.jsonl" --confidence \
    --metrics "${METRICS:-bleu,bleu-diffuseq,rouge-l}"
done
