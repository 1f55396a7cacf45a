# Everything that a contributor or a packager does with this repository; `make` lists it.

PREFIX     ?= /usr
LIBEXECDIR ?= $(PREFIX)/libexec
DOCDIR     ?= $(PREFIX)/share/doc/plugind
DESTDIR    ?=

CARGO      ?= cargo
# In CI the lock file has to be right; elsewhere cargo may bring it up to date.
LOCKED     ?= $(if $(CI),--locked)
# Where cargo-deny is installed if it is not in PATH.
TOOLS      ?= target/tools

TRIPLE      = $(shell rustc -vV | sed -n 's/^host: //p')
STAGE       = tests/stage/stage
SCRIPTS     = .ci/run packaging/install $(addprefix tests/stage/,boot check-units demo packages stage)

SHELL       = /bin/bash
.NOTPARALLEL:
.PHONY: help build demo check lint test stage-test packages install clean

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

check: lint test stage-test ## All that CI checks

lint: packages ## Format, clippy, licences and sources of dependencies, scripts
	$(CARGO) fmt --all --check
	$(CARGO) clippy $(LOCKED) --workspace --all-targets --all-features -- -D warnings
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

# cargo runs each test program by way of the stage, as root in it. The harness becomes the test user itself.
RUNNER = CARGO_TARGET_$(shell echo $(TRIPLE) | tr a-z- A-Z_)_RUNNER
stage-test: packages build ## Tests through the production path, on the stage (ARGS='--test NAME' for some of them)
	$(STAGE) with -- $(STAGE) run -- tests/stage/check-units
	PATH="$(CURDIR)/tests/stage:$$PATH" $(RUNNER)='timeout 1200 stage run --root --' \
		$(STAGE) with -- $(CARGO) test $(LOCKED) -p plugind-integration --features stage $(ARGS)

packages: ## Install the Debian packages that the rest needs, where they are missing
	@tests/stage/packages

install: ## Install what `make build` built (DESTDIR=, PREFIX=, LIBEXECDIR=)
	@DESTDIR='$(DESTDIR)' PREFIX='$(PREFIX)' LIBEXECDIR='$(LIBEXECDIR)' DOCDIR='$(DOCDIR)' packaging/install

clean: ## Take the stage down and remove what was built
	$(STAGE) down
	$(CARGO) clean
	rm -rf examples/textstats/bin
