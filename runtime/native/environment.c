/* The environment: one pair of pools for all sessions of the process, and one arena. ONNX Runtime's environment is one
 * a process, counted; the first to make it decides about its pools. */
#include "ort.h"

#define ENV_OPTIONS_SINCE 24

static int pool_state; /* 0: none, 1: made, -1: does not work */
static bool pool_single_thread;
static int arena_state;
static const void *arena_environment;
/* How often the code has created the environment and not released it: ONNX Runtime counts too, and has one only. */
static int holders;
static struct rd_lock arena_lock;

bool rd_global_pool(void)
{
    return __atomic_load_n(&pool_state, __ATOMIC_ACQUIRE) > 0;
}

bool rd_global_single_thread(void)
{
    return __atomic_load_n(&pool_single_thread, __ATOMIC_ACQUIRE);
}

void rd_global_pool_failed(void)
{
    __atomic_store_n(&pool_state, -1, __ATOMIC_RELEASE);
}

/* Sets what the code has left open on the threading options; the CPU sets stay until `pool` is done. */
static bool fill(void *options, uint64_t code, bool ours, struct rd_pool **pool)
{
    static const int slots[3] = {SLOT_SetGlobalCustomCreateThreadFn, SLOT_SetGlobalCustomThreadCreationOptions,
                                 SLOT_SetGlobalCustomJoinThreadFn};
    struct rd_facts facts;
    struct rd_effective wanted;
    struct rd_options known = rd_options_of(options);
    rd_resolve_now(&facts, &wanted);
    int intra = wanted.global_intra != 0 ? wanted.global_intra : wanted.intra;
    /* An inter-op pool of the machine's size that nobody asked for would only be there. */
    int inter = wanted.inter == 0 && ours ? 1 : wanted.inter;
    bool open_intra = !rd_runtime.respect || rd_code_count(known.intra, intra, wanted.capacity) == 0;
    bool open_inter = !rd_runtime.respect || rd_code_count(known.inter, inter, wanted.capacity) == 0;
    bool done = true;
    __atomic_store_n(&pool_single_thread, intra == 1 && open_intra && known.intra != 1, __ATOMIC_RELEASE);
    if (intra != 0 && open_intra) {
        done = rd_ok(RD_REAL(SetGlobalIntraOpNumThreads, rd_on_number)(options, intra), NULL, 0);
    } else {
        intra = known.intra;
    }
    if (inter != 0 && open_inter) {
        done = done && rd_ok(RD_REAL(SetGlobalInterOpNumThreads, rd_on_number)(options, inter), NULL, 0);
    }
    /* A pool of the environment knows no bounded spinning. */
    if ((wanted.spin == RD_SPINNING_NEVER || wanted.spin == RD_SPINNING_BOUNDED)
        && (!rd_runtime.respect || (code & RD_CODE_SPIN) == 0)) {
        done = done && rd_ok(RD_REAL(SetGlobalSpinControl, rd_on_number)(options, 0), NULL, 0);
    }
    bool code_threads = (code & (RD_CODE_THREADS | RD_CODE_AFFINITY)) != 0;
    if (done && intra > 0 && !code_threads && rd_threads_usable()) {
        const char *because;
        done = rd_use_threads(options, slots, intra, &facts, &wanted, open_intra, pool, &because);
        if (*pool != NULL) {
            (*pool)->global = true;
        }
    }
    return done;
}

static void done_with(struct rd_pool *pool)
{
    if (pool != NULL) {
        rd_pool_done(pool);
    }
}

typedef rd_status (*create_function)(int, const char *, void **);
typedef rd_status (*create_logged_function)(const void *, void *, int, const char *, void **);
typedef rd_status (*create_global_function)(int, const char *, const void *, void **);
typedef rd_status (*create_logged_global_function)(const void *, void *, int, const char *, const void *, void **);

/* Threading options of the plan's; NULL where the plan asks for none, or they can't be made. */
static void *planned_options(struct rd_pool **pool)
{
    void *options = NULL;
    *pool = NULL;
    if (rd_plan_get(&rd_runtime.plan, RD_GLOBAL_THREAD_POOL, 0) == 0
        || rd_plan_get(&rd_runtime.plan, RD_INTRA_OP, 0) == 0
        || (rd_runtime.respect && (rd_runtime.env_counts[0] != 0 || rd_runtime.env_counts[1] != 0))
        || __atomic_load_n(&pool_state, __ATOMIC_ACQUIRE) < 0
        || !rd_ok(RD_REAL(CreateThreadingOptions, rd_on)((void *)&options), NULL, 0)) {
        return NULL;
    }
    if (!fill(options, 0, true, pool)) {
        done_with(*pool);
        RD_REAL(ReleaseThreadingOptions, rd_release)(options);
        return NULL;
    }
    return options;
}

