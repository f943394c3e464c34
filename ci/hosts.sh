#!/bin/sh
# The matrix of hosts; ci/hosts/run.py says how.
exec python3 "$(dirname "$0")/hosts/run.py" "$@"
