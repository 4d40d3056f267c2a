/* Before main: what the library does at the start of a process, in this order.
 *
 * 1. What standard error is (log.c).
 * 2. The door: where glibc has preloaded this library, whichever way, it completes the process's own environment with
 *    the counts that are absent. No other process's changes, and nothing of the image's, the pod spec's or a parent's
 *    own is replaced. Which process it is decides what is done:
 *      Python           RADDLE_COMPLETED lists the counts, and the shim puts them where libraries read them and no Python
 *                       code does: what code sees, it copies, multiplies or takes for the user's wish (runtime/raddle/
 *                       shim.py). One that is started again has them until then. PYTHONPATH begins with the folder
 *                       `python` beside this library's own file, from where sitecustomize.py starts the shim and takes
 *                       the folder out again. A Python that ignores it gets ONNX Runtime's counts only
 *      java             the counts, and JAVA_TOOL_OPTIONS has the option that RADDLE_LITERALS lists
 *      these, Node.js, programs that have a runtime loaded or may load one later, and nproc
 *                       the counts
 *      any other        nothing. So do shells, make and perl, which could load one: entrypoints and build files are
 *                       where a count is set only if nobody has set it
 *    A process that was started without its parent's environment, and is a Python, java, Node.js or a program that has a
 *    runtime loaded, gets the plan of an ancestor.
 *    A program that was started with a library which has read its variables by now is started again with them
 *    (preload.c); a count that was only for that library is taken out there, before main.
 *    RADDLE_COMPLETED says what is not the user's. A parent hands it on with the counts, and here both are taken out
 *    first, in any process: each has what is right for itself.
 *    Never with RADDLE_PLAN set but empty, in a set-uid program, without the folder, or where the library was opened
 *    later. In any doubt: nothing, and no word.
 * 3. The allocator, which may start the program again (preload.c): it needs the plan, which may be one of the parent's.
 *
 * A Python's environment without our part of PYTHONPATH is what sitecustomize.py restores, so the part says what was
 * there before: BASE/python/ for none, BASE/python/:OLD, and BASE/python/. for an empty one. None of them is how the
 * pod spec would write it.
 */
#include "libraries.h"
#include "raddle.h"
#include "syscalls.h"

#define PLAN "RADDLE_PLAN"
#define LITERALS "RADDLE_LITERALS"
#define COMPLETED "RADDLE_COMPLETED"
#define PATH "PYTHONPATH"
#define JAVA "JAVA_TOOL_OPTIONS"
#define JAVA_OPTION "-XX:ActiveProcessorCount="
#define PATH_BYTES 4096
/* More than all families have together. */
#define COMPLETED_BYTES 2048
#define ENVIRONMENT_BYTES (1024 * 1024)
#define MAX_ANCESTORS 64
#define ROOM 8192
#define PLACES 64

enum kind { OTHER, LOADER, RUNTIME, PYTHON, JAVA_PROGRAM };

struct process {
    int count;
    char **arguments;
    const uint64_t *auxiliary;
    char folder[PATH_BYTES]; /* BASE/python/ */
    /* Of the memory that its environment has taken so far: what is left, and the places for more variables. */
    char *room;
    size_t left, places;
    enum kind kind;
    unsigned cpus;           /* that it may run on; 0: not asked */
    bool closed;             /* a Python that does not look at PYTHONPATH */
    bool early;              /* has a library that has read its variables by now */
    bool unread;             /* and lacks one of those that have been completed since */
    char starts;             /* '0' and on: Pythons that it was started by, each by the one before */
    struct rd_out completed; /* "NAME=value;..." */
    char text[COMPLETED_BYTES];
};

/* What the kernel has put behind the environment; NULL where this was not called as glibc calls a constructor: musl
 * passes nothing, so that the three are whatever was in the registers. */
