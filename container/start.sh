#!/bin/sh
# Starts the service. Arguments are further options of `noise2text serve`; these variables have defaults:
#
#   NOISE2TEXT_MODELS     models, separated by spaces: shipped names, folders, or NAME=FOLDER     de-en
#   NOISE2TEXT_HOST       the address to listen on                                                0.0.0.0
#   NOISE2TEXT_PORT       the port to listen on                                                   8000
#   NOISE2TEXT_KEYS_FILE  a file of API keys, one per line; without it, NOISE2TEXT_API_KEYS       none
set -eu

if [ -n "${NOISE2TEXT_KEYS_FILE:-}" ]; then
    set -- --keys "$NOISE2TEXT_KEYS_FILE" "$@"
fi

# exec: signals go to the service, which finishes what it has accepted.
# shellcheck disable=SC2086  # one word per model
exec noise2text serve ${NOISE2TEXT_MODELS:-de-en} \
    --host "${NOISE2TEXT_HOST:-0.0.0.0}" --port "${NOISE2TEXT_PORT:-8000}" "$@"
