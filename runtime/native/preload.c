/* alloc=mimalloc|jemalloc|tcmalloc: the allocator that the image has, preloaded by starting the program again.
 *
 * A name in the pod's LD_PRELOAD that the image lacks would make the loader print a line in every process. So the
 * library is looked for here, before main, in the loader's own folders. When it is there and fits (an ELF object of
 * this machine, everything that it needs of this process's libc and there), the program is executed again with
 * LD_PRELOAD extended. The second time it finds the allocator loaded and goes on.
 *
 * What makes this safe:
 * - The process, its parent, its open files, its ignored signals and its working folder stay the same. Nothing has run
 *   yet but the loader and constructors of libraries. argv is passed on as it was, so that a virtual environment's
 *   python or a busybox applet still finds itself by it, and the file executed is the one that the kernel was given
 *   (AT_EXECFN) where it is the running program, else what /proc/self/exe says (a script: its interpreter).
 * - Never where the loader would ignore LD_PRELOAD (AT_SECURE), where this library was not preloaded but opened later,
 *   where the same process has been here before in vain (RADDLE_ALLOC holds its id), or where another allocator is
 *   loaded already, which is the image's own choice, unless the policy overrides.
 * - Never under a debugger: it expects one start, and sets its breakpoints in the program that it sees then.
 * - If the kernel refuses, the program goes on as it is.
 * - The allocator is taken out of LD_PRELOAD again in the second start: a child may be of another libc, which the
 *   allocator would kill. Each child looks for itself.
 * Its price is a second exec of every process of a container whose plan names an allocator.
 *
 * In the same way a program is started again that was started with a library which reads its variables as it is loaded,
 * before this one is asked (door.c): with the variables that the door has completed.
 */
#include "raddle.h"
#include "syscalls.h"

#if defined(__x86_64__)
#define LIBRARIES "/lib/x86_64-linux-gnu/", "/usr/lib/x86_64-linux-gnu/", "/lib64/", "/usr/lib64/"
#define MUSL_LOADER "ld-musl-x86_64"
#else
#define LIBRARIES "/lib/aarch64-linux-gnu/", "/usr/lib/aarch64-linux-gnu/", "/lib64/", "/usr/lib64/"
#define MUSL_LOADER "ld-musl-aarch64"
#endif
#define GUARD "RADDLE_ALLOC"
/* <id of this process>/<its name>, which the second start has: a script's name would be its interpreter's then. */
#define AGAIN "RADDLE_AGAIN"
#define COMMAND "/proc/self/comm"

/* The kernel's own limit of arguments and environment is far higher; a longer command line just stays as it is. */
#define BLOCK_BYTES (1024 * 1024)
#define MAX_STRINGS 16384
#define PATH_BYTES 4096

static const char *const folders[] = {LIBRARIES, "/lib/", "/usr/lib/", "/usr/local/lib/", NULL};

struct allocator {
    const char *name;
    const char *files[6];
};

/* With the numbers that Debian, Ubuntu, Fedora and Alpine use. */
static const struct allocator allocators[] = {
    [RD_ALLOCATOR_SYSTEM] = {NULL, {NULL}},
    [RD_ALLOCATOR_MIMALLOC] = {"libmimalloc",
                           {"libmimalloc.so.3", "libmimalloc.so.2", "libmimalloc.so.2.0", "libmimalloc.so", NULL}},
    [RD_ALLOCATOR_JEMALLOC] = {"libjemalloc", {"libjemalloc.so.2", "libjemalloc.so.1", "libjemalloc.so", NULL}},
    [RD_ALLOCATOR_TCMALLOC] = {"libtcmalloc",
                           {"libtcmalloc_minimal.so.4", "libtcmalloc.so.4", "libtcmalloc_minimal.so", "libtcmalloc.so",
                            NULL}},
};

struct restart {
    char arguments[BLOCK_BYTES];
    char environment[BLOCK_BYTES];
    const char *argv[MAX_STRINGS];
    const char *envp[MAX_STRINGS];
    char preload[PATH_BYTES * 2];
    char guard[64];
    char path[PATH_BYTES];
    char library[PATH_BYTES];
};

