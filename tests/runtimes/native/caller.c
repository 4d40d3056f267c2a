/* An application of ONNX Runtime's C API that does what it is told, a line at a time.
 *
 * native_lab.Caller writes commands to standard input and reads one answer a command: "= ok" or "= error <text>".
 * While it waits for the next command, the test looks at the process from outside (/proc/<pid>/task).
 *
 *   env [intra=N inter=N spin=0|1]    an environment, with global thread pools where numbers are given
 *   options NAME [key=value ...]      a session options object; keys as in `set`
 *   clone NAME OTHER | drop NAME      a copy of it under another name; release it
 *   provider NAME EP [key=value ...]  SessionOptionsAppendExecutionProvider
 *   cuda NAME | cuda2 NAME [k=v ...]  the CUDA provider by its plain struct, by its V2 options
 *   allocator                         CreateAndRegisterAllocator: the application shares an arena by itself
 *   session NAME OPTIONS|-            CreateSession; array NAME OPTIONS|-: CreateSessionFromArray
 *   run NAME | release NAME
 *   async NAME COUNT [INPUT]          COUNT RunAsync at once, each compared with Run; answers who called back
 *   storm OPTIONS N                   N threads that each make and release 20 sessions, of these options and of new ones
 *   fork                              goes on in a child, so that what was made before is behind it
 *
 * Built as a program (linked to ORT), with -DPLUGIN as a plugin that is linked to ORT while its host is not, with
 * -DBY_HANDLE as a program that finds ORT by dlopen and dlsym alone.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <onnxruntime_c_api.h>

#include "keys.h"

#define API "16" /* of ONNX Runtime 1.16, which every release in the lab has */
#define SIZE (64 * 256)

struct named { char name[32]; void* value; };

static const OrtApi* ort;
static OrtEnv* env;
static const char* model;
static struct named options[32], sessions[32];
static float input[SIZE];
static char answer[4096];
static int forked;

static void** find(struct named* among, const char* name) {
    for (int i = 0; i < 32; i++) {
        if (!among[i].name[0]) snprintf(among[i].name, sizeof among[i].name, "%s", name);
        if (!strcmp(among[i].name, name)) return &among[i].value;
    }
    abort();
}

static void* taken(struct named* among, const char* name) {
    void** place = find(among, name);
    void* value = *place;
    *place = NULL;
    return value;
}

static int failed(OrtStatus* status) {
    if (!status) return 0;
    snprintf(answer, sizeof answer, "error %s", ort->GetErrorMessage(status));
    for (char* at = answer; *at; at++)
        if (*at == '\n') *at = ' ';
    ort->ReleaseStatus(status);
    return 1;
}

/* key=value arguments that follow, split in place; returns how many. */
static size_t pairs(char** words, const char** keys, const char** values) {
    size_t count = 0;
    for (; words[count]; count++) {
        char* equals = strrchr(words[count], '=');
        if (!equals) break;
        *equals = 0;
        keys[count] = words[count];
        values[count] = equals + 1;
    }
    return count;
}

static void* own_body(void* given) {
    void** both = given;
    pthread_setname_np(pthread_self(), "application");
    ((OrtThreadWorkerFn)both[0])(both[1]);
    free(both);
    return NULL;
}

static OrtCustomThreadHandle own_create(void* unused, OrtThreadWorkerFn work, void* param) {
    pthread_t* thread = malloc(sizeof *thread);
    void** both = malloc(2 * sizeof *both);
    both[0] = (void*)work, both[1] = param;
    pthread_create(thread, NULL, own_body, both);
    (void)unused;
    return (OrtCustomThreadHandle)thread;
}

static void own_join(OrtCustomThreadHandle handle) {
    pthread_join(*(pthread_t*)handle, NULL);
    free((void*)handle);
}

