/* OrtGetApiBase, the one name that this library exports: ONNX Runtime's own answer, with a copy of its function table
 * in which those functions are replaced that the plan has something to say about. Without a plan, with a runtime that
 * is too old or of another major version, with anything unexpected: the real table. */
#include "ort.h"

/* 1.14 brought HasSessionConfigEntry. The tables of one major version only ever grow, so there is no newest. */
#define OLDEST 14
#define LENGTH_KNOWN 24
#define MAX_SLOTS 1024

static const void *table[MAX_SLOTS];
static const struct rd_api_base *real_base;
static struct rd_lock lock;
/* 0: not looked at; 1: the table is ready; -1: the real one is given out. */
static int state;

/* What the runtime looked like: once dlclose has unloaded it, something else may be at its addresses. */
static struct rd_api_base seen_base;
static char seen_version[64];
static const void *seen_table[MAX_SLOTS];

/* The minor number of "1.23.2"; -1 for anything else. */
static int minor_of(const char *version)
{
    struct rd_text rest;
    uint64_t number;
    struct rd_text major = rd_split(rd_text_of(version == NULL ? "" : version), '.', &rest, NULL);
    struct rd_text minor = rd_split(rest, '.', &rest, NULL);
    return rd_text_is(major, "1") && rd_number(minor, &number) && number < 1000 ? (int)number : -1;
}

static bool leave_alone(const char *why)
{
    char text[400];
    struct rd_out line = rd_out(text, sizeof text);
    rd_put(&line, "onnxruntime ");
    if (rd_runtime.version != NULL) {
        rd_put(&line, rd_runtime.version);
        rd_put_char(&line, ' ');
    }
    rd_put(&line, "is not configured: ");
    rd_put(&line, why);
    rd_mark(RD_MARK_RUNTIME, text);
    rd_announce(text);
    return false;
}

/* Entries that the table of the version has: static_asserts of onnxruntime_c_api.cc. */
static unsigned least_length(int minor)
{
    static const unsigned short lengths[] = {239, 255, 266, 276, 280, 280, 285, 285, 318, 390, 415};
    int last = (int)(sizeof lengths / sizeof lengths[0]) - 1;
    return lengths[minor - OLDEST < last ? minor - OLDEST : last];
}

/* How many functions are copied: up to 1.24 the version's own number, of a newer table all that it seems to have. */
static unsigned table_length(const void *const *real, int minor)
{
    unsigned least = least_length(minor);
    return rd_table_length(real, least, minor > LENGTH_KNOWN ? MAX_SLOTS : least);
}

static void put_version(char *to, size_t size)
{
    const char *version = real_base->get_version();
    struct rd_out out = rd_out(to, size);
    rd_put(&out, version == NULL ? "" : version);
}

static bool prepare(void)
{
    char problem[256];
    struct rd_out error = rd_out(problem, sizeof problem);
    put_version(seen_version, sizeof seen_version);
    rd_runtime.version = real_base->get_version();
    rd_runtime.minor = minor_of(rd_runtime.version);
    const char *plan = rd_env("RADDLE_PLAN");
    if (plan == NULL || plan[0] == '\0') {
        /* The application has taken it out since it asked for the runtime: it wants to be left alone. */
        return false;
    }
    if (!rd_plan_parse(plan, &rd_runtime.plan, &error)) {
        rd_runtime.version = NULL;
        return leave_alone(problem);
    }
    if (rd_runtime.minor < OLDEST) {
        return leave_alone("this shim supports version 1 from 1.14 on");
    }
    rd_runtime.respect = rd_plan_respects(&rd_runtime.plan);
    rd_read_counts();
    rd_real = real_base->get_api((uint32_t)rd_runtime.minor);
    unsigned length = rd_real == NULL ? 0 : table_length(rd_real, rd_runtime.minor);
    if (length == 0) {
        return leave_alone("its function table does not match its version");
    }
    for (unsigned i = 0; i < length; i++) {
        table[i] = seen_table[i] = rd_real[i];
    }
    rd_options_wrap(table);
    rd_environment_wrap(table);
    rd_providers_wrap(table);
    rd_session_wrap(table);
    rd_async_wrap(table);
    for (unsigned i = 0; i < length; i++) {
        /* The code may ask whether this runtime has a function. */
        table[i] = seen_table[i] == NULL ? NULL : table[i];
    }
    return true;
}

