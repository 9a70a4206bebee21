# SPDX-License-Identifier: Apache-2.0
#
# make            build the library and the modules
# make demo       install what is missing, build, profile the compiler, write a flame graph
# make test       install what is missing, build, run all tests
# make bench      measure the cost of tracing against other tools
# make install    put the program, the library and its documents under PREFIX
# make accuracy   compare shares of time with true ones, and other tools' with them
# make help       all targets

CC ?= cc
ERLC ?= erlc
ERL ?= erl
WARNINGS = -Wall -Wextra -Wstrict-prototypes -Wmissing-prototypes -Wshadow -Wconversion -Wvla \
    -Werror -Wno-missing-field-initializers
CFLAGS ?= -O2 -g
override CFLAGS += -std=c11 -D_GNU_SOURCE -fvisibility=hidden $(WARNINGS) -Ibuild -Ic_src
# Asked of Erlang once, and only by who needs it.
ifndef ERTS_INCLUDE
ERTS_INCLUDE = $(eval ERTS_INCLUDE := $$(shell $(ERL) -noshell -eval \
    'io:put_chars(filename:join([code:root_dir(), "usr", "include"])), halt().'))$(ERTS_INCLUDE)
endif
URCU_LIBS ?= -lurcu-bp -lurcu-common
ZSTD_LIBS ?= -lzstd

