/* Makes a pool as ONNX Runtime would, with the caller kept to the pool's CPUs meanwhile, for test_native_contract.py.
 *
 *     pool CPU CPU     -> the CPUs of: the caller before, meanwhile and after; the pinned worker; the thread that is not pinned
 */
#define _GNU_SOURCE
#include "raddle.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

static cpu_set_t told[2];

static void note(void *set)
{
    sched_getaffinity(0, sizeof(cpu_set_t), set);
}

static void say(const char *name, const cpu_set_t *set)
{
    printf("%s", name);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, set)) {
            printf(" %d", cpu);
        }
    }
    puts("");
}

int main(int count, char **arguments)
{
    if (count != 3) {
        return 2;
    }
    cpu_set_t own;
    struct rd_facts facts = {.knows_cpus = true};
    struct rd_cpus group[2] = {{{0}}};
    rd_cpus_add(&facts.cpus, atoi(arguments[1]));
    rd_cpus_add(&facts.cpus, atoi(arguments[2]));
    rd_cpus_add(&group[0], atoi(arguments[1]));
    group[1] = group[0];
    struct rd_pool pool = {.intra_workers = 1, .placed = 1, .group = group};
    if (!rd_threads_usable()) {
        return 3;
    }
    note(&own);
    say("before", &own);
    rd_pool_enter(&pool, &facts);
    note(&own);
    say("meanwhile", &own);
    void *threads[] = {rd_thread_create(&pool, note, &told[0]), rd_thread_create(&pool, note, &told[1])};
    rd_pool_leave(&pool);
    note(&own);
    say("after", &own);
    for (int i = 0; i < 2; i++) {
        rd_thread_join(threads[i]);
        say(i == 0 ? "pinned" : "free", &told[i]);
    }
    return 0;
}
