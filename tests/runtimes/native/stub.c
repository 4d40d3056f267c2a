/* A stand-in for libonnxruntime that writes down what reaches it: one line per call in the file STUB_CALLS.
 *
 * For what no machine here can show (a CUDA provider), for libraries that don't exist (an ORT too new, too old, a table
 * of garbage) and for another libc. It makes the threads that a session asks for, by the session's own functions where
 * it has set some, so that their names and places can be seen.
 *   STUB_VERSION  the version that it says, "1.20.0"
 *   STUB_API      the newest table that it hands out, 20
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <onnxruntime_c_api.h>

#include "keys.h"

#ifndef STUB_SYMBOL
#define STUB_SYMBOL OrtGetApiBase
#endif

struct OrtSessionOptions {
    int intra, inter, parallel, graph, own_pool, switches[RD_SWITCH_COUNT];
    char entries[4096], providers[2048];
    OrtCustomCreateThreadFn create;
    OrtCustomJoinThreadFn join;
    void* creation;
};
struct OrtThreadingOptions {
    int intra, inter, spin;
    char affinity[1024];
    OrtCustomCreateThreadFn create;
    OrtCustomJoinThreadFn join;
    void* creation;
};
struct OrtSession { OrtCustomThreadHandle threads[64]; int count; OrtCustomJoinThreadFn join; sem_t end; };
struct OrtCUDAProviderOptionsV2 { char text[2048]; };
struct OrtEnv { OrtSession pool; };
struct OrtStatus { char text[256]; };

static void say(const char* format, ...) {
    const char* path = getenv("STUB_CALLS");
    FILE* file = path ? fopen(path, "a") : NULL;
    if (!file) return;
    va_list values;
    va_start(values, format);
    vfprintf(file, format, values);
    va_end(values);
    fputc('\n', file);
    fclose(file);
}

static OrtStatus* fail(const char* text) {
    OrtStatus* status = calloc(1, sizeof *status);
    snprintf(status->text, sizeof status->text, "%s", text);
    return status;
}

static void append(char* to, size_t size, const char* key, const char* value) {
    size_t used = strlen(to);
    snprintf(to + used, size - used, "%s%s=%s", used ? "," : "", key, value);
}

/* A pool: `count` threads that wait until the session ends. */
static void work(void* param) { sem_wait(param); sem_post(param); }

static void* plain(void* param) { work(param); return NULL; }

static void fill(OrtSession* pool, int count, OrtCustomCreateThreadFn create, OrtCustomJoinThreadFn join, void* creation) {
    sem_init(&pool->end, 0, 0);
    pool->join = create ? join : NULL;
    for (pool->count = 0; pool->count < count && pool->count < 64; pool->count++) {
        if (create) {
            pool->threads[pool->count] = create(creation, work, &pool->end);
        } else {
            pthread_t thread;
            pthread_create(&thread, NULL, plain, &pool->end);
            pool->threads[pool->count] = (OrtCustomThreadHandle)thread;
        }
    }
}

static void drain(OrtSession* pool) {
    sem_post(&pool->end);
    for (int i = 0; i < pool->count; i++) {
        if (pool->join) pool->join(pool->threads[i]);
        else pthread_join((pthread_t)pool->threads[i], NULL);
    }
}

static const char* ORT_API_CALL message(const OrtStatus* status) NO_EXCEPTION { return status->text; }
static OrtErrorCode ORT_API_CALL code(const OrtStatus* status) NO_EXCEPTION { (void)status; return ORT_FAIL; }
static OrtStatus* ORT_API_CALL create_status(OrtErrorCode number, const char* text) NO_EXCEPTION {
    (void)number;
    return fail(text);
}
static void ORT_API_CALL release_status(OrtStatus* status) { free(status); }

