/* What this process really has: its CPUs, its quota, the workers beside it. A port of read_facts in
 * runtime/raddle/process/current.py. What can't be read is absent. */
#include "raddle.h"
#include "syscalls.h"

#define FILE_BYTES 65536
#define MAX_SIBLINGS 1024
#define MAX_PARENT_THREADS 4096
/* Of a sibling's mappings: more than a process may have. */
#define MAX_MAPS_BYTES (64 << 20)
/* A worker that started after this one may not have come to its runtime before this age. */
#define STARTING_TICKS 1000

/* One piece of memory for a whole reading, given back at its end: nothing stays in the user's process. */
struct scratch {
    char own[FILE_BYTES];
    char file[FILE_BYTES];
    char other[FILE_BYTES];
    int siblings[MAX_SIBLINGS];
    int count;
};

/* "/proc/<process>/<name>"; 0: this process. */
static const char *path_of(char path[64], int process, const char *name)
{
    struct rd_out out = rd_out(path, 64);
    rd_put(&out, "/proc/");
    if (process == 0) {
        rd_put(&out, "self");
    } else {
        rd_put_number(&out, process);
    }
    rd_put_char(&out, '/');
    rd_put(&out, name);
    return path;
}

/* The process's command line without digits: a pool numbers its workers' pipes and sockets. -1 where unreadable. */
static long command_line(int process, char *to, size_t size)
{
    char path[64];
    long length = rd_read_file(path_of(path, process, "cmdline"), to, size);
    long kept = 0;
    for (long i = 0; i < length; i++) {
        if (to[i] < '0' || to[i] > '9') {
            to[kept++] = to[i];
        }
    }
    return length < 0 ? -1 : kept;
}

/* Keeps the children of one thread of the parent that run the same command line. */
static void keep_children(struct scratch *scratch, const char *path, long mine)
{
    long length = rd_read_file(path, scratch->file, sizeof scratch->file);
    struct rd_text text = {scratch->file, length < 0 ? 0 : (size_t)length};
    uint64_t pid;
    while (scratch->count < MAX_SIBLINGS && rd_number(rd_next_word(&text), &pid)) {
        long theirs = command_line((int)pid, scratch->other, sizeof scratch->other);
        if (theirs == mine && __builtin_memcmp(scratch->other, scratch->own, (size_t)mine) == 0) {
            scratch->siblings[scratch->count++] = (int)pid;
        }
    }
}

/* The parent's children with this process's command line, this one among them: /proc/<pid>/task/<tid>/children. A child
 * is listed by the thread that made it. */
static void read_siblings(struct scratch *scratch)
{
    int threads = 0;
    long parent = rd_syscall(NR_GETPPID, 0, 0, 0, 0, 0, 0);
    long mine = command_line(0, scratch->own, sizeof scratch->own);
    char path[96];
    struct rd_out out = rd_out(path, sizeof path);
    rd_put(&out, "/proc/");
    rd_put_number(&out, parent);
    rd_put(&out, "/task");
    size_t folder = out.length;
    struct rd_dir dir;
    const char *thread = parent == 0 || mine < 0 ? NULL : rd_dir_open(&dir, "", path);
    for (; thread != NULL; thread = rd_dir_next(&dir)) {
        if (threads++ == MAX_PARENT_THREADS) {
            rd_dir_close(&dir);
            break;
        }
        path[out.length = folder] = '\0';
        rd_put_char(&out, '/');
        rd_put(&out, thread);
        rd_put(&out, "/children");
        keep_children(scratch, path, mine);
    }
}

/* When the process was started, in hundredths of a second of the clock BOOTTIME: proc(5), stat's field 22. -1 where
 * that can't be read. */
static int64_t started(struct scratch *scratch, int process)
{
    char path[64];
    long length = rd_read_file(path_of(path, process, "stat"), scratch->file, sizeof scratch->file);
    uint64_t ticks;
    long at = length - 1;
    /* The program's name, in brackets, may hold anything. */
    while (at >= 0 && scratch->file[at] != ')') {
        at--;
    }
    if (at < 0) {
        return -1;
    }
    struct rd_text text = {scratch->file + at + 1, (size_t)(length - at - 1)};
    for (int field = 3; field < 22; field++) {
        rd_next_word(&text);
    }
    return rd_number(rd_next_word(&text), &ticks) ? (int64_t)ticks : -1;
}

