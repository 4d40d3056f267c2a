/* Fuzzes what the native shim reads of untrusted text: RADDLE_PLAN, CPU lists, an ELF file's headers.
 *
 * LLVMFuzzerTestOneInput is libFuzzer's entry: clang -fsanitize=fuzzer,address,undefined -DRD_HOSTED -DRD_LIBFUZZER.
 * Without clang the program makes its inputs itself, by mutating plans that use every kind of key: plan_fuzz <inputs>
 * [seed]. Besides what the sanitizers find, every plan that is accepted has to keep its promises: values within their
 * bounds, a text of its own that reads back as the same plan, counts that are never raised.
 */
#include "sys.c"

#include "cpuset.c"
#include "elf_file.c"
#include "machine.c"
#include "placement.c"
#include "plan.c"
#include "resolve.c"
#include "text.c"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_INPUT 8192

static void hold(bool condition, const char *what, const char *text)
{
    if (!condition) {
        fprintf(stderr, "plan_fuzz: %s does not hold for %s\n", what, text);
        abort();
    }
}

static void check_values(const struct rd_plan *plan, const char *text)
{
    char again[8192], problem[256];
    struct rd_plan read;
    struct rd_out out = rd_out(again, sizeof again), error = rd_out(problem, sizeof problem);
    rd_put(&out, "v=1");
    for (int key = 0; key < RD_KEYS; key++) {
        if (plan->has[key]) {
            rd_put_char(&out, ';');
            rd_put(&out, rd_plan_key((enum rd_key)key));
            rd_put_char(&out, '=');
            rd_plan_value(plan, (enum rd_key)key, &out);
        }
    }
    hold(rd_plan_parse(again, &read, &error), "a plan written again is a plan", again);
    hold(memcmp(plan, &read, sizeof read) == 0, "a plan written again is the same", text);
}

static void check_resolved(const struct rd_plan *plan, const uint8_t *data, size_t size, const char *text)
{
    struct rd_facts facts = {.workers_seen = 1 + (size > 0 ? data[0] % 9 : 0)};
    struct rd_effective found;
    if (size > 1 && data[1] % 4 > 0) {
        facts.knows_cpus = true;
        facts.cpu_count = 1 + data[1];
    }
    if (facts.knows_cpus && size > 3 && data[3] % 4 > 0) {
        struct rd_out words = rd_out(facts.units_words, sizeof facts.units_words);
        facts.units = 1 + data[3] % facts.cpu_count;
        rd_put_number(&words, facts.units);
        rd_put(&words, " physical cores of one type on one NUMA node");
    }
    if (size > 2 && data[2] % 4 > 0) {
        facts.has_quota = true;
        facts.quota_cpus = (data[2] + 1) / 17.0;
    }
    rd_resolve(plan, &facts, &found);
    int64_t intra = rd_plan_get(plan, RD_INTRA_OP, 0), inter = rd_plan_get(plan, RD_INTER_OP, 0);
    hold(found.intra <= intra && (found.intra > 0) == (intra > 0), "intra is never raised and never lost", text);
    hold(found.inter <= inter && (found.inter > 0) == (inter > 0), "inter is never raised and never lost", text);
    hold((found.intra_because[0] != '\0') == (found.intra < intra), "a cut has a reason", text);
    hold(rd_length(found.spin_because) + 1 < sizeof found.spin_because, "a reason is not cut off", text);
    hold(facts.units == 0 || found.cap <= (int)facts.units, "no more threads than there is room for", text);
}

