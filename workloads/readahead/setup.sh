#!/usr/bin/env bash
# Makes the environment, the store that is served, and the object of the floor variants.
#
#   ./setup.sh [STORE [ROWS COLUMNS]]    default: .store, 16 rows and 5 columns of chunks
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
../../ci/python-env.sh .
../floor/build.sh
.venv/bin/python -m load store --store "${1:-.store}" --rows "${2:-16}" --columns "${3:-5}"