static OrtStatus* ORT_API_CALL create_env(OrtLoggingLevel level, const char* id, OrtEnv** out) NO_EXCEPTION {
    (void)level;
    say("CreateEnv %s", id);
    *out = calloc(1, sizeof **out);
    return NULL;
}
static OrtStatus* ORT_API_CALL create_global_env(OrtLoggingLevel level, const char* id, const OrtThreadingOptions* with,
                                                 OrtEnv** out) NO_EXCEPTION {
    (void)level;
    say("CreateEnvWithGlobalThreadPools %s intra=%d inter=%d spin=%d affinity=%s custom=%d", id, with->intra,
        with->inter, with->spin, with->affinity, with->create != NULL);
    *out = calloc(1, sizeof **out);
    fill(&(*out)->pool, with->intra > 1 ? with->intra - 1 : 0, with->create, with->join, with->creation);
    return NULL;
}
static void ORT_API_CALL release_env(OrtEnv* env) {
    drain(&env->pool);
    free(env);
    say("ReleaseEnv");
}
static OrtStatus* ORT_API_CALL create_threading(OrtThreadingOptions** out) NO_EXCEPTION {
    *out = calloc(1, sizeof **out);
    (*out)->spin = 1;
    return NULL;
}
static void ORT_API_CALL release_threading(OrtThreadingOptions* with) { free(with); }
static OrtStatus* ORT_API_CALL global_intra(OrtThreadingOptions* with, int n) NO_EXCEPTION { with->intra = n; return NULL; }
static OrtStatus* ORT_API_CALL global_inter(OrtThreadingOptions* with, int n) NO_EXCEPTION { with->inter = n; return NULL; }
static OrtStatus* ORT_API_CALL global_spin(OrtThreadingOptions* with, int n) NO_EXCEPTION { with->spin = n; return NULL; }
static OrtStatus* ORT_API_CALL global_affinity(OrtThreadingOptions* with, const char* text) NO_EXCEPTION {
    snprintf(with->affinity, sizeof with->affinity, "%s", text);
    return NULL;
}
static OrtStatus* ORT_API_CALL global_create(OrtThreadingOptions* with, OrtCustomCreateThreadFn fn) NO_EXCEPTION {
    with->create = fn;
    return NULL;
}
static OrtStatus* ORT_API_CALL global_join(OrtThreadingOptions* with, OrtCustomJoinThreadFn fn) NO_EXCEPTION {
    with->join = fn;
    return NULL;
}
static OrtStatus* ORT_API_CALL global_creation(OrtThreadingOptions* with, void* value) NO_EXCEPTION {
    with->creation = value;
    return NULL;
}

static const OrtSessionOptions new_options = {
    .graph = 99, .own_pool = 1, .switches = {[RD_SWITCH_CPU_MEM_ARENA] = 1, [RD_SWITCH_MEM_PATTERN] = 1}};
static OrtStatus* ORT_API_CALL create_options(OrtSessionOptions** out) NO_EXCEPTION {
    *out = calloc(1, sizeof **out);
    **out = new_options;
    return NULL;
}
static OrtStatus* ORT_API_CALL clone_options(const OrtSessionOptions* from, OrtSessionOptions** out) NO_EXCEPTION {
    *out = malloc(sizeof **out);
    **out = *from;
    return NULL;
}
static void ORT_API_CALL release_options(OrtSessionOptions* options) { free(options); }
#define SETTER(function, ...) \
    static OrtStatus* ORT_API_CALL function(OrtSessionOptions* options __VA_OPT__(, ) __VA_ARGS__) NO_EXCEPTION
