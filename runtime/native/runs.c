/* Run times of the sessions that the report tells of. */
#include "raddle.h"

#define BUCKETS 64

/* counts[k] are the runs that took at least 2^(k-1) and less than 2^k nanoseconds. */
struct rd_runs {
    const void *session;
    uint64_t counts[BUCKETS];
    int active, high_water;
};

static struct rd_runs kept[RD_MAX_SESSIONS];
bool rd_runs_counted;

struct rd_runs *rd_runs_enter(const void *session)
{
    for (unsigned i = 0; i < RD_MAX_SESSIONS; i++) {
        struct rd_runs *runs = &kept[i];
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

void rd_runs_leave(struct rd_runs *runs, const void *session, uint64_t took_ns)
{
    /* Unless the place was given to another session meanwhile. */
    if (runs != NULL && __atomic_load_n(&runs->session, __ATOMIC_RELAXED) == session) {
        int bucket = took_ns == 0 ? 0 : 64 - __builtin_clzll(took_ns);
        __atomic_fetch_add(&runs->counts[bucket < BUCKETS ? bucket : BUCKETS - 1], 1, __ATOMIC_RELAXED);
        __atomic_fetch_sub(&runs->active, 1, __ATOMIC_RELAXED);
    }
}

void rd_runs_begin(unsigned number, const void *session)
{
    struct rd_runs *runs = &kept[number];
    __builtin_memset(runs, 0, sizeof *runs);
    if (rd_runs_counted) {
        for (unsigned i = 0; i < RD_MAX_SESSIONS; i++) {
            /* One that was released had the same address. */
            kept[i].session = kept[i].session == session ? NULL : kept[i].session;
        }
        __atomic_store_n(&runs->session, session, __ATOMIC_RELAXED);
    }
}

void rd_runs_put(struct rd_out *out, unsigned number)
{
    if (!rd_runs_counted) {
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
