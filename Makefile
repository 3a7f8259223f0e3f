# SPDX-License-Identifier: Apache-2.0
#
# Builds everything into build/. `make help` lists the targets. Quiet unless V=1.
# CC=clang, SANITIZE=1 (AddressSanitizer and UBSan, into build/sanitize), SANITIZE=thread (ThreadSanitizer,
# into build/thread) and WERROR=0 are the switches.

VERSION  := 0.1
MAKEFLAGS += -r
ifeq ($(origin CC),default)
CC       := gcc
endif
PREFIX   ?= /usr/local
DESTDIR  ?=
BUILD    ?= build$(if $(SANITIZE),/$(patsubst 1,sanitize,$(SANITIZE)))
WERROR   ?= 1
V        ?= 0
Q        := $(if $(filter 0,$(V)),@)
say       = $(if $(filter 0,$(V)),@printf '  %-6s %s\n' $(1) $(patsubst $(BUILD)/%,%,$@))

PKGS_expertfs := fuse3 liburing sqlite3 libxxhash jansson
PKGS_engine   := jansson libpcre2-8 libutf8proc libxxhash
PKGS_test     := cmocka
PKGS_expertctl := ncursesw
pkgflags       = $(shell pkg-config --cflags $(1) 2>/dev/null)
pkglibs        = $(shell pkg-config --libs $(1) 2>/dev/null)

comma    := ,
WARN     := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wvla \
            $(if $(filter 1,$(WERROR)),-Werror)
SANITIZER := $(if $(SANITIZE),-fsanitize=$(if $(filter thread,$(SANITIZE)),thread,address$(comma)undefined)$(if $(filter fuzzer,$(SANITIZE)),$(comma)fuzzer-no-link))
OPT      := $(if $(SANITIZE),-O1 -g -fno-omit-frame-pointer $(SANITIZER) \
            $(if $(filter-out thread,$(SANITIZE)),-fno-sanitize-recover=undefined),-O2 -g)
CPPFLAGS += -D_GNU_SOURCE -DFUSE_USE_VERSION=314 -DEXPERTFS_VERSION='"$(VERSION)"' -I. -MMD -MP
# A multiply-add is fused only where a file asks for it: arm64 would fuse any, and pack other bytes than x86-64.
ALL_CFLAGS = -std=gnu11 -ffp-contract=off $(WARN) $(OPT) -fopenmp -pthread \
            $(call pkgflags,$(PKGS_expertfs) $(PKGS_engine) $(PKGS_expertctl)) $(CFLAGS)
ALL_LDFLAGS = -fopenmp -pthread $(SANITIZER) $(LDFLAGS)

# Kernels are the same plain loops, compiled once per instruction set and chosen at run time
# (engine/kernel.h); everything else is built for the baseline processor.
ARCH     := $(shell $(CC) -dumpmachine | cut -d- -f1)
KERNEL_ISAS := plain $(if $(filter x86_64,$(ARCH)),avx2 avxvnni avx512 vnni)$(if $(filter aarch64,$(ARCH)),dotprod)
ISA_plain  :=
ISA_avx2   := -mavx2 -mfma -mf16c
ISA_avxvnni := $(ISA_avx2) -mavxvnni
ISA_avx512 := $(ISA_avx2) -mavx512f -mavx512bw -mavx512vl -mavx512dq -mprefer-vector-width=512
ISA_vnni   := $(ISA_avx512) -mavx512vnni
ISA_amx    := $(ISA_vnni) -mavx512bf16 -mamx-tile -mamx-int8 -mamx-bf16
ISA_dotprod := -march=armv8.2-a+dotprod
# kernel_int8 and kernel_blocks write their multiply-adds out, ggml has none: they must round the same in every
# instruction set.
KERNEL_CFLAGS := -O3 -ffp-contract=fast -fno-math-errno
INT8_CFLAGS   := -O3 -ffp-contract=off -fno-math-errno

