/* Pool threads: ONNX Runtime asks these functions for each worker, so that it gets a name, and a place where the plan
 * has one. pthread_create and pthread_join are the process's own, of whichever libc; name and place are system calls
 * that the new thread makes for itself. */
#include "raddle.h"
#include "syscalls.h"

#define PR_SET_NAME 15

#define STARTS 64
#define POOLS 64

/* What a thread that has not run yet is to do. */
struct start {
    int used;
    rd_worker worker;
    void *parameter;
    char name[16];
    bool placed;
    bool core;
    struct rd_cpus cpus;
};

static struct start starts[STARTS];
static struct rd_pool pools[POOLS];
static int pools_used[POOLS];
/* Every CPU there can be; filled at its first use, with the same bytes by the first to come. */
static struct rd_cpus all_cpus;
static int pinned;

typedef int (*pthread_create_function)(void **thread, const void *attributes, void *(*run)(void *), void *argument);
typedef int (*pthread_join_function)(void *thread, void **result);
static pthread_create_function pthread_create_found;
static pthread_join_function pthread_join_found;

bool rd_threads_usable(void)
{
    if (__atomic_load_n(&pthread_join_found, __ATOMIC_ACQUIRE) == NULL) {
        /* pthread_t is a word that is never 0 in both libcs: an address. */
        pthread_create_found = (pthread_create_function)rd_symbol("pthread_create", NULL);
        pthread_join_function join = (pthread_join_function)rd_symbol("pthread_join", NULL);
        if (pthread_create_found != NULL) {
            __atomic_store_n(&pthread_join_found, join, __ATOMIC_RELEASE);
        }
    }
    return __atomic_load_n(&pthread_join_found, __ATOMIC_ACQUIRE) != NULL;
}

struct rd_pool *rd_pool_take(void)
{
    /* Not in turn: many sessions may be made and gone while one loads a large model. */
    for (int i = 0; i < POOLS; i++) {
        if (__atomic_exchange_n(&pools_used[i], 1, __ATOMIC_ACQUIRE) == 0) {
            __builtin_memset(&pools[i], 0, sizeof pools[i]);
            return &pools[i];
        }
    }
    return NULL;
}

int rd_threads_pinned(void)
{
    return __atomic_load_n(&pinned, __ATOMIC_RELAXED);
}

void rd_threads_forked(void)
{
    /* The parent's threads do not exist here. */
    __atomic_store_n(&pinned, 0, __ATOMIC_RELAXED);
    for (int i = 0; i < STARTS; i++) {
        __atomic_store_n(&starts[i].used, 0, __ATOMIC_RELEASE);
    }
    for (int i = 0; i < POOLS; i++) {
        __atomic_store_n(&pools_used[i], 0, __ATOMIC_RELEASE);
    }
}

static bool run_on(const struct rd_cpus *cpus)
{
    return !rd_failed(rd_syscall(NR_SCHED_SETAFFINITY, 0, sizeof *cpus, (long)cpus, 0, 0, 0));
}

/* Whether these are the CPUs of the calling thread. */
static bool runs_on(const struct rd_cpus *cpus)
{
    struct rd_cpus now = {{0}};
    if (rd_failed(rd_syscall(NR_SCHED_GETAFFINITY, 0, sizeof now, (long)&now, 0, 0, 0))) {
        return false;
    }
    rd_cpus_drop(&now, cpus);
    return rd_cpus_count(&now) == 0;
}