static uint64_t auxiliary(uint64_t key)
{
    uint64_t pairs[128] = {0}, value = 0;
    rd_read_file("/proc/self/auxv", (char *)pairs, sizeof pairs - 16);
    rd_auxiliary(pairs, key, &value);
    return value;
}

static bool exists(const char *folder, const char *name)
{
    char path[PATH_BYTES];
    struct rd_out out = rd_out(path, sizeof path);
    rd_put(&out, folder);
    rd_put(&out, name);
    return rd_syscall(NR_FACCESSAT, AT_FDCWD, (long)path, 4, 0, 0, 0) == 0;
}

/* Something that the allocator needs: a libc has to be this process's own, anything else loaded already or where the
 * loader looks. */
static bool can_be_loaded(const char *name, const char *version)
{
    if (version != NULL) {
        return rd_has_version(name, version);
    }
    if (rd_same(name, "libc.so.6") || rd_starts(name, "ld-linux")) {
        return rd_is_loaded("libc.so.6");
    }
    if (rd_same(name, "libc.so") || rd_starts(name, "libc.musl") || rd_starts(name, "ld-musl")) {
        return rd_is_loaded(MUSL_LOADER);
    }
    bool there = rd_is_loaded(name);
    for (int i = 0; folders[i] != NULL && !there; i++) {
        there = exists(folders[i], name);
    }
    return there;
}

/* The allocator's file, "" where there is none that fits. */
static void find_library(const struct allocator *allocator, char *path, size_t size)
{
    for (int i = 0; allocator->files[i] != NULL; i++) {
        for (int k = 0; folders[k] != NULL; k++) {
            struct rd_out out = rd_out(path, size);
            rd_put(&out, folders[k]);
            rd_put(&out, allocator->files[i]);
            if (exists(folders[k], allocator->files[i]) && rd_loadable(path, can_be_loaded)) {
                return;
            }
        }
    }
    path[0] = '\0';
}

/* The strings of a block of `length` bytes, each ended by a zero byte; false where it couldn't be read or there are too
 * many. */
static bool split(char *block, long length, const char **strings)
{
    int count = 0;
    for (long at = 0; at < length; at += (long)rd_length(block + at) + 1) {
        if (count >= MAX_STRINGS - 8) {
            return false;
        }
        strings[count++] = block + at;
    }
    strings[count] = NULL;
    return length >= 0;
}

static const char *value_in(const char **environment, const char *name)
{
    size_t length = rd_length(name);
    for (; *environment != NULL; environment++) {
        if (rd_starts(*environment, name) && (*environment)[length] == '=') {
            return *environment + length + 1;
        }
    }
    return NULL;
}

static void set_in(const char **environment, const char *name, const char *entry)
{
    size_t length = rd_length(name);
    while (*environment != NULL && !(rd_starts(*environment, name) && (*environment)[length] == '=')) {
        environment++;
    }
    if (*environment == NULL) {
        environment[1] = NULL;
    }
    *environment = entry;
}

/* The program's own file, by the name that it was started by where that is the same file. */
static bool find_program(char *path, size_t size)
{
    uint64_t running[32] = {0}, named[32] = {0};
    if (rd_syscall(NR_NEWFSTATAT, AT_FDCWD, (long)"/proc/self/exe", (long)running, 0, 0, 0) != 0) {
        return false;
    }
    const char *given = (const char *)(uintptr_t)auxiliary(AT_EXECFN);
    if (given != NULL && rd_syscall(NR_NEWFSTATAT, AT_FDCWD, (long)given, (long)named, 0, 0, 0) == 0
        && named[0] == running[0] && named[1] == running[1]) {
        struct rd_out out = rd_out(path, size);
        rd_put(&out, given);
        return rd_length(given) < size;
    }
    long length = rd_syscall(NR_READLINKAT, AT_FDCWD, (long)"/proc/self/exe", (long)path, (long)size, 0, 0);
    if (rd_failed(length) || (size_t)length >= size) {
        return false;
    }
    path[length] = '\0';
    /* A deleted program's name leads nowhere, or to another file. */
    return rd_syscall(NR_NEWFSTATAT, AT_FDCWD, (long)path, (long)named, 0, 0, 0) == 0 && named[0] == running[0]
           && named[1] == running[1];
}