static const uint64_t *auxiliary_behind(int count, char **arguments, char **given)
{
    if (count < 0 || arguments == NULL || arguments + count + 1 != given || arguments[count] != NULL) {
        return NULL;
    }
    while (*given != NULL) {
        given++;
    }
    return (const uint64_t *)(const void *)(given + 1);
}

/* The base name of the program's file; "" for a script: the kernel tells the script's, which then is an argument of the
 * interpreter too. */
static const char *program_name(const struct process *process)
{
    uint64_t file = 0;
    if (!rd_auxiliary(process->auxiliary, AT_EXECFN, &file) || file == 0) {
        return "";
    }
    const char *path = (const char *)(uintptr_t)file;
    for (int i = 1; i < process->count && i <= 2; i++) {
        if (rd_same(process->arguments[i], path)) {
            return "";
        }
    }
    return rd_base_name(path);
}

/* When libraries read their variables: before this one is asked, or with the first call. */
enum reads { ANY_TIME, AS_LOADED, WHEN_CALLED };

static enum reads reads_of(unsigned runtime)
{
    switch (runtime) {
    case RD_RUNTIME_LIBGOMP:
    case RD_RUNTIME_OPENBLAS:
        return AS_LOADED;
    case RD_RUNTIME_LIBIOMP5:
    case RD_RUNTIME_LIBOMP:
        return WHEN_CALLED;
    default:
        return ANY_TIME;
    }
}

/* Whether the program was started with a library of a runtime that reads variables, then. */
static bool has_runtime(enum reads when)
{
#define LIBRARY(stem, runtime, has_variables) {stem, runtime, has_variables},
    static const struct {
        char stem[28];
        unsigned char runtime;
        bool has_variables;
    } libraries[] = {RD_LIBRARIES(LIBRARY)};
    const char *stems[sizeof libraries / sizeof libraries[0] + 1];
    size_t count = 0;
    for (size_t i = 0; i < sizeof libraries / sizeof libraries[0]; i++) {
        stems[count] = libraries[i].stem;
        count += libraries[i].has_variables && (when == ANY_TIME || reads_of(libraries[i].runtime) == when);
    }
    stems[count] = NULL;
    return rd_one_is_loaded(stems);
}

/* A shell, make or perl. By its name, a shell's ends with sh, but for its version; a script's shell is its first argument.
 * No system call says it: a filter may kill for one that the program itself does without. */
static bool runs_scripts(const struct process *process, const char *name)
{
    name = name[0] == '\0' && process->count > 0 ? rd_base_name(process->arguments[0]) : name;
    size_t length = rd_length(name);
    while (length > 0 && name[length - 1] <= '9') {
        length--;
    }
    return (length > 1 && name[length - 2] == 's' && name[length - 1] == 'h') || rd_starts(name, "busybox")
           || rd_same(name, "make") || rd_same(name, "gmake") || rd_starts(name, "perl");
}

static bool is_node(void)
{
    return rd_exports("napi_create_function", "libnode");
}

static enum kind kind_of(const struct process *process)
{
    const char *name = program_name(process);
    /* Two that are extended in Python give their environment to the programs that they start. */
    bool starts_others = rd_starts(name, "gdb") || rd_starts(name, "perf");
    if (!starts_others && (rd_exports("Py_Main", "libpython") || rd_exports("pypy_main_startup", "libpypy"))) {
        return PYTHON;
    }
    if (runs_scripts(process, name)) {
        return OTHER;
    }
    if (rd_same(name, "java")) {
        return JAVA_PROGRAM;
    }
    if (is_node() || has_runtime(ANY_TIME)) {
        return RUNTIME;
    }
    return rd_same(name, "nproc") || rd_one_uses("dlopen") ? LOADER : OTHER;
}

