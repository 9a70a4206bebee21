# SPDX-License-Identifier: Apache-2.0
#
# make            build the library and the modules
# make demo       install what is missing, build, profile the compiler, write a flame graph
# make test       install what is missing, build, run all tests
# make bench      measure the cost of tracing against other tools
# make help       all targets

CC ?= cc
ERLC ?= erlc
ERL ?= erl
WARNINGS = -Wall -Wextra -Wstrict-prototypes -Wmissing-prototypes -Wshadow -Wconversion -Wvla -Werror
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
NIF_SOURCES = nif tracer term profile_nif vm_heap session
PLAIN_SOURCES = $(filter-out $(NIF_SOURCES),$(basename $(notdir $(wildcard c_src/*.c))))
ARRAYS = build/view_html_page.h build/view_svg_script.h
HEADERS = $(wildcard c_src/*.h) $(ARRAYS)
NIF_OBJECTS = $(NIF_SOURCES:%=build/nif/%.o) $(PLAIN_SOURCES:%=build/nif/%.o)
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

.PHONY: all library modules
all: library modules
library: priv/emberl_nif.so
modules: $(BEAMS) ebin/emberl.app

priv/emberl_nif.so: $(NIF_OBJECTS) | priv
	$(SAY) "  LD    $@"
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $(NIF_LDFLAGS) -o $@ $^ $(URCU_LIBS) $(ZSTD_LIBS) -lpthread

build/nif/%.o: c_src/%.c $(HEADERS) | build/nif
	$(SAY) "  CC    $<"
	$(Q)$(CC) $(CFLAGS) -fPIC -isystem $(ERTS_INCLUDE) -c -o $@ $<

# What views put into their files as it is, as C arrays.
build/view_html_page.h: c_src/view_html.html
build/view_html_page.h: ARRAY = ember_html_page
build/view_svg_script.h: c_src/view_svg.js
build/view_svg_script.h: ARRAY = ember_svg_script
$(ARRAYS): | build
	$(Q){ echo 'static const unsigned char $(ARRAY)[] = {'; \
	  od -An -v -tx1 $< | sed 's/ \([0-9a-f][0-9a-f]\)/0x\1,/g'; \
	  echo '};'; \
	  echo 'static const size_t $(ARRAY)_size = sizeof $(ARRAY);'; } > $@.tmp
	$(Q)mv $@.tmp $@

ERLC_FLAGS = +debug_info +warn_missing_spec +warn_export_vars +warn_unused_import -Werror

ebin/%.beam: erl/%.erl | ebin
	$(SAY) "  ERLC  $<"
	$(Q)$(ERLC) $(ERLC_FLAGS) -o ebin $<

# rebar3 fills in the modules by itself; without it we do.
MODULES = $(basename $(notdir $(wildcard erl/*.erl)))
WRITE_APP = {ok, [{application, Name, Keys}]} = file:consult("erl/emberl.app.src"), \
    Modules = [list_to_atom(M) || M <- string:lexemes("$(MODULES)", " ")], \
    App = {application, Name, lists:keystore(modules, 1, Keys, {modules, Modules})}, \
    ok = file:write_file("ebin/emberl.app", io_lib:format("~tp.~n", [App])), halt()

ebin/emberl.app: erl/emberl.app.src Makefile | ebin
	$(Q)$(ERL) -noshell -eval '$(WRITE_APP).'

build build/nif build/bench ebin priv:
	$(Q)mkdir -p $@

# ---- For people: what is missing is installed --------------------------------

.PHONY: deps demo test
deps:
	$(Q)tools/need build

demo: deps
	$(Q)$(MAKE) --no-print-directory all
	$(Q)mkdir -p build/demo && $(ERLC) -o build/demo demo/profile_compiler.erl
	$(Q)$(ERL) -noshell -pa ebin build/demo \
	    -eval 'profile_compiler:main(["erl/emberl_server.erl", "build/demo"]).'

test:
	$(Q)tools/need test browser views rebar
	$(Q)$(MAKE) --no-print-directory all
	$(Q)$(MAKE) --no-print-directory check-c check-erl check-browser check-views check-rebar

# ---- Tests in C ---------------------------------------------------------------

# Each variant has a directory of its own. A test links what it uses of the plain
# sources, and what a line `/* LDFLAGS: ... */` in it asks for. test_* are
# Criterion's, torture_* are programs of their own.
VARIANT = plain
C_BUILD = build/$(VARIANT)
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
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $< $(C_BUILD)/libplain.a $(LIBRARIES) $(ZSTD_LIBS) -lpthread \
	    $$(sed -n 's,^/\* LDFLAGS: \(.*\) \*/$$,\1,p' $<)

$(FUZZ_REPLAYS): $(C_BUILD)/%: test/fuzz/%.c test/fuzz/replay.c $(C_BUILD)/libplain.a $(wildcard test/c/*.h)
	$(SAY) "  CC    $< ($(VARIANT))"
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $< test/fuzz/replay.c $(C_BUILD)/libplain.a $(ZSTD_LIBS)

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
	$(VARIANT_OF_C) CFLAGS="$(SANITIZED) -fsanitize=thread" C_TESTS="$(TORTURE:$(C_BUILD)/%=build/tsan/%)"

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
	    test/fuzz/$@.c $(PLAIN_SOURCES:%=c_src/%.c) $(ZSTD_LIBS) -lpthread
	$(Q)build/fuzz/$@ -max_total_time=$(SECONDS) -max_len=65536 -print_final_stats=1 \
	    -artifact_prefix=build/fuzz/ build/fuzz/$@.corpus test/fuzz/corpus/$@

# ---- Tests in Erlang, in a browser, as a dependency ---------------------------

ERL_TESTS = $(basename $(notdir $(wildcard test/erl/*.erl)))
EUNIT = halt(case eunit:test([list_to_atom(M) || M <- string:lexemes( \
    "$(filter %_tests,$(ERL_TESTS))", " ")], [$(if $(V),verbose)]) of ok -> 0; _ -> 1 end)

.PHONY: check-erl check-browser check-views check-rebar
check-erl: all $(ERL_TESTS:%=build/test/%.beam) $(patsubst test/erl/%.c,build/test/%.so,$(wildcard test/erl/*.c))
	$(Q)$(ERL) -noshell -pa ebin build/test -eval '$(EUNIT).'

build/test/%.beam: test/erl/%.erl $(wildcard test/erl/*.hrl)
	$(Q)mkdir -p $(@D) && $(ERLC) +debug_info -Werror -pa ebin -o $(@D) $<

build/test/%.so: test/erl/%.c
	$(Q)mkdir -p $(@D) && $(CC) $(CFLAGS) -fPIC -isystem $(ERTS_INCLUDE) $(LDFLAGS) $(NIF_LDFLAGS) -o $@ $<

check-browser: test/browser/node_modules
	$(Q)cd test/browser && npm test --silent

# What views write, read by the programs they write for.
check-views: test/views/node_modules $(C_BUILD)/view_sample
	$(Q)cd test/views && npm test --silent

test/%/node_modules: test/%/package-lock.json
	$(Q)cd $(@D) && npm ci --no-audit --no-fund --loglevel=error && touch node_modules

$(C_BUILD)/view_sample: test/views/view_sample.c test/c/sample_profiles.h $(C_BUILD)/libplain.a
	$(SAY) "  CC    $< ($(VARIANT))"
	$(Q)$(CC) $(CFLAGS) -Itest/c $(LDFLAGS) -o $@ $< $(C_BUILD)/libplain.a $(ZSTD_LIBS)

check-rebar:
	$(Q)test/rebar/run

# ---- Other checks ---------------------------------------------------------------

.PHONY: lint dialyzer xref bench
lint: $(ARRAYS)
	$(Q)tools/lint $(ERTS_INCLUDE)

dialyzer: modules build/otp.plt
	$(Q)dialyzer --plt build/otp.plt ebin

build/otp.plt: | build
	$(Q)dialyzer --build_plt --output_plt $@ --apps erts kernel stdlib

xref: modules
	$(Q)escript tools/xref.escript ebin

# Alone on the machine, or the figures mean little.
bench: all build/bench/noop_tracer.so build/bench/recorder_bench
	$(Q)$(ERLC) -pa ebin -o build/bench bench/*.erl
	$(Q)$(ERL) -noshell -pa ebin build/bench -s overhead main
	@echo; echo "consumer:"
	$(Q)build/bench/recorder_bench

build/bench/recorder_bench: bench/recorder_bench.c $(C_BUILD)/libplain.a | build/bench
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $< $(C_BUILD)/libplain.a $(ZSTD_LIBS) -lpthread

build/bench/noop_tracer.so: bench/noop_tracer.c | build/bench
	$(Q)$(CC) $(CFLAGS) -fPIC -isystem $(ERTS_INCLUDE) $(LDFLAGS) $(NIF_LDFLAGS) -o $@ $<

.PHONY: help clean
help:
	@echo "build:  all (default), library, modules, clean"
	@echo "run:    demo, bench"
	@echo "test:   test (all of the following), check-c, check-erl, check-browser, check-views, check-rebar"
	@echo "check:  asan, tsan, valgrind, fuzz, lint, dialyzer, xref"
	@echo "other:  deps (installs what the build needs), help"
	@echo "V=1 shows the commands. CC, CFLAGS, LDFLAGS, URCU_LIBS, ZSTD_LIBS, ERL, ERLC, ERTS_INCLUDE as usual."

clean:
	rm -rf build ebin priv
