/* A stand-in for libonnxruntime where no real one is at hand: musl, arm64, versions that don't exist. It has a table of
 * the real shape, and writes on stdout what reaches it. STUB_VERSION is its version, STUB_REFUSE a call that fails.
 * Only for programs whose libc or processor has no real one in the tests; the others use the real ones. */
#define _GNU_SOURCE
#include "creation.h"
#include "slots.h"

#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* More than any known version has, as a newer one may; one function is missing in this build. */
#define SLOTS 440
#define HOLE 420
#define ENTRIES 32

struct options {
    int intra, inter, mode, global;
    int entries;
    char key[ENTRIES][80], value[ENTRIES][80];
    void *(*create)(void *, void (*)(void *), void *);
    void (*join)(void *);
    void *creation;
};

struct session {
    int threads;
    void *thread[64];
    void (*join)(void *);
};

#ifdef LARGE
/* Too large for the place where the first build was loaded. */
char large[64 * 1024 * 1024];
#endif

static int refused(const char *call)
{
#ifdef MOVED
    /* All that follows is elsewhere than in the first build. */
    if (call == NULL) {
        printf("nothing to refuse\n");
        fflush(stdout);
    }
#endif
    const char *refuse = getenv("STUB_REFUSE");
    return refuse != NULL && strcmp(refuse, call) == 0;
}

static void *status(const char *text)
{
    return strdup(text);
}

static void let_go(void *object)
{
    free(object);
}

static const char *get_message(const void *given)
{
    return given;
}

static int get_code(const void *given)
{
    return strncmp(given, "no model", 8) == 0 ? 3 : 1;
}

/* ONNX Runtime has only one. */
static char environment;

static void release_env(void *env)
{
    (void)env;
}

static void *create_env(int level, const char *id, void **out)
{
    printf("env %d %s\n", level, id);
    *out = &environment;
    return NULL;
}

static void *create_env_global(int level, const char *id, const struct options *options, void **out)
{
    printf("env %d %s, global pool intra=%d inter=%d spin=%d\n", level, id, options->intra, options->inter,
           options->mode);
    *out = &environment;
    return NULL;
}

static void *create_env_with(const struct creation *given, void **out)
{
    printf("env %d %s by options of version %u, pool intra=%d, ", given->level, given->id, given->version,
           given->threading == NULL ? 0 : given->threading->intra);
    if (given->version < LATER_VERSION) {
        printf("nothing later\n");
    } else {
        printf("later=%#llx\n", (unsigned long long)given->later);
    }
    *out = &environment;
    return NULL;
}

static void *create_options(struct options **out)
{
    *out = calloc(1, sizeof **out);
    return NULL;
}

static void *create_threading_options(struct options **out)
{
    create_options(out);
    (*out)->mode = 1;
    return NULL;
}

static void *clone_options(const struct options *from, struct options **out)
{
    if (refused("clone")) {
        return status("no clone today");
    }
    *out = malloc(sizeof **out);
    **out = *from;
    return NULL;
}

static void *set_intra(struct options *options, int value)
{
    options->intra = value;
    return refused("intra") ? status("no count today") : NULL;
}

static void *set_inter(struct options *options, int value)
{
    options->inter = value;
    return NULL;
}

static void *set_graph(struct options *options, int level)
{
    (void)options;
    printf("graph level %d\n", level);
    return NULL;
}

static void *enable_arena(struct options *options)
{
    (void)options;
    printf("arena on\n");
    return NULL;
}

static void *disable_pattern(struct options *options)
{
    (void)options;
    printf("memory pattern off\n");
    return NULL;
}

static void *set_mode(struct options *options, int value)
{
    options->mode = value;
    return NULL;
}

static void *disable_pools(struct options *options)
{
    options->global = 1;
    return NULL;
}

static void *add_entry(struct options *options, const char *key, const char *value)
{
    int at = 0;
    while (at < options->entries && strcmp(options->key[at], key) != 0) {
        at++;
    }
    options->entries += at == options->entries;
    strncpy(options->key[at], key, 79);
    strncpy(options->value[at], value, 79);
    return NULL;
}

static void *has_entry(const struct options *options, const char *key, int *has)
{
    *has = 0;
    for (int i = 0; i < options->entries; i++) {
        *has |= strcmp(options->key[i], key) == 0;
    }
    return NULL;
}

static void *get_entry(const struct options *options, const char *key, char *value, size_t *size)
{
    for (int i = 0; i < options->entries; i++) {
        if (strcmp(options->key[i], key) == 0) {
            snprintf(value, *size, "%s", options->value[i]);
        }
    }
    return NULL;
}

static void *set_create(struct options *options, void *function)
{
    memcpy(&options->create, &function, sizeof function);
    return NULL;
}

static void *set_creation(struct options *options, void *creation)
{
    options->creation = creation;
    return NULL;
}

static void *set_join(struct options *options, void *function)
{
    memcpy(&options->join, &function, sizeof function);
    return NULL;
}

static void work(void *parameter)
{
    char name[64] = "";
    cpu_set_t cpus;
    FILE *file = fopen("/proc/thread-self/comm", "r");
    if (file != NULL) {
        if (fgets(name, sizeof name, file) == NULL) {
            name[0] = '\0';
        }
        fclose(file);
    }
    name[strcspn(name, "\n")] = '\0';
    sched_getaffinity(0, sizeof cpus, &cpus);
    printf("thread %s, %d, on %d cpu(s)\n", name, *(int *)parameter, CPU_COUNT(&cpus));
    free(parameter);
}