/* BASE/python/, where this library was preloaded from BASE and it has the shim. */
static bool find_folder(struct process *process)
{
    char file[PATH_BYTES];
    const char *library = rd_preloaded_from();
    if (library == NULL || library[0] != '/') {
        return false;
    }
    struct rd_out folder = rd_out(process->folder, sizeof process->folder);
    rd_put_text(&folder, (struct rd_text){library, (size_t)(rd_base_name(library) - library)});
    rd_put(&folder, "python/");
    struct rd_out path = rd_out(file, sizeof file);
    rd_put(&path, process->folder);
    rd_put(&path, "sitecustomize.py");
    if (path.length + 1 >= path.size) {
        return false;
    }
    /* As every program does: a filter of system calls may know no more of them. */
    long opened = rd_syscall(NR_OPENAT, AT_FDCWD, (long)file, O_CLOEXEC | O_NONBLOCK, 0, 0, 0);
    if (!rd_failed(opened)) {
        rd_syscall(NR_CLOSE, opened, 0, 0, 0, 0, 0);
    }
    return !rd_failed(opened);
}

/* ---- setting a variable ---- */

/* Memory for as long as the process lives; NULL without. */
static void *take_room(struct process *process, size_t size)
{
    size = (size + 7) & ~(size_t)7;
    if (size > process->left) {
        process->left = size > ROOM ? size : ROOM;
        process->room = rd_map(process->left);
        process->left = process->room == NULL ? 0 : process->left;
    }
    if (size > process->left) {
        return NULL;
    }
    void *taken = process->room;
    process->room += size;
    process->left -= size;
    return taken;
}

/* The place of a variable; that of the end where it is not set. */
static char **find(const char *name)
{
    char **one = rd_environment();
    size_t length = rd_length(name);
    while (*one != NULL && !(rd_starts(*one, name) && (*one)[length] == '=')) {
        one++;
    }
    return one;
}

static void drop(char **one)
{
    for (; *one != NULL; one++) {
        one[0] = one[1];
    }
}

/* As setenv(3), which would ask for memory: an allocator of the image's own need not be ready before main. */
static void set(struct process *process, const char *name, const char *value, bool overwrite)
{
    char **all = rd_environment();
    size_t size = rd_length(name) + rd_length(value) + 2, count = (size_t)(find(name) - all);
    bool fresh = all[count] == NULL;
    char *entry = fresh || overwrite ? take_room(process, size) : NULL;
    if (entry == NULL) {
        return;
    }
    if (fresh && process->places == 0) {
        char **more = take_room(process, (count + PLACES + 1) * sizeof *more);
        if (more == NULL) {
            return;
        }
        __builtin_memcpy(more, all, count * sizeof *more);
        rd_set_environment(all = more);
        process->places = PLACES;
    }
    struct rd_out out = rd_out(entry, size);
    rd_put(&out, name);
    rd_put_char(&out, '=');
    rd_put(&out, value);
    all[count] = entry;
    if (fresh) {
        all[count + 1] = NULL;
        process->places--;
    }
}

/* ---- the plan of an ancestor ---- */

struct ancestor {
    char status[8192];
    char own_status[8192];
    uint64_t auxiliary[128];
    char environment[ENVIRONMENT_BYTES];
};

static long read_of(const char *process, const char *name, void *to, size_t size)
{
    char path[64];
    struct rd_out out = rd_out(path, sizeof path);
    rd_put(&out, "/proc/");
    rd_put(&out, process);
    rd_put(&out, name);
    long length = rd_read_file(path, to, size - 16);
    /* Ends text, and the auxiliary vector. */
    __builtin_memset((char *)to + (length < 0 ? 0 : length), 0, 16);
    return length;
}

/* Whether a process is one of this user's that was not started with more rights than its caller had: what such a one was
 * given is another user's. */
static bool is_own(const char *process, struct ancestor *all)
{
    uint64_t secure = 1;
    struct rd_text own = rd_line(all->own_status, "\nUid:\t");
    struct rd_text theirs = rd_line(all->status, "\nUid:\t");
    return own.length > 0 && own.length == theirs.length && __builtin_memcmp(own.at, theirs.at, own.length) == 0
           && read_of(process, "/auxv", all->auxiliary, sizeof all->auxiliary) > 0
           && rd_auxiliary(all->auxiliary, AT_SECURE, &secure) && secure == 0;
}