static const struct rd_api_base *current_base(void)
{
    return __atomic_load_n(&real_base, __ATOMIC_ACQUIRE);
}

static const void *get_api(uint32_t version)
{
    const void *real = current_base()->get_api(version);
    if (real == NULL) {
        return NULL;
    }
    if (__atomic_load_n(&state, __ATOMIC_ACQUIRE) == 0 && rd_try_lock(&lock)) {
        if (state == 0) {
            __atomic_store_n(&state, prepare() ? 1 : -1, __ATOMIC_RELEASE);
        }
        rd_unlock(&lock);
    }
    /* One table serves all versions up to the runtime's own. */
    return __atomic_load_n(&state, __ATOMIC_ACQUIRE) > 0 && real == (const void *)rd_real ? table : real;
}

static const char *get_version(void)
{
    return current_base()->get_version();
}

static const struct rd_api_base wrapped_base = {get_api, get_version};

static bool is_code(const void *address)
{
    uintptr_t start, end;
    return address != NULL && rd_code_around(address, &start, &end);
}

/* Whether the runtime is the one that it was: not unloaded, nor replaced by another build at the same addresses. Where
 * the same file was loaded again to the same place, what is kept of it is as right as before. */
static bool is_there(void)
{
    char version[sizeof seen_version];
    if (rd_readable(real_base) < sizeof *real_base || real_base->get_api != seen_base.get_api
        || real_base->get_version != seen_base.get_version || !is_code((const void *)real_base->get_version)) {
        return false;
    }
    if (state == 0) {
        return true;
    }
    put_version(version, sizeof version);
    if (!rd_same(version, seen_version)) {
        return false;
    }
    if (state < 0) {
        return true;
    }
    /* Only as far as it is known: variables may follow, which change. */
    size_t size = least_length(rd_runtime.minor) * sizeof *rd_real;
    return is_code((const void *)real_base->get_api)
           && real_base->get_api((uint32_t)rd_runtime.minor) == (const void *)rd_real && rd_readable(rd_real) >= size
           && __builtin_memcmp(rd_real, seen_table, size) == 0;
}

/* Forgets a runtime that is gone, and with it all that was its own; nothing of it is called or read. */
static void drop(void)
{
    __atomic_store_n(&state, 0, __ATOMIC_RELEASE);
    rd_real = NULL;
    rd_runtime.version = NULL;
    rd_options_drop();
    rd_environment_drop();
    rd_session_drop();
    rd_async_drop();
}

/* Whether this base's runtime is the one that the process has wrapped, from now on if it has none. Threads that come
 * here at once agree: a runtime's first caller has no table of it yet, and one that is gone has no callers. */
static bool is_ours(const struct rd_api_base *base)
{
    if (!rd_try_lock(&lock)) {
        return base == current_base();
    }
    bool gone = real_base != NULL && !is_there();
    if (gone) {
        drop();
    }
    if (gone || real_base == NULL) {
        seen_base = *base;
        __atomic_store_n(&real_base, base, __ATOMIC_RELEASE);
    }
    bool ours = real_base == base;
    rd_unlock(&lock);
    return ours;
}

__attribute__((visibility("default"))) const struct rd_api_base *OrtGetApiBase(void)
{
    const struct rd_api_base *(*real)(void) =
        (const struct rd_api_base *(*)(void))rd_symbol("OrtGetApiBase", __builtin_return_address(0));
    const struct rd_api_base *base = real == NULL ? NULL : real();
    const char *plan = rd_env("RADDLE_PLAN");
    if (plan == NULL || plan[0] == '\0' || base == NULL || rd_readable(base) < sizeof *base
        || !is_code((const void *)base->get_api) || !is_code((const void *)base->get_version)) {
        return base;
    }
    if (!is_ours(base)) {
        rd_complain("a second onnxruntime in this process is not configured");
        return base;
    }
    if (rd_is_javascript()) {
        rd_thread_enters();
    }
    return &wrapped_base;
}
