/* Options of execution providers: the plan's are merged into those that the application passes. Nothing is added for a
 * provider that it does not ask for. Where the merged ones are refused, the application's own are used. */
#include "ort.h"

#define MAX_OPTIONS 96

struct merged {
    const char *keys[MAX_OPTIONS];
    const char *values[MAX_OPTIONS];
    size_t count;
    bool changed;
    char text[24 * 24];
    size_t used;
};

struct provider {
    const char *names[4];
    enum rd_key first, last;
    bool gpu;
};

static const struct provider providers[] = {
    {{"CUDA", "CUDAExecutionProvider", NULL}, RD_CUDA_FIRST, RD_CUDA_LAST, true},
    {{"OpenVINO", "OpenVINOExecutionProvider", NULL}, RD_OPENVINO_FIRST, RD_OPENVINO_LAST, false},
    {{"XNNPACK", "XnnpackExecutionProvider", NULL}, RD_XNNPACK_FIRST, RD_XNNPACK_LAST, false},
};

static const struct provider *provider_of(const char *name)
{
    for (unsigned i = 0; i < sizeof providers / sizeof providers[0]; i++) {
        for (int k = 0; providers[i].names[k] != NULL; k++) {
            if (name != NULL && rd_same(name, providers[i].names[k])) {
                return &providers[i];
            }
        }
    }
    return NULL;
}

/* The option's name without the plan's prefix: "gpu_mem_limit" of "cuda.gpu_mem_limit". */
static const char *option_name(enum rd_key key)
{
    const char *name = rd_plan_key(key);
    while (*name != '\0' && *name != '.') {
        name++;
    }
    return *name == '.' ? name + 1 : name;
}

/* Adds the plan's option, or puts it in the place of the application's where the policy overrides. */
static void merge(struct merged *merged, enum rd_key key, bool override)
{
    const char *name = option_name(key);
    size_t at = 0;
    while (at < merged->count && !rd_same(merged->keys[at], name)) {
        at++;
    }
    if ((at < merged->count && !override) || at == MAX_OPTIONS || merged->used + 24 > sizeof merged->text) {
        return;
    }
    struct rd_out out = rd_out(merged->text + merged->used, 24);
    rd_plan_value(&rd_runtime.plan, key, &out);
    if (at < merged->count && rd_same(merged->values[at], out.at)) {
        return;
    }
    merged->used += 24;
    merged->keys[at] = name;
    merged->values[at] = out.at;
    merged->count += at == merged->count;
    merged->changed = true;
}

static bool merge_all(struct merged *merged, const struct provider *provider, const char *const *keys,
                      const char *const *values, size_t count)
{
    merged->count = 0;
    merged->used = 0;
    merged->changed = false;
    if (provider == NULL || count > MAX_OPTIONS - 24) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (keys[i] == NULL || values[i] == NULL) {
            return false;
        }
        merged->keys[i] = keys[i];
        merged->values[i] = values[i];
    }
    merged->count = count;
    for (int key = (int)provider->first; key <= (int)provider->last; key++) {
        if (rd_runtime.plan.has[key]) {
            merge(merged, (enum rd_key)key, !rd_runtime.respect);
        }
    }
    return merged->changed;
}

static void complain(const char *message)
{
    char text[300];
    struct rd_out line = rd_out(text, sizeof text);
    rd_put(&line, "onnxruntime session is created without the plan's provider options: ");
    rd_put(&line, message);
    rd_complain(text);
}

typedef rd_status (*append_function)(void *, const char *, const char *const *, const char *const *, size_t);
typedef rd_status (*append_openvino_function)(void *, const char *const *, const char *const *, size_t);

static rd_status append(void *options, const char *name, const char *const *keys, const char *const *values,
                        size_t count)
{
    append_function real = RD_REAL(SessionOptionsAppendExecutionProvider, append_function);
    const struct provider *provider = provider_of(name);
    struct merged merged;
    if (provider != NULL && provider->gpu) {
        rd_options_gpu(options);
    }
    if (merge_all(&merged, provider, keys, values, count)) {
        char message[200];
        if (rd_ok(real(options, name, merged.keys, merged.values, merged.count), message, sizeof message)) {
            return NULL;
        }
        complain(message);
    }
    return real(options, name, keys, values, count);
}

static rd_status append_openvino(void *options, const char *const *keys, const char *const *values, size_t count)
{
    append_openvino_function real = RD_REAL(SessionOptionsAppendExecutionProvider_OpenVINO_V2,
                                            append_openvino_function);
    struct merged merged;
    if (merge_all(&merged, &providers[1], keys, values, count)) {
        char message[200];
        if (rd_ok(real(options, merged.keys, merged.values, merged.count), message, sizeof message)) {
            return NULL;
        }
        complain(message);
    }
    return real(options, keys, values, count);
}