/* The value of a variable in a block of strings, each ended by a zero byte; NULL where it isn't there. */
static const char *value_in(const char *block, long length, const char *name)
{
    struct rd_text value;
    for (long at = 0; at < length; at += (long)rd_length(block + at) + 1) {
        if (rd_text_is(rd_split(rd_text_of(block + at), '=', &value, NULL), name)) {
            return value.at;
        }
    }
    return NULL;
}

/* Takes over what an ancestor's environment has of ours; false where it has no plan. With an empty one, nothing. */
static bool take(struct process *process, const char *environment, long length)
{
    static const char *const names[] = {PLAN, LITERALS, "RADDLE_LOG"};
    const char *plan = value_in(environment, length, PLAN);
    for (size_t i = 0; i < sizeof names / sizeof names[0] && plan != NULL && plan[0] != '\0'; i++) {
        const char *value = value_in(environment, length, names[i]);
        if (value != NULL) {
            set(process, names[i], value, false);
        }
    }
    return plan != NULL;
}

/* The plan of the nearest ancestor that has one, for a process that was started without its parent's environment. */
static void inherit(struct process *process)
{
    struct ancestor *all = rd_map(sizeof *all);
    if (all == NULL) {
        return;
    }
    char id[24];
    bool found = read_of("self", "/status", all->own_status, sizeof all->own_status) <= 0;
    struct rd_text parent = rd_line(all->own_status, "\nPPid:\t");
    for (int i = 0; i < MAX_ANCESTORS && !found && parent.length > 0 && parent.length < sizeof id; i++) {
        struct rd_out out = rd_out(id, sizeof id);
        rd_put_text(&out, parent);
        if (read_of(id, "/status", all->status, sizeof all->status) <= 0 || !is_own(id, all)) {
            break;
        }
        found = take(process, all->environment, read_of(id, "/environ", all->environment, sizeof all->environment));
        parent = rd_line(all->status, "\nPPid:\t");
    }
    rd_unmap(all, sizeof *all);
}

/* ---- variables ---- */

static void drop_all(struct rd_text variable)
{
    for (char **entry = rd_environment(); *entry != NULL;) {
        if (rd_text_is(variable, *entry)) {
            drop(entry);
        } else {
            entry++;
        }
    }
}

/* The end of a Python's list, "#N": it was started by N others with such a list, one by the other. */
static char starts_of(struct rd_text list)
{
    struct rd_text last = list;
    for (bool more = true; more;) {
        last = rd_split(list, ';', &list, &more);
    }
    return last.length == 2 && last.at[0] == '#' ? last.at[1] : '0' - 1;
}

/* Takes out what a parent's door has completed and the parent has left as it was. What is hidden from Python code may be
 * what this code sets before it starts itself again, for as long as it does not find it: in the end it stays. No system
 * call tells who was started in the place of whom: a filter may kill for one. */
static void take_back(struct process *process)
{
    char **listed = find(COMPLETED);
    if (*listed == NULL) {
        return;
    }
    struct rd_text rest = rd_text_of(*listed + sizeof COMPLETED), all = rest;
    drop(listed);
    process->starts = (char)(starts_of(all) + 1);
    while (rest.length > 0 && rest.length < COMPLETED_BYTES) {
        struct rd_text one = rd_split(rest, ';', &rest, NULL);
        if (process->starts <= '9' || one.at[one.length - 1] == ' ') {
            drop_all(one);
        }
    }
}

/* Whether a variable is set, and not empty: runtimes take that for unset. */
static bool is_set(const char *name)
{
    const char *value = rd_env(name);
    return value != NULL && value[0] != '\0';
}

/* In the second start: the counts have been read, and a program that reads them itself finds what it was started with. One
 * may compare them with its own options, and end where they differ. */
