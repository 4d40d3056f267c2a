/* The native shim: what its files share.
 *
 * libraddle.so is preloaded into programs of either libc, so it is linked to none: no NEEDED entry, no thread-local
 * storage, no allocation. It makes its own system calls (sys.c), and what it needs of the process's libc it looks up in
 * the objects that are loaded (elf.c). Where anything is not as expected, the program runs as if it were not there.
 *
 *   plan.c      RADDLE_PLAN as a table of values      the same answers as runtime/raddle/env.py; its keys are keys.h
 *   resolve.c   plan and facts -> values              ... process/resolution.py
 *   facts.c     what the process really has           ... process/current.py, machine_counts.py
 *   claims.c    who says that its CPUs are its own    ... the same
 *   cgroup.c    its quota                             ... cgroup.py
 *   placement.c how many threads exclusive CPUs hold, one CPU set per worker   ... placement.py
 *   machine.c   the machine they are part of, by the plan                    ... machine_part.py
 *   elf.c, elf_file.c   symbols of loaded objects; whether a file on disk can be loaded
 *   api.c       OrtGetApiBase, the wrapped API table
 *   ort.c, current.c   the runtime's own table; what holds now, and what the plan comes to with it
 *   counts.c    whose the environment's counts are    ... adapters/onnxruntime/capabilities.py
 *   choice.c    the plan against one session's options ... adapters/onnxruntime/choice.py
 *   options.c   what the code has set on its options
 *   session.c, environment.c, providers.c   the wrapped functions
 *   threads.c, pool.c   creates, names, places and joins pool threads
 *   async.c     RunAsync of a session with one thread     ... adapters/onnxruntime/run_async.py
 *   log.c, log_line.c   lines on stderr, that of a session; marks                ... log.py, mark.py
 *   door.c      before main: completes the environment, the order of what is done there
 *   program.c   the same file run by itself: which processes are reached, and their settings
 *   preload.c   the allocator: looked for at start, preloaded by starting the program again
 */
#ifndef RADDLE_H
#define RADDLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "keys.h"

/* As raddle.__version__. */
#define RD_VERSION "0.1.0"

/* ---- sys.c and text.c ---- */

long rd_syscall(long number, long a, long b, long c, long d, long e, long f);
#define rd_failed(result) ((unsigned long)(result) > -4096UL)

/* Reads the whole file from its start into `to`; the length, -1 where it can't be read or is `size` or longer. */
long rd_read_file(const char *path, char *to, size_t size);
/* The names in a folder, one after the other; NULL after the last one. To be ended where it isn't read to there. */
struct rd_dir {
    bool found; /* the folder could be opened */
    long file;
    long length, at;
    char text[4096] __attribute__((aligned(8)));
};
const char *rd_dir_open(struct rd_dir *dir, const char *root, const char *folder);
const char *rd_dir_next(struct rd_dir *dir);
void rd_dir_close(struct rd_dir *dir);
/* Memory from the kernel, zeroed; NULL where there is none. */
void *rd_map(size_t size);
void rd_unmap(void *memory, size_t size);
int rd_pid(void);
uint64_t rd_now_ms(void);
/* The value of a key of an auxiliary vector; false, and the value as it was, where it has none. */
bool rd_auxiliary(const uint64_t *pairs, uint64_t key, uint64_t *value);
/* The value of an environment variable of this process; NULL where it is not set. */
const char *rd_env(const char *name);
/* All of them; NULL where the process's libc has none yet. */
char **rd_environment(void);
/* Others in their place, where it has some. */
void rd_set_environment(char **all);

size_t rd_length(const char *text);
bool rd_same(const char *one, const char *other);
bool rd_starts(const char *text, const char *start);
/* A piece of text that is not terminated. */
struct rd_text {
    const char *at;
    size_t length;
};
struct rd_text rd_text_of(const char *text);
bool rd_text_is(struct rd_text text, const char *other);
bool rd_text_same(struct rd_text one, struct rd_text other);
/* Whether a part of the text is the word, which is in small letters, in letters of either kind. */
bool rd_contains(const char *text, const char *word);
/* The part before the first `mark`, and `rest` set to what follows it; the whole and an empty rest without a mark. */
struct rd_text rd_split(struct rd_text text, char mark, struct rd_text *rest, bool *found);
/* The next word between white space, taken off the text; empty at its end. */
struct rd_text rd_next_word(struct rd_text *text);
/* What follows the first `start` in a text, to the end of its line; empty without one. */
struct rd_text rd_line(const char *text, const char *start);
/* The part of a path after its last slash. */
const char *rd_base_name(const char *path);
/* An unsigned number of 1 to 19 digits and nothing else. */
bool rd_number(struct rd_text text, uint64_t *value);