/* RADDLE_ALLOC=<id of this process>, which the second start has. */
static void put_guard(char *text, size_t size, const char *name)
{
    struct rd_out out = rd_out(text, size);
    rd_put(&out, name);
    rd_put_char(&out, '=');
    rd_put_number(&out, rd_pid());
}

static void remove_from(const char **environment, const char *name)
{
    size_t length = rd_length(name);
    while (*environment != NULL && !(rd_starts(*environment, name) && (*environment)[length] == '=')) {
        environment++;
    }
    for (; *environment != NULL; environment++) {
        environment[0] = environment[1];
    }
}

/* Takes the allocator's file out of LD_PRELOAD, in the process's own memory: a child finds its own. */
static void hide(const char **environment, const char *name)
{
    char mine[32];
    put_guard(mine, sizeof mine, GUARD);
    const char *guard = value_in(environment, GUARD);
    char *value = (char *)(uintptr_t)value_in(environment, "LD_PRELOAD");
    if (value == NULL || guard == NULL || !rd_same(guard, mine + sizeof GUARD)) {
        return;
    }
    /* The program may execute another one, or itself, as the same process. */
    remove_from(environment, GUARD);
    char *last = value + rd_length(value);
    while (last > value && *last != ':') {
        last--;
    }
    if (!rd_starts(rd_base_name(last), name)) {
        return;
    }
    if (*last == ':') {
        *last = '\0';
    } else {
        remove_from(environment, "LD_PRELOAD");
    }
}

static void restart(struct restart *all, const struct allocator *allocator)
{
    long arguments = rd_read_file("/proc/self/cmdline", all->arguments, sizeof all->arguments - 1);
    long environment = rd_read_file("/proc/self/environ", all->environment, sizeof all->environment - 1);
    if (!split(all->arguments, arguments, all->argv) || !split(all->environment, environment, all->envp)) {
        return;
    }
    const char *preload = value_in(all->envp, "LD_PRELOAD"), *guard = value_in(all->envp, GUARD);
    put_guard(all->guard, sizeof all->guard, GUARD);
    if (guard != NULL && rd_same(guard, all->guard + sizeof GUARD)) {
        return;
    }
    find_library(allocator, all->library, sizeof all->library);
    if (all->library[0] == '\0') {
        return;
    }
    struct rd_out out = rd_out(all->preload, sizeof all->preload);
    rd_put(&out, "LD_PRELOAD=");
    if (preload != NULL) {
        rd_put(&out, preload);
        rd_put_char(&out, ':');
    }
    rd_put(&out, all->library);
    if (out.length + 1 >= out.size || !find_program(all->path, sizeof all->path)) {
        return;
    }
    set_in(all->envp, "LD_PRELOAD", all->preload);
    set_in(all->envp, GUARD, all->guard);
    rd_syscall(NR_EXECVE, (long)all->path, (long)all->argv, (long)all->envp, 0, 0, 0);
}

/* One that is loaded although the plan names another one, and stays; NULL where there is none. */
static const char *other_allocator(const struct rd_plan *plan)
{
    const char *planned = allocators[plan->value[RD_ALLOCATOR]].name;
    for (size_t i = 0; i < sizeof allocators / sizeof allocators[0]; i++) {
        const char *name = allocators[i].name;
        if (name != NULL && name != planned && rd_is_loaded(name)) {
            return rd_plan_respects(plan) ? name : NULL;
        }
    }
    return NULL;
}

/* Whether a debugger or tracer watches this process. */
static bool is_traced(void)
{
    char status[8192];
    long length = rd_read_file("/proc/self/status", status, sizeof status - 1);
    status[length < 0 ? 0 : length] = '\0';
    struct rd_text tracer = rd_line(status, "\nTracerPid:\t");
    return tracer.length > 0 && !rd_text_is(tracer, "0");
}

