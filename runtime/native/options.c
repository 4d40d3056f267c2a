/* What the code sets on its options objects. ONNX Runtime has no way to ask for counts, so each setter is wrapped and
 * remembered by the object's address, through Clone and Release. Config entries can be asked for and are not kept. */
#include "ort.h"

/* An object is looked for in this many places from where its address hashes to. */
#define PLACES 2048
#define PROBES 32

static struct rd_options objects[PLACES];
static struct rd_lock lock;
/* An object could not be kept: until none lives, one that isn't found may be it. */
static bool overflowed;
static int living_options;
static int living;

static struct rd_options *place(const void *object, bool make)
{
    uint64_t hash = ((uint64_t)(uintptr_t)object >> 4) * 0x9e3779b97f4a7c15U >> 40;
    struct rd_options *free = NULL;
    for (unsigned i = 0; i < PROBES; i++) {
        struct rd_options *one = &objects[(hash + i) % PLACES];
        if (one->object == object) {
            return one;
        }
        if (one->object == NULL && free == NULL) {
            free = one;
        }
    }
    if (make && free != NULL) {
        *free = (struct rd_options){.object = object};
        return free;
    }
    return NULL;
}

struct rd_options rd_options_of(const void *object)
{
    struct rd_options found = {.object = object};
    if (object == NULL) {
        return found;
    }
    if (!rd_try_lock(&lock)) {
        found.code = RD_CODE_UNKNOWN;
        return found;
    }
    const struct rd_options *kept = place(object, false);
    if (kept != NULL) {
        found = *kept;
    } else if (overflowed) {
        found.code = RD_CODE_UNKNOWN;
    }
    rd_unlock(&lock);
    return found;
}

int rd_code_count(int code, int wanted, int capacity)
{
    const int *counts = rd_runtime.raddle_counts;
    bool copied = code == counts[0] || code == counts[1] || code == counts[2];
    if (wanted == 0 || wanted > code) {
        return code;
    }
    return copied || (wanted < code && capacity != 0 && code > capacity && rd_is_machines_count(code)) ? 0 : code;
}

/* False where it should be kept and can't be. */
static bool keep(const void *object, uint64_t on, uint64_t off, int intra, int inter)
{
    if (!rd_try_lock(&lock)) {
        return false;
    }
    struct rd_options *kept = place(object, on != 0);
    if (kept != NULL) {
        kept->code = (kept->code & ~off) | on;
        kept->intra = ((on | off) & RD_CODE_INTRA) != 0 ? intra : kept->intra;
        kept->inter = ((on | off) & RD_CODE_INTER) != 0 ? inter : kept->inter;
    }
    rd_unlock(&lock);
    return kept != NULL || on == 0;
}

static void note(const void *object, uint64_t on, uint64_t off, int intra, int inter)
{
    if (!keep(object, on, off, intra, inter)) {
        __atomic_store_n(&overflowed, true, __ATOMIC_RELAXED);
    }
}

/* What was kept of it. */
static uint64_t forget(const void *object)
{
    uint64_t code = 0;
    if (object != NULL && rd_try_lock(&lock)) {
        struct rd_options *kept = place(object, false);
        if (kept != NULL) {
            code = kept->code;
            kept->object = NULL;
        }
        rd_unlock(&lock);
    }
    return code;
}

static void options_made(const void *options)
{
    forget(options);
    __atomic_fetch_add(&living_options, 1, __ATOMIC_RELAXED);
}

static void options_released(const void *options)
{
    forget(options);
    if (options != NULL && __atomic_sub_fetch(&living_options, 1, __ATOMIC_RELAXED) <= 0) {
        __atomic_store_n(&overflowed, false, __ATOMIC_RELAXED);
    }
}

void rd_session_made(const void *session)
{
    if (keep(session, RD_HAS_WORKERS, 0, 0, 0)) {
        __atomic_fetch_add(&living, 1, __ATOMIC_RELAXED);
    }
}

void rd_session_released(const void *session)
{
    if ((forget(session) & RD_HAS_WORKERS) != 0 && rd_sessions_living() > 0) {
        __atomic_fetch_sub(&living, 1, __ATOMIC_RELAXED);
    }
}

int rd_sessions_living(void)
{
    return __atomic_load_n(&living, __ATOMIC_RELAXED);
}

