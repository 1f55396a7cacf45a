# Everything that a contributor or a packager does with this repository; `make` lists it.

PREFIX     ?= /usr
LIBEXECDIR ?= $(PREFIX)/libexec
DOCDIR     ?= $(PREFIX)/share/doc/plugind
DESTDIR    ?=

CARGO      ?= cargo
# In CI the lock file has to be right; elsewhere cargo may bring it up to date.
LOCKED     ?= $(if $(CI),--locked)
# Where cargo-deny and cargo-fuzz are installed if they are not in PATH.
TOOLS      ?= target/tools
# Seconds that `make fuzz` gives to each target.
FUZZ_TIME  ?= 60

TRIPLE      = $(shell rustc -vV | sed -n 's/^host: //p')
STAGE       = tests/stage/stage
FUZZ        = protocol/fuzz
SCRIPTS     = .ci/run packaging/install $(addprefix tests/stage/,boot check-units demo packages stage)

SHELL       = /bin/bash
.NOTPARALLEL:
.PHONY: help build demo check lint test stage-test bench bench-programs soak packages install clean

help: ## List these targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(firstword $(MAKEFILE_LIST)) | column -t -s '|'

build: ## Build what is shipped into target/dist, and the plugins in Rust into target/bundles
	$(CARGO) build $(LOCKED) --release -p plugind -p plugind-launcher -p pluginctl
	RUSTFLAGS='-C target-feature=+crt-static' $(CARGO) build $(LOCKED) --release --target $(TRIPLE) \
		-p plugind-sandbox -p textstats -p plugind-hostile
	@# Written only where it differs, so that the stage sees what is new.
	@install -d -m 0755 target/dist target/bundles/{textstats,hostile}/bin target/hostile examples/textstats/bin
	@install -C -m 0755 $(addprefix target/release/,plugind plugind-launcher pluginctl) \
		target/$(TRIPLE)/release/plugind-sandbox target/dist
	@install -C -m 0755 target/$(TRIPLE)/release/textstats target/bundles/textstats/bin/textstats
	@install -C -m 0644 examples/textstats/plugin.json target/bundles/textstats/plugin.json
	@install -C -m 0755 target/$(TRIPLE)/release/hostile-plugin target/bundles/hostile/bin/hostile-plugin
	@install -C -m 0644 tests/hostile/plugin.json target/bundles/hostile/plugin.json
	@install -C -m 0755 target/$(TRIPLE)/release/fault-errno target/hostile/fault-errno
	@install -C -m 0755 target/$(TRIPLE)/release/textstats examples/textstats/bin/textstats

demo: packages build ## Install, review, enable, call, look at and stop a plugin on the stage
	$(STAGE) with -- $(STAGE) run -- tests/stage/demo

check: FUZZ_TIME = 20
check: lint test fuzz stage-test ## All that CI checks

lint: packages ## Format, clippy, licences and sources of dependencies, scripts
	$(CARGO) fmt --all --check
	$(CARGO) clippy $(LOCKED) --workspace --all-targets --all-features -- -D warnings
	$(CARGO) fmt --manifest-path $(FUZZ)/Cargo.toml --check
	$(CARGO) clippy $(LOCKED) --manifest-path $(FUZZ)/Cargo.toml --target-dir target/fuzz --release --target $(TRIPLE) \
		-- -D warnings
	@$(MAKE) --no-print-directory deny
	shellcheck $(SCRIPTS)

# Without `advisories`: their database is fetched at run time, which not every machine may do. Where it may:
# cargo deny check advisories
.PHONY: deny
deny:
	@PATH="$$PATH:$(abspath $(TOOLS))/bin"; \
	command -v cargo-deny >/dev/null || $(CARGO) install cargo-deny --version 0.20.2 --locked --root '$(TOOLS)'; \
	set -x; cargo-deny check bans licenses sources

test: packages ## Tests that need no systemd
	$(CARGO) test $(LOCKED) --workspace

fuzz: fuzz-codec fuzz-manifest ## Fuzz the codec and the manifest, each for FUZZ_TIME=60 seconds

# With stable Rust and no sanitizer: what is fuzzed is safe code. What is found on the way is kept below target/, and is
# where the next run begins.
.PHONY: fuzz fuzz-codec fuzz-manifest
fuzz-manifest: SEEDS = -seed_inputs=$$(printf %s, examples/*/plugin.json)tests/hostile/plugin.json
fuzz-codec fuzz-manifest: fuzz-%: packages
	@install -d target/fuzz/corpus/$* target/fuzz/findings
	@PATH="$$PATH:$(abspath $(TOOLS))/bin"; \
	command -v cargo-fuzz >/dev/null || $(CARGO) install cargo-fuzz --version 0.13.2 --locked --root '$(TOOLS)'; \
	set -x; $(CARGO) fuzz run --sanitizer none --codegen-units 16 --fuzz-dir $(FUZZ) --target-dir target/fuzz \
		$* target/fuzz/corpus/$* $(FUZZ)/corpus/$* -- $(SEEDS) -dict=$(FUZZ)/$*.dict \
		-artifact_prefix=target/fuzz/findings/$*- \
		-max_total_time=$(FUZZ_TIME) -max_len=16384 -timeout=10 -rss_limit_mb=1024 -verbosity=0 -print_final_stats=1

# cargo runs each test program by way of the stage, as root in it. The harness becomes the test user itself.
RUNNER = CARGO_TARGET_$(shell echo $(TRIPLE) | tr a-z- A-Z_)_RUNNER
stage-test: packages build ## Tests through the production path, on the stage (ARGS='--test NAME' for some of them)
	$(STAGE) with -- $(STAGE) run -- tests/stage/check-units
	PATH="$(CURDIR)/tests/stage:$$PATH" $(RUNNER)='timeout 1200 stage run --root --' \
		$(STAGE) with -- $(CARGO) test $(LOCKED) -p plugind-integration --features stage $(ARGS)

# The plugin has no /usr in its sandbox, hence static; the others are built with it.
bench-programs:
	RUSTFLAGS='-C target-feature=+crt-static' $(CARGO) build $(LOCKED) --release --target $(TRIPLE) -p plugind-bench
	@install -d -m 0755 target/bench
	@install -C -m 0755 $(addprefix target/$(TRIPLE)/release/,relay-bench echo-plugin echo-service floor) target/bench
	@install -C -m 0644 tests/bench/plugin.json target/bench

bench: packages build bench-programs ## Measure the relay on the stage, as ratios (ARGS=--quick, ARGS='--only channel')
	$(STAGE) with -- $(STAGE) run -- target/bench/relay-bench run \
		--commit "$$(git describe --always --dirty)" $(ARGS) >target/bench/relay.json.new
	@mv target/bench/relay.json.new target/bench/relay.json
	target/bench/relay-bench table target/bench/relay.json $(if $(UPDATE_DOCS),--update-docs docs/performance.md)

soak: packages build bench-programs ## A million calls on the stage, each answer checked (ARGS='--calls 50000')
	$(STAGE) with -- $(STAGE) run -- target/bench/relay-bench soak $(ARGS)

packages: ## Install the Debian packages that the rest needs, where they are missing
	@tests/stage/packages

install: ## Install what `make build` built (DESTDIR=, PREFIX=, LIBEXECDIR=)
	@DESTDIR='$(DESTDIR)' PREFIX='$(PREFIX)' LIBEXECDIR='$(LIBEXECDIR)' DOCDIR='$(DOCDIR)' packaging/install

clean: ## Take the stage down and remove what was built
	$(STAGE) down
	$(CARGO) clean
	rm -rf examples/textstats/bin
