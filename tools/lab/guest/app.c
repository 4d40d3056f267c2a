/* An application in C that is linked to libonnxruntime: makes a session of default options and says where its threads and
 * memory are, as app.py does, without what only Python can tell.
 *
 *     app MODEL
 */
#include "slots.h"

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_TASKS 1024
#define MAX_NODES 64
#define API_VERSION 11
#define WARNING 2
#define IDLE_US 500000

struct base {
    const void *const *(*get_api)(uint32_t);
    const char *(*get_version)(void);
};
extern const struct base *OrtGetApiBase(void);

static const void *const *api;
#define CALL(slot, ...) ((void *(*)())(uintptr_t)api[SLOT_##slot])(__VA_ARGS__)

static void ok(void *status)
{
    if (status != NULL) {
        fprintf(stderr, "failed: %s\n", (const char *)CALL(GetErrorMessage, status));
        exit(3);
    }
}

static int by_number(const void *one, const void *other)
{
    return *(const int *)one - *(const int *)other;
}

/* The ids of this process's threads in order; how many. */
static int tasks(int *found)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/task");
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        if (entry->d_name[0] != '.' && count < MAX_TASKS)
            found[count++] = atoi(entry->d_name);
    }
    if (folder != NULL)
        closedir(folder);
    qsort(found, (size_t)count, sizeof *found, by_number);
    return count;
}

/* The value of a line of /proc/self/task/<task>/status in `into`; false where there is none. */
static int status(int task, const char *key, char *into, size_t size)
{
    char path[64], line[8192];
    int there = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/status", task);
    FILE *file = fopen(path, "r");
    while (file != NULL && !there && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, key, strlen(key)) == 0) {
            snprintf(into, size, "%s", line + strlen(key) + strspn(line + strlen(key), ":\t "));
            into[strcspn(into, "\n")] = 0;
            there = 1;
        }
    }
    if (file != NULL)
        fclose(file);
    return there;
}

/* Adds this process's own pages on each NUMA node, times `sign`. */
static void pages(long *found, int sign)
{
    char line[8192];
    FILE *file = fopen("/proc/self/numa_maps", "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        int node;
        long count;
        if (strstr(line, " anon=") == NULL)
            continue;
        for (char *word = strstr(line, " N"); word != NULL; word = strstr(word + 1, " N"))
            if (sscanf(word, " N%d=%ld", &node, &count) == 2 && node < MAX_NODES)
                found[node] += sign * count;
    }
    if (file != NULL)
        fclose(file);
}

static void say(const int *all, int count, int before, const long *memory)
{
    char cpus[4096] = "";
    const char *comma = "";
    status(getpid(), "Cpus_allowed_list", cpus, sizeof cpus);
    printf("{\"threads\": %d, \"caller\": \"%s\", \"workers\": [", 1 + count - before, cpus);
    for (int index = before; index < count; index++) {
        status(all[index], "Cpus_allowed_list", cpus, sizeof cpus);
        printf("%s\"%s\"", index > before ? ", " : "", cpus);
    }
    printf("], \"memory\": {");
    for (int node = 0; node < MAX_NODES; node++) {
        if (memory[node] > 0) {
            printf("%s\"%d\": %ld", comma, node, memory[node]);
            comma = ", ";
        }
    }
    printf("}, \"spinning\": null, \"kernel\": null, \"raddle\": null}\n");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static int all[MAX_TASKS];
    static long memory[MAX_NODES];
    char line[16], switches[64];
    void *env, *options, *session;
    if (argc != 2)
        return 2;
    api = OrtGetApiBase()->get_api(API_VERSION);
    ok(CALL(CreateEnv, WARNING, "app", &env));
    ok(CALL(CreateSessionOptions, &options));
    int before = tasks(all);
    pages(memory, -1);
    ok(CALL(CreateSession, env, argv[1], options, &session));
    pages(memory, 1);
    int count = tasks(all);
    /* A worker ties itself to its CPUs when it starts, so wait until each has run: ten seconds at most. */
    for (int turn = 0, index = before; turn < 1000 && index < count; turn++) {
        if (!status(all[index], "voluntary_ctxt_switches", switches, sizeof switches) || atol(switches) > 0)
            index++; /* or it has ended */
        else
            usleep(10000);
    }
    /* ONNX Runtime starts threads of other kinds too, which end soon: only those that are there twice are looked at. */
    int first[MAX_TASKS], kept = before;
    memcpy(first, all, sizeof first);
    usleep(IDLE_US);
    int still = tasks(all);
    for (int index = before; index < count; index++)
        if (bsearch(&first[index], all, (size_t)still, sizeof *all, by_number) != NULL)
            first[kept++] = first[index];
    say(first, kept, before, memory);
    if (fgets(line, sizeof line, stdin) == NULL)
        return 1;
    CALL(ReleaseSession, session);
    CALL(ReleaseSessionOptions, options);
    CALL(ReleaseEnv, env);
    return 0;
}
