/* As run_model.py, which has the protocol, with ONNX Runtime's C API:
 *
 *     run-model LIBRARY MODEL INPUTS plain|io-binding SOCKET
 *
 * LIBRARY is what dlopen is given: libonnxruntime.so.1, or a path. `python -m native build` makes the program. It asks
 * glibc for nothing that came after 2.17, so that it runs in the image that has the library. */
#include <dirent.h>
#include <dlfcn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "slots.h"

/* Lazy work of the first runs belongs to the start. */
#define WARM_UP_RUNS 3
#define MOST_INPUTS 64
#define MOST_OUTPUTS 64
#define MOST_DIMS 16
/* The oldest ONNX Runtime that a policy's users may have is 1.16. */
#define API_VERSION 16
#define WARNING 2
#define DEVICE_ALLOCATOR 0
#define DEFAULT_MEMORY 0

/* Since glibc 2.34 these four have a new version, which older ones lack. */
#if defined(__x86_64__)
#define OLD "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define OLD "GLIBC_2.17"
#else
#error "Raddle has nothing for this architecture"
#endif
__asm__(".symver dlopen, dlopen@" OLD);
__asm__(".symver dlsym, dlsym@" OLD);
__asm__(".symver dlerror, dlerror@" OLD);
__asm__(".symver old_libc_start_main, __libc_start_main@" OLD);

typedef int (*program)(int, char **, char **);
int old_libc_start_main(program, int, char **, void (*)(void), void (*)(void), void (*)(void), void *);
int __wrap___libc_start_main(program, int, char **, void (*)(void), void (*)(void), void (*)(void), void *);

/* The linker's --wrap has what starts main call this. */
int __wrap___libc_start_main(program begin, int count, char **arguments, void (*init)(void), void (*fini)(void),
                             void (*loader_fini)(void), void *stack_end)
{
    return old_libc_start_main(begin, count, arguments, init, fini, loader_fini, stack_end);
}

static const char *socket_path;
static const void *const *api;
static void *session;
static const char *input_names[MOST_INPUTS];
static const void *input_values[MOST_INPUTS];
static size_t input_count;
static const char *output_names[MOST_OUTPUTS];
static size_t output_count;
static void *binding;

/* ---- the other side ---- */

/* -1 where it is gone. */
static int connected(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int link = socket(AF_UNIX, SOCK_STREAM, 0);
    if (strlen(socket_path) >= sizeof address.sun_path) {
        return -1;
    }
    strcpy(address.sun_path, socket_path);
    if (link >= 0 && connect(link, (const struct sockaddr *)&address, sizeof address) != 0) {
        close(link);
        return -1;
    }
    return link;
}

static bool sent(int link, const char *text, size_t length)
{
    while (length > 0) {
        ssize_t count = send(link, text, length, MSG_NOSIGNAL);
        if (count <= 0) {
            return false;
        }
        text += count;
        length -= (size_t)count;
    }
    return true;
}

/* Tells why it can't go on, and ends. */
__attribute__((noreturn, format(printf, 1, 2))) static void fail(const char *format, ...)
{
    char message[2048], line[2 * sizeof message + 32] = "{\"error\": \"";
    size_t length = strlen(line);
    va_list values;
    va_start(values, format);
    vsnprintf(message, sizeof message, format, values);
    va_end(values);
    for (const char *at = message; *at != '\0'; at++) {
        if (*at == '"' || *at == '\\') {
            line[length++] = '\\';
        }
        line[length++] = (unsigned char)*at < ' ' ? ' ' : *at;
    }
    memcpy(line + length, "\"}\n", 4);
    int link = connected();
    if (link >= 0) {
        sent(link, line, length + 3);
    }
    _exit(1);
}

/* ---- ONNX Runtime ---- */

typedef void *status;
#define ORT(name, ...) ((status(*)(__VA_ARGS__))(uintptr_t)api[SLOT_##name])