/* Text that is built up in a fixed place and cut off where that is full; always terminated. */
struct rd_out {
    char *at;
    size_t size;
    size_t length;
};
struct rd_out rd_out(char *at, size_t size);
void rd_put(struct rd_out *out, const char *text);
void rd_put_text(struct rd_out *out, struct rd_text text);
void rd_put_char(struct rd_out *out, char one);
void rd_put_number(struct rd_out *out, int64_t value);
void rd_put_unsigned(struct rd_out *out, uint64_t value);
/* Not below zero, with at most six decimals. */
void rd_put_double(struct rd_out *out, double value);
/* As a JSON string, of the text's first `most` bytes; what is not printable ASCII becomes a question mark. */
void rd_put_string(struct rd_out *out, const char *text, size_t most);

/* A lock that is never waited for without end. One that a thread of the parent held at the fork is free in the child. */
struct rd_lock {
    int holder; /* a process, 0: nobody */
};
bool rd_try_lock(struct rd_lock *lock);
void rd_unlock(struct rd_lock *lock);

/* ---- cpuset: sets of CPUs ---- */

/* Linux's own largest NR_CPUS. */
#define RD_MAX_CPUS 8192
struct rd_cpus {
    uint64_t word[RD_MAX_CPUS / 64];
};
bool rd_cpus_parse(struct rd_text text, struct rd_cpus *set);
/* Leaves in the set what the other has too; what it has not; adds what it has. */
void rd_cpus_keep(struct rd_cpus *set, const struct rd_cpus *other);
void rd_cpus_drop(struct rd_cpus *set, const struct rd_cpus *other);
void rd_cpus_join(struct rd_cpus *set, const struct rd_cpus *other);
bool rd_cpus_overlap(const struct rd_cpus *one, const struct rd_cpus *other);
unsigned rd_cpus_count(const struct rd_cpus *set);
int rd_cpus_next(const struct rd_cpus *set, int after);
/* "0-3,8": as the kernel lists them, where the first has the number `base`. */
void rd_cpus_put(struct rd_out *out, const struct rd_cpus *set, int base);
static inline bool rd_cpus_has(const struct rd_cpus *set, int cpu)
{
    return cpu >= 0 && cpu < RD_MAX_CPUS && (set->word[cpu / 64] >> (cpu % 64) & 1) != 0;
}
static inline void rd_cpus_add(struct rd_cpus *set, int cpu)
{
    if (cpu >= 0 && cpu < RD_MAX_CPUS) {
        set->word[cpu / 64] |= 1UL << (cpu % 64);
    }
}
static inline void rd_cpus_remove(struct rd_cpus *set, int cpu)
{
    if (cpu >= 0 && cpu < RD_MAX_CPUS) {
        set->word[cpu / 64] &= ~(1UL << (cpu % 64));
    }
}

/* ---- plan.c ---- */

#define RD_MAX_PLAN_TEXT 4096
#define RD_MAX_LIST_TEXT 1024
struct rd_plan {
    bool has[RD_KEYS];
    bool negative[RD_KEYS];
    uint64_t value[RD_KEYS];
    char list[RD_KEYS - RD_LIST_FIRST][RD_MAX_LIST_TEXT + 1];
};

/* True, and the plan filled; else what is wrong with the text, as raddle.env.PlanError tells it. */
bool rd_plan_parse(const char *text, struct rd_plan *plan, struct rd_out *error);
/* The value of a key, `otherwise` where the plan does not have it. */
int64_t rd_plan_get(const struct rd_plan *plan, enum rd_key key, int64_t otherwise);
/* Whether values of the code's and the environment's stay, which is so without a word too. */
bool rd_plan_respects(const struct rd_plan *plan);
/* The text of a key of CPU lists; empty where the plan does not have it, or it can't be used. */
struct rd_text rd_plan_list(const struct rd_plan *plan, enum rd_key key);
/* The key's name, and its value as text (at least 24 bytes; that of a list's is RD_MAX_LIST_TEXT and one). */
const char *rd_plan_key(enum rd_key key);
void rd_plan_value(const struct rd_plan *plan, enum rd_key key, struct rd_out *out);
/* The counts that the door completes from a plan, in its order, with the values; 0: none. */
enum { RD_COMPLETED_COUNTS = 4 };
struct rd_completed {
    const char *name;
    int64_t count;
};
void rd_completed_counts(const struct rd_plan *plan, struct rd_completed counts[RD_COMPLETED_COUNTS]);