/* Whether a file whose base name contains "onnxruntime" is mapped in the process: 1 or 0; an error's number below that. */
static long has_runtime(struct scratch *scratch, int process)
{
    static const char name[] = "onnxruntime";
    char path[64];
    long file = rd_syscall(NR_OPENAT, AT_FDCWD, (long)path_of(path, process, "maps"), O_CLOEXEC, 0, 0, 0);
    if (rd_failed(file)) {
        return file;
    }
    size_t matched = 0;
    long part, found = 0, total = 0;
    while ((part = rd_syscall(NR_READ, file, (long)scratch->other, sizeof scratch->other, 0, 0, 0)) > 0
           && total < MAX_MAPS_BYTES && found == 0) {
        total += part;
        for (long i = 0; i < part && found == 0; i++) {
            char one = scratch->other[i];
            if (one == '\n' || one == '/') {
                found = one == '\n' && matched == sizeof name - 1;
                matched = 0;
            } else if (matched < sizeof name - 1) {
                matched = one == name[matched] ? matched + 1 : one == name[0];
            }
        }
    }
    rd_syscall(NR_CLOSE, file, 0, 0, 0, 0, 0);
    return part < 0 ? part : found;
}

/* Keeps those that have the runtime, or may be about to: they started after this one, and only seconds ago. One that
 * started before has had the time: its mappings tell. What can't be read for lack of rights counts. */
static void keep_serving(struct scratch *scratch)
{
    int64_t now[2] = {0, 0};
    rd_syscall(NR_CLOCK_GETTIME, CLOCK_BOOTTIME, (long)now, 0, 0, 0, 0);
    int64_t now_ticks = now[0] * 100 + now[1] / 10000000;
    int me = rd_pid(), kept = 0;
    int64_t mine = started(scratch, me);
    for (int i = 0; i < scratch->count; i++) {
        int sibling = scratch->siblings[i];
        long has = sibling == me ? 1 : has_runtime(scratch, sibling);
        if (has == 0) {
            int64_t theirs = started(scratch, sibling);
            has = (theirs > mine || (theirs == mine && sibling > me)) && now_ticks - theirs <= STARTING_TICKS;
        }
        if (has > 0 || has == -EPERM || has == -EACCES) {
            scratch->siblings[kept++] = sibling;
        }
    }
    scratch->count = kept;
}

static void read_workers(struct scratch *scratch, const struct rd_plan *plan, struct rd_facts *facts)
{
    int planned = (int)rd_plan_get(plan, RD_WORKERS, 1), least = 1, me = rd_pid();
    read_siblings(scratch);
    if (scratch->count > planned) {
        keep_serving(scratch);
        least = planned;
    }
    facts->processes = (unsigned)(scratch->count > least ? scratch->count : least);
    for (int i = 0; i < scratch->count; i++) {
        facts->first_worker &= scratch->siblings[i] >= me;
    }
}

/* ---- worker threads of JavaScript ---- */

#define MAX_THREADS 256

/* Threads that have loaded the runtime; 0: a free place. */
static int threads[MAX_THREADS];

bool rd_is_javascript(void)
{
    static int known;
    if (known == 0) {
        known = rd_symbol("napi_create_function", NULL) != NULL ? 1 : -1;
    }
    return known > 0;
}

static bool lives(int thread)
{
    return rd_syscall(NR_TGKILL, rd_pid(), thread, 0, 0, 0, 0) == 0;
}

void rd_thread_enters(void)
{
    int own = (int)rd_syscall(NR_GETTID, 0, 0, 0, 0, 0, 0);
    for (int i = 0; i < MAX_THREADS; i++) {
        int other = __atomic_load_n(&threads[i], __ATOMIC_RELAXED);
        if (other == own
            || ((other == 0 || !lives(other))
                && __atomic_compare_exchange_n(&threads[i], &other, own, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))) {
            return;
        }
    }
}

/* Workers that this process is: its threads that have loaded the runtime, by the sessions that it is planned to have. */
static unsigned worker_threads(const struct rd_plan *plan)
{
    int64_t sessions = rd_plan_get(plan, RD_STREAMS, 1) / rd_plan_get(plan, RD_WORKERS, 1);
    unsigned living = 0;
    sessions = sessions < 1 ? 1 : sessions;
    for (int i = 0; i < MAX_THREADS; i++) {
        int thread = __atomic_load_n(&threads[i], __ATOMIC_RELAXED);
        living += thread != 0 && lives(thread);
    }
    return living <= 1 ? 1 : (unsigned)((living + sessions - 1) / sessions);
}

/* ---- CPUs ---- */

/* Those of the process's start, before a library was loaded that binds the thread which loads it. */
static struct rd_cpus at_start;

/* The CPUs of one thread, 0: the calling one; none, and false, where that can't be read. */
static bool cpus_of(uint64_t thread, struct rd_cpus *cpus)
{
    __builtin_memset(cpus, 0, sizeof *cpus);
    return !rd_failed(rd_syscall(NR_SCHED_GETAFFINITY, (long)thread, sizeof *cpus, (long)cpus, 0, 0, 0));
}

unsigned rd_remember_cpus(void)
{
    return cpus_of(0, &at_start) ? rd_cpus_count(&at_start) : 0;
}

static bool has_all_of_start(const struct rd_cpus *cpus)
{
    struct rd_cpus missing = at_start;
    rd_cpus_drop(&missing, cpus);
    return rd_cpus_count(&missing) == 0;
}