static void check(status found)
{
    if (found != NULL) {
        fail("%s", ((const char *(*)(const void *))(uintptr_t)api[SLOT_GetErrorMessage])(found));
    }
}

/* How many threads this process has. */
static int threads(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/task");
    const struct dirent *entry;
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        count += entry->d_name[0] != '.';
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return count;
}

struct api_base {
    const void *const *(*get_api)(uint32_t version);
    const char *(*get_version)(void);
};

/* Makes the session; returns ONNX Runtime's version. `own` are the threads of the session, the caller with them. */
static const char *open_model(const char *library, const char *model, int *own)
{
    if (dlopen(library, RTLD_NOW | RTLD_GLOBAL) == NULL) {
        fail("%s", dlerror());
    }
    /* NULL is the program's own scope: as in one that was linked to the library, the shim comes first where it was
     * preloaded. */
    const struct api_base *(*get_base)(void);
    *(void **)&get_base = dlsym(NULL, "OrtGetApiBase");
    if (get_base == NULL) {
        fail("%s is no ONNX Runtime: it has no OrtGetApiBase", library);
    }
    const struct api_base *base = get_base();
    const char *version = base->get_version();
    api = base->get_api(API_VERSION);
    if (api == NULL) {
        fail("ONNX Runtime %s is older than 1.%d", version, API_VERSION);
    }
    void *environment, *options, *allocator;
    check(ORT(CreateEnv, int, const char *, void **)(WARNING, "run-model", &environment));
    check(ORT(CreateSessionOptions, void **)(&options));
    /* Newer releases have a thread of their own by now. */
    int before = threads();
    check(ORT(CreateSession, const void *, const char *, const void *, void **)(environment, model, options, &session));
    *own = threads() - before + 1;
    check(ORT(GetAllocatorWithDefaultOptions, void **)(&allocator));
    check(ORT(SessionGetOutputCount, const void *, size_t *)(session, &output_count));
    if (output_count > MOST_OUTPUTS) {
        fail("the model has %zu outputs; this runner takes up to %d", output_count, MOST_OUTPUTS);
    }
    for (size_t index = 0; index < output_count; index++) {
        check(ORT(SessionGetOutputName, const void *, size_t, void *, const char **)(session, index, allocator,
                                                                                    &output_names[index]));
    }
    return version;
}

/* ---- its inputs ---- */

/* ONNXTensorElementDataType, 0 for a name that numpy has no such type for. */
static int element_type(const char *name)
{
    static const char *const NAMES[] = {"",      "float32", "uint8", "int8",    "uint16",  "int16",  "int32",
                                        "int64", "str",     "bool",  "float16", "float64", "uint32", "uint64"};
    int type = sizeof NAMES / sizeof *NAMES - 1;
    while (type > 0 && strcmp(NAMES[type], name) != 0) {
        type--;
    }
    return type;
}

/* The file, with a zero behind it. */
static char *contents(const char *folder, const char *name, size_t *length)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0) {
        fail("%s can't be read", path);
    }
    *length = (size_t)ftell(file);
    rewind(file);
    char *found = malloc(*length + 1);
    if (found == NULL || fread(found, 1, *length, file) != *length) {
        fail("%s can't be read", path);
    }
    found[*length] = '\0';
    fclose(file);
    return found;
}

static void *tensor(int type, const int64_t *dims, size_t rank, char *values, size_t length, const void *memory)
{
    enum { STRING = 8 };
    void *made, *allocator;
    if (type != STRING) {
        check(ORT(CreateTensorWithDataAsOrtValue, const void *, void *, size_t, const int64_t *, size_t, int, void **)(
            memory, values, length, dims, rank, type, &made));
        return made;
    }
    size_t count = 0;
    for (size_t at = 0; at < length; at++) {
        count += values[at] == '\0';
    }
    const char **texts = calloc(count + 1, sizeof *texts);
    if (texts == NULL) {
        fail("no memory for %zu strings", count);
    }
    for (size_t index = 0; index < count; index++) {
        texts[index] = values;
        values += strlen(values) + 1;
    }
    check(ORT(GetAllocatorWithDefaultOptions, void **)(&allocator));
    check(ORT(CreateTensorAsOrtValue, void *, const int64_t *, size_t, int, void **)(allocator, dims, rank, type, &made));
    check(ORT(FillStringTensor, void *, const char *const *, size_t)(made, texts, count));
    free(texts);
    return made;
}