bool rd_allocator_missing(const struct rd_plan *plan, struct rd_out *why)
{
    const char *name = allocators[rd_plan_get(plan, RD_ALLOCATOR, RD_ALLOCATOR_SYSTEM)].name;
    if (name == NULL || rd_is_loaded(name)) {
        return false;
    }
    const char *other = other_allocator(plan);
    rd_put(why, "allocator ");
    rd_put(why, name + 3);
    rd_put(why, " is not preloaded: ");
    if (other != NULL) {
        rd_put(why, other + 3);
        rd_put(why, " is loaded already");
    } else {
        rd_put(why, is_traced() ? "a debugger is attached" : "this image has none that fits this program");
    }
    return true;
}

bool rd_was_started_again(void)
{
    const char **environment = (const char **)rd_environment();
    char mine[32];
    const char *guard = value_in(environment, AGAIN);
    if (guard == NULL) {
        return false;
    }
    struct rd_text name;
    put_guard(mine, sizeof mine, AGAIN);
    bool again = rd_text_is(rd_split(rd_text_of(guard), '/', &name, NULL), mine + sizeof AGAIN);
    long file = again && name.length > 0 ? rd_syscall(NR_OPENAT, AT_FDCWD, (long)COMMAND, O_CLOEXEC | O_WRONLY, 0, 0, 0) : -1;
    if (!rd_failed(file)) {
        rd_syscall(NR_WRITE, file, (long)name.at, (long)name.length, 0, 0, 0);
        rd_syscall(NR_CLOSE, file, 0, 0, 0, 0, 0);
    }
    /* A child's is its parent's. */
    remove_from(environment, AGAIN);
    return again;
}

void rd_start_again(void)
{
    struct restart *all = rd_preloaded_from() == NULL || is_traced() ? NULL : rd_map(sizeof *all);
    if (all == NULL) {
        return;
    }
    int count = 0;
    for (char **one = rd_environment(); *one != NULL && count < MAX_STRINGS - 8; one++) {
        all->envp[count++] = *one;
    }
    long arguments = rd_read_file("/proc/self/cmdline", all->arguments, sizeof all->arguments - 1);
    if (count < MAX_STRINGS - 8 && split(all->arguments, arguments, all->argv)
        && find_program(all->path, sizeof all->path)) {
        put_guard(all->guard, sizeof all->guard, AGAIN);
        struct rd_out out = {all->guard, sizeof all->guard, rd_length(all->guard)};
        long length = rd_read_file(COMMAND, all->environment, sizeof all->environment);
        rd_put_char(&out, '/');
        rd_put_text(&out, (struct rd_text){all->environment, length > 0 ? (size_t)length - 1 : 0});
        set_in(all->envp, AGAIN, all->guard);
        rd_syscall(NR_EXECVE, (long)all->path, (long)all->argv, (long)all->envp, 0, 0, 0);
    }
    rd_unmap(all, sizeof *all);
}

void rd_allocator_start(const char **environment)
{
    struct rd_plan plan;
    char problem[256];
    struct rd_out error = rd_out(problem, sizeof problem);
    const char *text = value_in(environment, "RADDLE_PLAN");
    /* In every process of the container: without a name nothing else is looked at. */
    if (text == NULL || rd_line(text, ";allocator=").length == 0 || !rd_plan_parse(text, &plan, &error)
        || rd_plan_get(&plan, RD_ALLOCATOR, RD_ALLOCATOR_SYSTEM) == RD_ALLOCATOR_SYSTEM || rd_preloaded_from() == NULL
        || auxiliary(AT_SECURE) != 0) {
        return;
    }
    const struct allocator *allocator = &allocators[plan.value[RD_ALLOCATOR]];
    if (rd_is_loaded(allocator->name)) {
        hide(environment, allocator->name);
        return;
    }
    if (other_allocator(&plan) != NULL || is_traced()) {
        return;
    }
    struct restart *all = rd_map(sizeof *all);
    if (all != NULL) {
        restart(all, allocator);
        rd_unmap(all, sizeof *all);
    }
}
