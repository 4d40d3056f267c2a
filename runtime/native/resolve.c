/* The plan against what the container really has: a port of resolve in runtime/raddle/process/resolution.py, which is the
 * reference; tests/contract/test_native_contract.py compares the two. Counts only ever go down. */
#include "raddle.h"

#define DEFAULT_SPIN_US 50

#define MAX_WHERE 112

static int64_t at_least_one(int64_t value)
{
    return value < 1 ? 1 : value;
}

/* The smaller of the quota and `size` CPUs, 0 where neither is known; `words` say what `size` is. */
static int64_t room_of(const struct rd_plan *plan, const struct rd_facts *facts, int64_t size, const char *words,
                       struct rd_out *where)
{
    /* More threads than the quota were planned for one process that serves one request at a time. */
    bool over_quota = rd_plan_get(plan, RD_OVER_QUOTA, 0) != 0 && facts->workers_seen <= rd_plan_get(plan, RD_WORKERS, 1);
    if (!facts->has_quota || over_quota || (size > 0 && facts->quota_cpus >= (double)size)) {
        rd_put(where, words);
        return size;
    }
    rd_put(where, "quota ");
    rd_put_double(where, facts->quota_cpus);
    /* A quota of more CPUs than any machine has limits nothing, and would not fit an integer. */
    double quota = facts->quota_cpus < 1e9 ? facts->quota_cpus : 1e9;
    int64_t whole = (int64_t)quota;
    bool round_up = rd_plan_get(plan, RD_FLOOR, 0) == 0 && (double)whole < quota;
    return at_least_one(whole + round_up);
}

static void put_workers(struct rd_out *where, int64_t workers)
{
    rd_put(where, ", shared by ");
    rd_put_number(where, workers);
    rd_put(where, " workers");
}

static int clamped(const struct rd_plan *plan, enum rd_key key, enum rd_key otherwise, int64_t cap, int64_t least,
                   const char *where, char *because, size_t size)
{
    int64_t planned = rd_plan_get(plan, key, rd_plan_get(plan, otherwise, 0));
    if (planned == 0 || cap == 0 || planned <= cap) {
        return (int)planned;
    }
    /* Never more than planned: `least` above the plan is a plan that contradicts itself. */
    int64_t value = least < planned ? least : planned;
    value = value > cap ? value : cap;
    if (value < planned) {
        struct rd_out out = rd_out(because, size);
        rd_put(&out, "planned ");
        rd_put_number(&out, planned);
        rd_put(&out, ", cut to ");
        rd_put(&out, where);
    }
    return (int)value;
}

static int64_t cpus_of(const struct rd_facts *facts, char *words, size_t size)
{
    struct rd_out affinity = rd_out(words, size);
    rd_put(&affinity, "CPU affinity of ");
    if (!facts->knows_cpus) {
        rd_put(&affinity, "None");
        return 0;
    }
    rd_put_number(&affinity, facts->cpu_count);
    if (facts->owner != NULL) {
        rd_put(&affinity, " (");
        rd_put(&affinity, facts->owner);
        rd_put(&affinity, ")");
    }
    return facts->cpu_count;
}

/* Whether the CPUs are the exclusive ones that the plan expects, or somebody says that they are, and no other stream
 * shares them. */
static bool are_exclusive(const struct rd_plan *plan, const struct rd_facts *facts, int64_t streams)
{
    int64_t planned = rd_plan_get(plan, RD_EXCLUSIVE_CPUS, 0);
    bool expected = planned > 0 && facts->knows_cpus && planned == facts->cpu_count;
    return (expected || facts->owner != NULL) && streams == 1;
}

