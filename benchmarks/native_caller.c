/* Makes sessions through the real function table and through the native shim's, taking turns: native_shim.py times it.
 *
 *     native_caller <libonnxruntime> <model> <rounds> <intra-op threads>
 *
 * Preloaded with libraddle.so, whose plan says the same threads. A round is one session of each kind, from its options
 * to its release, in changing order; stdout: nanoseconds of real, real again and wrapped, one round per line, and a line
 * that says whether Run is the real function.
 */
#define _GNU_SOURCE
#include "slots.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct base {
    const void *const *(*get_api)(uint32_t);
    const char *(*get_version)(void);
};
typedef const struct base *(*get_base)(void);

#define CALL(slot, ...) ((void *(*)())(uintptr_t)api[SLOT_##slot])(__VA_ARGS__)

static void *env;
static const char *model;
static int threads;

static void ok(const void *const *api, void *status)
{
    if (status != NULL) {
        fprintf(stderr, "native_caller: %s\n", (const char *)CALL(GetErrorMessage, status));
        exit(1);
    }
}

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* One session. `set`: the code itself sets what the plan would. */
static int64_t session_ns(const void *const *api, int set)
{
    void *options, *session;
    int64_t start = now_ns();
    ok(api, CALL(CreateSessionOptions, &options));
    if (set) {
        ok(api, CALL(SetIntraOpNumThreads, options, threads));
        ok(api, CALL(SetInterOpNumThreads, options, 1));
        if (threads > 1) {
            ok(api, CALL(AddSessionConfigEntry, options, "session.intra_op.allow_spinning", "0"));
        }
    }
    ok(api, CALL(CreateSession, env, model, options, &session));
    CALL(ReleaseSession, session);
    CALL(ReleaseSessionOptions, options);
    return now_ns() - start;
}

int main(int count, char **arguments)
{
    if (count != 5) {
        return 2;
    }
    void *library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    get_base real_base = library == NULL ? NULL : (get_base)(uintptr_t)dlsym(library, "OrtGetApiBase");
    get_base our_base = (get_base)(uintptr_t)dlsym(RTLD_DEFAULT, "OrtGetApiBase");
    if (real_base == NULL || our_base == NULL) {
        fprintf(stderr, "native_caller: %s\n", library == NULL ? dlerror() : "the shim is not preloaded");
        return 1;
    }
    const void *const *api = real_base()->get_api(14), *const *ours = our_base()->get_api(14);
    model = arguments[2];
    threads = atoi(arguments[4]);
    ok(api, CALL(CreateEnv, 3, "caller", &env));
    session_ns(api, 1);
    session_ns(ours, 0);
    for (int round = 0; round < atoi(arguments[3]); round++) {
        int64_t taken[3];
        for (int turn = 0; turn < 3; turn++) {
            int which = (round + turn) % 3;
            taken[which] = session_ns(which == 2 ? ours : api, which != 2);
        }
        printf("%lld %lld %lld\n", (long long)taken[0], (long long)taken[1], (long long)taken[2]);
    }
    printf("run %s\n", ours[SLOT_Run] == api[SLOT_Run] && ours != api ? "real" : "not real");
    return 0;
}
