#!/bin/sh
# What `ebb why` says of real programs; ci/verdicts/run.py says how.
set -e
cd "$(dirname "$0")/.."
ci/python-env.sh ci/verdicts
exec python3 ci/verdicts/run.py "$@"