objs       = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))
POLICY_OBJS := $(call objs,$(wildcard cachepolicy/*.c))
STORE_OBJS  := $(call objs,$(filter-out expertfs/main.c,$(wildcard expertfs/*.c)))
ENGINE_OBJS := $(call objs,$(filter-out engine/main.c engine/kernel_isa.c engine/kernel_int8.c engine/kernel_blocks.c engine/ggml.c $(if $(filter-out x86_64,$(ARCH)),engine/kernel_amx.c engine/kernel_mix_amx.c),$(wildcard engine/*.c))) \
               $(foreach i,$(KERNEL_ISAS),$(BUILD)/obj/engine/kernel_$(i).o $(BUILD)/obj/engine/int8_$(i).o $(BUILD)/obj/engine/ggml_$(i).o \
                                  $(BUILD)/obj/engine/blocks_$(i).o) \
               $(if $(filter x86_64,$(ARCH)),$(BUILD)/obj/engine/blocks_amx.o)
POLICY_LIB  := $(BUILD)/libcachepolicy.a
STORE_LIB   := $(BUILD)/libexpertfs.a
ENGINE_LIB  := $(BUILD)/libengine.a
LIBS        := $(STORE_LIB) $(ENGINE_LIB) $(POLICY_LIB)
TOOLS       := $(patsubst tools/%/main.c,%,$(wildcard tools/*/main.c))
PROGRAMS    := expertfs coli-engine $(TOOLS)
UNIT_TESTS  := $(patsubst tests/unit/%.c,$(BUILD)/tests/%,$(wildcard tests/unit/test_*.c))
MAN_PAGES   := $(wildcard expertfs/*.[18] engine/*.1 tools/*/*.1)
E2E_TOOLS   := $(patsubst tests/e2e/%.c,$(BUILD)/tests/%,$(wildcard tests/e2e/*.c))
BENCH_TOOLS := $(patsubst tests/bench/storage/%.c,$(BUILD)/tests/bench/%,$(wildcard tests/bench/storage/*.c))

all: $(PROGRAMS:%=$(BUILD)/%)

help:
	@echo 'make             build into build/'
	@echo 'make demo        set up, build, pack the story model, mount it, write a story'
	@echo 'make test        set up, build, run every quick test (SANITIZE=1: under ASan and UBSan)'
	@echo 'make test-tsan   the tests where threads meet under ThreadSanitizer'
	@echo 'make test-arm64  all programs built for arm64, its kernels under qemu'
	@echo 'make kill-test   kill -9 at random a hundred times: nothing may be lost'
	@echo 'make lint        clang-format and clang-tidy'
	@echo 'make bench-storage   measures the daemon against fio, loop devices and an empty file system'
	@echo 'make bench-engine    measures the engine against memory, drive and llama.cpp (ROWS="decode prompt")'
	@echo 'make bench-kernels   how fast the matrix kernels are'
	@echo 'make bench-policy    what one access costs under each eviction policy'
	@echo 'make soak        random readers and commands for ten minutes (SOAK_SECONDS)'
	@echo 'make fuzz        libFuzzer on what comes from outside, a minute each (FUZZ_SECONDS); needs clang'
	@echo 'make install     DESTDIR= PREFIX=/usr/local'
	@echo 'make clean'

# A change of compiler or flags rebuilds; a change of nothing rebuilds nothing.
$(BUILD)/flags: force
	@mkdir -p $(BUILD)
	@echo '$(CC) $(CPPFLAGS) $(ALL_CFLAGS) $(KERNEL_CFLAGS) $(INT8_CFLAGS)' | cmp -s - $@ || echo '$(CC) $(CPPFLAGS) $(ALL_CFLAGS) $(KERNEL_CFLAGS) $(INT8_CFLAGS)' > $@

# With sanitizers each of the fuzzers' kernels takes minutes to compile: they run the plain ones.
UNWATCHED := $(if $(filter fuzzer,$(SANITIZE)),-fno-sanitize=all)

# isa_rule NAME,SOURCE,ISAS,FLAGS: an object for each instruction set, NAME_avx2.o say; FLAGS is a variable's name.
define isa_rule
$(3:%=$(BUILD)/obj/engine/$(1)_%.o): $(BUILD)/obj/engine/$(1)_%.o: engine/$(2).c $(BUILD)/flags
	$$(call say,CC)
	@mkdir -p $$(@D)
	$$(Q)$$(CC) $$(CPPFLAGS) -DKERNEL_ISA=$$* $$(ALL_CFLAGS) $$($(4)) $$(ISA_$$*) $$(if $$(filter-out plain,$$*),$$(UNWATCHED)) -c -o $$@ $$<
endef
$(eval $(call isa_rule,kernel,kernel_isa,$(KERNEL_ISAS),KERNEL_CFLAGS))
$(eval $(call isa_rule,int8,kernel_int8,$(KERNEL_ISAS),INT8_CFLAGS))
$(eval $(call isa_rule,ggml,ggml,$(KERNEL_ISAS),INT8_CFLAGS))
$(eval $(call isa_rule,blocks,kernel_blocks,$(KERNEL_ISAS) amx,INT8_CFLAGS))

$(BUILD)/obj/engine/kernel_amx.o $(BUILD)/obj/engine/kernel_mix_amx.o: ALL_CFLAGS += $(INT8_CFLAGS) $(ISA_amx)

# cmocka 2 would have assert_in_range by another name, which 1.1 does not know.
$(BUILD)/obj/tests/unit/%.o: private ALL_CFLAGS += -Wno-deprecated-declarations

# Packing spends its time in here; no instruction set is added, so the bytes stay the same everywhere.
$(BUILD)/obj/engine/quant.o: OPT += -O3

$(BUILD)/obj/%.o: %.c $(BUILD)/flags
	$(call say,CC)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(ALL_CFLAGS) -c -o $@ $<

$(POLICY_LIB): $(POLICY_OBJS)
$(STORE_LIB): $(STORE_OBJS)
$(ENGINE_LIB): $(ENGINE_OBJS)
$(LIBS):
	$(call say,AR)
	$(Q)rm -f $@ && ar rcs $@ $^

link = $(Q)$(CC) $(ALL_LDFLAGS) -o $@ $(1) $(2)

$(BUILD)/expertfs: $(BUILD)/obj/expertfs/main.o $(STORE_LIB) $(POLICY_LIB)
	$(call say,LINK)
	$(call link,$^,$(call pkglibs,$(PKGS_expertfs)) -lm)

$(BUILD)/coli-engine: $(BUILD)/obj/engine/main.o $(ENGINE_LIB)
	$(call say,LINK)
	$(call link,$^,$(call pkglibs,$(PKGS_engine)) -lm)

define tool_rule
$(BUILD)/$(1): $(call objs,$(wildcard tools/$(1)/*.c)) $(LIBS)
	$$(call say,LINK)
	$$(call link,$$^,$$(call pkglibs,$(PKGS_expertfs) $(PKGS_engine) $$(PKGS_$(1))) -lm)
endef
$(foreach t,$(TOOLS),$(eval $(call tool_rule,$(t))))

# Unit tests may reach into a tool as well: all its objects but main.o.
TOOL_PARTS := $(call objs,$(filter-out %/main.c,$(wildcard tools/*/*.c)))
$(BUILD)/tests/%: $(BUILD)/obj/tests/unit/%.o $(TOOL_PARTS) $(LIBS)
	$(call say,LINK)
	@mkdir -p $(@D)
	$(call link,$^,$(call pkglibs,$(PKGS_expertfs) $(PKGS_engine) $(PKGS_expertctl) $(PKGS_test)) -lm)