/* Adds those of the process's other threads. */
static void join_threads(struct rd_cpus *cpus)
{
    struct rd_dir dir;
    struct rd_cpus theirs;
    uint64_t thread;
    for (const char *name = rd_dir_open(&dir, "", "/proc/self/task"); name != NULL; name = rd_dir_next(&dir)) {
        /* One that can't be read has ended. */
        if (rd_number(rd_text_of(name), &thread) && cpus_of(thread, &theirs)) {
            rd_cpus_join(cpus, &theirs);
        }
    }
}

bool rd_openmp_binds(void)
{
    static const char *const names[] = {"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"};
    bool binds = false;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *value = rd_env(names[i]);
        if (value == NULL || value[0] == '\0') {
            continue;
        }
        bool off = rd_contains(value, "false") || rd_contains(value, "none") || rd_contains(value, "disabled");
        if (off && i == 0) {
            return false;
        }
        binds |= !off;
    }
    return binds;
}

/* Adds those of the start that the cgroup's cpuset has now: what the kernel lets the calling thread have for a moment. */
static void join_start(struct rd_cpus *cpus, const struct rd_cpus *own)
{
    struct rd_cpus allowed;
    if (rd_failed(rd_syscall(NR_SCHED_SETAFFINITY, 0, sizeof at_start, (long)&at_start, 0, 0, 0))) {
        return;
    }
    if (cpus_of(0, &allowed)) {
        rd_cpus_join(cpus, &allowed);
    }
    rd_syscall(NR_SCHED_SETAFFINITY, 0, sizeof *own, (long)own, 0, 0, 0);
}

static void read_cpus(struct rd_facts *facts)
{
    struct rd_cpus own;
    facts->knows_cpus = cpus_of(0, &own);
    facts->cpus = own;
    if (facts->knows_cpus && !has_all_of_start(&own)) {
        join_threads(&facts->cpus);
        if (!has_all_of_start(&facts->cpus) && rd_openmp_binds()) {
            join_start(&facts->cpus, &own);
        }
    }
    facts->cpu_count = rd_cpus_count(&facts->cpus);
    facts->bound = rd_cpus_count(&own) < facts->cpu_count;
    facts->knows_cpus = facts->cpu_count > 0;
    facts->owner = NULL;
    if (facts->knows_cpus) {
        char text[RD_MAX_OWN_TEXT + 1];
        long resources = rd_read_file("/.nri-resource-policy/resources.sh", text, sizeof text);
        struct rd_text found = {text, resources < 0 ? 0 : (size_t)resources};
        facts->owner = rd_owner_of(&facts->cpus, rd_environment(), found);
    }
}

/* How many CPUs a file of the kernel's lists, 0 where it can't be read. */
static int64_t listed_in(const char *path)
{
    char text[4096];
    struct rd_cpus set;
    long length = rd_read_file(path, text, sizeof text);
    return length > 0 && rd_cpus_parse((struct rd_text){text, (size_t)length}, &set) ? rd_cpus_count(&set) : 0;
}

bool rd_is_machines_count(int count)
{
    char path[96];
    struct rd_out out = rd_out(path, sizeof path);
    int first = rd_cpus_next(&at_start, -1);
    rd_put(&out, "/sys/devices/system/cpu/cpu");
    rd_put_number(&out, first < 0 ? 0 : first);
    rd_put(&out, "/topology/thread_siblings_list");
    int64_t online = listed_in("/sys/devices/system/cpu/online"), allowed = rd_cpus_count(&at_start);
    int64_t per_core = listed_in(path);
    per_core = per_core < 1 ? 1 : per_core;
    const int64_t wholes[] = {online, online / per_core, allowed, allowed / per_core};
    for (size_t i = 0; i < sizeof wholes / sizeof wholes[0]; i++) {
        if (count == wholes[i] || count == wholes[i] / 2 || count == wholes[i] - 1) {
            return true;
        }
    }
    return false;
}

void rd_facts_refresh(const struct rd_plan *plan, struct rd_facts *facts)
{
    facts->workers_seen = facts->processes * worker_threads(plan);
    facts->has_quota = rd_quota_read_again(&facts->quota_cpus);
    read_cpus(facts);
}

void rd_facts_read(const struct rd_plan *plan, struct rd_facts *facts, bool alone)
{
    __builtin_memset(facts, 0, sizeof *facts);
    facts->processes = 1;
    facts->first_worker = true;
    if (alone) {
        rd_quota_forget_place();
        facts->has_quota = rd_quota_read_again(&facts->quota_cpus);
    } else {
        facts->has_quota = rd_quota_read("", &facts->quota_cpus);
    }
    read_cpus(facts);
    struct scratch *scratch = rd_map(sizeof *scratch);
    if (scratch != NULL) {
        read_workers(scratch, plan, facts);
        rd_unmap(scratch, sizeof *scratch);
    }
    facts->workers_seen = facts->processes * worker_threads(plan);
}
