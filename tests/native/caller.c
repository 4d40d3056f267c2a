/* Makes sessions the way a C program does: caller <count that the code sets, 0 for none> <how>
 *
 * MODEL is the model's path. how: "" one session; "null" without options; "clone" with a clone of the options;
 * "released" with options made where others were released; "kept" with thousands of options that are not; "many"
 * sessions; "again" one before and after another user of the environment released it, and one in a new environment;
 * "late" functions that only a newer runtime has; "threads" and, by the model editor, "editor" name the threads while there is one; "fork" one before and one
 * after a fork, the first released before it, or ("live") never; "closed" with a file in the place of standard error;
 * "burst" after thousands of options that are all released again; "without" a plan any more; "later" in an environment by
 * options of a later version, "crossing" by such whose last field is on the next page; "waits" for the end of standard
 * input after two sessions, as does a child that has made none.
 */
#include "creation.h"
#include "slots.h"

#include <dirent.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct base {
    const void *const *(*get_api)(uint32_t);
    const char *(*get_version)(void);
};
extern const struct base *OrtGetApiBase(void);

#define CALL(slot, ...) ((void *(*)())(uintptr_t)api[SLOT_##slot])(__VA_ARGS__)

static const void *const *api;

static void ok(void *status)
{
    if (status != NULL) {
        printf("failed: %s\n", (const char *)CALL(GetErrorMessage, status));
        exit(3);
    }
}

static void *create_env_by_options(size_t before_page)
{
    static _Alignas(4096) char pages[8192];
    struct creation *given = (void *)(pages + 4096 - before_page);
    void *env;
    *given = (struct creation){.version = LATER_VERSION, .level = 3, .id = "caller", .later = 0x5ca1ab1e};
    ok(CALL(CreateEnvWithOptions, given, &env));
    return env;
}

static void *make(void *env, void *options)
{
    void *session;
    const char *path = getenv("MODEL");
    ok(CALL(CreateSession, env, path == NULL ? "model" : path, options, &session));
    return session;
}

/* The model editor's way: the session has its pools before it has a model to run. */
static void *edit(void *env, void *options)
{
    void *session;
    const void *const *editor = CALL(GetModelEditorApi);
    ok(((void *(*)())(uintptr_t)editor[EDITOR_CreateModelEditorSession])(env, getenv("MODEL"), options, &session));
    return session;
}

static void use(void *env, void *options)
{
    CALL(ReleaseSession, make(env, options));
}

/* Until the thread has had nothing to do once, ten seconds at most: it names itself when it starts. */
static void await_start(const char *thread)
{
    char path[300], text[4096];
    snprintf(path, sizeof path, "/proc/self/task/%s/status", thread);
    for (int tries = 0; tries < 10000; tries++) {
        FILE *file = fopen(path, "r");
        size_t length = file == NULL ? 0 : fread(text, 1, sizeof text - 1, file);
        text[length] = '\0';
        if (file != NULL) {
            fclose(file);
        }
        if (strstr(text, "\nvoluntary_ctxt_switches:\t0\n") == NULL) {
            return;
        }
        usleep(1000);
    }
}

