#!/usr/bin/env bash
# The main workflow on the built-in offline corpus: data, training, decoding, BLEU, export, translating with the export.
# You can copy each command. Results go to ./demo (for another folder: DEMO_DIR=...).
set -euo pipefail

dir=${DEMO_DIR:-demo}
steps=${DEMO_STEPS:-600}
mkdir -p "$dir"

say() { printf '\n=== %s\n' "$*"; }

say "1. Data: names, dates, times, measures and money in English and German, from CLDR"
t2t_ext-datagen --problem=translate_ende_cldr --data_dir="$dir/data" --tmp_dir="$dir/tmp"

say "2. Training a small Transformer for $steps steps (run again to resume)"
t2t_ext-trainer --problem=translate_ende_cldr --model=transformer --hparams_set=transformer_small_data \
  --data_dir="$dir/data" --output_dir="$dir/run" \
  --train_steps="$steps" --local_eval_frequency=300 --random_seed=1

say "3. Decoding the held-out test set, BLEU"
t2t_ext-decoder --output_dir="$dir/run" --split=test --decode_hparams="beam_size=4,alpha=0.6,batch_size=32" \
  --decode_to_file="$dir/test.decodes"

say "4. Export: a SavedModel that takes and gives plain text"
t2t_ext-exporter --output_dir="$dir/run" --export_dir="$dir/export" --overwrite

say "5. Three sentences from the export"
# TensorFlow's messages about the machine go to a file, which is shown only if something fails.
python "$(dirname "$0")/translate_with_export.py" "$dir/export" \
  "Sunday, September 14, 2008" "Austria, Romania, and Vietnam" "28 deciliters (in 3 days)" \
  2> "$dir/tensorflow.log" || { cat "$dir/tensorflow.log" >&2; exit 1; }

printf '\nLook at the curves with: tensorboard --logdir=%s/run\n' "$dir"
