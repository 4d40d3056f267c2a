/* Thread pools of the runtime: their workers' functions are ours, and the CPUs that the plan has for each. */
#include "ort.h"

bool rd_use_threads(void *options, const int slots[3], int intra, const struct rd_facts *facts,
                    const struct rd_effective *wanted, bool planned, struct rd_pool **out, const char **because)
{
    *because = "";
    int affinity = (int)rd_plan_get(&rd_runtime.plan, RD_AFFINITY, RD_AFFINITY_NONE);
    struct rd_pool *pool = *out = rd_pool_take();
    if (pool == NULL) {
        *because = "too many sessions are being made at once";
        return true;
    }
    pool->intra_workers = intra - 1;
    if (affinity != RD_AFFINITY_NONE && intra > 1) {
        if (!wanted->exclusive) {
            *because = "the CPUs are not the exclusive ones that were planned";
        } else if (affinity == RD_AFFINITY_CORE && rd_threads_pinned() > 0) {
            *because = "the workers of another session are pinned to these cores";
        } else {
            pool->placed = intra - 1;
            pool->group = rd_map(sizeof *pool->group * (size_t)intra);
            if (pool->group == NULL
                || !rd_affinity_groups(&rd_runtime.plan, &facts->cpus, intra, affinity, pool->group)) {
                rd_unmap(pool->group, sizeof *pool->group * (size_t)intra);
                pool->group = NULL;
                pool->placed = 0;
                *because = "no groups for so many threads on these CPUs";
            }
        }
    }
    pool->core = pool->placed > 0 && affinity == RD_AFFINITY_CORE;
    if (planned && facts->bound) {
        /* ONNX Runtime's own count has workers everywhere; one that the code has chosen was for its own thread. */
        if (pool->group == NULL && (pool->group = rd_map(sizeof *pool->group)) != NULL) {
            pool->group[0] = facts->cpus;
        }
        pool->whole = pool->group == NULL ? NULL : &pool->group[pool->placed];
    }
    const void *const values[3] = {(const void *)rd_thread_create, pool, (const void *)rd_thread_join};
    for (int i = 0; i < 3; i++) {
        if (!rd_ok(((rd_on_pointer)(uintptr_t)rd_real[slots[i]])(options, values[i]), NULL, 0)) {
            return false;
        }
    }
    return true;
}

bool rd_put_groups(struct rd_out *out, const struct rd_pool *pool, int workers, const struct rd_cpus *every)
{
    for (int i = 0; i < workers; i++) {
        rd_put(out, i > 0 ? ";" : "");
        rd_cpus_put(out, i < pool->placed ? &pool->group[i] : every, 1);
    }
    return out->length + 1 < out->size;
}
