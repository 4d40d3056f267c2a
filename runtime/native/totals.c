/* What the process and its cgroup have used so far, so that two readings make a rate: totals.py of runtime/raddle, with
 * the same names. */
#include "raddle.h"
#include "syscalls.h"

/* Lines of cpu.stat; of a total that the versions of cgroups spell otherwise, both. */
static const struct {
    const char *line;
    size_t total;
    unsigned divisor;
} lines[] = {
    {"usage_usec", offsetof(struct rd_totals, cpu_us), 1},
    {"nr_periods", offsetof(struct rd_totals, periods), 1},
    {"nr_throttled", offsetof(struct rd_totals, throttled_periods), 1},
    {"throttled_usec", offsetof(struct rd_totals, throttled_us), 1},
    {"throttled_time", offsetof(struct rd_totals, throttled_us), 1000},
};

/* The folder's file into `to`; empty where it can't be read. */
static struct rd_text read_text(const char *folder, const char *name, char *to, size_t size)
{
    char path[4096 + 32];
    struct rd_out out = rd_out(path, sizeof path);
    rd_put(&out, folder);
    rd_put(&out, name);
    long length = folder[0] == '\0' ? -1 : rd_read_file(path, to, size);
    return (struct rd_text){to, length < 0 ? 0 : (size_t)length};
}

static void read_stat(struct rd_text text, struct rd_totals *totals)
{
    for (bool more = true; more;) {
        uint64_t value;
        struct rd_text number, line = rd_split(text, '\n', &text, &more);
        struct rd_text key = rd_split(line, ' ', &number, NULL);
        for (unsigned i = 0; i < sizeof lines / sizeof lines[0]; i++) {
            if (rd_text_is(key, lines[i].line) && rd_number(number, &value)) {
                value /= lines[i].divisor;
                __builtin_memcpy((char *)totals + lines[i].total, &value, sizeof value);
            }
        }
    }
}

/* "some avg10=0.00 avg60=0.00 avg300=0.00 total=77" */
static uint64_t read_pressure(struct rd_text text)
{
    uint64_t found = RD_UNKNOWN;
    struct rd_text line = rd_split(text, '\n', &text, NULL), value;
    if (!rd_text_is(rd_next_word(&line), "some")) {
        return found;
    }
    for (struct rd_text word = rd_next_word(&line); word.length > 0; word = rd_next_word(&line)) {
        if (rd_text_is(rd_split(word, '=', &value, NULL), "total") && !rd_number(value, &found)) {
            found = RD_UNKNOWN;
        }
    }
    return found;
}

void rd_totals_read(const char *folder, struct rd_totals *totals)
{
    char text[8192];
    struct rd_dir dir;
    int64_t used[2] = {0, 0};
    __builtin_memset(totals, 0xff, sizeof *totals);
    if (!rd_failed(rd_syscall(NR_CLOCK_GETTIME, CLOCK_PROCESS_CPUTIME, (long)used, 0, 0, 0, 0))) {
        totals->process_cpu_us = (uint64_t)used[0] * 1000000 + (uint64_t)used[1] / 1000;
    }
    uint64_t tasks = 0;
    for (const char *name = rd_dir_open(&dir, "", "/proc/self/task"); name != NULL; name = rd_dir_next(&dir)) {
        tasks++;
    }
    totals->tasks = tasks > 0 ? tasks : RD_UNKNOWN;
    read_stat(read_text(folder, "/cpu.stat", text, sizeof text), totals);
    if (totals->cpu_us == RD_UNKNOWN) {
        uint64_t used_ns;
        struct rd_text usage = read_text(folder, "/cpuacct.usage", text, sizeof text);
        if (rd_number(rd_next_word(&usage), &used_ns)) {
            totals->cpu_us = used_ns / 1000;
        }
    }
    totals->pressure_us = read_pressure(read_text(folder, "/cpu.pressure", text, sizeof text));
}

static void put(struct rd_out *out, const char *name, uint64_t value)
{
    if (value != RD_UNKNOWN) {
        rd_put(out, out->length > 0 && out->at[out->length - 1] != '{' ? ",\"" : "\"");
        rd_put(out, name);
        rd_put(out, "\":");
        rd_put_unsigned(out, value);
    }
}

void rd_totals_put(struct rd_out *out, const struct rd_totals *totals)
{
    put(out, "processCpuUs", totals->process_cpu_us);
    put(out, "tasks", totals->tasks);
    put(out, "cpuUs", totals->cpu_us);
    put(out, "periods", totals->periods);
    put(out, "throttledPeriods", totals->throttled_periods);
    put(out, "throttledUs", totals->throttled_us);
    put(out, "pressureUs", totals->pressure_us);
}
