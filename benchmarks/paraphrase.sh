#!/usr/bin/env bash
# The paraphrase tables of docs/results.md: a Transformer, Difformer and SeqDiffuSeq that start from it, and DiffuSeq.
#
#     bash benchmarks/paraphrase.sh DATA OUT
#
# DATA holds qqp/train.jsonl and qqp/valid.jsonl, as `noise2text data qqp` writes them. Each pair is learned in both
# directions. Stop it and start it again as you like: it goes on where it was. MORE is added to every training command:
# MORE="--set steps=20" tries it, in an OUT of its own.
set -euo pipefail
DATA=$1 OUT=$2 PYTHON=${PYTHON:-python}
N="$PYTHON -m noise2text" HERE=$(dirname "$0")
SHAPE="width=384 ffn=1536 heads=6 encoder_layers=4 decoder_layers=4 max_source=40"
mkdir -p "$OUT"

[ -e "$OUT/pairs.jsonl" ] || $PYTHON - "$DATA/qqp" "$OUT" << 'CODE'
import json
import sys
from pathlib import Path

data, out = map(Path, sys.argv[1:])
for name in ("valid", "train"):  # the last to be written is the one that is looked for
    lines = (data / f"{name}.jsonl").read_text(encoding="utf-8").lower().splitlines()
    pairs = [(pair["src"], pair["trg"]) for pair in map(json.loads, lines)]
    turned = [(b, a) for a, b in pairs] if name == "train" else []
    written = [json.dumps({"src": a, "trg": b}, ensure_ascii=False) for a, b in dict.fromkeys(pairs + turned)]
    path = out / ("pairs.jsonl" if turned else "valid.jsonl")
    path.with_suffix(".draft").write_text("".join(f"{line}\n" for line in written), encoding="utf-8")
    path.with_suffix(".draft").rename(path)
CODE

train() { # RECIPE PRESET FOLDER SETTING...
  local recipe=$1 preset=$2 folder=$3 sets=() setting
  shift 3
  for setting in "$@"; do sets+=(--set "$setting"); done
  # shellcheck disable=SC2086
  $N train "$recipe" --preset "$preset" --train "$OUT/pairs.jsonl" --valid "$OUT/valid.jsonl" --out "$OUT/$folder" \
    --resume "${sets[@]}" --set validation_sentences=300 ${MORE:-}
}

WORDS="tokenizer=bpe vocabulary=8000" START="tokenizer=folder from_folder=$OUT/teacher"
train transformer iwslt14-de-en teacher $SHAPE $WORDS max_target=40 dropout=0.3 tokens=16384 warmup=800 learning_rate=7e-4 \
  decay=cosine steps=5000 validate_every=5000
train difformer iwslt14-de-en difformer $SHAPE $START max_target=40 dropout=0.3 tokens=16384 warmup=500 learning_rate=8e-4 \
  decay=cosine steps=18000 validate_every=6000
train seqdiffuseq qqp seqdiffuseq $SHAPE $START max_target=39 embedding=64 dropout=0.1 tokens=16384 warmup=400 learning_rate=5e-4 \
  clip=1.0 ema=0.999 decay=cosine refit_first=2000 refit_every=1500 steps=6000 validate_every=6000 generation_steps=50
train diffuseq qqp diffuseq $WORDS max_source=40 max_target=40 width=384 ffn=1536 heads=6 layers=6 accumulate=1 embedding=64 \
  factor=4 anchor=1 clamp=false dropout=0.1 tokens=16384 warmup=500 learning_rate=1e-3 clip=1.0 decay=cosine ema=0.999 \
  steps=12000 validate_every=12000 generation_steps=20

ways() { $PYTHON "$HERE/ways.py" "$OUT/$1" "$OUT/valid.jsonl" "$OUT/texts" "${@:2}"; }
printf 'beam beam=5\nbeam-10 beam=10\nsamples samples=10\n' | ways teacher
ways difformer --against "$OUT/texts/beam.jsonl" --teacher "$OUT/teacher" << 'WAYS'
one length_beam=1 noise_beam=1
mbr
mbr-new copies=no
mbr-2 factor=2
mbr-2-new factor=2 copies=no
mbr-4 factor=4
mbr-21 factor=4 length_beam=7 noise_beam=3
weighed select=weighed
weighed-2 factor=2 select=weighed
weighed-2-new factor=2 select=weighed copies=no
teacher factor=2 select=teacher
WAYS
for name in seqdiffuseq diffuseq; do
  printf "$name-one noise_beam=1\n$name-mbr noise_beam=10\n$name-new noise_beam=10 copies=no\n" |
    ways $name --against "$OUT/texts/beam.jsonl"
done
for name in beam beam-10 samples mbr mbr-new mbr-2 mbr-4 mbr-21 weighed weighed-2-new teacher seqdiffuseq-mbr diffuseq-mbr; do
  echo "$name"
  $N evaluate --hyp "$OUT/texts/$name.jsonl" --ref "$OUT/valid.jsonl" --src "$OUT/valid.jsonl" --confidence \
    --metrics "${METRICS:-bleu,bleu-diffuseq,rouge-l}"
done
