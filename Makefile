# Thin: each target is a few commands that can be typed by hand.
#
#   make demo        the main job on a fresh machine: a service whose memory ebbs (a few minutes)
#   make build       target/release/{ebb,libebbmalloc.so,libebbmalloc.a}
#   make test        everything that must pass before a change lands
#   make test-long   what takes longer, about half an hour; the last run is in ci/test-long.log
#   make bench       the benchmarks, in short; benches/README.md has the long form
#   make install-compat PREFIX=...   as the jemalloc of programs that are linked to it; docs/jemalloc.md
#   make format      rewrites the sources' layout

CARGO ?= cargo
DEMO_PACKAGES = build-essential python3 python3-pip redis-server libjemalloc2
LONG_PACKAGES = qemu-system-x86 qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross
BENCH_PACKAGES = build-essential cmake python3 python3-pip libjemalloc2 libmimalloc2.0 libtcmalloc-minimal4 valgrind \
	redis-server redis-tools sqlite3 ruby nodejs ripgrep jq ghostscript rustc

.PHONY: build demo test test-long bench format lint unit library loom preload docs packages install-compat

build: library
	CARGO_PROFILE_RELEASE_LTO=false CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 $(CARGO) build --release -p ebb

# Apart from the tool, which does without the allocator's link-time optimisation: it takes minutes.
library:
	$(CARGO) build --release -p ebbmalloc-c
	$(CARGO) rustc --release -p ebbmalloc-c --features archive --crate-type staticlib

install-compat: build
	$(CARGO) build --release -p ebbmalloc-jemalloc
	ci/install-compat.sh "$(PREFIX)"

demo:
	ci/install.sh $(DEMO_PACKAGES)
	$(MAKE) build
	ci/python-env.sh workloads/sse
	target/release/ebb compare workloads/sse --profile demo -o results/demo

test: packages lint library unit loom preload docs

packages:
	ci/install.sh

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) clippy -p ebbmalloc-core --example holds --features holds -- -D warnings

unit:
	ci/python-env.sh workloads/sse workloads/leaky
	cd workloads/sse && .venv/bin/python -m unittest
	cd workloads/leaky && .venv/bin/python -m unittest
	ci/python-env.sh benches
	$(MAKE) -C benches
	benches/.venv/bin/python -m unittest discover -s benches/tests
	$(CARGO) test --workspace --exclude ebbmalloc-c --features ebbmalloc/override-c

loom:
	ci/loom.sh

preload:
	$(CARGO) test --release -p ebbmalloc-c

docs:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps

test-long:
	ci/install.sh
	ci/install.sh $(LONG_PACKAGES)
	$(MAKE) build
	ci/test-long.sh

bench:
	ci/install.sh $(BENCH_PACKAGES)
	$(MAKE) build
	-$(MAKE) -C benches peers
	python3 benches/run.py --quick

format:
	$(CARGO) fmt --all
