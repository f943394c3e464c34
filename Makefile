# Thin: each target is a few commands that can be typed by hand. `make help` lists the targets.

CARGO ?= cargo
DEMO_PACKAGES = build-essential python3 python3-pip python3-venv redis-server libjemalloc2
LONG_PACKAGES = qemu-system-x86 qemu-system-arm qemu-user gcc-aarch64-linux-gnu g++-aarch64-linux-gnu libc6-dev-arm64-cross
BENCH_PACKAGES = build-essential cmake python3 python3-pip libjemalloc2 libmimalloc2.0 libtcmalloc-minimal4 valgrind \
	redis-server redis-tools sqlite3 ruby nodejs ripgrep jq ghostscript rustc

# Crates whose tests `make unit` runs; those of ebbmalloc-c are for the release profile.
UNIT = --workspace --exclude ebbmalloc-c --features ebbmalloc/override-c

# What `make packages` builds.
PACKED = $(CURDIR)/target/packed

# Megabytes of disk that a first run takes.
DEMO_DISK = 1000
TEST_DISK = 8000

.PHONY: help build dist release check demo test test-long bench format lint unit unit-programs packages library preloadable tool static python loom preload docs site install-compat

help: # this list
	@sed -n 's/^\([a-z-]*\):[^#]*# \(.*\)/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 24
	@echo
	@echo "INSTALL=1 installs missing Debian packages without a question; no service is started."

build: library tool # target/release/{ebb,libebbmalloc.so,libebbmalloc.a}

library: preloadable
	nice $(CARGO) rustc --release -p ebbmalloc-c --features archive --crate-type staticlib

preloadable:
	$(CARGO) build --release -p ebbmalloc-c

# A static program that carries the library. Apart from it: link-time optimisation would take minutes more, and line
# tables are four fifths of the file.
tool: preloadable
	CARGO="$(CARGO)" ci/program.sh

static: # target/static/{x86_64,aarch64}: ebb and the library as they are released, with debug files
	CARGO="$(CARGO)" nice ci/program.sh static

dist: # dist/: archives, wheels, packages, SBOMs and checksums of a release; ARCHS=x86_64 leaves the other one out
	$(MAKE) static
	ci/python-env.sh packages
	packages/.venv/bin/python packages/dist.py $(ARCHS)

release: # VERSION=...: version, changelog, tag and dist/; prints how to upload; docs/releasing.md
	@python3 packages/release.py "$(VERSION)"

site: tool # site/: the documentation with a search, to be read from the disk
	ci/python-env.sh packages/site
	packages/site/.venv/bin/python packages/site/build.py --program target/release/ebb

install-compat: build # PREFIX=...: as the jemalloc of programs that are linked to it; docs/jemalloc.md
	$(CARGO) build --release -p ebbmalloc-compat
	ci/install-compat.sh "$(PREFIX)"

demo: # a service whose memory ebbs, on three allocators in four variants
	@ci/needs.sh demo $(DEMO_DISK) $(DEMO_PACKAGES)
	@echo "demo 1/4: compiling libebbmalloc.so, less than a minute" >&2
	@$(MAKE) preloadable
	@echo "demo 2/4: compiling ebb, two to three minutes on two cores" >&2
	@$(MAKE) tool
	@echo "demo 3/4: the service's Python packages" >&2
	ci/python-env.sh workloads/sse
	@echo "demo 4/4: the trial of four variants" >&2
	target/release/ebb compare workloads/sse --profile demo -o results/demo

check: # what changed against main: format, lint, layers, unit tests; BASE=... for another commit
	ci/check.py $(BASE)

test: # all that must pass before a change lands; what could not run is listed at the end
	@ci/needs.sh test $(TEST_DISK) must some
	@ci/report.py --clear
	@ci/side-by-side.sh 'library preload python packages' 'lint unit-programs docs loom' && $(MAKE) unit; \
		status=$$?; ci/report.py; exit $$status

lint: # format, clippy
	$(CARGO) fmt --all --check
	nice $(CARGO) clippy --workspace --all-targets -- -D warnings
	nice $(CARGO) clippy -p ebbmalloc-core --example holds --features holds -- -D warnings

unit: # tests of the crates
	EBB_TEST_PROGRAM=$(or $(wildcard $(PACKED)/built/$(shell uname -m)/ebb),$(CURDIR)/target/release/ebb) ci/tests.py $(UNIT)
	$(CARGO) test --doc $(UNIT)

unit-programs: # builds them
	nice ci/tests.py --build $(UNIT)

python: # tests of the workloads, the benchmarks, ci
	python3 -m unittest discover -s ci/tests
	python3 -m unittest discover -s packages/site/tests -k Pages
	ci/python-env.sh workloads/sse workloads/leaky
	cd workloads/sse && .venv/bin/python -m unittest
	cd workloads/leaky && .venv/bin/python -m unittest
	ci/python-env.sh benches
	$(MAKE) -C benches
	benches/.venv/bin/python -m unittest discover -s benches/tests

packages: library unit-programs # an archive and a wheel of a quick build, in clean roots and environments
	ci/program.sh packed $(UNIT)
	ci/python-env.sh packages
	packages/.venv/bin/python packages/dist.py --built $(PACKED)/built --out $(PACKED)/dist --quick "$$(uname -m)"
	EBB_DIST=$(PACKED)/dist EBB_DIST_QUICK=1 python3 -m unittest discover -s packages/tests

loom: # models of the allocator's races
	nice ci/loom.sh

preload: # the preload suite
	ci/tests.py --release -p ebbmalloc-c

docs: # the crates' documentation
	RUSTDOCFLAGS="-D warnings" nice $(CARGO) doc --workspace --no-deps

test-long: # what takes longer: about two hours; the log is target/test-long.log
	@ci/needs.sh test-long $(TEST_DISK) must some long $(LONG_PACKAGES)
	$(MAKE) build
	ci/test-long.sh

bench: # the benchmarks, in short; benches/README.md has the long form
	@ci/needs.sh bench $(DEMO_DISK) $(BENCH_PACKAGES)
	$(MAKE) build
	-$(MAKE) -C benches peers
	python3 benches/run.py --quick

format: # rewrites the sources' layout
	$(CARGO) fmt --all