void rd_sessions_forked(void)
{
    __atomic_store_n(&living, 0, __ATOMIC_RELAXED);
}

void rd_options_drop(void)
{
    if (rd_try_lock(&lock)) {
        __builtin_memset(objects, 0, sizeof objects);
        overflowed = false;
        living_options = 0;
        rd_unlock(&lock);
    }
    rd_sessions_forked();
}

static rd_status set_count(void *options, int slot, uint64_t code, int count)
{
    /* 0 and -1 are ONNX Runtime's defaults: the code has left the choice open. */
    int wanted = count == -1 ? 0 : count;
    note(options, wanted != 0 ? code : 0, code, wanted, wanted);
    return ((rd_on_number)(uintptr_t)rd_real[slot])(options, count);
}

static rd_status create_session_options(void **out)
{
    rd_status status = RD_REAL(CreateSessionOptions, rd_on)(out);
    if (status == NULL) {
        options_made(*out);
    }
    return status;
}

static rd_status clone_session_options(const void *options, void **out)
{
    rd_status status = RD_REAL(CloneSessionOptions, rd_status(*)(const void *, void **))(options, out);
    if (status == NULL) {
        struct rd_options known = rd_options_of(options);
        options_made(*out);
        if (known.code != 0) {
            note(*out, known.code, 0, known.intra, known.inter);
        }
    }
    return status;
}

static void release_session_options(void *options)
{
    options_released(options);
    RD_REAL(ReleaseSessionOptions, rd_release)(options);
}

static rd_status set_intra(void *options, int count)
{
    return set_count(options, SLOT_SetIntraOpNumThreads, RD_CODE_INTRA, count);
}

static rd_status set_inter(void *options, int count)
{
    /* Java's SessionOptions sets one inter-op thread when it is made: that is the package's choice, not the code's. */
    if (count == 1 && rd_is_loaded("libonnxruntime4j_jni")
        && (rd_options_of(options).code & (RD_JAVA_INTER | RD_CODE_INTER)) == 0) {
        note(options, RD_JAVA_INTER, 0, 0, 0);
        return RD_REAL(SetInterOpNumThreads, rd_on_number)(options, count);
    }
    return set_count(options, SLOT_SetInterOpNumThreads, RD_CODE_INTER, count);
}

/* A setter that is noted, and passed on: `on` and `off` are what the code has set by the value, and has not. */
#define NOTED(name, function, type, value_type, on, off)                                                               \
    static rd_status name(void *options, value_type value)                                                             \
    {                                                                                                                  \
        note(options, on, off, 0, 0);                                                                                  \
        return RD_REAL(function, type)(options, value);                                                                \
    }
