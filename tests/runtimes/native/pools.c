/* Takes the descriptions of pools as sessions do that are made at the same time; aborts where one is not its session's
 * own. tests/runtimes/test_native_pools.py builds it with the shim's sources. */
#include "raddle.h"

#include <stdio.h>
#include <stdlib.h>

#define MANY 1000

static void hold(bool condition, const char *what)
{
    if (!condition) {
        fprintf(stderr, "%s\n", what);
        abort();
    }
}

static struct rd_pool *placed_pool(void)
{
    struct rd_pool *pool = rd_pool_take();
    hold(pool != NULL && pool->group == NULL && pool->made == 0, "a pool that is given out is empty");
    pool->placed = 3;
    pool->group = rd_map(sizeof *pool->group * 3);
    rd_cpus_add(&pool->group[2], 5);
    return pool;
}

int main(void)
{
    struct rd_pool *slow = placed_pool(), *taken[MANY];
    struct rd_cpus *group = slow->group;
    for (int i = 0; i < MANY; i++) {
        rd_pool_done(placed_pool());
    }
    hold(slow->group == group && slow->placed == 3 && rd_cpus_has(&group[2], 5), "the slow one keeps its places");
    int count = 0;
    while (count < MANY && (taken[count] = rd_pool_take()) != NULL) {
        hold(taken[count] != slow, "no other session gets the slow one's");
        count++;
    }
    hold(count > 16 && count < MANY, "there is an end, and then none is given out");
    for (int i = 0; i < count; i++) {
        rd_pool_done(taken[i]);
    }
    hold(slow->group == group, "the slow one still has its places");
    rd_pool_done(slow);
    rd_pool_done(placed_pool());
    hold(rd_pool_take() != NULL, "what was given back is given out again");
    rd_threads_forked();
    for (int i = 0; i <= count; i++) {
        hold(rd_pool_take() != NULL, "a child of fork has all of them");
    }
    puts("held");
    return 0;
}
