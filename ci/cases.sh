# Services for the pages of docs/cases, sourced by ci/cases.py: case_NAME starts the service of a page, sets PID and defines what its
# commands call. They run in a folder that has only `workloads`; $ROOT, $PORT and $OTHER are set.

until_healthy() { until curl -sf "http://127.0.0.1:$1/health"; do sleep 0.2; done; }
stop() { kill "$PID"; wait "$PID"; unset EBB_PORT EBB_DIR ${!DEVICE_*} ${!LENS_*} ${!ARROW_*}; }

case_device() {
    cd workloads/device
    mkdir "$OLDPWD/archive"
    export EBB_PORT=$PORT EBB_DIR="$OLDPWD/archive" DEVICE_ARCHIVE="$OLDPWD/archive" DEVICE_WORKERS=12 DEVICE_THREADS=4
    start() { "$@" .venv/bin/python -m gunicorn --config python:service.gunicorn_conf & PID=$!
        until_healthy $PORT; }
    load() { .venv/bin/python -m load --url http://127.0.0.1:$PORT --clients 16 --uploads 96; }
    start; load; sleep 3
    cd "$OLDPWD"
}

case_lens() {
    cd workloads/lens
    .venv/bin/python -m warehouse --port $OTHER &
    export LENS_WAREHOUSE_URL=http://127.0.0.1:$OTHER ARROW_DEFAULT_MEMORY_POOL=system
    start() { "$@" .venv/bin/python -m uvicorn service.app:app --host 127.0.0.1 --port $PORT --workers 1 & PID=$!
        until_healthy $PORT; }
    load() { .venv/bin/python -m load --url http://127.0.0.1:$PORT "$@"; }
    until_healthy $OTHER
    start
    load --rate 5 --seconds 2 --seed 0
    touch "$OLDPWD/load.log"
    (sleep 60; echo "$(date -u +%FT%TZ) burst" >> "$OLDPWD/load.log"; load --rate 40 --seconds 10 --seed 2; load --rate 5 --seconds 30 --seed 1) &
    cd "$OLDPWD"
}

case_readahead() {
    cd workloads/readahead
    [ -d .store ] || ./setup.sh
    start() { "$@" .venv/bin/python -m service --store .store --port $PORT --threads 32 --ahead 32 --reader own & PID=$!
        until_healthy $PORT; }
    load() { (cd $ROOT/workloads/readahead; .venv/bin/python -m load $1 --url http://127.0.0.1:$PORT --store .store "${@:2}" >/dev/null); }
    open_session() { load session; }
    read_pass() { load pass --number $1; }
    start
    cd "$OLDPWD"
    sleep 2
}

case_sse() {
    cd workloads/sse
    .venv/bin/python -m event_store --port $OTHER --dir "$OLDPWD" &
    export SSE_REDIS_URL=redis://127.0.0.1:$OTHER/0
    start() { "$@" .venv/bin/python -m uvicorn service.app:app --host 127.0.0.1 --port $PORT & PID=$!
        until_healthy $PORT; }
    burst() { .venv/bin/python -m load burst --url http://127.0.0.1:$PORT --streams 3 --subscribers 3; }
    start
    .venv/bin/python -m load fill --url http://127.0.0.1:$PORT --redis $SSE_REDIS_URL
    .venv/bin/python -m load warm --url http://127.0.0.1:$PORT
    cd "$OLDPWD"
    touch requests.log
    (cd workloads/sse; sleep 60; echo "$(date -u +%FT%TZ) subscribers" >> "$OLDPWD/requests.log"; burst; date -u +%FT%TZ > "$OLDPWD/burst") &
}

case_warden() {
    cd workloads/warden
    [ -x target/warden-system ] || ./setup.sh
    .venv/bin/python -m load fill --log "$OLDPWD/log"
    target/warden-system --port $PORT --log "$OLDPWD/log" --file-bytes 1000000 --read whole --at-once 0 & PID=$!
    until_healthy $PORT
    for day in 1 2 3; do .venv/bin/python -m load day --url http://127.0.0.1:$PORT --number $day; done
    sleep 4
    cd "$OLDPWD"
}
