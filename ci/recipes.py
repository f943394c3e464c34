#!/usr/bin/env python3
"""Runs the recipes of docs/recipes on the real programs, under glibc and under ebbmalloc.

    ci/recipes.py [NAME]...           measures, and writes docs/recipes/NAME/result.json
    ci/recipes.py --check [NAME]...   only tests that ebbmalloc is in charge of every process

Needs `make build` before it. INSTALL=1 installs missing Debian packages; a recipe that lacks one, or what another registry
has, is skipped and listed. Status 1 if a recipe failed, 3 if all were skipped.

docs/recipes/NAME/recipe.toml has:

    title        the program
    lines        what a user types or writes: text, with its comments
    expect       one or two sentences: what changes
    trap         one or two sentences: the program's own trap
    files        files of the folder that a reader should see

    packages     Debian packages, of ci/packages.txt
    fetch        commands that need a registry: one that fails is a reason to skip
    setup        commands before each start
    beside       a program that runs beside the service, on glibc

    [service]
    start        the command that is started; `start_glibc` where glibc's differs
    preload      "run" (default): by `ebb run`; "environment": by LD_PRELOAD, as a service manager sets it; "own": by the lines above
    processes    how many must run at least, all on ebbmalloc
    ready        a command that succeeds once the service can be used, instead of a connection to $PORT
    pid_file     of a service that goes into the background

    [burst]
    about        the load in words
    path, requests, at_once   an HTTP load: `path` may contain {i}; or
    command      a program that prints a line when the burst is over; it is ended after the last look

    [restart]    the program's own way to start anew: `command`, and `processes` to expect after it, all on ebbmalloc
    [mistake]    the trap, shown: `start`, `preload`, and the `finding` of `ebb check`
    [versions]   program = a command that prints its version

Commands run by sh in a copy of the folder, with $PORT, $OTHER (a second port), $SCRATCH (an empty folder), $LIBRARY, $EBB and
$PID (of the service). result.json has:

    date, machine, command, versions, runs
    burst        the load in words
    metric       what the figures are
    glibc, ebbmalloc   of each: before_mb, peak_mb, after_5s_mb: [median, lowest, highest]
    in_charge    program = number of its processes that run on ebbmalloc
    helps        whether 5 s after the burst a tenth less is resident, in each run
    sentence     that in words
"""