/* On CPUs that the plan may know: as many as it expects to be exclusive. */
static void check_placed(struct rd_plan *plan, const uint8_t *data, size_t size, const char *text)
{
    struct rd_facts facts = {.workers_seen = 1, .knows_cpus = true};
    struct rd_cpus group[16], outside;
    for (size_t i = 0; i < 16 && i < size; i++) {
        rd_cpus_add(&facts.cpus, data[i] % 17);
    }
    facts.cpu_count = rd_cpus_count(&facts.cpus);
    plan->has[RD_EXCLUSIVE_CPUS] = true;
    plan->value[RD_EXCLUSIVE_CPUS] = facts.cpu_count;
    rd_place(plan, &facts);
    hold(facts.units <= facts.cpu_count, "no more threads than CPUs", text);
    int threads = (int)facts.cpu_count;
    if (rd_affinity_groups(plan, &facts.cpus, threads, 1 + data[0] % 2, group)) {
        for (int i = 0; i < threads; i++) {
            outside = group[i];
            rd_cpus_drop(&outside, &facts.cpus);
            hold(rd_cpus_next(&group[i], -1) >= 0, "a worker has a CPU", text);
            hold(rd_cpus_next(&outside, -1) < 0, "a worker's CPUs are the process's", text);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool needs_nothing(const char *name, const char *version)
{
    return rd_length(name) + (version == NULL ? 0 : rd_length(version)) < 2 * MAX_INPUT;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* In memory of its own, so that a read beyond the end is found. */
    char *text = malloc(size + 1);
    char problem[256];
    struct rd_plan plan;
    struct rd_cpus set;
    struct rd_out error = rd_out(problem, sizeof problem);
    memcpy(text, data, size);
    text[size] = '\0';
    if (rd_plan_parse(text, &plan, &error)) {
        check_values(&plan, text);
        check_resolved(&plan, data, size, text);
        check_placed(&plan, data, size, text);
    } else {
        hold(error.length > 0, "a refusal has a reason", text);
    }
    free(text);
    /* These are told the length: nothing ends the bytes. */
    char *bytes = malloc(size > 0 ? size : 1);
    memcpy(bytes, data, size);
    rd_cpus_parse((struct rd_text){bytes, size}, &set);
    rd_elf_fits((const unsigned char *)bytes, size, needs_nothing);
    free(bytes);
    return 0;
}

#ifndef RD_LIBFUZZER
static const char *const seeds[] = {
    "v=1;intra_op=4;inter_op=1;spinning=bounded;spin_duration_us=200;execution_mode=sequential;affinity=numa;exclusive_cpus=4;streams=1;workers=1;existing_values=respect",
    "v=1;intra_op=8;affinity=core;exclusive_cpus=16;numa=single;core_type=performance;smt=1;gpu=1",
    "v=1;exclusive_cpus=4;cpus=0-15;cores=0-7|8-15;nodes=0-3,8-11|4-7,12-15;kinds=0-1|2-7;slow=1;gpu=1;gpu_nodes=1;affinity=core",
    "v=1;exclusive_cpus=4;cpus=0-15;cores=0-14:1/2|1-15:1/2;sockets=0-7|8-15;l3=0-3|4-7|8-15;isolated=2-3;affinity=numa",
    "v=1;intra_op=2;min_intra_op=2;max_intra_op=8;floor=1;omp=2;blas=1;concurrent_runs=4;torch_inter_op=1;gpu=1;observe=runs;allocator=mimalloc",
    "v=1;global_thread_pool=1;global_intra_op=8;shared_allocator=1;cpu_mem_arena=0;mem_pattern=1;arena_shrinkage=1;graph_optimization_level=all;execution_mode=parallel;inter_op=4",
    "v=1;session.intra_op.spin_duration_us=-1;session.dynamic_block_base=4;session.use_env_allocators=1",
    "v=1;cuda.gpu_mem_limit=9999999999999999999;cuda.cudnn_conv_algo_search=HEURISTIC;openvino.num_streams=2",
    "0-3,8,16-31:2/4",
    "ff,00000000,80000001",
    "",
};

static uint64_t state;

static uint64_t next(void)
{
    /* xorshift64*: the same inputs for the same seed, on every machine. */
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * 0x2545f4914f6cdd1dU;
}

static size_t mutate(char *text, size_t length)
{
    static const char marks[] = ";=,-:/._'\"\\ 0123456789vx\x80\xff";
    for (uint64_t rounds = next() % 6; rounds > 0; rounds--) {
        size_t at = length > 0 ? next() % length : 0;
        size_t span = 1 + next() % (next() % 8 == 0 ? 600 : 12);
        switch (next() % 7) {
        case 0: /* cut off */
            length = at;
            break;
        case 1: /* one character is another */
            text[at] = length > 0 ? marks[next() % (sizeof marks - 1)] : text[at];
            break;
        case 2: /* a piece is gone */
            span = span < length - at ? span : length - at;
            memmove(text + at, text + at + span, length - at - span);
            length -= span;
            break;
        case 3: /* a piece is there twice */
            span = span < length - at ? span : length - at;
            if (length + span < MAX_INPUT) {
                memmove(text + at + span, text + at, length - at);
                length += span;
            }
            break;
        case 4: /* any byte */
            text[at] = length > 0 ? (char)next() : text[at];
            break;
        case 5: { /* another plan's part */
            const char *other = seeds[next() % (sizeof seeds / sizeof seeds[0])];
            size_t start = strlen(other) > 0 ? next() % strlen(other) : 0;
            size_t count = strlen(other) - start;
            count = count < span ? count : span;
            if (length + count < MAX_INPUT) {
                memmove(text + at + count, text + at, length - at);
                memcpy(text + at, other + start, count);
                length += count;
            }
            break;
        }
        default: /* one character more */
            if (length + 1 < MAX_INPUT) {
                memmove(text + at + 1, text + at, length - at);
                text[at] = marks[next() % (sizeof marks - 1)];
                length++;
            }
        }
    }
    return length;
}

/* A shared object that needs two others: all that the shim's reader looks at, in as few bytes as possible. */
static size_t small_library(char *text)
{
    static const char strings[] = "\0libc.so.6\0libm.so.6\0GLIBC_2.34";
    struct {
        Elf64_Ehdr elf;
        Elf64_Phdr header[2];
        Elf64_Dyn dynamic[5];
        Elf64_Verneed need;
        Elf64_Vernaux version;
        char strings[sizeof strings];
    } library = {
        .elf = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
                .e_type = ET_DYN,
                .e_machine = MACHINE,
                .e_phoff = sizeof(Elf64_Ehdr),
                .e_phentsize = sizeof(Elf64_Phdr),
                .e_phnum = 2},
        .dynamic = {{.d_tag = DT_STRTAB},
                    {.d_tag = DT_NEEDED, .d_un.d_val = 1},
                    {.d_tag = DT_NEEDED, .d_un.d_val = 11},
                    {.d_tag = DT_VERNEED}},
        .need = {.vn_version = 1, .vn_cnt = 1, .vn_file = 1, .vn_aux = sizeof(Elf64_Verneed)},
        .version = {.vna_name = 21},
    };
    uint64_t dynamic = (uint64_t)((char *)library.dynamic - (char *)&library);
    uint64_t names = (uint64_t)(library.strings - (char *)&library);
    library.header[0] = (Elf64_Phdr){.p_type = PT_LOAD, .p_filesz = names + sizeof strings};
    library.header[1] = (Elf64_Phdr){.p_type = PT_DYNAMIC, .p_offset = dynamic, .p_filesz = sizeof library.dynamic};
    library.dynamic[0].d_un.d_ptr = names;
    library.dynamic[3].d_un.d_ptr = (uint64_t)((char *)&library.need - (char *)&library);
    memcpy(library.strings, strings, sizeof strings);
    memcpy(text, &library, names + sizeof strings);
    return names + sizeof strings;
}

int main(int count, char **arguments)
{
    long inputs = count > 1 ? atol(arguments[1]) : 400000;
    state = (count > 2 ? strtoull(arguments[2], NULL, 10) : 20261121) | 1;
    char *text = calloc(1, MAX_INPUT), *library = calloc(1, MAX_INPUT);
    size_t length = 0, library_length = small_library(library);
    hold(rd_elf_fits((const unsigned char *)library, library_length, needs_nothing), "a library fits", "the example");
    for (long i = 0; i < inputs; i++) {
        if (i % 8 == 7) {
            memcpy(text, library, library_length);
            length = library_length;
        } else if (next() % 4 > 0 || length > 6000) {
            const char *seed = seeds[next() % (sizeof seeds / sizeof seeds[0])];
            length = strlen(seed);
            memcpy(text, seed, length);
        }
        length = mutate(text, length);
        LLVMFuzzerTestOneInput((const uint8_t *)text, length);
    }
    printf("native: %ld inputs, no failure\n", inputs);
    free(text);
    free(library);
    return 0;
}
#endif