static OrtStatus* set(OrtSessionOptions* to, const char* key, const char* value) {
    int number = atoi(value);
    if (!strcmp(key, "intra")) return ort->SetIntraOpNumThreads(to, number);
    if (!strcmp(key, "inter")) return ort->SetInterOpNumThreads(to, number);
    if (!strcmp(key, "parallel")) return ort->SetSessionExecutionMode(to, number ? ORT_PARALLEL : ORT_SEQUENTIAL);
    if (!strcmp(key, "graph")) return ort->SetSessionGraphOptimizationLevel(to, (GraphOptimizationLevel)number);
    if (!strcmp(key, "optimized")) return ort->SetOptimizedModelFilePath(to, value);
#define PAIR(place, off, on, since) \
    if (!strcmp(key, #place)) return number ? ort->on(to) : ort->off(to);
#define ONE(place, function, since) \
    if (!strcmp(key, #place)) return ort->function(to, number);
    RD_SWITCHES(PAIR, ONE)
    if (!strcmp(key, "shared")) return ort->DisablePerSessionThreads(to);
    if (!strncmp(key, "entry.", 6)) return ort->AddSessionConfigEntry(to, key + 6, value);
    if (!strcmp(key, "own")) {
        OrtStatus* status = ort->SessionOptionsSetCustomCreateThreadFn(to, own_create);
        return status ? status : ort->SessionOptionsSetCustomJoinThreadFn(to, own_join);
    }
    abort();
}

static void make_env(char** words) {
    if (!words[0]) {
        failed(ort->CreateEnv(ORT_LOGGING_LEVEL_WARNING, "caller", &env));
        return;
    }
    OrtThreadingOptions* threading = NULL;
    if (failed(ort->CreateThreadingOptions(&threading))) return;
    const char *keys[16], *values[16];
    size_t count = pairs(words, keys, values);
    for (size_t i = 0; i < count; i++) {
        int number = atoi(values[i]);
        OrtStatus* status = NULL;
        if (!strcmp(keys[i], "intra")) status = ort->SetGlobalIntraOpNumThreads(threading, number);
        if (!strcmp(keys[i], "inter")) status = ort->SetGlobalInterOpNumThreads(threading, number);
        if (!strcmp(keys[i], "spin")) status = ort->SetGlobalSpinControl(threading, number);
        if (failed(status)) return;
    }
    failed(ort->CreateEnvWithGlobalThreadPools(ORT_LOGGING_LEVEL_WARNING, "caller", threading, &env));
    ort->ReleaseThreadingOptions(threading);
}

static void make_options(const char* name, char** words) {
    OrtSessionOptions* made = NULL;
    if (failed(ort->CreateSessionOptions(&made))) return;
    *find(options, name) = made;
    const char *keys[16], *values[16];
    size_t count = pairs(words, keys, values);
    for (size_t i = 0; i < count; i++)
        if (failed(set(made, keys[i], values[i]))) return;
}

static void add_provider(const char* verb, const char* name, char** words) {
    OrtSessionOptions* to = *find(options, name);
    const char *keys[16], *values[16];
    if (!strcmp(verb, "provider")) {
        size_t count = pairs(words + 1, keys, values);
        failed(ort->SessionOptionsAppendExecutionProvider(to, words[0], keys, values, count));
    } else if (!strcmp(verb, "cuda")) {
        OrtCUDAProviderOptions plain;
        memset(&plain, 0, sizeof plain);
        plain.do_copy_in_default_stream = 1;
        failed(ort->SessionOptionsAppendExecutionProvider_CUDA(to, &plain));
    } else {
        OrtCUDAProviderOptionsV2* rich = NULL;
        if (failed(ort->CreateCUDAProviderOptions(&rich))) return;
        size_t count = pairs(words, keys, values);
        if (!failed(ort->UpdateCUDAProviderOptions(rich, keys, values, count)))
            failed(ort->SessionOptionsAppendExecutionProvider_CUDA_V2(to, rich));
        ort->ReleaseCUDAProviderOptions(rich);
    }
}

static void add_allocator(void) {
    OrtMemoryInfo* memory = NULL;
    if (failed(ort->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &memory))) return;
    failed(ort->CreateAndRegisterAllocator(env, memory, NULL));
    ort->ReleaseMemoryInfo(memory);
}

static void make_session(const char* verb, const char* name, const char* with) {
    const OrtSessionOptions* chosen = strcmp(with, "-") ? *find(options, with) : NULL;
    OrtSession* made = NULL;
    if (!strcmp(verb, "session")) {
        failed(ort->CreateSession(env, model, chosen, &made));
    } else {
        static char bytes[4 << 20];
        FILE* file = fopen(model, "rb");
        size_t size = fread(bytes, 1, sizeof bytes, file);
        fclose(file);
        failed(ort->CreateSessionFromArray(env, bytes, size, chosen, &made));
    }
    *find(sessions, name) = made;
}

static void run(const char* name) {
    int64_t shape[] = {64, 256};
    const char *in[] = {"input"}, *out[] = {"y3"};
    OrtMemoryInfo* memory = NULL;
    OrtValue *given = NULL, *got = NULL;
    if (failed(ort->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &memory))) return;
    if (!failed(ort->CreateTensorWithDataAsOrtValue(memory, input, sizeof input, shape, 2,
                                                    ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, &given)))
        failed(ort->Run(*find(sessions, name), NULL, in, (const OrtValue* const*)&given, 1, out, 1, &got));
    if (got) ort->ReleaseValue(got);
    if (given) ort->ReleaseValue(given);
    ort->ReleaseMemoryInfo(memory);
}

/* What one RunAsync's callback was given. */
struct came {
    OrtValue* output;
    sem_t done;
    OrtValue** outputs;
    size_t count;
    OrtStatus* status;
    char thread[16];
};

static void call_back(void* given, OrtValue** outputs, size_t count, OrtStatus* status) {
    struct came* came = given;
    came->outputs = outputs, came->count = count, came->status = status;
    pthread_getname_np(pthread_self(), came->thread, sizeof came->thread);
    sem_post(&came->done);
}

static void compare(struct came* came, const OrtValue* expected) {
    float *found = NULL, *wanted = NULL;
    if (came->status) {
        failed(came->status);
        size_t length = strlen(answer);
        snprintf(answer + length, sizeof answer - length, ", %s with %zu outputs",
                 came->outputs == &came->output ? "the array" : came->outputs ? "another array" : "no array",
                 came->count);
    } else if (came->outputs != &came->output || came->count != 1)
        snprintf(answer, sizeof answer, "error %zu outputs elsewhere", came->count);
    else if (!failed(ort->GetTensorMutableData(came->output, (void**)&found)) &&
             !failed(ort->GetTensorMutableData((OrtValue*)expected, (void**)&wanted))) {
        if (memcmp(found, wanted, SIZE * sizeof *found)) snprintf(answer, sizeof answer, "error other values");
        if (!strcmp(answer, "ok")) snprintf(answer, sizeof answer, "by %s", came->thread);
    }
    if (came->output) ort->ReleaseValue(came->output);
}

static void run_async(const char* name, size_t count, const char* wrong) {
    static struct came came[256];
    static float varied[SIZE];
    int64_t shape[] = {64, 256};
    const char *in[] = {"input"}, *out[] = {"y3"}, *asked[] = {wrong ? wrong : "input"};
    OrtSession* session = *find(sessions, name);
    OrtMemoryInfo* memory = NULL;
    OrtValue *given = NULL, *expected = NULL;
    for (int i = 0; i < SIZE; i++) varied[i] = (float)(i % 101 - 50) / 50;
    if (failed(ort->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &memory))) return;
    if (failed(ort->CreateTensorWithDataAsOrtValue(memory, varied, sizeof varied, shape, 2,
                                                   ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, &given)))
        return;
    if (failed(ort->Run(session, NULL, in, (const OrtValue* const*)&given, 1, out, 1, &expected))) return;
    size_t started = 0;
    for (; started < count; started++) {
        memset(&came[started], 0, sizeof *came);
        sem_init(&came[started].done, 0, 0);
        if (failed(ort->RunAsync(session, NULL, asked, (const OrtValue* const*)&given, 1, out, 1,
                                 &came[started].output, call_back, &came[started])))
            break;
    }
    for (size_t i = 0; i < started; i++) {
        sem_wait(&came[i].done);
        compare(&came[i], expected);
    }
    ort->ReleaseValue(expected);
    ort->ReleaseValue(given);
    ort->ReleaseMemoryInfo(memory);
}

static void* make_and_release(void* shared) {
    for (int i = 0; i < 20; i++) {
        OrtSessionOptions* own = NULL;
        OrtSession *one = NULL, *two = NULL;
        OrtStatus* status = ort->CreateSessionOptions(&own);
        if (!status) status = ort->CreateSession(env, model, shared, &one);
        if (!status) status = ort->CreateSession(env, model, own, &two);
        if (status) return (void*)status;
        ort->ReleaseSessionOptions(own);
        ort->ReleaseSession(one);
        ort->ReleaseSession(two);
    }
    return NULL;
}

static void storm(OrtSessionOptions* shared, int count) {
    pthread_t threads[64];
    void* status = NULL;
    for (int i = 0; i < count; i++) pthread_create(&threads[i], NULL, make_and_release, shared);
    for (int i = 0; i < count; i++) {
        pthread_join(threads[i], &status);
        failed(status);
    }
}

static void go_on_in_a_child(void) {
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        forked = 1;
        return;
    }
    waitpid(child, &status, 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

static void obey(char** words) {
    const char* verb = words[0];
    if (!strcmp(verb, "env")) make_env(words + 1);
    else if (!strcmp(verb, "fork")) go_on_in_a_child();
    else if (!strcmp(verb, "storm")) storm(*find(options, words[1]), atoi(words[2]));
    else if (!strcmp(verb, "allocator")) add_allocator();
    else if (!strcmp(verb, "options")) make_options(words[1], words + 2);
    else if (!strcmp(verb, "clone"))
        failed(ort->CloneSessionOptions(*find(options, words[1]), (OrtSessionOptions**)find(options, words[2])));
    else if (!strcmp(verb, "drop")) ort->ReleaseSessionOptions(taken(options, words[1]));
    else if (!strcmp(verb, "session") || !strcmp(verb, "array")) make_session(verb, words[1], words[2]);
    else if (!strcmp(verb, "run")) run(words[1]);
    else if (!strcmp(verb, "async")) run_async(words[1], (size_t)atoi(words[2]), words[3]);
    else if (!strcmp(verb, "release")) ort->ReleaseSession(taken(sessions, words[1]));
    else add_provider(verb, words[1], words + 2);
}

static const OrtApiBase* base(void) {
#ifdef BY_HANDLE
    void* handle = dlopen(getenv("CALLER_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
    const OrtApiBase* (*get)(void) = (const OrtApiBase* (*)(void))dlsym(handle, "OrtGetApiBase");
    return get();
#else
    return OrtGetApiBase();
#endif
}

#ifdef PLUGIN
int caller_main(void)
#else
int main(void)
#endif
{
    char line[8192], *words[32];
    const char* api = getenv("CALLER_API");
    model = getenv("CALLER_MODEL");
    ort = base()->GetApi((uint32_t)atoi(api ? api : API));
    printf("= version %s%s\n", base()->GetVersionString(), ort ? "" : " without its API");
    fflush(stdout);
    while (ort && fgets(line, sizeof line, stdin)) {
        size_t count = 0;
        for (char* word = strtok(line, " \n"); word && count < 31; word = strtok(NULL, " \n")) words[count++] = word;
        words[count] = NULL;
        snprintf(answer, sizeof answer, "ok");
        obey(words);
        printf("= %s\n", answer);
        fflush(stdout);
    }
    /* The threads of what was made before are the parent's: ORT itself waits for them at exit, for ever. */
    if (forked) _exit(0);
    /* As a careful application ends: what it made is released, and its pools' threads are joined. */
    for (int i = 0; ort && i < 32; i++)
        if (sessions[i].value) ort->ReleaseSession(sessions[i].value);
    for (int i = 0; ort && i < 32; i++)
        if (options[i].value) ort->ReleaseSessionOptions(options[i].value);
    if (env) ort->ReleaseEnv(env);
    return 0;
}