static void *create_session(const void *env, const char *path, const struct options *options, struct session **out)
{
    (void)env;
    if (options == NULL) {
        printf("session %s without options\n", path);
        *out = calloc(1, sizeof **out);
        return NULL;
    }
    if (refused("session") && options->intra == 7) {
        return status("no session with 7 threads");
    }
    if (refused("model")) {
        printf("asked for a model\n");
        return status("no model there");
    }
    printf("session %s, intra=%d inter=%d mode=%d global=%d", path, options->intra, options->inter, options->mode,
           options->global);
    for (int i = 0; i < options->entries; i++) {
        printf(" %s=%s", options->key[i], options->value[i]);
    }
    printf("\n");
    struct session *session = *out = calloc(1, sizeof *session);
    session->join = options->join;
    for (int i = 1; i < options->intra && options->create != NULL; i++) {
        int *number = malloc(sizeof *number);
        *number = i;
        session->thread[session->threads++] = options->create(options->creation, work, number);
    }
    return NULL;
}

static void release_session(struct session *session)
{
    for (int i = 0; i < session->threads; i++) {
        session->join(session->thread[i]);
    }
    printf("released %d thread(s)\n", session->threads);
    free(session);
}

static void *run(void)
{
    return NULL;
}

static void *create_memory(int allocator, int kind, void **out)
{
    (void)allocator;
    (void)kind;
    *out = malloc(1);
    return NULL;
}

static void *create_arena(size_t most, int extend, int first, int waste, void **out)
{
    (void)most;
    (void)first;
    (void)waste;
    return create_memory(extend, 0, out);
}

static void *register_allocator(void)
{
    printf("arena\n");
    return NULL;
}

static void *unknown(void)
{
    return status("the stub has no such function");
}

static const void *table[SLOTS];

static const void *get_api(uint32_t version)
{
    static const struct {
        int slot;
        const void *function;
    } known[] = {
        {SLOT_GetErrorCode, (const void *)get_code},
        {SLOT_GetErrorMessage, (const void *)get_message},
        {SLOT_CreateEnv, (const void *)create_env},
        {SLOT_CreateSession, (const void *)create_session},
        {SLOT_Run, (const void *)run},
        {SLOT_CreateSessionOptions, (const void *)create_options},
        {SLOT_CloneSessionOptions, (const void *)clone_options},
        {SLOT_SetSessionExecutionMode, (const void *)set_mode},
        {SLOT_DisableMemPattern, (const void *)disable_pattern},
        {SLOT_EnableCpuMemArena, (const void *)enable_arena},
        {SLOT_SetSessionGraphOptimizationLevel, (const void *)set_graph},
        {SLOT_SetIntraOpNumThreads, (const void *)set_intra},
        {SLOT_SetInterOpNumThreads, (const void *)set_inter},
        {SLOT_CreateCpuMemoryInfo, (const void *)create_memory},
        {SLOT_CreateArenaCfg, (const void *)create_arena},
        {SLOT_CreateAndRegisterAllocator, (const void *)register_allocator},
        {SLOT_ReleaseMemoryInfo, (const void *)let_go},
        {SLOT_ReleaseArenaCfg, (const void *)let_go},
        {SLOT_ReleaseEnv, (const void *)release_env},
        {SLOT_ReleaseStatus, (const void *)let_go},
        {SLOT_ReleaseSession, (const void *)release_session},
        {SLOT_ReleaseSessionOptions, (const void *)let_go},
        {SLOT_CreateEnvWithGlobalThreadPools, (const void *)create_env_global},
        {SLOT_CreateEnvWithOptions, (const void *)create_env_with},
        {SLOT_DisablePerSessionThreads, (const void *)disable_pools},
        {SLOT_CreateThreadingOptions, (const void *)create_threading_options},
        {SLOT_ReleaseThreadingOptions, (const void *)let_go},
        {SLOT_AddSessionConfigEntry, (const void *)add_entry},
        {SLOT_SetGlobalIntraOpNumThreads, (const void *)set_intra},
        {SLOT_SetGlobalInterOpNumThreads, (const void *)set_inter},
        {SLOT_SetGlobalSpinControl, (const void *)set_mode},
        {SLOT_SessionOptionsSetCustomCreateThreadFn, (const void *)set_create},
        {SLOT_SessionOptionsSetCustomThreadCreationOptions, (const void *)set_creation},
        {SLOT_SessionOptionsSetCustomJoinThreadFn, (const void *)set_join},
        {SLOT_SetGlobalCustomCreateThreadFn, (const void *)set_create},
        {SLOT_SetGlobalCustomThreadCreationOptions, (const void *)set_creation},
        {SLOT_SetGlobalCustomJoinThreadFn, (const void *)set_join},
        {SLOT_HasSessionConfigEntry, (const void *)has_entry},
        {SLOT_GetSessionConfigEntry, (const void *)get_entry},
    };
    for (int i = 0; i < SLOTS; i++) {
        table[i] = (const void *)unknown;
    }
    table[HOLE] = NULL;
    for (unsigned i = 0; i < sizeof known / sizeof known[0]; i++) {
        table[known[i].slot] = known[i].function;
    }
    return version <= 99 ? table : NULL;
}

static const char *get_version(void)
{
    const char *version = getenv("STUB_VERSION");
    return version == NULL ? "1.23.9" : version;
}

const void *OrtGetApiBase(void);

const void *OrtGetApiBase(void)
{
    static const struct {
        const void *(*get_api)(uint32_t);
        const char *(*get_version)(void);
    } base = {get_api, get_version};
    return &base;
}
