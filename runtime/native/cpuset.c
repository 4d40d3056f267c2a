/* Sets of CPUs as bits, and the kernel's list text: a port of runtime/raddle/cpus/cpuset.py up to 8192 CPUs, Linux's own
 * limit. lib/bitmap.c defines the text. */
#include "raddle.h"

/* cpuset.MAX_CPUS. */
#define MOST_CPUS 65536

static struct rd_text stripped(struct rd_text text)
{
    while (text.length > 0 && (*text.at == ' ' || (*text.at >= '\t' && *text.at <= '\r'))) {
        text.at++;
        text.length--;
    }
    while (text.length > 0) {
        char last = text.at[text.length - 1];
        if (last != ' ' && last != '\0' && !(last >= '\t' && last <= '\r')) {
            break;
        }
        text.length--;
    }
    return text;
}

static bool number_below(unsigned bound, struct rd_text text, uint64_t *number)
{
    text = stripped(text);
    return text.length < 10 && rd_number(text, number) && *number < bound;
}

static bool cpu_id(struct rd_text text, uint64_t *cpu)
{
    return number_below(RD_MAX_CPUS, text, cpu);
}

static bool add_range(struct rd_text part, struct rd_cpus *set)
{
    struct rd_text stride, last_text;
    bool dash, has_stride, slash;
    uint64_t first, last, used = 1, group = 1;
    struct rd_text span = rd_split(part, ':', &stride, &has_stride);
    struct rd_text first_text = rd_split(span, '-', &last_text, &dash);
    if (!cpu_id(first_text, &first)) {
        return false;
    }
    last = first;
    if (dash && !cpu_id(last_text, &last)) {
        return false;
    }
    if (last < first) {
        return false;
    }
    if (stride.length > 0) {
        struct rd_text group_text;
        struct rd_text used_text = rd_split(stride, '/', &group_text, &slash);
        if (!number_below(MOST_CPUS, used_text, &used) || !number_below(MOST_CPUS, group_text, &group) || !slash
            || !dash || group == 0 || used > group) {
            return false;
        }
    }
    for (uint64_t cpu = first; cpu <= last; cpu++) {
        if ((cpu - first) % group < used) {
            rd_cpus_add(set, (int)cpu);
        }
    }
    return true;
}

/* "0-3,8" as a set; "" and "(null)" are the empty set. False for anything else that is no list. */
bool rd_cpus_parse(struct rd_text text, struct rd_cpus *set)
{
    __builtin_memset(set, 0, sizeof *set);
    text = stripped(text);
    if (text.length == 0 || rd_text_is(text, "(null)")) {
        return true;
    }
    for (bool more = true; more;) {
        if (!add_range(rd_split(text, ',', &text, &more), set)) {
            return false;
        }
    }
    return true;
}

void rd_cpus_keep(struct rd_cpus *set, const struct rd_cpus *other)
{
    for (unsigned i = 0; i < RD_MAX_CPUS / 64; i++) {
        set->word[i] &= other->word[i];
    }
}

void rd_cpus_drop(struct rd_cpus *set, const struct rd_cpus *other)
{
    for (unsigned i = 0; i < RD_MAX_CPUS / 64; i++) {
        set->word[i] &= ~other->word[i];
    }
}

void rd_cpus_join(struct rd_cpus *set, const struct rd_cpus *other)
{
    for (unsigned i = 0; i < RD_MAX_CPUS / 64; i++) {
        set->word[i] |= other->word[i];
    }
}

bool rd_cpus_overlap(const struct rd_cpus *one, const struct rd_cpus *other)
{
    uint64_t both = 0;
    for (unsigned i = 0; i < RD_MAX_CPUS / 64; i++) {
        both |= one->word[i] & other->word[i];
    }
    return both != 0;
}

unsigned rd_cpus_count(const struct rd_cpus *set)
{
    unsigned count = 0;
    for (unsigned i = 0; i < RD_MAX_CPUS / 64; i++) {
        /* Not __builtin_popcountl: that is a function of libgcc where the CPU may lack the instruction. */
        for (uint64_t word = set->word[i]; word != 0; word &= word - 1) {
            count++;
        }
    }
    return count;
}

/* The lowest CPU of the set above `after` (-1: the lowest); -1 where there is none. */
int rd_cpus_next(const struct rd_cpus *set, int after)
{
    for (int cpu = after + 1; cpu < RD_MAX_CPUS;) {
        uint64_t rest = set->word[cpu / 64] >> (cpu % 64);
        if (rest != 0) {
            return cpu + __builtin_ctzl(rest);
        }
        cpu = (cpu / 64 + 1) * 64;
    }
    return -1;
}

void rd_cpus_put(struct rd_out *out, const struct rd_cpus *set, int base)
{
    bool first = true;
    for (int cpu = rd_cpus_next(set, -1); cpu >= 0;) {
        int last = cpu;
        while (rd_cpus_has(set, last + 1)) {
            last++;
        }
        rd_put(out, first ? "" : ",");
        rd_put_number(out, cpu + base);
        if (last > cpu) {
            rd_put_char(out, '-');
            rd_put_number(out, last + base);
        }
        first = false;
        cpu = rd_cpus_next(set, last);
    }
}