void rd_resolve_spinning(const struct rd_plan *plan, const struct rd_facts *facts, int intra, int inter, bool parallel,
                         struct rd_effective *found)
{
    char words[64], reason[MAX_WHERE];
    struct rd_out where = rd_out(reason, sizeof reason);
    found->spin = (int)rd_plan_get(plan, RD_SPINNING, -1);
    found->spin_us = 0;
    found->spin_because[0] = '\0';
    if (found->spin != RD_SPINNING_BOUNDED) {
        return;
    }
    /* Threads that want a CPU are counted against CPUs; those of a pool against what they are placed on. */
    int64_t size = cpus_of(facts, words, sizeof words);
    int64_t room = room_of(plan, facts, size, words, &where);
    /* One session's callers, and its pools' workers. */
    int64_t runnable = rd_plan_get(plan, RD_CONCURRENT_RUNS, 1) + at_least_one(intra) - 1;
    runnable += parallel ? at_least_one(inter) - 1 : 0;
    bool oversubscribed = facts->workers_seen > rd_plan_get(plan, RD_WORKERS, 1);
    if (oversubscribed) {
        put_workers(&where, facts->workers_seen);
    }
    if (oversubscribed || (room != 0 && runnable > room)) {
        found->spin = RD_SPINNING_NEVER;
        struct rd_out out = rd_out(found->spin_because, sizeof found->spin_because);
        rd_put(&out, "planned bounded, turned off: ");
        rd_put(&out, reason);
    } else if (rd_plan_get(plan, RD_EXCLUSIVE_SPINNING, -1) == RD_EXCLUSIVE_SPINNING_ALWAYS
               && are_exclusive(plan, facts, rd_plan_get(plan, RD_STREAMS, 1))) {
        found->spin = RD_SPINNING_ALWAYS;
    } else {
        found->spin_us = (int)rd_plan_get(plan, RD_SPIN_DURATION_US, DEFAULT_SPIN_US);
    }
}

void rd_resolve(const struct rd_plan *plan, const struct rd_facts *facts, struct rd_effective *found)
{
    __builtin_memset(found, 0, sizeof *found);
    /* What decided: "quota 1.5, shared by 4 workers". */
    char words[64], reason[MAX_WHERE];
    struct rd_out where = rd_out(reason, sizeof reason);
    int64_t size = cpus_of(facts, words, sizeof words);
    int64_t room = facts->units > 0 ? room_of(plan, facts, facts->units, facts->units_words, &where)
                                    : room_of(plan, facts, size, words, &where);
    char unused[MAX_WHERE];
    struct rd_out nowhere = rd_out(unused, sizeof unused);
    found->capacity = (int)room_of(plan, facts, size, words, &nowhere);
    int64_t workers = rd_plan_get(plan, RD_WORKERS, 1), streams = rd_plan_get(plan, RD_STREAMS, 1);
    bool oversubscribed = facts->workers_seen > workers;
    if (oversubscribed) {
        streams = facts->workers_seen * at_least_one(streams / workers);
        workers = facts->workers_seen;
        put_workers(&where, workers);
    }
    int64_t share = room == 0 ? 0 : at_least_one(room / workers);
    int64_t cap = room == 0 ? 0 : at_least_one(room / streams);
    found->cap = (int)cap;
    int64_t least = rd_plan_get(plan, RD_MIN_INTRA_OP, 1);
    found->intra = clamped(plan, RD_INTRA_OP, RD_INTRA_OP, cap, least, reason, found->intra_because,
                           sizeof found->intra_because);
    found->inter = clamped(plan, RD_INTER_OP, RD_INTER_OP, cap, rd_plan_get(plan, RD_MIN_INTER_OP, 1), reason,
                           found->inter_because, sizeof found->inter_because);
    if (rd_plan_get(plan, RD_GLOBAL_THREAD_POOL, 0) != 0) {
        found->global_intra = clamped(plan, RD_GLOBAL_INTRA_OP, RD_INTRA_OP, share, least, reason,
                                      found->global_because, sizeof found->global_because);
    }
    found->exclusive = are_exclusive(plan, facts, streams);
    bool parallel = rd_plan_get(plan, RD_EXECUTION_MODE, RD_EXECUTION_MODE_SEQUENTIAL) == RD_EXECUTION_MODE_PARALLEL;
    rd_resolve_spinning(plan, facts, found->intra, found->inter, parallel, found);
}