static void take_out_what_was_read(struct process *process)
{
    const char *listed = rd_env(COMPLETED);
    if (listed == NULL || kind_of(process) != RUNTIME || is_node() || has_runtime(WHEN_CALLED)) {
        return;
    }
    /* What the program sets by that name, for a start of its own, is the program's. */
    struct rd_out left = rd_out(process->text, sizeof process->text);
    for (struct rd_text rest = rd_text_of(listed); rest.length > 0;) {
        struct rd_text one = rd_split(rest, ';', &rest, NULL);
        if (rd_starts(one.at, "OMP_NUM_THREADS=") || rd_starts(one.at, "OPENBLAS_NUM_THREADS=")) {
            drop_all(one);
        } else {
            rd_put(&left, left.length == 0 ? "" : ";");
            rd_put_text(&left, one);
        }
    }
    if (left.length > 0) {
        set(process, COMPLETED, process->text, true);
    } else {
        drop(find(COMPLETED));
    }
}

/* Whether a library would take this variable for one in which somebody has chosen. */
static bool beats_a_choice(const char *name)
{
    static const char *const of_openmp[] = {"OMP_DYNAMIC", "KMP_HW_SUBSET", "OMP_NUM_THREADS_ALL"};
    bool blas = rd_starts(name, "OPENBLAS_");
    for (size_t i = 0; rd_same(name, "OMP_NUM_THREADS") && i < sizeof of_openmp / sizeof of_openmp[0]; i++) {
        if (is_set(of_openmp[i])) {
            return true;
        }
    }
    return (blas && is_set("GOTO_NUM_THREADS")) || (rd_same(name, "KMP_BLOCKTIME") && is_set("OMP_WAIT_POLICY"))
           || ((blas || rd_starts(name, "MKL_") || rd_starts(name, "BLIS_") || rd_starts(name, "NUMEXPR_"))
               && is_set("OMP_NUM_THREADS"));
}

static bool is_completed(const struct process *process, const char *name)
{
    struct rd_text value, rest = rd_text_of(process->text);
    while (rest.length > 0) {
        if (rd_text_is(rd_split(rd_split(rest, ';', &rest, NULL), '=', &value, NULL), name)) {
            return true;
        }
    }
    return false;
}

/* Completes one variable, unless it is set. */
static void complete(struct process *process, const char *name, const char *value)
{
    struct rd_out *list = &process->completed;
    bool is_early = process->early && (rd_starts(name, "OMP_") || rd_starts(name, "OPENBLAS_"));
    bool hidden = process->kind == PYTHON && !process->closed && !process->early;
    if (is_set(name) || is_completed(process, name) || beats_a_choice(name)
        || list->length + rd_length(name) + rd_length(value) + 3 > list->size
        || (process->kind == PYTHON && process->closed && !rd_starts(name, "ORT_"))
        /* It has bound this thread to one CPU by now, which a second start would have for all. */
        || (is_early && rd_openmp_binds())) {
        return;
    }
    process->unread |= is_early;
    rd_put(list, list->length == 0 ? "" : ";");
    rd_put(list, name);
    rd_put_char(list, '=');
    rd_put(list, value);
    if (!hidden) {
        set(process, name, value, true);
    }
}

static void complete_count(struct process *process, const char *name, int64_t count)
{
    char value[24];
    struct rd_out out = rd_out(value, sizeof value);
    rd_put_number(&out, count);
    if (count > 0) {
        complete(process, name, value);
    }
}

/* What RADDLE_LITERALS lists; empty where that is longer than the webhook writes. */
static struct rd_text literals(void)
{
    const char *text = rd_env(LITERALS);
    struct rd_text all = rd_text_of(text == NULL ? "" : text);
    return all.length <= RD_MAX_LITERALS ? all : rd_text_of("");
}

bool rd_next_literal(struct rd_text *rest, struct rd_text *name, struct rd_text *value)
{
    while (rest->length > 0) {
        struct rd_text part = rd_split(*rest, ';', rest, NULL);
        *name = rd_split(part, '=', value, NULL);
        if (name->length > 0 && value->length > 0) {
            return true;
        }
    }
    return false;
}