/* ---- claims.c ---- */

/* Of all that one of them says. */
#define RD_MAX_OWN_TEXT 4096
/* Who says that exactly these CPUs are the container's own, in words; NULL where nobody does. `resources`: the text of
 * nri-plugins' file. */
const char *rd_owner_of(const struct rd_cpus *cpus, char *const *environment, struct rd_text resources);

/* ---- facts.c and resolve.c ---- */

struct rd_facts {
    bool knows_cpus;
    struct rd_cpus cpus;
    unsigned cpu_count;
    bool bound; /* the calling thread may run on some of them only, and so may the threads that it starts */
    const char *owner; /* who says that these CPUs are the container's own, in words; NULL: nobody */
    bool has_quota;
    double quota_cpus;
    unsigned processes; /* workers like this one, which it is one of */
    unsigned workers_seen;
    bool first_worker;
    /* What the CPUs hold threads for, once placed, and in words; 0: they are not the container's own, or the plan doesn't
     * know them. */
    unsigned units;
    char units_words[64];
};
/* `alone`: nobody else reads them now, so that what was found of cgroups may be kept for the next time. */
void rd_facts_read(const struct rd_plan *plan, struct rd_facts *facts, bool alone);
/* The CPUs and the quota again, which a resize in place changes, and the threads; the processes stay as they were. */
void rd_facts_refresh(const struct rd_plan *plan, struct rd_facts *facts);
/* Before main: the CPUs that the process may run on are at least these where OpenMP binds threads. How many; 0: unknown. */
unsigned rd_remember_cpus(void);
/* Whether an OpenMP library binds threads to CPUs in this environment. */
bool rd_openmp_binds(void);
/* Whether it is what code counts on this machine: all CPUs, those of the process, or the cores of either; half of them, or
 * one less. As process/machine_counts.py. */
bool rd_is_machines_count(int count);
/* Whether JavaScript runs in this process, whose threads are workers: each loads the runtime for itself. */
bool rd_is_javascript(void);
/* The calling thread has loaded the runtime. */
void rd_thread_enters(void);
/* The quota of the tightest visible cgroup by the files below `root` ("" for /); false where there is none. */
bool rd_quota_read(const char *root, double *quota_cpus);
/* The same of this process by the cgroup and the mounts that it had at first, until they are forgotten. One caller at a
 * time. */
bool rd_quota_read_again(double *quota_cpus);
void rd_quota_forget_place(void);

/* Why a value is not simply the plan's; "" where it is. */
typedef char rd_because[128];
struct rd_effective {
    int intra; /* 0: leave alone; likewise inter and global_intra */
    int inter;
    int global_intra;
    int spin; /* -1: leave alone */
    int spin_us;
    int cap; /* 0: unknown */
    int capacity; /* threads that want a CPU at once, in all the process; 0: unknown */
    bool exclusive;
    rd_because intra_because;
    rd_because inter_because;
    rd_because global_because;
    rd_because spin_because;
};
void rd_resolve(const struct rd_plan *plan, const struct rd_facts *facts, struct rd_effective *found);
/* Decides spinning for a session's own counts, which need not be the plan's. */
void rd_resolve_spinning(const struct rd_plan *plan, const struct rd_facts *facts, int intra, int inter, bool parallel,
                         struct rd_effective *found);

/* ---- placement.c ---- */

/* Sets the units of the facts: physical cores, or CPUs where the plan wants all threads of a core, of one type and, where
 * that holds enough of them, on one NUMA node. None where the plan doesn't know the CPUs. */
void rd_place(const struct rd_plan *plan, struct rd_facts *facts);
/* Sets `group[i]` for each of the threads - 1 workers of a pool in the CPUs, and one more: all the CPUs of the pool. False
 * where nothing sensible can be said. */
bool rd_affinity_groups(const struct rd_plan *plan, const struct rd_cpus *cpus, int threads, int affinity,
                        struct rd_cpus *group);

/* ---- elf.c ---- */

/* Finds the objects' symbol. `caller` is an address within the object that asks (or NULL): of several objects that
 * have the symbol, the one that the caller was linked to is taken, else the first. Never one in this library. */