/* After the real function was called with the plan's options: true when the environment is made. */
static bool finish(void *options, struct rd_pool *pool, rd_status status)
{
    char message[200];
    RD_REAL(ReleaseThreadingOptions, rd_release)(options);
    done_with(pool);
    if (rd_ok(status, message, sizeof message)) {
        __atomic_store_n(&pool_state, 1, __ATOMIC_RELEASE);
        return true;
    }
    char text[300];
    struct rd_out line = rd_out(text, sizeof text);
    rd_put(&line, "onnxruntime environment is created without a global pool: ");
    rd_put(&line, message);
    rd_complain(text);
    return false;
}

/* Counts an environment that was made. */
static rd_status counted(rd_status status)
{
    if (status == NULL && rd_try_lock(&arena_lock)) {
        holders++;
        rd_unlock(&arena_lock);
    }
    return status;
}

static void release_env(void *environment)
{
    if (environment != NULL && rd_try_lock(&arena_lock)) {
        holders -= holders > 0;
        if (holders == 0) {
            /* The next one may have this one's address, and has no arena yet. */
            arena_environment = NULL;
            __atomic_store_n(&arena_state, 0, __ATOMIC_RELEASE);
        }
        rd_unlock(&arena_lock);
    }
    RD_REAL(ReleaseEnv, rd_release)(environment);
}

void rd_environment_drop(void)
{
    __atomic_store_n(&pool_state, 0, __ATOMIC_RELEASE);
    __atomic_store_n(&pool_single_thread, false, __ATOMIC_RELEASE);
    if (rd_try_lock(&arena_lock)) {
        arena_environment = NULL;
        __atomic_store_n(&arena_state, 0, __ATOMIC_RELEASE);
        holders = 0;
        rd_unlock(&arena_lock);
    }
}

static rd_status create_env(int level, const char *id, void **out)
{
    struct rd_pool *pool;
    void *options = planned_options(&pool);
    if (options != NULL) {
        rd_status status = RD_REAL(CreateEnvWithGlobalThreadPools, create_global_function)(level, id, options, out);
        if (finish(options, pool, status)) {
            return counted(NULL);
        }
    }
    return counted(RD_REAL(CreateEnv, create_function)(level, id, out));
}

static rd_status create_env_logged(const void *function, void *parameter, int level, const char *id, void **out)
{
    struct rd_pool *pool;
    void *options = planned_options(&pool);
    if (options != NULL) {
        rd_status status = RD_REAL(CreateEnvWithCustomLoggerAndGlobalThreadPools, create_logged_global_function)(
            function, parameter, level, id, options, out);
        if (finish(options, pool, status)) {
            return counted(NULL);
        }
    }
    return counted(RD_REAL(CreateEnvWithCustomLogger, create_logged_function)(function, parameter, level, id, out));
}

/* The code makes global pools itself: what it has left open is the plan's. */
static struct rd_pool *fill_code(const void *options)
{
    struct rd_pool *pool = NULL;
    if (options != NULL) {
        fill((void *)(uintptr_t)options, rd_options_of(options).code, false, &pool);
    }
    return pool;
}

static rd_status create_env_global(int level, const char *id, const void *options, void **out)
{
    struct rd_pool *pool = fill_code(options);
    rd_status status = RD_REAL(CreateEnvWithGlobalThreadPools, create_global_function)(level, id, options, out);
    done_with(pool);
    if (status == NULL) {
        __atomic_store_n(&pool_state, 1, __ATOMIC_RELEASE);
    }
    return counted(status);
}

static rd_status create_env_logged_global(const void *function, void *parameter, int level, const char *id,
                                          const void *options, void **out)
{
    struct rd_pool *pool = fill_code(options);
    rd_status status = RD_REAL(CreateEnvWithCustomLoggerAndGlobalThreadPools, create_logged_global_function)(
        function, parameter, level, id, options, out);
    done_with(pool);
    if (status == NULL) {
        __atomic_store_n(&pool_state, 1, __ATOMIC_RELEASE);
    }
    return counted(status);
}