/* The value that is listed for the name; empty where there is none. */
static struct rd_text listed(struct rd_text wanted)
{
    struct rd_text rest = literals(), name, value;
    while (rd_next_literal(&rest, &name, &value)) {
        if (rd_text_same(name, wanted)) {
            return value;
        }
    }
    return rd_text_of("");
}

/* What is listed, but Java's options, which are a part of a list. */
static void complete_listed(struct process *process)
{
    char name[64], value[256];
    struct rd_text rest = literals(), one, its;
    while (rd_next_literal(&rest, &one, &its)) {
        if (!rd_text_is(one, JAVA) && one.length < sizeof name && its.length < sizeof value) {
            struct rd_out to_name = rd_out(name, sizeof name), to_value = rd_out(value, sizeof value);
            rd_put_text(&to_name, one);
            rd_put_text(&to_value, its);
            complete(process, name, value);
        }
    }
}

/* OpenMP's and a BLAS's own count is that of the CPUs that the process may run on: ours is never above it. */
static void complete_counts(struct process *process, const struct rd_plan *plan)
{
    struct rd_completed counts[RD_COMPLETED_COUNTS];
    int64_t most = process->cpus;
    rd_completed_counts(plan, counts);
    for (int i = 0; i < RD_COMPLETED_COUNTS; i++) {
        bool above = most > 0 && counts[i].count > most && !rd_starts(counts[i].name, "ORT_");
        complete_count(process, counts[i].name, above ? most : counts[i].count);
    }
}

/* Sets the variable to the three texts, one after the other. */
static void set_joined(struct process *process, const char *name, const char *first, const char *mark,
                       struct rd_text last)
{
    size_t size = rd_length(first) + rd_length(mark) + last.length + 1;
    char *value = rd_map(size);
    if (value != NULL) {
        struct rd_out out = rd_out(value, size);
        rd_put(&out, first);
        rd_put(&out, mark);
        rd_put_text(&out, last);
        set(process, name, value, true);
        rd_unmap(value, size);
    }
}

/* The option stays as somebody else has set it, unless the policy overrides: the JVM takes the last one. */
static void extend_java(struct process *process, const struct rd_plan *plan)
{
    const char *present = rd_env(JAVA);
    struct rd_text option = listed(rd_text_of(JAVA)), rest = rd_text_of(present == NULL ? "" : present);
    bool ours = false, theirs = false;
    for (struct rd_text word = rd_next_word(&rest); word.length > 0; word = rd_next_word(&rest)) {
        theirs |= word.length >= sizeof JAVA_OPTION - 1 && rd_starts(word.at, JAVA_OPTION);
        ours = word.length == option.length && __builtin_memcmp(word.at, option.at, option.length) == 0;
    }
    if (option.length < sizeof JAVA_OPTION || !rd_starts(option.at, JAVA_OPTION) || ours
        || (theirs && rd_plan_respects(plan))) {
        return;
    }
    bool alone = present == NULL || present[0] == '\0';
    set_joined(process, JAVA, alone ? "" : present, alone ? "" : " ", option);
}

/* ---- Python ---- */

static bool is_interpreter(const char *name)
{
    return rd_starts(name, "python") || rd_starts(name, "pypy");
}

char rd_python_closed(const char *program, int count, char *const *arguments)
{
    /* A shell's `exec -a` gives it another name. */
    if (!is_interpreter(program) && !is_interpreter(count > 0 ? rd_base_name(arguments[0]) : "")) {
        return 0;
    }
    for (int i = 1; i < count; i++) {
        const char *option = arguments[i];
        if (option[0] != '-' || option[1] == '\0' || rd_same(option, "--")) {
            return 0;
        }
        if (option[1] == '-') {
            i += rd_same(option, "--check-hash-based-pycs");
            continue;
        }
        for (const char *one = option + 1; *one != '\0'; one++) {
            if (*one == 'I' || *one == 'E' || *one == 'S') {
                return *one;
            }
            if (*one == 'c' || *one == 'm') {
                return 0;
            }
            if (*one == 'W' || *one == 'X' || *one == 'Q') {
                /* With the rest as its value, or the next argument. */
                i += one[1] == '\0';
                break;
            }
        }
    }
    return 0;
}