/* ---- CUDA's own structure: its options as text, merged into a new one ---- */

typedef rd_status (*as_text_function)(const void *, void *, char **);
typedef rd_status (*update_function)(void *, const char *const *, const char *const *, size_t);

struct cuda {
    struct merged merged;
    const char *keys[MAX_OPTIONS];
    const char *values[MAX_OPTIONS];
    char text[8192];
    char defaults[8192];
};

/* "key=value;key=value" of the structure, into `text`. */
static bool read_options(const void *settings, char *text, size_t size)
{
    void *allocator = NULL;
    char *found = NULL;
    if (!rd_ok(RD_REAL(GetAllocatorWithDefaultOptions, rd_on)((void *)&allocator), NULL, 0)
        || !rd_ok(RD_REAL(GetCUDAProviderOptionsAsString, as_text_function)(settings, allocator, &found), NULL, 0)
        || found == NULL) {
        return false;
    }
    struct rd_out out = rd_out(text, size);
    rd_put(&out, found);
    bool whole = rd_length(found) < size;
    rd_ok(RD_REAL(AllocatorFree, rd_on_pointer)(allocator, found), NULL, 0);
    return whole;
}

/* Whether "key=value" is one of the parts of the text. */
static bool has_part(const char *text, struct rd_text part)
{
    struct rd_text rest = rd_text_of(text);
    for (bool more = true; more;) {
        struct rd_text one = rd_split(rest, ';', &rest, &more);
        if (one.length == part.length && __builtin_memcmp(one.at, part.at, part.length) == 0) {
            return true;
        }
    }
    return false;
}

/* The parts that are not the structure's defaults: those are what the code has set. */
static size_t code_options(struct cuda *cuda)
{
    size_t count = 0;
    struct rd_text rest = rd_text_of(cuda->text);
    for (bool more = true; more && count < MAX_OPTIONS;) {
        struct rd_text value;
        bool equals;
        struct rd_text part = rd_split(rest, ';', &rest, &more);
        struct rd_text key = rd_split(part, '=', &value, &equals);
        if (!equals || has_part(cuda->defaults, part)) {
            continue;
        }
        /* The text is our own copy: its marks become ends. */
        ((char *)(uintptr_t)key.at)[key.length] = '\0';
        ((char *)(uintptr_t)value.at)[value.length] = '\0';
        cuda->keys[count] = key.at;
        cuda->values[count] = value.at;
        count++;
    }
    return count;
}

/* A new structure of the code's options and the plan's; NULL where it can't be made or would not differ. */
static void *merged_cuda(struct cuda *cuda, const void *settings)
{
    void *made = NULL;
    char message[200];
    if (!read_options(settings, cuda->text, sizeof cuda->text)
        || has_part(cuda->text, rd_text_of("has_user_compute_stream=1"))
        || !rd_ok(RD_REAL(CreateCUDAProviderOptions, rd_on)((void *)&made), NULL, 0)) {
        return NULL;
    }
    if (read_options(made, cuda->defaults, sizeof cuda->defaults)
        && merge_all(&cuda->merged, &providers[0], cuda->keys, cuda->values, code_options(cuda))) {
        if (rd_ok(RD_REAL(UpdateCUDAProviderOptions, update_function)(made, cuda->merged.keys, cuda->merged.values,
                                                                      cuda->merged.count),
                  message, sizeof message)) {
            return made;
        }
        complain(message);
    }
    RD_REAL(ReleaseCUDAProviderOptions, rd_release)(made);
    return NULL;
}

static rd_status append_cuda(void *options, const void *settings)
{
    rd_on_pointer real = RD_REAL(SessionOptionsAppendExecutionProvider_CUDA_V2, rd_on_pointer);
    struct cuda *cuda = rd_map(sizeof *cuda);
    void *made = cuda == NULL || settings == NULL ? NULL : merged_cuda(cuda, settings);
    rd_unmap(cuda, sizeof *cuda);
    rd_options_gpu(options);
    if (made != NULL) {
        char message[200];
        bool done = rd_ok(real(options, made), message, sizeof message);
        RD_REAL(ReleaseCUDAProviderOptions, rd_release)(made);
        if (done) {
            return NULL;
        }
        complain(message);
    }
    return real(options, settings);
}

void rd_providers_wrap(const void **table)
{
    table[SLOT_SessionOptionsAppendExecutionProvider_CUDA_V2] = (const void *)append_cuda;
    table[SLOT_SessionOptionsAppendExecutionProvider] = (const void *)append;
    if (rd_runtime.minor >= 17) {
        table[SLOT_SessionOptionsAppendExecutionProvider_OpenVINO_V2] = (const void *)append_openvino;
    }
}