#define GPU_PROVIDER(name)                                                                                             \
    NOTED(append_##name, SessionOptionsAppendExecutionProvider_##name, rd_on_pointer, const void *, RD_CODE_GPU, 0)
NOTED(set_mode, SetSessionExecutionMode, rd_on_number, int,
      value == 1 ? RD_CODE_MODE | RD_CODE_PARALLEL : RD_CODE_MODE, RD_CODE_PARALLEL)
NOTED(set_graph, SetSessionGraphOptimizationLevel, rd_on_number, int, RD_CODE_GRAPH, 0)
NOTED(set_thread_function, SessionOptionsSetCustomCreateThreadFn, rd_on_pointer, const void *,
      value != NULL ? RD_CODE_THREADS : 0, RD_CODE_THREADS)
NOTED(set_global_thread_function, SetGlobalCustomCreateThreadFn, rd_on_pointer, const void *,
      value != NULL ? RD_CODE_THREADS : 0, RD_CODE_THREADS)
NOTED(set_global_spin, SetGlobalSpinControl, rd_on_number, int, RD_CODE_SPIN, 0)
NOTED(set_global_affinity, SetGlobalIntraOpThreadAffinity, rd_on_pointer, const void *, RD_CODE_AFFINITY, 0)
/* Providers beside which the CPU's workers have nothing to wait for. */
GPU_PROVIDER(CUDA)
GPU_PROVIDER(ROCM)
GPU_PROVIDER(TensorRT)
GPU_PROVIDER(TensorRT_V2)
GPU_PROVIDER(MIGraphX)

static void note_switch(const void *options, int place, bool on)
{
    note(options, RD_CODE_SWITCH(place) | (on ? RD_CODE_SWITCHED_ON(place) : 0), RD_CODE_SWITCHED_ON(place), 0, 0);
}

#define CALLED(key, function, on)                                                                                      \
    static rd_status set_##function(void *options)                                                                     \
    {                                                                                                                  \
        note_switch(options, RD_SWITCH_##key, on);                                                                     \
        return RD_REAL(function, rd_on)(options);                                                                      \
    }
#define PAIR(key, off, on, ...) CALLED(key, off, false) CALLED(key, on, true)
#define ONE(key, function, ...)                                                                                        \
    static rd_status set_##function(void *options, bool on)                                                            \
    {                                                                                                                  \
        note_switch(options, RD_SWITCH_##key, on);                                                                     \
        return RD_REAL(function, rd_on_number)(options, on);                                                           \
    }
RD_SWITCHES(PAIR, ONE)
#undef PAIR
#undef ONE

static rd_status disable_pools(void *options)
{
    note(options, RD_CODE_NO_POOLS, 0, 0, 0);
    return RD_REAL(DisablePerSessionThreads, rd_on)(options);
}

static rd_status create_threading_options(void **out)
{
    rd_status status = RD_REAL(CreateThreadingOptions, rd_on)(out);
    if (status == NULL) {
        options_made(*out);
    }
    return status;
}

static void release_threading_options(void *options)
{
    options_released(options);
    RD_REAL(ReleaseThreadingOptions, rd_release)(options);
}

static rd_status set_global_intra(void *options, int count)
{
    return set_count(options, SLOT_SetGlobalIntraOpNumThreads, RD_CODE_INTRA, count);
}

static rd_status set_global_inter(void *options, int count)
{
    return set_count(options, SLOT_SetGlobalInterOpNumThreads, RD_CODE_INTER, count);
}

void rd_options_gpu(const void *options)
{
    note(options, RD_CODE_GPU, 0, 0, 0);
}

void rd_options_wrap(const void **table)
{
    table[SLOT_CreateSessionOptions] = (const void *)create_session_options;
    table[SLOT_CloneSessionOptions] = (const void *)clone_session_options;
    table[SLOT_ReleaseSessionOptions] = (const void *)release_session_options;
    table[SLOT_SetIntraOpNumThreads] = (const void *)set_intra;
    table[SLOT_SetInterOpNumThreads] = (const void *)set_inter;
    table[SLOT_SetSessionExecutionMode] = (const void *)set_mode;
    table[SLOT_SetSessionGraphOptimizationLevel] = (const void *)set_graph;
    table[SLOT_DisablePerSessionThreads] = (const void *)disable_pools;
    table[SLOT_SessionOptionsSetCustomCreateThreadFn] = (const void *)set_thread_function;
    table[SLOT_CreateThreadingOptions] = (const void *)create_threading_options;
    table[SLOT_ReleaseThreadingOptions] = (const void *)release_threading_options;
    table[SLOT_SetGlobalIntraOpNumThreads] = (const void *)set_global_intra;
    table[SLOT_SetGlobalInterOpNumThreads] = (const void *)set_global_inter;
    table[SLOT_SetGlobalSpinControl] = (const void *)set_global_spin;
    table[SLOT_SetGlobalCustomCreateThreadFn] = (const void *)set_global_thread_function;
    table[SLOT_SetGlobalIntraOpThreadAffinity] = (const void *)set_global_affinity;
    table[SLOT_SessionOptionsAppendExecutionProvider_CUDA] = (const void *)append_CUDA;
    table[SLOT_SessionOptionsAppendExecutionProvider_ROCM] = (const void *)append_ROCM;
    table[SLOT_SessionOptionsAppendExecutionProvider_TensorRT] = (const void *)append_TensorRT;
    table[SLOT_SessionOptionsAppendExecutionProvider_TensorRT_V2] = (const void *)append_TensorRT_V2;
    table[SLOT_SessionOptionsAppendExecutionProvider_MIGraphX] = (const void *)append_MIGraphX;
#define ONE(key, function, ...) table[SLOT_##function] = (const void *)set_##function;
#define PAIR(key, off, on, ...) ONE(key, off) ONE(key, on)
    RD_SWITCHES(PAIR, ONE)
}
