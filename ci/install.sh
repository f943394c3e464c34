#!/usr/bin/env bash
# Installs Debian packages that are missing, after a question.
#
#   ci/install.sh [--list|--optional] [must|some|long|PACKAGE]...
#
# `must`, `some` and `long` are the packages that ci/packages.txt marks so. A package counts as installed if what it is
# recognised by is there, from whatever source; one that the table does not have, if dpkg has it.
#
# --list      prints what is missing, one a line, and installs nothing.
# --optional  goes on (status 0) where nothing may be installed.
#
# It installs if INSTALL=1, or if a person on the terminal says yes; else it prints the command and ends with
# status 1. No service is started, and none that came with these packages will start with the machine: see below.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
table=$here/packages.txt

# The word in COLUMN (2: how it is recognised) of a package's line.
column() { awk -v name="$1" -v column="$2" '$1 == name { print $column; exit }' "$table"; }

is_there() {
    local by folder
    by=$(column "$1" 2)
    case $by in
    '') dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep -q '^install ok installed$' ;;
    python:*) for folder in python3 /usr/bin/python3; do
        "$folder" -c "import ${by#python:}" >/dev/null 2>&1 && return 0
    done
    return 1 ;;
    /*) [[ -f ${by//ARCH/$(uname -m)-linux-gnu} ]] ;;
    *) PATH=$PATH:/usr/sbin:/sbin command -v "$by" >/dev/null ;;
    esac
}

mode=
case ${1:-} in --list | --optional) mode=$1 && shift ;; esac

missing=()
for wanted; do
    names=("$wanted")
    case $wanted in must | some | long) mapfile -t names < <(awk -v who="$wanted" '!/^#/ && $3 == who { print $1 }' "$table") ;; esac
    for package in "${names[@]}"; do
        is_there "$package" || missing+=("$package")
    done
done
if [[ $mode == --list ]]; then
    ((${#missing[@]} == 0)) || printf '%s\n' "${missing[@]}"
    exit 0
fi
((${#missing[@]} > 0)) || exit 0

command="apt-get update && apt-get install --no-install-recommends ${missing[*]}"
printf 'Debian packages that are not installed: %s\n' "${missing[*]}" >&2
may=no
if [[ $(id -u) -eq 0 ]] && command -v apt-get >/dev/null; then
    if [[ ${INSTALL:-} == 1 ]]; then
        may=yes
    elif [[ -t 0 && -t 2 ]]; then
        read -r -p 'Install them now? No service is started. [y/N] ' answer || answer=
        [[ $answer != [yY]* ]] || may=yes
    fi
fi
if [[ $may == no ]]; then
    printf 'To install them, as root (or run this again as root with INSTALL=1):\n\n    %s\n\n' "$command" >&2
    [[ $mode == --optional ]]
    exit
fi

# Debian's maintainer scripts ask this program whether they may start a service; 101 forbids it (invoke-rc.d(8)).
policy=/usr/sbin/policy-rc.d
# Links by which systemd starts a service with the machine.
starts() { find /etc/systemd/system -path '*.wants/*' -type l 2>/dev/null | sort; }

made=
leave() { [[ -z $made ]] || rm -f "$policy"; }
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
if (set -o noclobber && printf '#!/bin/sh\n# Made by ci/install.sh for the time of an installation.\nexit 101\n' >"$policy") 2>/dev/null; then
    made=yes
    chmod 755 "$policy"
else
    status=0
    "$policy" a-service start >/dev/null 2>&1 || status=$?
    if [[ $status -ne 101 ]]; then
        printf 'install.sh: %s allows services to start, so nothing is installed. By hand:\n\n    %s\n\n' \
            "$policy" "$command" >&2
        exit 1
    fi
fi

export DEBIAN_FRONTEND=noninteractive
before=$(starts)
apt-get update -qq >&2
apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
comm -13 <(echo "$before") <(starts) | sed 's#.*/##' | sort -u | while read -r unit; do
    # Timers and the like of other packages that came along are treated the same.
    systemctl disable "$unit" >/dev/null 2>&1 || continue
    printf 'install.sh: %s will not start with the machine; to change that: systemctl enable %s\n' "$unit" "$unit" >&2
done