SETTER(set_intra, int n) { options->intra = n; return NULL; }
SETTER(set_inter, int n) { options->inter = n; return NULL; }
SETTER(set_mode, ExecutionMode mode) { options->parallel = mode == ORT_PARALLEL; return NULL; }
SETTER(set_graph, GraphOptimizationLevel level) { options->graph = level; return NULL; }
SETTER(set_path, const ORTCHAR_T* path) { say("SetOptimizedModelFilePath %s", path); (void)options; return NULL; }
#define PAIR(place, off, on, ...) \
    SETTER(stub_##off) { options->switches[RD_SWITCH_##place] = 0; return NULL; } \
    SETTER(stub_##on) { options->switches[RD_SWITCH_##place] = 1; return NULL; }
#define ONE(place, function, ...) \
    SETTER(stub_##function, bool on) { options->switches[RD_SWITCH_##place] = on; return NULL; }
RD_SWITCHES(PAIR, ONE)
#undef PAIR
#undef ONE
SETTER(share_pool) { options->own_pool = 0; return NULL; }
SETTER(set_create, OrtCustomCreateThreadFn fn) { options->create = fn; return NULL; }
SETTER(set_join, OrtCustomJoinThreadFn fn) { options->join = fn; return NULL; }
SETTER(set_creation, void* value) { options->creation = value; return NULL; }
SETTER(add_entry, const char* key, const char* value) {
    append(options->entries, sizeof options->entries, key, value);
    return NULL;
}
/* The last value of an entry, as ORT would keep it; NULL: none. */
static const char* entry_of(const OrtSessionOptions* options, const char* key, size_t* length) {
    const char *found = NULL, *at = options->entries;
    size_t size = strlen(key);
    while (at && *at) {
        if (!strncmp(at, key, size) && at[size] == '=') found = at + size + 1;
        at = strchr(at, ',');
        at = at ? at + 1 : NULL;
    }
    if (found) *length = strcspn(found, ",");
    return found;
}
static OrtStatus* ORT_API_CALL has_entry(const OrtSessionOptions* options, const char* key, int* out) NO_EXCEPTION {
    size_t length;
    *out = entry_of(options, key, &length) != NULL;
    return NULL;
}
static OrtStatus* ORT_API_CALL get_entry(const OrtSessionOptions* options, const char* key, char* value,
                                         size_t* size) NO_EXCEPTION {
    size_t length, room = *size;
    const char* found = entry_of(options, key, &length);
    if (!found) return fail("no such entry");
    *size = length + 1;
    if (value && room <= length) return fail("too small");
    if (value) snprintf(value, length + 1, "%s", found);
    return NULL;
}

SETTER(add_provider, const char* name, const char* const* keys, const char* const* values, size_t count) {
    char text[2048] = "";
    for (size_t i = 0; i < count; i++) append(text, sizeof text, keys[i], values[i]);
    say("AppendExecutionProvider %s %s", name, text);
    (void)options;
    return NULL;
}
SETTER(add_cuda, const OrtCUDAProviderOptions* with) {
    say("AppendExecutionProvider_CUDA device_id=%d gpu_mem_limit=%zu arena_extend_strategy=%d", with->device_id,
        with->gpu_mem_limit, with->arena_extend_strategy);
    (void)options;
    return NULL;
}
SETTER(add_cuda_v2, const OrtCUDAProviderOptionsV2* with) {
    say("AppendExecutionProvider_CUDA_V2 %s", with->text);
    (void)options;
    return NULL;
}
static OrtStatus* ORT_API_CALL create_cuda(OrtCUDAProviderOptionsV2** out) NO_EXCEPTION {
    *out = calloc(1, sizeof **out);
    return NULL;
}
static OrtStatus* ORT_API_CALL update_cuda(OrtCUDAProviderOptionsV2* with, const char* const* keys,
                                           const char* const* values, size_t count) NO_EXCEPTION {
    for (size_t i = 0; i < count; i++) append(with->text, sizeof with->text, keys[i], values[i]);
    return NULL;
}
static OrtStatus* ORT_API_CALL cuda_text(const OrtCUDAProviderOptionsV2* with, OrtAllocator* allocator,
                                         char** out) NO_EXCEPTION {
    *out = allocator->Alloc(allocator, sizeof with->text);
    for (size_t i = 0; i <= strlen(with->text); i++) (*out)[i] = with->text[i] == ',' ? ';' : with->text[i];
    return NULL;
}
static void ORT_API_CALL release_cuda(OrtCUDAProviderOptionsV2* with) { free(with); }
static void* ORT_API_CALL take(struct OrtAllocator* self, size_t size) { (void)self; return malloc(size); }
static void ORT_API_CALL give(struct OrtAllocator* self, void* memory) { (void)self; free(memory); }
static OrtStatus* ORT_API_CALL get_allocator(OrtAllocator** out) NO_EXCEPTION {
    static OrtAllocator allocator;
    allocator.version = 16, allocator.Alloc = take, allocator.Free = give;
    *out = &allocator;
    return NULL;
}

static OrtStatus* ORT_API_CALL create_session(const OrtEnv* env, const ORTCHAR_T* path, const OrtSessionOptions* with,
                                              OrtSession** out) NO_EXCEPTION {
    (void)env;
    (void)path;
    if (!with) with = &new_options;
    const char* strict = getenv("STUB_REFUSES"); /* an entry that makes the session fail */
    if (strict && strstr(with->entries, strict)) {
        say("CreateSession refused");
        return fail("stub: refused");
    }
    char switches[RD_SWITCH_COUNT * 40] = "";
    size_t used = 0;
#define ONE(place, function, ...) PAIR(place, function, function)
#define PAIR(place, off, on, ...) \
    used += (size_t)snprintf(switches + used, sizeof switches - used, " " #place "=%d", with->switches[RD_SWITCH_##place]);
    RD_SWITCHES(PAIR, ONE)
#undef PAIR
#undef ONE
    say("CreateSession intra=%d inter=%d parallel=%d graph=%d%s own_pool=%d custom=%d entries=%s", with->intra,
        with->inter, with->parallel, with->graph, switches, with->own_pool, with->create != NULL, with->entries);
    *out = calloc(1, sizeof **out);
    fill(*out, with->own_pool && with->intra > 1 ? with->intra - 1 : 0, with->create, with->join, with->creation);
    return NULL;
}
static OrtStatus* ORT_API_CALL create_from_array(const OrtEnv* env, const void* data, size_t size,
                                                 const OrtSessionOptions* with, OrtSession** out) NO_EXCEPTION {
    (void)data;
    (void)size;
    return create_session(env, "", with, out);
}
static void ORT_API_CALL release_session(OrtSession* session) {
    drain(session);
    free(session);
    say("ReleaseSession");
}
static OrtStatus* ORT_API_CALL memory_info(enum OrtAllocatorType type, enum OrtMemType kind,
                                           OrtMemoryInfo** out) NO_EXCEPTION {
    (void)type;
    (void)kind;
    *out = malloc(1);
    return NULL;
}
static void ORT_API_CALL release_memory_info(OrtMemoryInfo* info) { free(info); }
static OrtStatus* ORT_API_CALL register_allocator(OrtEnv* env, const OrtMemoryInfo* info,
                                                  const OrtArenaCfg* arena) NO_EXCEPTION {
    (void)env, (void)info, (void)arena;
    say("CreateAndRegisterAllocator");
    return NULL;
}
static OrtStatus* ORT_API_CALL allocator_free(OrtAllocator* allocator, void* memory) NO_EXCEPTION {
    allocator->Free(allocator, memory);
    return NULL;
}
/* Any other slot: nothing happens, and that it was called is written down. */
static OrtStatus* ORT_API_CALL other(void) NO_EXCEPTION {
    say("another function");
    return NULL;
}

static const OrtApi* ORT_API_CALL get_api(uint32_t version) NO_EXCEPTION {
    /* As long as the newest, with more functions than its header here knows. */
    static union { OrtApi api; void* slots[512]; } table;
#define api table.api
    const char* newest = getenv("STUB_API");
    if (version == 0 || version > (uint32_t)(newest ? atoi(newest) : 20)) {
        say("GetApi %u none", version);
        return NULL;
    }
    for (size_t i = 0; i < sizeof table / sizeof *table.slots; i++) table.slots[i] = (void*)other;
    api.GetErrorMessage = message, api.GetErrorCode = code, api.CreateStatus = create_status;
    api.ReleaseStatus = release_status, api.CreateEnv = create_env, api.ReleaseEnv = release_env;
    api.CreateEnvWithGlobalThreadPools = create_global_env;
    api.CreateThreadingOptions = create_threading, api.ReleaseThreadingOptions = release_threading;
    api.SetGlobalIntraOpNumThreads = global_intra, api.SetGlobalInterOpNumThreads = global_inter;
    api.SetGlobalSpinControl = global_spin, api.SetGlobalIntraOpThreadAffinity = global_affinity;
    api.SetGlobalCustomCreateThreadFn = global_create, api.SetGlobalCustomJoinThreadFn = global_join;
    api.SetGlobalCustomThreadCreationOptions = global_creation;
    api.CreateSessionOptions = create_options, api.CloneSessionOptions = clone_options;
    api.ReleaseSessionOptions = release_options, api.SetIntraOpNumThreads = set_intra;
    api.SetInterOpNumThreads = set_inter, api.SetSessionExecutionMode = set_mode;
    api.SetSessionGraphOptimizationLevel = set_graph, api.SetOptimizedModelFilePath = set_path;
#define ONE(place, function, ...) api.function = stub_##function;
#define PAIR(place, off, on, ...) ONE(place, off) ONE(place, on)
    RD_SWITCHES(PAIR, ONE)
#undef PAIR
#undef ONE
    api.DisablePerSessionThreads = share_pool, api.SessionOptionsSetCustomCreateThreadFn = set_create;
    api.SessionOptionsSetCustomJoinThreadFn = set_join;
    api.SessionOptionsSetCustomThreadCreationOptions = set_creation;
    api.AddSessionConfigEntry = add_entry, api.HasSessionConfigEntry = has_entry, api.GetSessionConfigEntry = get_entry;
    api.SessionOptionsAppendExecutionProvider = add_provider;
    api.SessionOptionsAppendExecutionProvider_CUDA = add_cuda;
    api.SessionOptionsAppendExecutionProvider_CUDA_V2 = add_cuda_v2;
    api.CreateCUDAProviderOptions = create_cuda, api.UpdateCUDAProviderOptions = update_cuda;
    api.GetCUDAProviderOptionsAsString = cuda_text, api.ReleaseCUDAProviderOptions = release_cuda;
    api.GetAllocatorWithDefaultOptions = get_allocator, api.AllocatorFree = allocator_free;
    api.CreateSession = create_session, api.CreateSessionFromArray = create_from_array;
    api.ReleaseSession = release_session, api.CreateCpuMemoryInfo = memory_info;
    api.ReleaseMemoryInfo = release_memory_info, api.CreateAndRegisterAllocator = register_allocator;
    return &api;
#undef api
}

static const char* ORT_API_CALL get_version(void) NO_EXCEPTION {
    const char* version = getenv("STUB_VERSION");
    return version ? version : "1.20.0";
}

const OrtApiBase* ORT_API_CALL STUB_SYMBOL(void) NO_EXCEPTION {
    static const OrtApiBase base = {get_api, get_version};
    return &base;
}