/* Whether a path's entry is the folder, written in any of the ways that are ours. */
static bool is_folder(struct rd_text entry, const char *folder)
{
    size_t length = rd_length(folder) - 1;
    return entry.length >= length && __builtin_memcmp(entry.at, folder, length) == 0
           && (entry.length == length || entry.at[length] == '/') && entry.length <= length + 2
           && (entry.length < length + 2 || entry.at[length + 1] == '.');
}

static void extend_path(struct process *process)
{
    const char *old = rd_env(PATH);
    struct rd_text rest = rd_text_of(old == NULL ? "" : old), all = rest;
    for (bool more = true; more;) {
        if (is_folder(rd_split(rest, ':', &rest, &more), process->folder)) {
            return;
        }
    }
    set_joined(process, PATH, process->folder, old == NULL ? "" : all.length == 0 ? "." : ":", all);
}

/* ---- the order ---- */

static void open_door(struct process *process)
{
    uint64_t secure = 1;
    struct rd_plan plan;
    char problem[256];
    struct rd_out error = rd_out(problem, sizeof problem);
    if (process->auxiliary == NULL || !rd_auxiliary(process->auxiliary, AT_SECURE, &secure) || secure != 0
        || rd_environment() == NULL) {
        return;
    }
    if (rd_was_started_again()) {
        take_out_what_was_read(process);
        return;
    }
    take_back(process);
    const char *text = rd_env(PLAN);
    if (text != NULL && text[0] == '\0') {
        return;
    }
    process->kind = kind_of(process);
    process->cpus = process->kind == OTHER ? 0 : rd_remember_cpus();
    if (process->kind == OTHER || (process->kind == LOADER && text == NULL) || !find_folder(process)) {
        return;
    }
    if (text == NULL) {
        inherit(process);
        text = rd_env(PLAN);
    }
    if (text == NULL || text[0] == '\0') {
        return;
    }
    process->closed = rd_python_closed(program_name(process), process->count, process->arguments) != 0;
    process->early = (process->kind == RUNTIME || (process->kind == PYTHON && !process->closed)) && has_runtime(AS_LOADED);
    process->completed = rd_out(process->text, sizeof process->text);
    if (rd_plan_parse(text, &plan, &error)) {
        complete_listed(process);
        complete_counts(process, &plan);
        if (process->kind == JAVA_PROGRAM) {
            extend_java(process, &plan);
        }
    }
    if (process->completed.length > 0) {
        if (process->kind == PYTHON && !process->closed) {
            rd_put(&process->completed, ";#");
            rd_put_char(&process->completed, process->starts < '9' ? process->starts : '9');
        }
        set(process, COMPLETED, process->text, true);
    }
    /* With a plan that can't be used too: the shim says so. */
    if (process->kind == PYTHON && !process->closed) {
        extend_path(process);
    }
    if (process->unread) {
        rd_start_again();
    }
}

/* The only constructor. glibc passes these arguments to every one. */
__attribute__((constructor)) static void start(int count, char **arguments, char **given)
{
    struct process process = {.count = count, .arguments = arguments, .starts = '0'};
    process.auxiliary = auxiliary_behind(count, arguments, given);
    rd_remember_stderr();
    open_door(&process);
    rd_remember_counts();
    const char **environment = (const char **)rd_environment();
    if (environment == NULL && process.auxiliary != NULL) {
        environment = (const char **)given;
    }
    if (environment != NULL) {
        rd_allocator_start(environment);
    }
}
