/* What holds in this process now, and what the plan comes to with it: for each session that is made. */
#include "ort.h"

/* Facts are read again for a session that comes later than this: an in-place resize changes the quota. */
#define FACTS_AGE_MS 10000

static struct rd_lock facts_lock;
static struct rd_facts kept_facts;
static uint64_t facts_at_ms;
static int facts_pid;

static void forked(void)
{
    int living = rd_sessions_living();
    if (facts_pid != 0 && living > 0) {
        char text[200];
        struct rd_out line = rd_out(text, sizeof text);
        rd_put(&line, "this process was forked after ");
        rd_put_number(&line, living);
        rd_put(&line, " onnxruntime session(s) had been created; their threads do not exist in it: create sessions "
                      "after the fork");
        rd_complain(text);
    }
    rd_sessions_forked();
    rd_threads_forked();
}

/* The units of the CPUs; read again only where these are others than before. */
static void place(struct rd_facts *facts, const struct rd_facts *before)
{
    if (before->units > 0 && before->owner == facts->owner
        && __builtin_memcmp(&before->cpus, &facts->cpus, sizeof facts->cpus) == 0) {
        facts->units = before->units;
        __builtin_memcpy(facts->units_words, before->units_words, sizeof facts->units_words);
    } else {
        rd_place(&rd_runtime.plan, facts);
    }
}

void rd_resolve_now(struct rd_facts *facts, struct rd_effective *wanted)
{
    int pid = rd_pid();
    uint64_t now = rd_now_ms();
    rd_read_counts();
    if (rd_try_lock(&facts_lock)) {
        if (facts_pid != pid) {
            forked();
        }
        *facts = kept_facts;
        if (facts_pid != pid || now - facts_at_ms > FACTS_AGE_MS) {
            rd_facts_read(&rd_runtime.plan, &kept_facts, true);
            facts_at_ms = now;
            facts_pid = pid;
        } else {
            rd_facts_refresh(&rd_runtime.plan, &kept_facts);
        }
        place(&kept_facts, facts);
        *facts = kept_facts;
        rd_unlock(&facts_lock);
    } else {
        rd_facts_read(&rd_runtime.plan, facts, false);
        rd_place(&rd_runtime.plan, facts);
    }
    rd_resolve(&rd_runtime.plan, facts, wanted);
}
