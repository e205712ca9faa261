# `make run` serves the example, `make test` passes every test; both install what the machine lacks
# (see scripts/need).
.DEFAULT_GOAL := help
.PHONY: help build tuned run tests-built test weekly test-brokers test-strangers lint check-deploy check-editor docs site sanitize test-clean compat compat-laravel compat-frameworks compat-readmes compat-suites bench bench-full report bench-cache bench-jobs bench-micro instructions browser boards collector extensions test-php soak packages packages-here portable release test-packages test-portable

TARGET := $(abspath $(or $(CARGO_TARGET_DIR),target))
BINARY := $(TARGET)/release/pronghorn
TUNED := $(TARGET)/tuned/pronghorn

# `make build DRIVERS="amqp nats"`: drivers of jobs that a plain build leaves out.
comma := ,
space := $(subst ,, )
FEATURES := $(if $(DRIVERS),--features $(subst $(space),$(comma),$(strip $(DRIVERS))))

# For clippy and rustdoc: all drivers of jobs. The targets that `docs` names bring the features of
# tests with them, so that dependencies are checked once for both.
EVERYTHING := --workspace --features pronghorn-cli/all-drivers

# Tests run PHP with the extensions of its own sources, whatever else is installed here.
OWN_PHP := PHP_INI_SCAN_DIR=$$(scripts/php-configuration)
# A minute at most on an idle machine. A test that hangs says nothing by itself.
PHPUNIT := timeout --verbose 300 phpunit

help: ## Show the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

build: ## Build the release binary, target/release/pronghorn, and the extension for the PHP that is here; DRIVERS="amqp nats" adds drivers of jobs
	@scripts/need build php extension
	cargo build --release --bin pronghorn $(FEATURES)
	scripts/build-extension

tuned: ## Build the binary for production, target/tuned/pronghorn: compiled by a profile of itself under load, in ten to twenty minutes
	@scripts/need build php extension tuned
	scripts/build-extension
	scripts/build-tuned

run: ## Build in three to four minutes, and serve examples/hello on 127.0.0.1:8080
	@scripts/need build php extension
	@scripts/build-quick $(FEATURES)
	$(TARGET)/quick/pronghorn serve -c examples/hello/pronghorn.yaml

# All that tests are made of, in one go: so each crate is compiled once. The drivers of jobs but for
# Kafka's come with the tests of crate `brokers`.
tests-built: ## Compile every test, the binary and the extension
	@scripts/need build php extension tests apps brokers nsq h2spec
	cargo build --workspace --bins --tests --examples
	scripts/build-extension
	scripts/php-extensions

test: tests-built ## Run every test
	TESTS=1 scripts/build-extension
	$(OWN_PHP) cargo test --workspace --lib --bins --tests
	$(OWN_PHP) cargo test --workspace --doc
	$(OWN_PHP) $(PHPUNIT) -c php/goridge/phpunit.xml.dist
	$(OWN_PHP) $(PHPUNIT) -c php/cache/phpunit.xml.dist
	$(OWN_PHP) $(PHPUNIT) -c php/http-foundation/phpunit.xml.dist
	$(OWN_PHP) $(PHPUNIT) -c php/grpc/phpunit.xml.dist
	$(OWN_PHP) $(PHPUNIT) -c php/jobs/phpunit.xml.dist
	$(OWN_PHP) $(PHPUNIT) -c php/laravel/phpunit.xml.dist
	$(OWN_PHP) $(PHPUNIT) -c php/symfony/phpunit.xml.dist
	$(OWN_PHP) $(PHPUNIT) -c php/wordpress/phpunit.xml.dist
	$(OWN_PHP) $(PHPUNIT) -c php/worker/phpunit.xml.dist
	$(OWN_PHP):$(TARGET)/extension/ini $(PHPUNIT) -c php/worker/phpunit.xml.dist

weekly: ## What seldom finds something, or takes long: the extension under valgrind, every order of the ring's steps, bugs planted in the pool, random histories of queues, drawn servers of nginx, Kafka and SQS, the Helm chart, the schema in an editor
	@scripts/need build php extension tests
	TESTS=valgrind scripts/build-extension
	cargo test -p pronghorn-ring --features model
	scripts/planted-bugs
	cargo test --workspace --test e2e -- --ignored queue_model:: chain:: from_others:: tcp:: programs::
	$(MAKE) test-brokers
	$(MAKE) test-strangers
	$(MAKE) check-deploy
	$(MAKE) check-editor

test-brokers: ## Run the tests with every broker of jobs, also Kafka and a server like SQS, which it brings, and with Centrifugo
	@scripts/need build php brokers nsq moto kafka centrifugo
	cargo test -p pronghorn-brokers --lib --features all-drivers -- --include-ignored
	cargo build --workspace --bin pronghorn --test centrifugo
	cargo test --workspace --test centrifugo

