/* Run times of the sessions that the report tells of, where the plan says observe=runs and somebody reads reports: the
 * one case in which a run costs anything. Nobody waits here, and no thread is started: the run that ends ten seconds after
 * the last sample takes the next. */
#include "ort.h"
#include "syscalls.h"

#define SAMPLE_EVERY_NS 10000000000U

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

static void leave(struct rd_runs *runs, const void *session, uint64_t began_ns)
{
    uint64_t now = now_ns(), last = __atomic_load_n(&sampled_ns, __ATOMIC_RELAXED);
    rd_runs_leave(runs, session, now - began_ns);
    if (now - last >= SAMPLE_EVERY_NS
        && __atomic_compare_exchange_n(&sampled_ns, &last, now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
        rd_report_sample();
    }
}

static rd_status timed_run(void *session, const void *options, const void *input_names, const void *inputs,
                           size_t input_count, const void *output_names, size_t output_count, void *outputs)
{
    struct rd_runs *runs = rd_runs_enter(session);
    uint64_t began = now_ns();
    rd_status status = run(session, options, input_names, inputs, input_count, output_names, output_count, outputs);
    leave(runs, session, began);
    return status;
}

static rd_status timed_run_bound(void *session, const void *options, const void *binding)
{
    struct rd_runs *runs = rd_runs_enter(session);
    uint64_t began = now_ns();
    rd_status status = run_bound(session, options, binding);
    leave(runs, session, began);
    return status;
}

void rd_observe_wrap(const void **table)
{
    rd_runs_counted = rd_plan_get(&rd_runtime.plan, RD_OBSERVE, RD_OBSERVE_SESSIONS) == RD_OBSERVE_RUNS
                      && rd_report_wanted();
    if (!rd_runs_counted) {
        return;
    }
    clock = (int (*)(int, int64_t[2]))rd_symbol("clock_gettime", NULL);
    sampled_ns = now_ns();
    run = (run_function)(uintptr_t)table[SLOT_Run];
    run_bound = (bound_function)(uintptr_t)table[SLOT_RunWithBinding];
    table[SLOT_Run] = (const void *)timed_run;
    table[SLOT_RunWithBinding] = (const void *)timed_run_bound;
}
