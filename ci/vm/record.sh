#!/usr/bin/env bash
# Records what the kernel of ci/vm.sh shows of cgroups, swap and Yama, into $OUT: the fixtures of the tests that
# cannot see these on their own machine. Run inside:
#
#   ci/vm.sh -o FOLDER ci/vm/record.sh [pod|high|killed|swapped|yama]...
#   EBB_VM_RELEASE=named ci/vm.sh -o FOLDER ci/vm/record.sh named
#
# FOLDER then has `cgroups.txt` with a section `-- CGROUP/FILE --` for each file of each cgroup, and `machine`, which says the
# kernel and the day.
set -euo pipefail
ebb=target/release/ebb
top=/sys/fs/cgroup
files="cgroup.controllers cgroup.subtree_control cgroup.events memory.current memory.peak memory.max memory.high \
memory.swap.current memory.swap.max memory.stat memory.events memory.pressure cpu.max cpu.stat cpu.pressure"

# What a cgroup's folder says, but for the numbers of its processes.
keep() {
    local from=$1 file
    mkdir -p "$OUT/$2"
    for file in $files; do
        [[ -e $from/$file ]] && { echo "-- $2/$file --" && cat "$from/$file"; } >>"$OUT/cgroups.txt"
    done
    return 0
}

# A cgroup below the root with these files' values.
make() {
    local folder=$top/$1 setting
    shift
    mkdir -p "$folder"
    for setting; do echo "${setting#*=}" >"$folder/${setting%%=*}"; done
}

# Runs python in a cgroup.
inside() {
    local folder=$top/$1
    shift
    bash -c 'echo $$ >"$1/cgroup.procs"; shift; exec python3 -c "$@"' - "$folder" "$@"
}

# The mappings of a process: the first as it is, of the others the fields that ebb reads. Where this machine has its Python is
# left out.
smaps() {
    awk '/^[0-9a-f]+-/ { mapping++ }
        mapping == 1 || /^([0-9a-f]+-|Rss:|Pss:)/ || /^(Anonymous|AnonHugePages|ShmemPmdMapped|Swap|SwapPss): +[1-9]/' "/proc/$1/smaps" |
        sed "s#$PWD/##; s#$(python3 -c 'import sys; print(sys.prefix)')#/usr/local#"
}

# look WHO COMMAND...: the first line that `ebb why` prints, and what it has no right to.
look() {
    echo "== $1, scope $scope" >>"$OUT/yama.txt"
    { "${@:2}" 2>&1 || echo "status $?"; } | sed -n '1p; 2,$ { /no right to/p }' >>"$OUT/yama.txt"
}

hold='import sys; b = bytearray(int(sys.argv[1]) << 20); f = open(sys.argv[2], "rb").read() and 1
print("held", flush=True); sys.stdin.readline()'
file=$(mktemp)
head -c 24M /dev/urandom >"$file"
sync "$file"

{
    echo "kernel   $(uname -srv)"
    echo "date     $(date -u +%Y-%m-%d)"
    echo "command  ci/vm.sh -o FOLDER ci/vm/record.sh"
} >"$OUT/machine"

pod() {
    # A tree: the limit is the pod's, the app inside has memory of both kinds and too little processor time.
    make pod memory.max=256M
    echo "+memory +cpu" >"$top/pod/cgroup.subtree_control"
    make pod/app "cpu.max=50000 100000"
    coproc held { inside pod/app "$hold" 64 "$file"; }
    read -r _ <&"${held[0]}"
    inside pod/app 'sum(range(50_000_000))'
    keep "$top/pod" pod
    keep "$top/pod/app" pod/app
    echo >&"${held[1]}"
    wait "$held_PID"
}

high() {
    # More is used than memory.high allows.
    make high memory.high=32M memory.max=256M
    # Takes a minute: without swap the kernel makes each page beyond it wait.
    coproc held { inside high "$hold" 48 /dev/null; }
    read -r _ <&"${held[0]}"
    keep "$top/high" high
    echo >&"${held[1]}"
    wait "$held_PID"
}

killed() {
    # A process was killed for want of memory.
    make killed memory.max=32M memory.swap.max=0
    inside killed 'bytearray(64 << 20)' || true
    keep "$top/killed" killed
}

swapped() {
    # Half of a process is in swap.
    swapon /dev/vdb
    make swapped memory.max=64M
    coproc held { inside swapped 'import os, sys; b = bytearray(os.urandom(1 << 20)) * 96; print(os.getpid(), flush=True); sys.stdin.readline()'; }
    read -r pid <&"${held[0]}"
    keep "$top/swapped" swapped
    smaps "$pid" >"$OUT/swapped/smaps"
    # Before and after two looks.
    grep '^VmSwap' "/proc/$pid/status" >"$OUT/swapped/status"
    "$ebb" why -v "$pid" >/dev/null 2>&1 || true
    "$ebb" why --json "$pid" >/dev/null 2>&1 || true
    grep '^VmSwap' "/proc/$pid/status" >>"$OUT/swapped/status"
    echo >&"${held[1]}"
    wait "$held_PID"
    swapoff /dev/vdb
}

yama() {
    # Yama, as an ordinary user and as root without the capability.
    for scope in 1 2 3; do
        echo $scope >/proc/sys/kernel/yama/ptrace_scope
        setpriv --reuid 65534 --regid 65534 --clear-groups sleep 60 &
        theirs=$!
        sleep 60 &
        own=$!
        sleep 1
        look "ordinary user" setpriv --reuid 65534 --regid 65534 --clear-groups "$ebb" why -v "$theirs"
        look "root without CAP_SYS_PTRACE" setpriv --bounding-set -sys_ptrace --inh-caps -sys_ptrace "$ebb" why -v "$own"
        look root "$ebb" why -v "$own"
        kill "$theirs" "$own"
    done
}

named() {
    # Mappings with the names that glibc gives them since 2.38 if a tunable asks for it: a secondary arena, a
    # thread's stack, a block of its own mapping. For EBB_VM_RELEASE=named; glibc 2.41 from ci/glibcs.sh.
    local libraries=target/glibcs/trixie/usr/lib/x86_64-linux-gnu
    mkdir -p "$OUT/named"
    coproc held { GLIBC_TUNABLES=glibc.mem.decorate_maps=1 "$libraries/ld-linux-x86-64.so.2" \
        --library-path "$libraries:/usr/lib/x86_64-linux-gnu" "$(python3 -c 'import sys; print(sys.executable)')" -c 'import os, sys, threading
block, parts = b"x" * (5 << 20), []
def work():
    parts.extend(b"y" * 4000 for _ in range(500))
    held.set()
    done.wait()
held, done = threading.Event(), threading.Event()
thread = threading.Thread(target=work)
thread.start()
held.wait()
print(os.getpid(), flush=True)
sys.stdin.readline()
done.set()'; }
    read -r pid <&"${held[0]}"
    smaps "$pid" >"$OUT/named/smaps"
    echo >&"${held[1]}"
    wait "$held_PID"
}

[[ $# -gt 0 ]] || set -- pod high killed swapped yama
for topic; do "$topic"; done
chmod -R a+r "$OUT"