test-strangers: ## Run it against programs of others, which it brings: gRPC clients of Go and Python, grpcurl, Pebble
	@scripts/need build php strangers
	cargo build --workspace --bin pronghorn --test strangers
	$(OWN_PHP) cargo test --workspace --test strangers

lint: ## Check formatting, links and dependencies, and run the linters
	@scripts/need build lint
	cargo fmt --all --check
	scripts/check-width
	scripts/check-links
	scripts/check-words
	scripts/project
	scripts/check-workflows
	! git ls-files | grep -E '[^A-Za-z0-9._/+-]'
	scripts/check-dependencies
	scripts/figures --check
	scripts/check-deploy
	cargo build --bin pronghorn
	scripts/check-schema $(TARGET)/debug/pronghorn
	$(TARGET)/tools/hadolint/bin/hadolint Dockerfile Containerfile.debian-slim
	cargo clippy $(EVERYTHING) --all-targets -- -D warnings
	cargo clippy -p pronghorn-ring --lib --tests --features model -- -D warnings
	printf '%s\n' php/*/phpcs.xml.dist | xargs -P2 -I{} phpcs --standard={}

check-deploy: ## Render the Helm chart and check it, with the compose file; helm is built first, in four minutes
	@scripts/need build php deploy
	cargo build --bin pronghorn
	scripts/check-deploy

check-editor: ## Try the JSON Schema with the YAML language server that editors run, which npm installs
	@scripts/need build language-server
	cargo build --bin pronghorn
	scripts/check-editor $(TARGET)/debug/pronghorn

docs: ## Build the documentation of the crates; a warning fails
	@scripts/need build
	RUSTDOCFLAGS="-D warnings" cargo doc $(EVERYTHING) --lib --bins --examples --no-deps --document-private-items

site: ## Make the documentation a site with a search, target/site: open its index.html
	@scripts/need build site
	scripts/build-site

sanitize: ## Run the tests of the extension with the sanitizers of addresses and undefined behaviour
	@scripts/need build php extension tests
	TESTS=asan scripts/build-extension

test-clean: ## Run and test on a Debian root made for it (as root; 15 to 30 minutes)
	@scripts/test-clean

compat: ## Run RoadRunner's PHP packages in DIR=… behind this server (docs/reference/compatibility.md)
	@scripts/need build php compat
	@PRONGHORN_COMPAT_DIR=$(abspath $(DIR)) php e2e/fixtures/foreign/official.php --packages
	cargo build --workspace --bin pronghorn --test compat
	PRONGHORN_COMPAT_DIR=$(abspath $(DIR)) cargo test --workspace --test compat

compat-laravel: ## Run Laravel Octane in DIR=… with this server as its RoadRunner (docs/reference/compatibility.md)
	@scripts/need build php extension apps
	@test -d "$(DIR)" || { echo "DIR names the folder with Octane: see docs/reference/compatibility.md" >&2; exit 1; }
	scripts/build-extension
	cargo build --workspace --bin pronghorn --test octane
	PRONGHORN_COMPAT_DIR=$(abspath $(DIR)) cargo test --workspace --test octane

compat-frameworks: ## Run applications of Mezzio, Yii and CodeIgniter in DIR=… by the workers of examples/ (docs/reference/compatibility.md)
	@scripts/need build php extension
	@test -d "$(DIR)" || { echo "DIR names the folder with the applications: see docs/reference/compatibility.md" >&2; exit 1; }
	scripts/build-extension
	cargo build --workspace --bin pronghorn --test frameworks
	PRONGHORN_COMPAT_DIR=$(abspath $(DIR)) cargo test --workspace --test frameworks

compat-readmes: ## Follow the README of pronghorn/laravel or pronghorn/symfony-runtime in a copy of the application DIR=… (docs/reference/compatibility.md)
	@scripts/need build php extension readmes
	@test -d "$(DIR)" || { echo "DIR names an application of Laravel or Symfony: see docs/reference/compatibility.md" >&2; exit 1; }
	scripts/build-extension
	cargo build --workspace --bin pronghorn
	$(OWN_PHP) scripts/compat-readmes "$(DIR)"

compat-suites: ## Run the public suites of PSR-6 and PSR-16 and Symfony's own tests, in DIR=…, over a storage (docs/reference/compatibility.md)
	@scripts/need build php
	@test -d "$(DIR)" || { echo "DIR names the directory with the suites: see docs/reference/compatibility.md" >&2; exit 1; }
	cargo build --bin pronghorn
	scripts/compat-suites "$(DIR)"

bench: tuned ## Measure beside nginx, php-fpm and Apache in ten minutes; BENCH="--rounds 5" passes options
	@scripts/need php apps bench
	cargo build --release --bin pronghorn-bench
	$(BINARY)-bench --pronghorn $(TUNED) --json $(dir $(BINARY))bench.json $(BENCH)

bench-full: tuned ## All scenarios, servers and loads: about an hour and three quarters
	@scripts/need php apps bench
	cargo build --release --bin pronghorn-bench
	$(BINARY)-bench --pronghorn $(TUNED) --full --syscalls --json $(dir $(BINARY))bench-full.json $(BENCH)

bench-cache: build ## Measure storages in memory, RPC and sessions in two minutes; BENCH="--packages DIR --rr BINARY" for RoadRunner's
	@scripts/need php extension apps bench
	scripts/php-extensions
	$(OWN_PHP) php bench/cache/run.php --pronghorn $(BINARY) --extension $$(ls $(TARGET)/extensions/pronghorn-*.so | head -n1) --extensions $(TARGET)/tools/php-extensions/list --json $(dir $(BINARY))bench-cache.json $(BENCH)

bench-jobs: tuned ## Measure queues of jobs, in eight minutes at most; BENCH="--packages DIR --peer NAME=COMMAND" adds RoadRunner's
	@scripts/need php extension
	php bench/jobs/measure.php --pronghorn $(TUNED) --json $(dir $(BINARY))bench-jobs.json $(BENCH)

report: tuned ## Measure the articles' tables and what explains them, and make docs/benchmarks.md: an hour; REPORT="cgi,slim" picks parts
	@scripts/need php apps bench compat
	scripts/php-extensions
	cargo build --release --bin pronghorn-bench
	$(BINARY)-bench report --pronghorn $(TUNED) $(if $(REPORT),--parts $(REPORT),--publish) $(BENCH)
	$(if $(REPORT),,scripts/chart)

bench-micro: ## Measure codecs, heads, the queue and routes by themselves; BENCH="head" picks by name
	@scripts/need build
	cargo bench -p pronghorn-wire -p pronghorn-h1 -p pronghorn-pool -p pronghorn-http --bench wire --bench h1 --bench queue --bench routes -- $(BENCH)

instructions: build ## Count instructions per request, of the server and of PHP; ROWS="native php-slim" only these, UPDATE_INSTRUCTIONS=1 accepts what was counted
	@scripts/need instructions
	@scripts/php-extensions
	$(OWN_PHP) cargo run --quiet -p pronghorn-instructions -- $(BINARY) $(ROWS)

browser: ## Load a site with TLS and HTTP/2 in headless Chromium
	@scripts/need build php browser
	cargo build --workspace --bin pronghorn --test browser
	cargo test --workspace --test browser

boards: ## Draw the pictures of Grafana's boards from a real Prometheus, and check that each panel has data
	@scripts/need build php tests
	cargo build --bin pronghorn
	scripts/board-pictures

pictures: ## Make docs/pictures: a terminal and the error page, of a real server
	@scripts/need build php extension browser
	scripts/build-extension
	cargo build --bin pronghorn
	scripts/pictures

collector: ## Send traces and metrics to a real collector of OpenTelemetry
	@scripts/need build php otelcol
	cargo build --workspace --bin pronghorn --test collector
	cargo test --workspace --test collector

extensions: ## Start workers with each of Debian's PHP extensions
	@scripts/need build php extension
	scripts/build-extension
	scripts/php-extensions --all
	cargo build --workspace --bin pronghorn --test extensions
	cargo test --workspace --test extensions

test-php: tests-built ## Try the extension and some tests with other PHPs (as root): SUITES="trixie experimental:8.6" in Debian roots, or PHP_CONFIG=…
	@scripts/need clean
	scripts/test-php $(SUITES)

packages: tuned site ## Make the packages in target/packages, and try them in a Debian root (as root): half an hour
	@scripts/need packages
	scripts/test-release
	scripts/packages $(TUNED)
	scripts/test-php-archives
	scripts/test-packages
	scripts/test-images $(TUNED)

portable: ## Build a static binary for any Linux, in target/portable: 30 minutes
	@scripts/need build portable
	scripts/build-portable

test-portable: ## Try what scripts/packages has made of static binaries: in an empty root, and one of arm64 under qemu (as root): five minutes
	@scripts/test-portable

test-packages: ## Install, upgrade and remove the packages in target/packages, in a Debian root (as root): ten minutes
	@scripts/test-packages

packages-here: build ## Make packages of the release binary, and try them over this machine's root (as root): two minutes
	@scripts/need packages
	scripts/test-release
	scripts/packages $(BINARY)
	scripts/test-php-archives
	scripts/test-packages --here

release: ## Make all that a release publishes, from a commit without changes beside it; RELEASED=… names a binary that is built, PRONGHORN_SIGNING_KEY=… a key that signs
	@scripts/release $(RELEASED)

soak: tuned ## Kill, reload, upgrade and soak under load, for an hour and a half; SOAK_SCALE=0.1 for a tenth
	@scripts/need tests brokers
	PRONGHORN_MODEL_STEPS=100000 cargo test -p pronghorn-pool --lib model
	PRONGHORN_MODEL_STEPS=1000000 cargo test --release -p pronghorn-cache --lib behaves
	PRONGHORN_BIN=$(TUNED) cargo test -p pronghorn-e2e --test soak