/* OrtEnvCreationOptions as of 1.24; later versions may be longer. */
struct env_creation_options {
    uint32_t version;
    int32_t level;
    const char *id;
    const void *logger;
    void *parameter;
    const void *threading;
    const void *entries;
};
typedef rd_status (*create_with_function)(const void *, void **);

static rd_status create_env_with(const struct env_creation_options *given, void **out)
{
    create_with_function real = RD_REAL(CreateEnvWithOptions, create_with_function);
    struct rd_pool *pool;
    if (given == NULL || given->version < ENV_OPTIONS_SINCE) {
        return counted(real(given, out));
    }
    if (given->threading != NULL) {
        pool = fill_code(given->threading);
        rd_status status = real(given, out);
        done_with(pool);
        if (status == NULL) {
            __atomic_store_n(&pool_state, 1, __ATOMIC_RELEASE);
        }
        return counted(status);
    }
    /* What later versions have added behind the part that is known here is copied too, up to the end of the page. */
    union {
        struct env_creation_options known;
        char bytes[256];
    } copy = {.bytes = {0}};
    uintptr_t end = (((uintptr_t)given + sizeof *given - 1) | 4095) + 1;
    size_t size = end - (uintptr_t)given < sizeof copy ? end - (uintptr_t)given : sizeof copy;
    __builtin_memcpy(copy.bytes, given, size);
    if (size < sizeof copy) {
        copy.known.version = ENV_OPTIONS_SINCE;
    }
    void *options = planned_options(&pool);
    if (options != NULL) {
        copy.known.threading = options;
        if (finish(options, pool, real(&copy, out))) {
            return counted(NULL);
        }
    }
    return counted(real(given, out));
}

/* ---- the shared arena ---- */

typedef rd_status (*register_function)(const void *, const void *, const void *);

static bool make_arena(const void *environment)
{
    void *memory = NULL, *arena = NULL;
    /* OrtArenaAllocator, OrtMemTypeDefault; no limit and the runtime's own defaults. */
    bool done = rd_ok(RD_REAL(CreateCpuMemoryInfo, rd_status(*)(int, int, void **))(1, 0, &memory), NULL, 0)
                && rd_ok(RD_REAL(CreateArenaCfg, rd_status(*)(size_t, int, int, int, void **))(0, -1, -1, -1, &arena),
                         NULL, 0)
                && rd_ok(RD_REAL(CreateAndRegisterAllocator, register_function)(environment, memory, arena), NULL, 0);
    if (arena != NULL) {
        RD_REAL(ReleaseArenaCfg, rd_release)(arena);
    }
    if (memory != NULL) {
        RD_REAL(ReleaseMemoryInfo, rd_release)(memory);
    }
    return done;
}

bool rd_shared_arena(const void *environment)
{
    int state = -1;
    if (environment != NULL && rd_try_lock(&arena_lock)) {
        if (arena_environment != environment) {
            /* Made with the environment's first session: an application that makes its own has done so by then. */
            arena_environment = environment;
            __atomic_store_n(&arena_state, make_arena(environment) ? 1 : -1, __ATOMIC_RELEASE);
        }
        state = arena_state;
        rd_unlock(&arena_lock);
    }
    return state > 0;
}

static rd_status register_allocator(const void *environment, const void *memory, const void *arena)
{
    rd_status status = RD_REAL(CreateAndRegisterAllocator, register_function)(environment, memory, arena);
    if (status != NULL && environment == arena_environment && __atomic_load_n(&arena_state, __ATOMIC_ACQUIRE) > 0) {
        rd_ok(status, NULL, 0);
        rd_complain("onnxruntime's CreateAndRegisterAllocator comes too late: the process has a shared arena");
        return NULL;
    }
    return status;
}

void rd_environment_wrap(const void **table)
{
    table[SLOT_CreateEnv] = (const void *)create_env;
    table[SLOT_CreateEnvWithCustomLogger] = (const void *)create_env_logged;
    table[SLOT_CreateEnvWithGlobalThreadPools] = (const void *)create_env_global;
    table[SLOT_CreateEnvWithCustomLoggerAndGlobalThreadPools] = (const void *)create_env_logged_global;
    table[SLOT_ReleaseEnv] = (const void *)release_env;
    table[SLOT_CreateAndRegisterAllocator] = (const void *)register_allocator;
    if (rd_runtime.minor >= ENV_OPTIONS_SINCE) {
        table[SLOT_CreateEnvWithOptions] = (const void *)create_env_with;
    }
}