# Knows the VM: the rest of c_src is plain C and tested as such.
NIF_SOURCES = nif control capture_nif layout_nif profile_nif tracer term resource vm_heap session
PLAIN_SOURCES = $(filter-out $(NIF_SOURCES),$(basename $(notdir $(wildcard c_src/*.c))))
ARRAYS = build/view_html_page.h build/view_html_style.h build/view_html_model.h \
    build/view_html_script.h build/view_svg_script.h
HEADERS = $(wildcard c_src/*.h)
# Of the plain sources for tests; sanitizers have variants of their own.
VARIANT = plain
C_BUILD = build/$(VARIANT)
# Of the library; likewise.
NIF_BUILD = build/nif
LIBRARY = priv/emberl_nif.so
NIF_OBJECTS = $(NIF_SOURCES:%=$(NIF_BUILD)/%.o) $(PLAIN_SOURCES:%=$(NIF_BUILD)/%.o)
# What h/1,2 of the shell shows, beside ebin: rebar3 and mix have that elsewhere.
ROOT := $(or $(REBAR_BARE_COMPILER_OUTPUT_DIR),$(REBAR_BUILD_DIR:%=%/lib/emberl),.)
CHUNKS = $(patsubst %,$(ROOT)/doc/chunks/%.chunk,emberl emberl_profile emberl_tally emberl_server \
    emberl_sampler)
BEAMS = $(patsubst erl/%.erl,ebin/%.beam,$(wildcard erl/*.erl))

# make V=1 shows the commands.
Q = $(if $(V),,@)
SAY = @$(if $(V),:,echo)

UNAME := $(shell uname)
ifeq ($(UNAME),Darwin)
NIF_LDFLAGS = -bundle -undefined dynamic_lookup
else
# nodelete: scheduler threads may be inside, or hold thread-locals of it
NIF_LDFLAGS = -shared -Wl,-z,nodelete
endif

.PHONY: all library modules documentation
all: library modules documentation
library: $(LIBRARY)
modules: $(BEAMS) ebin/emberl.app
documentation: $(CHUNKS)

$(LIBRARY): $(NIF_OBJECTS)
	$(SAY) "  LD    $@"
	$(Q)mkdir -p $(@D) && $(CC) $(CFLAGS) $(LDFLAGS) $(NIF_LDFLAGS) -o $@ $^ \
	    $(URCU_LIBS) $(ZSTD_LIBS) -lm -lpthread

$(NIF_BUILD)/%.o: c_src/%.c $(HEADERS)
	$(SAY) "  CC    $<"
	$(Q)mkdir -p $(@D) && $(CC) $(CFLAGS) $(CFLAGS_$(*F)) -fPIC -isystem $(ERTS_INCLUDE) -c -o $@ $<

# What views put into their files as it is, as C arrays. Two makes may be at work.
build/view_html_page.h: c_src/view_html.html
build/view_html_page.h: ARRAY = ember_html_page
build/view_html_style.h: c_src/view_html.css
build/view_html_style.h: ARRAY = ember_html_style
build/view_html_model.h: c_src/view_html_model.js
build/view_html_model.h: ARRAY = ember_html_model
build/view_html_script.h: c_src/view_html.js
build/view_html_script.h: ARRAY = ember_html_script
build/view_svg_script.h: c_src/view_svg.js
build/view_svg_script.h: ARRAY = ember_svg_script
$(NIF_BUILD)/view_html.o $(C_BUILD)/view_html.o: $(filter build/view_html_%,$(ARRAYS))
$(NIF_BUILD)/view_svg.o $(C_BUILD)/view_svg.o: build/view_svg_script.h
$(ARRAYS): | build
	$(Q){ echo 'static const unsigned char $(ARRAY)[] = {'; \
	  od -An -v -tx1 $< | sed 's/ \([0-9a-f][0-9a-f]\)/0x\1,/g'; \
	  echo '};'; \
	  echo 'static const size_t $(ARRAY)_size = sizeof $(ARRAY);'; } > $@.$$$$ && mv $@.$$$$ $@

ERLC_FLAGS = +debug_info +no_docs +warn_missing_spec +warn_export_vars +warn_unused_import -Werror

ebin/%.beam: erl/%.erl | ebin
	$(SAY) "  ERLC  $<"
	$(Q)$(ERLC) $(ERLC_FLAGS) -o ebin $<

# From the edoc comments; where there is no edoc, there is none. no_docs keeps the
# compiler from putting empty documentation into the module instead.
WRITE_CHUNK = code:which(edoc) =/= non_existing andalso edoc:files(["$<"], \
    [{doclet, edoc_doclet_chunks}, {layout, edoc_layout_chunks}, {dir, "$(ROOT)/doc"}, \
     {preprocess, true}]), \
    halt()

$(ROOT)/doc/chunks/%.chunk: erl/%.erl
	$(SAY) "  DOC   $<"
	$(Q)$(ERL) -noshell -eval '$(WRITE_CHUNK).'

# rebar3 fills in the modules by itself; without it we do.
MODULES = $(basename $(notdir $(wildcard erl/*.erl)))
WRITE_APP = {ok, [{application, Name, Keys}]} = file:consult("erl/emberl.app.src"), \
    Modules = [list_to_atom(M) || M <- string:lexemes("$(MODULES)", " ")], \
    App = {application, Name, lists:keystore(modules, 1, Keys, {modules, Modules})}, \
    ok = file:write_file("ebin/emberl.app", io_lib:format("~tp.~n", [App])), halt()

ebin/emberl.app: erl/emberl.app.src Makefile | ebin
	$(Q)$(ERL) -noshell -eval '$(WRITE_APP).'

build build/bench ebin:
	$(Q)mkdir -p $@

# ---- Installation -------------------------------------------------------------

# The program finds the library by its own place, so all may be moved together.
PREFIX ?= /usr/local
DESTDIR ?=
INSTALL ?= install
AT = $(DESTDIR)$(PREFIX)
DOCUMENTS = README.md CHANGELOG.md LICENSE $(wildcard docs/*.md)

.PHONY: install uninstall
install: all
	$(Q)$(INSTALL) -d "$(AT)/bin" "$(AT)/lib/emberl/ebin" "$(AT)/lib/emberl/priv" \
	    "$(AT)/lib/emberl/doc/chunks" "$(AT)/share/doc/emberl" "$(AT)/share/man/man1"
	$(Q)$(INSTALL) -m 644 $(BEAMS) ebin/emberl.app "$(AT)/lib/emberl/ebin"
	$(Q)$(INSTALL) -m 755 priv/emberl_nif.so "$(AT)/lib/emberl/priv"
	$(Q)for chunk in $(wildcard $(CHUNKS)); do \
	    $(INSTALL) -m 644 $$chunk "$(AT)/lib/emberl/doc/chunks"; done
	$(Q)$(INSTALL) -m 755 bin/emberl "$(AT)/bin"
	$(Q)$(INSTALL) -m 644 $(DOCUMENTS) "$(AT)/share/doc/emberl"
	$(Q)$(INSTALL) -m 644 docs/emberl.1 "$(AT)/share/man/man1"

uninstall:
	$(Q)rm -f "$(AT)/bin/emberl" "$(AT)/share/man/man1/emberl.1"
	$(Q)rm -rf "$(AT)/lib/emberl" "$(AT)/share/doc/emberl"

# ---- For people: what is missing is installed --------------------------------

.PHONY: deps demo test
deps:
	$(Q)tools/need build

demo: deps
	$(Q)$(MAKE) --no-print-directory all
	$(Q)mkdir -p build/demo && $(ERLC) -o build/demo demo/profile_compiler.erl
	$(Q)$(ERL) -noshell -pa ebin build/demo \
	    -eval 'profile_compiler:main(["erl/emberl_control.erl", "build/demo"]).'

test:
	$(Q)tools/need test browser views rebar mix
	$(Q)$(MAKE) --no-print-directory all
	$(Q)$(MAKE) --no-print-directory check-c check-erl check-install check-browser check-views \
	    check-rebar check-mix

# ---- Tests in C ---------------------------------------------------------------

# Each variant has a directory of its own. A test links what it uses of the plain
# sources, and what a line `/* LDFLAGS: ... */` in it asks for. test_* are
# Criterion's, torture_* are programs of their own.
C_TESTS = $(patsubst test/c/%.c,$(C_BUILD)/%,$(wildcard test/c/test_*.c test/c/torture_*.c))

# Fuzz targets, on the inputs that are kept; `make fuzz` looks for others.
FUZZ_TARGETS = $(basename $(notdir $(wildcard test/fuzz/fuzz_*.c)))
FUZZ_REPLAYS = $(FUZZ_TARGETS:%=$(C_BUILD)/%)

.PHONY: check-c asan tsan valgrind
check-c: $(C_TESTS) $(FUZZ_REPLAYS)
	$(Q)tools/run_c_tests $^

$(C_BUILD)/test_%: LIBRARIES = -lcriterion
$(C_TESTS): $(C_BUILD)/%: test/c/%.c $(C_BUILD)/libplain.a $(wildcard test/c/*.h)
	$(SAY) "  CC    $< ($(VARIANT))"
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $< $(C_BUILD)/libplain.a \
	    $(LIBRARIES) $(ZSTD_LIBS) -lm -lpthread \
	    $$(sed -n 's,^/\* LDFLAGS: \(.*\) \*/$$,\1,p' $<)

$(FUZZ_REPLAYS): $(C_BUILD)/%: test/fuzz/%.c test/fuzz/replay.c $(C_BUILD)/libplain.a \
    $(wildcard test/c/*.h)
	$(SAY) "  CC    $< ($(VARIANT))"
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $< test/fuzz/replay.c $(C_BUILD)/libplain.a $(ZSTD_LIBS) -lm

$(C_BUILD)/libplain.a: $(PLAIN_SOURCES:%=$(C_BUILD)/%.o)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

$(C_BUILD)/%.o: c_src/%.c $(HEADERS)
	$(SAY) "  CC    $< ($(VARIANT))"
	$(Q)mkdir -p $(@D) && $(CC) $(CFLAGS) -c -o $@ $<

VARIANT_OF_C = $(Q)$(MAKE) --no-print-directory check-c VARIANT=$@
SANITIZED = -O1 -g -fno-omit-frame-pointer -fno-sanitize-recover=all
asan:
	$(VARIANT_OF_C) CFLAGS="$(SANITIZED) -fsanitize=address,undefined"

# Criterion does not run under it.
tsan: TORTURE = $(filter $(C_BUILD)/torture_%,$(C_TESTS))
tsan:
	$(VARIANT_OF_C) CFLAGS="$(SANITIZED) -fsanitize=thread" \
	    C_TESTS="$(TORTURE:$(C_BUILD)/%=build/tsan/%)"

# Exact registers: for tests that go on after a page fault.
valgrind: export UNDER = valgrind -q --trace-children=yes --leak-check=full --fair-sched=try \
    --vex-iropt-register-updates=allregs-at-mem-access
valgrind: export EMBER_ROUNDS ?= 1000
valgrind:
	$(VARIANT_OF_C) CFLAGS="-O1 -g"

# Takes libFuzzer, and so clang. SECONDS: for each target.
SECONDS ?= 60
.PHONY: fuzz $(FUZZ_TARGETS)
fuzz: $(FUZZ_TARGETS)

$(FUZZ_TARGETS): $(ARRAYS)
	$(Q)mkdir -p build/fuzz/$@.corpus
	$(Q)clang $(CFLAGS) $(SANITIZED) -fsanitize=fuzzer,address,undefined -o build/fuzz/$@ \
	    test/fuzz/$@.c $(PLAIN_SOURCES:%=c_src/%.c) $(ZSTD_LIBS) -lm -lpthread
	$(Q)build/fuzz/$@ -max_total_time=$(SECONDS) -max_len=65536 -print_final_stats=1 \
	    -artifact_prefix=build/fuzz/ build/fuzz/$@.corpus test/fuzz/corpus/$@

# ---- Tests in Erlang, in a browser, as a dependency ---------------------------

ERL_MODULES = $(basename $(notdir $(wildcard test/erl/*.erl)))
ERL_TESTS = $(filter %_tests,$(ERL_MODULES))
TEST_BEAMS = $(ERL_MODULES:%=build/test/%.beam)
TEST_LIBRARIES = $(patsubst test/erl/%.c,build/test/%.so,$(wildcard test/erl/*.c))
# A busy machine is no failure, so time limits are wide.
TIMEOUT_SCALE = 10
EUNIT = halt(case emberl_eunit:run([list_to_atom(M) || M <- string:lexemes( \
    "$(ERL_TESTS)", " ")], $(TIMEOUT_SCALE), [$(if $(V),verbose)]) \
    of ok -> 0; _ -> 1 end)

.PHONY: check-erl property check-install check-browser check-views check-rebar check-mix
check-erl: all $(TEST_BEAMS) $(TEST_LIBRARIES)
	$(Q)$(ERL) -noshell -pa ebin build/test -eval '$(EUNIT).'

# What else may go wrong, some hours long. ROUNDS: of each fault.
ROUNDS ?= 1000
TORTURE_ERL = emberl_sampler_rounds_tests emberl_killer_tests emberl_reload_tests \
    emberl_faults_tests emberl_nif_tests emberl_memory_tests emberl_limits_tests
.PHONY: torture-erl
torture-erl: export EMBERL_ROUNDS = $(ROUNDS)
torture-erl:
	$(Q)$(MAKE) --no-print-directory check-erl TIMEOUT_SCALE=10000 V=1 ERL_TESTS="$(TORTURE_ERL)"

# The same with AddressSanitizer in the library, and in the VM's allocators, in a tree of
# its own. ERL_TESTS="emberl_X_tests ...": only these. The readers that liburcu-bp gives
# out are less aligned than it says.
ASAN_TREE = build/asan-erl
ASAN_ERL = LD_PRELOAD="$$(gcc -print-file-name=libasan.so)" ERL_AFLAGS="+Mea min" \
    ASAN_OPTIONS=detect_leaks=0:use_sigaltstack=0:log_path=$(CURDIR)/$(ASAN_TREE)/report \
    UBSAN_OPTIONS=print_stacktrace=1:log_path=$(CURDIR)/$(ASAN_TREE)/report

.PHONY: asan-erl
asan-erl: TIMEOUT_SCALE = 100
asan-erl: all $(TEST_BEAMS) $(TEST_LIBRARIES)
	$(Q)$(MAKE) --no-print-directory library CC=gcc \
	    CFLAGS="$(SANITIZED) -fsanitize=address,undefined" \
	    CFLAGS_tracer=-fno-sanitize=alignment NIF_BUILD=build/asan-nif \
	    LIBRARY=$(ASAN_TREE)/priv/emberl_nif.so
	$(Q)rm -rf $(ASAN_TREE)/report* && cp -R bin ebin build/test $(ASAN_TREE)
	$(Q)$(ASAN_ERL) $(ERL) -noshell -pa $(ASAN_TREE)/ebin $(ASAN_TREE)/test -eval '$(EUNIT).'; \
	    status=$$?; ! cat $(ASAN_TREE)/report.* 2>/dev/null && exit $$status

# More of the random programs that check-erl has some of. SEED: the first one's.
PROGRAMS ?= 5000
property: all $(TEST_BEAMS)
	$(Q)EMBERL_PROGRAMS=$(PROGRAMS) $(if $(SEED),EMBERL_SEED=$(SEED)) \
	    $(ERL) -noshell -pa ebin build/test \
	    -eval 'halt(case eunit:test(emberl_property_tests) of ok -> 0; _ -> 1 end).'

build/test/%.beam: test/erl/%.erl $(wildcard test/erl/*.hrl)
	$(Q)mkdir -p $(@D) && $(ERLC) +debug_info -Werror -pa ebin -o $(@D) $<

build/test/%.so: test/erl/%.c
	$(Q)mkdir -p $(@D) && $(CC) $(CFLAGS) -fPIC -isystem $(ERTS_INCLUDE) \
	    $(LDFLAGS) $(NIF_LDFLAGS) -o $@ $<

check-browser: test/browser/node_modules
	$(Q)cd test/browser && npm test --silent

# What views write, read by the programs they write for.
check-views: test/views/node_modules $(C_BUILD)/view_sample
	$(Q)cd test/views && npm test --silent

test/%/node_modules: test/%/package-lock.json
	$(Q)cd $(@D) && npm ci --no-audit --no-fund --loglevel=error && touch node_modules

$(C_BUILD)/view_sample: test/views/view_sample.c test/c/sample_profiles.h $(C_BUILD)/libplain.a
	$(SAY) "  CC    $< ($(VARIANT))"
	$(Q)$(CC) $(CFLAGS) -Itest/c $(LDFLAGS) -o $@ $< $(C_BUILD)/libplain.a $(ZSTD_LIBS) -lm

check-install: all
	$(Q)test/install/run

check-rebar:
	$(Q)test/rebar/run

check-mix:
	$(Q)test/mix/run

# ---- Other checks ---------------------------------------------------------------

.PHONY: model lint format dialyzer xref bench
# test/model, each as it is and broken in each way that it names.
model:
	$(Q)tools/check_models

lint: $(ARRAYS)
	$(Q)tools/lint $(ERTS_INCLUDE)

format:
	$(Q)clang-format -i c_src/*.[ch] test/*/*.[ch] bench/*.c

dialyzer: modules build/compiler.plt
	$(Q)dialyzer --plt build/compiler.plt ebin

build/compiler.plt: | build
	$(Q)dialyzer --build_plt --output_plt $@ --apps erts kernel stdlib compiler

xref: modules
	$(Q)escript tools/xref.escript ebin

# Alone on the machine, or the figures mean little.
bench: all build/bench/noop_tracer.so build/bench/recorder_bench build/bench/convert_bench
	$(Q)$(ERLC) -pa ebin -o build/bench bench/*.erl
	$(Q)$(ERL) -noshell -pa ebin build/bench -s overhead main
	@echo; echo "tables:"
	$(Q)$(ERL) -noshell -pa ebin build/bench -s tally_bench main
	@echo; echo "waiting captures:"
	$(Q)$(ERL) -noshell -pa ebin build/bench -s waiting_bench main
	@echo; echo "the sampler:"
	$(Q)$(ERL) -noshell -pa ebin build/bench -s sample_bench main
	@echo; echo "consumer:"
	$(Q)build/bench/recorder_bench
	@echo; echo "consumer, with timelines:"
	$(Q)build/bench/recorder_bench timeline
	@echo; echo "a profile of 200,000 stacks:"
	$(Q)build/bench/convert_bench large
	@echo; echo "of deep ones:"
	$(Q)build/bench/convert_bench tall

# Likewise. EFLAMBE_EBIN: where eflambe and meck are.
.PHONY: accuracy
accuracy: all | build/bench
	$(Q)$(ERLC) -pa ebin -o build/bench bench/*.erl
	$(Q)$(ERL) -noshell -pa ebin build/bench -s accuracy main
	@echo; echo "the sampler:"
	$(Q)$(ERL) -noshell -pa ebin build/bench -s sample_perf main

# How soon the page of a large profile is drawn.
.PHONY: bench-page
bench-page: test/browser/node_modules $(C_BUILD)/view_sample
	$(Q)node bench/page_bench.mjs

# MINUTES: how long a node samples itself; a line each.
.PHONY: soak
soak: all | build/bench
	$(Q)$(ERLC) -pa ebin -o build/bench bench/soak.erl
	$(Q)$(ERL) -noshell -pa ebin build/bench -s soak main

build/bench/recorder_bench: bench/recorder_bench.c $(C_BUILD)/libplain.a | build/bench
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $< $(C_BUILD)/libplain.a $(ZSTD_LIBS) -lm -lpthread

build/bench/convert_bench: bench/convert_bench.c test/c/sample_profiles.h $(C_BUILD)/libplain.a \
    | build/bench
	$(Q)$(CC) $(CFLAGS) -Itest/c $(LDFLAGS) -o $@ $< $(C_BUILD)/libplain.a $(ZSTD_LIBS) -lm

build/bench/noop_tracer.so: bench/noop_tracer.c | build/bench
	$(Q)$(CC) $(CFLAGS) -fPIC -isystem $(ERTS_INCLUDE) $(LDFLAGS) $(NIF_LDFLAGS) -o $@ $<

.PHONY: help clean
help:
	@echo "build:  all (default), library, modules, documentation, clean"
	@echo "run:    demo, bench, bench-page, accuracy, soak, install, uninstall (PREFIX, DESTDIR)"
	@echo "test:   test (all of the following), check-c, check-erl, check-install, check-browser,"
	@echo "        check-views, check-rebar, check-mix"
	@echo "check:  asan, asan-erl, torture-erl, tsan, valgrind, fuzz, property, model, lint,"
	@echo "        dialyzer, xref"
	@echo "other:  deps (installs what the build needs), help"
	@echo "V=1 shows the commands. CC, CFLAGS, LDFLAGS, URCU_LIBS, ZSTD_LIBS, ERL, ERLC,"
	@echo "ERTS_INCLUDE as usual."

clean:
	rm -rf build ebin priv doc
