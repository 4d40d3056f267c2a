/* Run times of the sessions that the report tells of, where the plan says observe=runs and somebody reads reports: the
 * one case in which a run costs anything. Nobody waits here, and no thread is started: the run that ends ten seconds after
 * the last sample takes the next. */
#include "ort.h"
#include "syscalls.h"

#define BUCKETS 64
#define SAMPLE_EVERY_NS 10000000000U

/* counts[k] are the runs that took at least 2^(k-1) and less than 2^k nanoseconds. */
struct runs {
    const void *session;
    uint64_t counts[BUCKETS];
    int active, high_water;
};

static struct runs kept[RD_MAX_SESSIONS];
static bool counting;
static uint64_t sampled_ns;
/* The libc's own, which needs no system call; NULL where it has none. */
static int (*clock)(int, int64_t[2]);

typedef rd_status (*run_function)(void *, const void *, const void *, const void *, size_t, const void *, size_t,
                                  void *);
typedef rd_status (*bound_function)(void *, const void *, const void *);
static run_function run;
static bound_function run_bound;

static uint64_t now_ns(void)
{
    int64_t now[2] = {0, 0};
    if (clock == NULL || clock(CLOCK_MONOTONIC, now) != 0) {
        rd_syscall(NR_CLOCK_GETTIME, CLOCK_MONOTONIC, (long)now, 0, 0, 0, 0);
    }
    return (uint64_t)now[0] * 1000000000 + (uint64_t)now[1];
}

/* The session's place, NULL where the report does not tell of it. */
static struct runs *enter(const void *session)
{
    for (unsigned i = 0; i < RD_MAX_SESSIONS; i++) {
        struct runs *runs = &kept[i];
        if (__atomic_load_n(&runs->session, __ATOMIC_RELAXED) == session) {
            int active = __atomic_add_fetch(&runs->active, 1, __ATOMIC_RELAXED);
            if (active > __atomic_load_n(&runs->high_water, __ATOMIC_RELAXED)) {
                /* A count may be lost where threads meet. */
                __atomic_store_n(&runs->high_water, active, __ATOMIC_RELAXED);
            }
            return runs;
        }
    }
    return NULL;
}

static void leave(struct runs *runs, const void *session, uint64_t began_ns)
{
    uint64_t now = now_ns(), took = now - began_ns, last = __atomic_load_n(&sampled_ns, __ATOMIC_RELAXED);
    /* Unless the place was given to another session meanwhile. */
    if (runs != NULL && __atomic_load_n(&runs->session, __ATOMIC_RELAXED) == session) {
        int bucket = took == 0 ? 0 : 64 - __builtin_clzll(took);
        __atomic_fetch_add(&runs->counts[bucket < BUCKETS ? bucket : BUCKETS - 1], 1, __ATOMIC_RELAXED);
        __atomic_fetch_sub(&runs->active, 1, __ATOMIC_RELAXED);
    }
    if (now - last >= SAMPLE_EVERY_NS
        && __atomic_compare_exchange_n(&sampled_ns, &last, now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
        rd_report_sample();
    }
}

static rd_status timed_run(void *session, const void *options, const void *input_names, const void *inputs,
                           size_t input_count, const void *output_names, size_t output_count, void *outputs)
{
    struct runs *runs = enter(session);
    uint64_t began = now_ns();
    rd_status status = run(session, options, input_names, inputs, input_count, output_names, output_count, outputs);
    leave(runs, session, began);
    return status;
}

static rd_status timed_run_bound(void *session, const void *options, const void *binding)
{
    struct runs *runs = enter(session);
    uint64_t began = now_ns();
    rd_status status = run_bound(session, options, binding);
    leave(runs, session, began);
    return status;
}

void rd_runs_begin(unsigned number, const void *session)
{
    struct runs *runs = &kept[number];
    __builtin_memset(runs, 0, sizeof *runs);
    if (counting) {
        for (unsigned i = 0; i < RD_MAX_SESSIONS; i++) {
            /* One that was released had the same address. */
            kept[i].session = kept[i].session == session ? NULL : kept[i].session;
        }
        __atomic_store_n(&runs->session, session, __ATOMIC_RELAXED);
    }
}

void rd_runs_put(struct rd_out *out, unsigned number)
{
    if (!counting) {
        return;
    }
    bool first = true;
    rd_put(out, ",\"runs\":{\"log2ns\":{");
    for (unsigned i = 0; i < BUCKETS; i++) {
        uint64_t count = __atomic_load_n(&kept[number].counts[i], __ATOMIC_RELAXED);
        if (count > 0) {
            rd_put(out, first ? "\"" : ",\"");
            rd_put_unsigned(out, i);
            rd_put(out, "\":");
            rd_put_unsigned(out, count);
            first = false;
        }
    }
    rd_put(out, "},\"highWater\":");
    rd_put_number(out, kept[number].high_water);
    rd_put_char(out, '}');
}

void rd_observe_wrap(const void **table)
{
    counting = rd_plan_get(&rd_runtime.plan, RD_OBSERVE, RD_OBSERVE_SESSIONS) == RD_OBSERVE_RUNS && rd_report_wanted();
    if (!counting) {
        return;
    }
    clock = (int (*)(int, int64_t[2]))rd_symbol("clock_gettime", NULL);
    sampled_ns = now_ns();
    run = (run_function)(uintptr_t)table[SLOT_Run];
    run_bound = (bound_function)(uintptr_t)table[SLOT_RunWithBinding];
    table[SLOT_Run] = (const void *)timed_run;
    table[SLOT_RunWithBinding] = (const void *)timed_run_bound;
}