static void *run(void *argument)
{
    struct start *start = argument;
    rd_worker worker = start->worker;
    void *parameter = start->parameter;
    bool core = start->core;
    rd_syscall(NR_PRCTL, PR_SET_NAME, (long)start->name, 0, 0, 0, 0);
    if (start->placed) {
        run_on(&start->cpus);
    }
    __atomic_store_n(&start->used, 0, __ATOMIC_RELEASE);
    worker(parameter);
    if (core) {
        __atomic_fetch_sub(&pinned, 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

static struct start *take_start(void)
{
    for (int tries = 0; tries < 1000; tries++) {
        for (int i = 0; i < STARTS; i++) {
            if (__atomic_exchange_n(&starts[i].used, 1, __ATOMIC_ACQUIRE) == 0) {
                return &starts[i];
            }
        }
        rd_syscall(NR_SCHED_YIELD, 0, 0, 0, 0, 0, 0);
    }
    return NULL;
}

static void put_name(char *name, size_t size, const struct rd_pool *pool, int number)
{
    struct rd_out out = rd_out(name, size);
    bool intra = number <= pool->intra_workers;
    rd_put(&out, pool->global ? (intra ? "ort-gintra/" : "ort-ginter/") : (intra ? "ort-intra/" : "ort-inter/"));
    rd_put_number(&out, intra ? number : number - pool->intra_workers);
}

void *rd_thread_create(void *options, rd_worker worker, void *parameter)
{
    struct rd_pool *pool = options;
    void *thread = NULL;
    struct start *start = pool == NULL ? NULL : take_start();
    if (start == NULL) {
        /* A thread without a name is better than none. The result of a function that returns nothing is not looked
         * at: nobody asks pthread_join for it. */
        return pthread_create_found(&thread, NULL, (void *(*)(void *))(void (*)(void))worker, parameter) == 0 ? thread
                                                                                                                : NULL;
    }
    int number = __atomic_add_fetch(&pool->made, 1, __ATOMIC_RELAXED);
    start->worker = worker;
    start->parameter = parameter;
    put_name(start->name, sizeof start->name, pool, number);
    start->placed = pool->group != NULL && number <= pool->placed && number <= pool->intra_workers;
    start->core = start->placed && pool->core;
    if (start->placed) {
        start->cpus = pool->group[number - 1];
    } else if (pool->whole != NULL) {
        start->cpus = *pool->whole;
        start->placed = true;
    }
    if (start->core) {
        __atomic_fetch_add(&pinned, 1, __ATOMIC_RELAXED);
    }
    bool core = start->core;
    if (pthread_create_found(&thread, NULL, run, start) != 0) {
        __atomic_store_n(&start->used, 0, __ATOMIC_RELEASE);
        if (core) {
            __atomic_fetch_sub(&pinned, 1, __ATOMIC_RELAXED);
        }
        return NULL;
    }
    return thread;
}

void rd_thread_join(void *handle)
{
    void *result;
    pthread_join_found(handle, &result);
}

void rd_pool_enter(struct rd_pool *pool, const struct rd_facts *facts)
{
    /* Where `whole` is known, the thread is bound to fewer CPUs, and stays there. */
    if (pool == NULL || pool->placed == 0 || pool->whole != NULL) {
        return;
    }
    struct rd_cpus outside = facts->cpus;
    rd_cpus_drop(&outside, &pool->group[pool->placed]);
    if (rd_cpus_count(&outside) == 0) {
        return;
    }
    /* A thread that was never told where to run follows its container through a resize, and has to do so again: since
     * Linux 6.2 the kernel remembers what a thread asked for. */
    __builtin_memset(&all_cpus, 0xff, sizeof all_cpus);
    bool is_free = run_on(&all_cpus) && runs_on(&facts->cpus);
    if (run_on(&pool->group[pool->placed])) {
        pool->whole = is_free ? &all_cpus : &facts->cpus;
        pool->entered = true;
    } else if (!is_free) {
        run_on(&facts->cpus);
    }
}

void rd_pool_leave(struct rd_pool *pool)
{
    if (pool != NULL && pool->entered && !run_on(pool->whole)) {
        /* The container was moved meanwhile: all that it has now. */
        run_on(&all_cpus);
    }
}

void rd_pool_done(struct rd_pool *pool)
{
    struct rd_cpus *group = pool->group;
    pool->group = NULL;
    rd_unmap(group, sizeof *group * (size_t)(pool->placed + 1));
    __atomic_store_n(&pools_used[pool - pools], 0, __ATOMIC_RELEASE);
}
