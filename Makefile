# Thin: each target is one command that can be typed by hand.
.PHONY: build test
build:
	cargo build --release
test:
	cargo test --workspace