void *rd_symbol(const char *name, const void *caller);
/* The code around the address: the loaded object's segment that holds it. False where it is no code. */
bool rd_code_around(const void *address, uintptr_t *start, uintptr_t *end);
/* The bytes that may be read from the address on, within the loaded object that holds it. */
size_t rd_readable(const void *address);
/* True when an object of this name (without folders, up to a ".", "_", "-" or the end) is loaded. */
bool rd_is_loaded(const char *name);
/* The same of any of these names, a NULL-ended list. */
bool rd_one_is_loaded(const char *const *names);
/* True when the program itself exports the function, or a library that it was started with, whose name begins so. */
bool rd_exports(const char *symbol, const char *library);
/* True when the program, or a library that it was started with other than libc, uses another's function of this name. */
bool rd_one_uses(const char *symbol);
/* The file that this library was loaded from, as the loader names it, where it was preloaded: then it stands before the
 * libc. NULL where it was opened later. */
const char *rd_preloaded_from(void);
/* True unless an object of this name is loaded that lacks the version, "GLIBC_2.34". */
bool rd_has_version(const char *name, const char *version);
/* True when the ELF file is a shared object that this process's loader could load: its machine, its libc, and all that
 * it needs in `folders` (a NULL-ended list). `needs` is asked for each name that it needs. */
bool rd_loadable(const char *path, bool (*needs)(const char *name, const char *version));
/* The same of a file's bytes. */
bool rd_elf_fits(const unsigned char *file, uint64_t size, bool (*needs)(const char *name, const char *version));

/* ---- threads.c ---- */

typedef void (*rd_worker)(void *parameter);
/* One pool's, or one session's, threads as ONNX Runtime is told of them: intra-op threads first. */
struct rd_pool {
    int intra_workers;
    int made;
    int placed; /* workers that `group` has a set for */
    bool global;
    bool core; /* each has a core of its own */
    bool entered; /* the thread that makes the pool runs on its CPUs for now */
    struct rd_cpus *group;       /* and, last, all its CPUs */
    const struct rd_cpus *whole; /* what the other threads may run on; NULL: what their creator may */
};
/* Lets the calling thread, which makes the pool's session, run on the pool's CPUs only: where it first writes to memory,
 * that memory is. Each worker and all other threads set their own. */
void rd_pool_enter(struct rd_pool *pool, const struct rd_facts *facts);
/* Gives the thread its own CPUs back. */
void rd_pool_leave(struct rd_pool *pool);
/* A pool's description that outlives the creation of its threads; NULL where there are too many at once. */
struct rd_pool *rd_pool_take(void);
/* Gives it and its CPU sets back, once all its threads run. */
void rd_pool_done(struct rd_pool *pool);
void *rd_thread_create(void *pool, rd_worker worker, void *parameter);
void rd_thread_join(void *handle);
/* Threads that have a core of their own now. */
int rd_threads_pinned(void);
bool rd_threads_usable(void);
void rd_threads_forked(void);

/* ---- door.c ---- */

/* The letter of the option by which an interpreter is told to read no PYTHONPATH, or to run no sitecustomize; else 0. It
 * is one by the base name of its file, or of its first argument. */
char rd_python_closed(const char *program, int count, char *const *arguments);
/* RADDLE_LITERALS is no longer than this: raddle_operator.injection.injected reads no more. */
#define RD_MAX_LITERALS 16384
/* The next variable and its value of RADDLE_LITERALS, taken off the text; false after the last one. */
bool rd_next_literal(struct rd_text *rest, struct rd_text *name, struct rd_text *value);

/* ---- preload.c ---- */

/* Whether this process is the second start of the same, which says so once. */
bool rd_was_started_again(void);
/* Before main: starts the program again with the environment as it is now. Returns where that can't be. */
void rd_start_again(void);

/* Before main: starts the program again with the allocator that the plan names. Does nothing where it names none. */
void rd_allocator_start(const char **environment);
/* True, with a line that says why, where this process doesn't have the allocator that the plan names. */
bool rd_allocator_missing(const struct rd_plan *plan, struct rd_out *why);

/* ---- counts.c ---- */

/* Before main: where the environment's counts are; those that the code sets later are the code's. */
void rd_remember_counts(void);

/* ---- log.c ---- */

/* Before main: what is said later goes to this standard error only. */
void rd_remember_stderr(void);
void rd_log(const char *line);
/* Says it once per process tree: true where it was said now. */
bool rd_announce(const char *line);
/* What a mark is about: the latest session, or the latest complaint. */
enum rd_mark { RD_MARK_RUNTIME, RD_MARK_COMPLAINT, RD_MARKS };
/* Shows the line to those who may read this process's mappings, in the place of the one before about the same. */
void rd_mark(enum rd_mark about, const char *line);
/* What the name of that mapping begins with, in /proc/PID/maps. */
#define RD_MARK "raddle: "
/* Logs it once per process, and leaves it as a mark. */
void rd_complain(const char *line);

#endif
