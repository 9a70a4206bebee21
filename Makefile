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
ERTS_INCLUDE ?= $(shell $(ERL) -noshell -eval \
    'io:put_chars(filename:join([code:root_dir(), "usr", "include"])), halt().')

# Knows the VM: the rest of c_src is plain C and tested as such.
NIF_SOURCES = nif tracer term profile_nif vm_heap session
PLAIN_SOURCES = $(filter-out $(NIF_SOURCES),$(basename $(notdir $(wildcard c_src/*.c))))
HEADERS = $(wildcard c_src/*.h) build/view_html_page.h
NIF_OBJECTS = $(NIF_SOURCES:%=build/nif/%.o) $(PLAIN_SOURCES:%=build/nif/%.o)
BEAMS = $(patsubst erl/%.erl,ebin/%.beam,$(wildcard erl/*.erl))

# make V=1 shows the commands.
Q = $(if $(V),,@)

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
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $(NIF_LDFLAGS) -o $@ $^ -lurcu-bp -lurcu-common -lpthread

build/nif/%.o: c_src/%.c $(HEADERS) | build/nif
	$(Q)$(CC) $(CFLAGS) -fPIC -isystem $(ERTS_INCLUDE) -c -o $@ $<

# The page as a C array.
build/view_html_page.h: c_src/view_html.html | build
	$(Q){ echo 'static const unsigned char ember_html_page[] = {'; \
	  od -An -v -tx1 $< | sed 's/ \([0-9a-f][0-9a-f]\)/0x\1,/g'; \
	  echo '};'; \
	  echo 'static const size_t ember_html_page_size = sizeof ember_html_page;'; } > $@.tmp
	$(Q)mv $@.tmp $@

ERLC_FLAGS = +debug_info +warn_missing_spec +warn_export_vars +warn_unused_import -Werror

ebin/%.beam: erl/%.erl | ebin
	$(Q)$(ERLC) $(ERLC_FLAGS) -o ebin $<

# rebar3 fills in the modules by itself; without it we do.
MODULES = $(basename $(notdir $(wildcard erl/*.erl)))
WRITE_APP = {ok, [{application, Name, Keys}]} = file:consult("erl/emberl.app.src"), \
    Modules = [list_to_atom(M) || M <- string:lexemes("$(MODULES)", " ")], \
    App = {application, Name, lists:keystore(modules, 1, Keys, {modules, Modules})}, \
    ok = file:write_file("ebin/emberl.app", io_lib:format("~tp.~n", [App])), halt()

ebin/emberl.app: erl/emberl.app.src Makefile | ebin
	$(Q)$(ERL) -noshell -eval '$(WRITE_APP).'

build build/nif ebin priv:
	$(Q)mkdir -p $@

.PHONY: clean
clean:
	rm -rf build ebin priv