static void read_inputs(const char *folder, const void *memory)
{
    size_t length;
    char *rest = contents(folder, "inputs", &length);
    for (char *line; (line = strsep(&rest, "\n")) != NULL && *line != '\0'; input_count++) {
        char *kind = strsep(&line, " "), *shape = strsep(&line, " "), *file = strsep(&line, " ");
        int type = element_type(kind);
        int64_t dims[MOST_DIMS];
        size_t rank = 0;
        if (line == NULL || type == 0 || input_count == MOST_INPUTS) {
            fail("input %zu can't be given: its type is %s", input_count + 1, kind);
        }
        for (; shape != NULL && *shape != '-'; rank++) {
            if (rank == MOST_DIMS) {
                fail("input %s has more than %d dimensions", line, MOST_DIMS);
            }
            dims[rank] = atoll(strsep(&shape, ","));
        }
        char *values = contents(folder, file, &length);
        input_names[input_count] = line;
        input_values[input_count] = tensor(type, dims, rank, values, length, memory);
    }
}

/* ---- running ---- */

static void bind_outputs(const void *memory)
{
    check(ORT(CreateIoBinding, void *, void **)(session, &binding));
    for (size_t index = 0; index < output_count; index++) {
        check(ORT(BindOutputToDevice, void *, const char *, const void *)(binding, output_names[index], memory));
    }
}

static void run_bound(void)
{
    /* As a program has new values for each request. */
    for (size_t index = 0; index < input_count; index++) {
        check(ORT(BindInput, void *, const char *, const void *)(binding, input_names[index], input_values[index]));
    }
    check(ORT(RunWithBinding, void *, const void *, const void *)(session, NULL, binding));
}

static void run(void)
{
    void *outputs[MOST_OUTPUTS] = {NULL};
    if (binding != NULL) {
        run_bound();
        return;
    }
    check(ORT(Run, void *, const void *, const char *const *, const void *const *, size_t, const char *const *, size_t,
              void **)(session, NULL, input_names, input_values, input_count, output_names, output_count, outputs));
    for (size_t index = 0; index < output_count; index++) {
        ((void (*)(void *))(uintptr_t)api[SLOT_ReleaseValue])(outputs[index]);
    }
}

int main(int count, char **arguments)
{
    if (count != 6) {
        fputs("run-model LIBRARY MODEL INPUTS plain|io-binding SOCKET\n", stderr);
        return 2;
    }
    socket_path = arguments[5];
    void *memory;
    int own;
    const char *version = open_model(arguments[1], arguments[2], &own);
    check(ORT(CreateCpuMemoryInfo, int, int, void **)(DEVICE_ALLOCATOR, DEFAULT_MEMORY, &memory));
    read_inputs(arguments[3], memory);
    if (strcmp(arguments[4], "io-binding") == 0) {
        bind_outputs(memory);
    }
    for (int runs = 0; runs < WARM_UP_RUNS; runs++) {
        run();
    }
    char line[256];
    int length = snprintf(line, sizeof line,
                          "{\"runtime\": \"onnxruntime\", \"version\": \"%s\", \"providers\": [\"CPUExecutionProvider\"], "
                          "\"threads\": %d}\n",
                          version, own);
    int link = connected();
    if (link < 0 || !sent(link, line, (size_t)length)) {
        return 1;
    }
    /* One request at a time, so that a line is never cut in two. */
    for (ssize_t got; (got = recv(link, line, 64, 0)) > 0;) {
        run();
        if (!sent(link, line, (size_t)got)) {
            break;
        }
    }
    /* Runtimes may take long to end, or crash. */
    _exit(0);
}