$(BUILD)/tests/%: $(BUILD)/obj/tests/e2e/%.o $(STORE_LIB) $(ENGINE_LIB)
	$(call say,LINK)
	@mkdir -p $(@D)
	$(call link,$^,$(call pkglibs,$(PKGS_expertfs) $(PKGS_engine)) -lm)

$(BUILD)/tests/bench/%: $(BUILD)/obj/tests/bench/storage/%.o
	$(call say,LINK)
	@mkdir -p $(@D)
	$(call link,$^,$(call pkglibs,fuse3))

$(BUILD)/tests/bench/%: $(BUILD)/obj/tests/bench/%.o $(POLICY_LIB)
	$(call say,LINK)
	@mkdir -p $(@D)
	$(call link,$^,-lm)

$(BUILD)/bench/kernels: $(BUILD)/obj/tests/bench/kernels/kernels.o $(ENGINE_LIB)
	$(call say,LINK)
	@mkdir -p $(@D)
	$(call link,$^,$(call pkglibs,$(PKGS_engine)) -lm)

$(BUILD)/bench/make_model: $(call objs,$(wildcard tests/bench/engine/*.c)) $(LIBS)
	$(call say,LINK)
	@mkdir -p $(@D)
	$(call link,$^,$(call pkglibs,$(PKGS_expertfs) $(PKGS_engine)) -lm)

# Every kernel of this build.
bench-kernels: $(BUILD)/bench/kernels
	@for k in $(KERNEL_ISAS) amx; do COLI_ENGINE_KERNEL=$$k $(BUILD)/bench/kernels || exit; done
	@for k in $(KERNEL_ISAS); do COLI_ENGINE_KERNEL=$$k $(BUILD)/bench/kernels 2 256 formats || exit; done

unit-tests: $(UNIT_TESTS) $(E2E_TOOLS) $(BUILD)/bench/make_model

setup:
	@tools/setup.sh

# Set-up first, then a second make: pkg-config can only answer once the packages are there.
demo: setup
	@$(MAKE) --no-print-directory all
	@BUILD=$(BUILD) tests/demo.sh

test: setup
	@$(MAKE) --no-print-directory all unit-tests
	@BUILD=$(BUILD) SANITIZE=$(SANITIZE) tests/run.sh

# Where threads meet. Not test_service, whose unit forbids what the sanitizer needs; nor test_watch:
# ncurses has a signal handler that it does not like.
TSAN_TESTS := test_drive test_loader test_hotdir test_usage test_respread test_rebuild test_rebuild_start test_tracer \
              test_probe test_pressure test_rates test_mount.sh test_mount_faults test_big_store test_hotstore test_drives \
              test_spread test_xattr test_soak test_expert test_model_experts test_model_forward test_mtp test_stream \
              test_session test_tokens
test-tsan: setup
	@$(MAKE) --no-print-directory SANITIZE=thread BUILD=$(BUILD)/thread tsan-programs
	@BUILD=$(BUILD)/thread SANITIZE=thread setarch -R tests/run.sh $(TSAN_TESTS)

tsan-programs: all $(E2E_TOOLS) $(filter $(foreach t,$(TSAN_TESTS),$(BUILD)/tests/$(t)%),$(UNIT_TESTS))

# With SDOT and without. The libraries of tools/setup.sh must be there for arm64 as well.
ARM64_TESTS   := test_kernel test_kernel_int8 test_ggml test_quant
ARM64_PKGPATH := PKG_CONFIG_LIBDIR=/usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig
test-arm64:
	@command -v aarch64-linux-gnu-gcc >/dev/null && command -v qemu-aarch64 >/dev/null && \
		$(ARM64_PKGPATH) pkg-config --exists $(PKGS_expertfs) $(PKGS_engine) $(PKGS_expertctl) $(PKGS_test) || { \
		echo 'test-arm64: needs gcc-aarch64-linux-gnu, qemu-user and (after dpkg --add-architecture arm64)' \
			'libc6-dev:arm64, libgomp1:arm64, libfuse3-dev:arm64 and so on' >&2; exit 1; }
	@$(ARM64_PKGPATH) $(MAKE) --no-print-directory CC=aarch64-linux-gnu-gcc BUILD=$(BUILD)/arm64 all \
		$(ARM64_TESTS:%=$(BUILD)/arm64/tests/%)
	@for cpu in cortex-a53 max; do for t in $(ARM64_TESTS); do \
		qemu-aarch64 -cpu $$cpu $(BUILD)/arm64/tests/$$t || exit; done; done

bench-storage:
	@tools/setup.sh bench
	@$(MAKE) --no-print-directory all $(BUILD)/tests/make_store $(BENCH_TOOLS)
	@BUILD=$(BUILD) tests/bench/storage/run.sh

bench-engine:
	@tools/setup.sh bench
	@$(MAKE) --no-print-directory all $(BUILD)/bench/kernels $(BUILD)/bench/make_model
	@BUILD=$(BUILD) tests/bench/engine/engine.sh $(ROWS)

bench-policy: $(BUILD)/tests/bench/policy_cost
	@$<

soak: setup
	@$(MAKE) --no-print-directory all $(E2E_TOOLS)
	@BUILD=$(BUILD) tests/soak/soak.sh

# kill -9 at random a hundred times; `make test` has a few rounds of the same.
kill-test: setup
	@$(MAKE) --no-print-directory all unit-tests
	@BUILD=$(BUILD) SANITIZE=$(SANITIZE) KILL_ROUNDS=100 TEST_TIMEOUT=3600 tests/run.sh test_kill

# Objects of fuzzers lie where those of tests do; libFuzzer brings main().
FUZZERS := $(patsubst tests/fuzz/%.c,$(BUILD)/%,$(wildcard tests/fuzz/fuzz_*.c))
$(BUILD)/fuzz_%: $(BUILD)/obj/tests/fuzz/fuzz_%.o $(TOOL_PARTS) $(LIBS)
	$(call say,LINK)
	$(Q)$(CC) $(ALL_LDFLAGS) -fsanitize=fuzzer -o $@ $^ $(call pkglibs,$(PKGS_expertfs) $(PKGS_engine) $(PKGS_expertctl)) -lm

fuzzers: $(FUZZERS) $(BUILD)/coli-pack

fuzz:
	@CC=clang tools/setup.sh
	@$(MAKE) --no-print-directory CC=clang SANITIZE=fuzzer BUILD=$(BUILD)/fuzz fuzzers
	@BUILD=$(BUILD)/fuzz tests/fuzz/run.sh

lint:
	@BUILD=$(BUILD) tests/lint.sh

install: all
	$(Q)install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/man/man1
	$(Q)install -m 755 $(PROGRAMS:%=$(BUILD)/%) $(DESTDIR)$(PREFIX)/bin
	$(Q)install -m 644 $(MAN_PAGES) $(DESTDIR)$(PREFIX)/share/man/man1
	$(Q)install -d $(DESTDIR)$(PREFIX)/lib/systemd/system
	$(Q)sed 's,@BINDIR@,$(PREFIX)/bin,' expertfs/expertfs@.service.in >$(DESTDIR)$(PREFIX)/lib/systemd/system/expertfs@.service

clean:
	$(Q)rm -rf build

.PHONY: all help unit-tests setup demo test test-tsan test-arm64 tsan-programs bench-storage bench-engine bench-policy bench-kernels soak fuzz fuzzers lint install clean force
.SECONDARY:
-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)