static void list_threads(void)
{
    DIR *folder = opendir("/proc/self/task");
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        char path[300], name[64];
        if (atoi(entry->d_name) != getpid()) {
            await_start(entry->d_name);
        }
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
        FILE *file = fopen(path, "r");
        if (file != NULL && fgets(name, sizeof name, file) != NULL) {
            printf("%s", name);
        }
        if (file != NULL) {
            fclose(file);
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
}

int main(int count, char **arguments)
{
    int code = count > 1 ? atoi(arguments[1]) : 0;
    const char *how = count > 2 ? arguments[2] : "";
    void *env, *options, *other;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (strcmp(how, "closed") == 0) {
        close(2);
        if (open(getenv("VICTIM"), O_WRONLY | O_CREAT, 0600) != 2) {
            return 2;
        }
    }
    const struct base *base = OrtGetApiBase();
    if (strcmp(how, "without") == 0) {
        unsetenv("RADDLE_PLAN");
    }
    api = base->get_api(strcmp(how, "editor") == 0 ? 22 : 14);
    if (api == NULL) {
        printf("no api\n");
        return 2;
    }
    if (strcmp(how, "later") == 0) {
        env = create_env_by_options(4096);
    } else if (strcmp(how, "crossing") == 0) {
        env = create_env_by_options(offsetof(struct creation, later));
    } else {
        ok(CALL(CreateEnv, 3, "caller", &env));
    }
    ok(CALL(CreateSessionOptions, &options));
    if (code != 0) {
        ok(CALL(SetIntraOpNumThreads, options, code));
    }
    if (strcmp(how, "burst") == 0) {
        static void *many[5000];
        for (int i = 0; i < 5000; i++) {
            ok(CALL(CreateSessionOptions, &many[i]));
            ok(CALL(SetIntraOpNumThreads, many[i], 9));
        }
        for (int i = 0; i < 5000; i++) {
            CALL(ReleaseSessionOptions, many[i]);
        }
        CALL(ReleaseSessionOptions, options);
        ok(CALL(CreateSessionOptions, &options));
        use(env, options);
    } else if (strcmp(how, "null") == 0) {
        use(env, NULL);
    } else if (strcmp(how, "clone") == 0) {
        ok(CALL(CloneSessionOptions, options, &other));
        use(env, other);
        CALL(ReleaseSessionOptions, other);
    } else if (strcmp(how, "released") == 0) {
        for (int i = 0; i < 10000; i++) {
            ok(CALL(CreateSessionOptions, &other));
            ok(CALL(SetIntraOpNumThreads, other, 9));
            CALL(ReleaseSessionOptions, other);
        }
        ok(CALL(CreateSessionOptions, &other));
        use(env, other);
    } else if (strcmp(how, "kept") == 0) {
        for (int i = 0; i < 10000; i++) {
            ok(CALL(CreateSessionOptions, &other));
            ok(CALL(SetIntraOpNumThreads, other, 9));
        }
        ok(CALL(CreateSessionOptions, &other));
        use(env, other);
    } else if (strcmp(how, "threads") == 0 || strcmp(how, "editor") == 0) {
        void *session = strcmp(how, "editor") == 0 ? edit(env, options) : make(env, options);
        list_threads();
        CALL(ReleaseSession, session);
    } else if (strcmp(how, "again") == 0) {
        use(env, options);
        ok(CALL(CreateEnv, 3, "second", &other));
        CALL(ReleaseEnv, other);
        use(env, options);
        CALL(ReleaseEnv, env);
        ok(CALL(CreateEnv, 3, "third", &env));
        use(env, options);
    } else if (strcmp(how, "late") == 0) {
        printf("the hole is %s\n", api[420] == NULL ? "one" : "none");
        printf("a later one says: %s\n", (const char *)CALL(GetErrorMessage, ((void *(*)())(uintptr_t)api[430])()));
    } else if (strcmp(how, "many") == 0) {
        for (int i = 0; i < 40; i++) {
            use(env, options);
        }
    } else if (strcmp(how, "waits") == 0) {
        use(env, NULL);
        use(env, options);
        pid_t child = fork();
        if (child != 0) {
            printf("child %d\n", child);
        }
        getchar();
    } else if (strcmp(how, "fork") == 0 || strcmp(how, "live") == 0) {
        void *session = make(env, options);
        if (strcmp(how, "fork") == 0) {
            CALL(ReleaseSession, session);
        }
        int result;
        pid_t child = fork();
        if (child == 0) {
            use(env, options);
            exit(0);
        }
        waitpid(child, &result, 0);
        return result != 0;
    } else {
        use(env, options);
    }
    return 0;
}
