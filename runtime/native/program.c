/* The library as a program, /opt/raddle/raddle: which processes of the container the shim reaches, and their settings.
 *
 * No loader is asked for and no libc is there, so it runs in every image: the kernel starts it at rd_start. It reads
 * /proc, as the user that it runs as, and changes nothing.
 */
#include "libraries.h"
#include "raddle.h"
#include "syscalls.h"

#include <elf.h>

/* Longer than a line of /proc/PID/maps. */
#define PIECE 20480
#define ROOM (64 * 1024)
#define MAX_ANCESTORS 64
#define MAX_WORDS 256
#define OPENS_FILE (O_CLOEXEC | O_NONBLOCK)

#if defined(__x86_64__)
#define RELATIVE R_X86_64_RELATIVE
__asm__(".pushsection .text.rd_start,\"ax\",@progbits\n"
        ".globl rd_start\n.hidden rd_start\n.type rd_start,@function\n"
        "rd_start:\n"
        "xor %ebp, %ebp\n"
        "mov %rsp, %rdi\n"
        "and $-16, %rsp\n"
        "call rd_program\n"
        ".popsection\n");
#else
#define RELATIVE R_AARCH64_RELATIVE
__asm__(".pushsection .text.rd_start,\"ax\",@progbits\n"
        ".globl rd_start\n.hidden rd_start\n.type rd_start,@function\n"
        "rd_start:\n"
        "mov x29, #0\n"
        "mov x30, #0\n"
        "mov x0, sp\n"
        "and sp, x0, #-16\n"
        "bl rd_program\n"
        ".popsection\n");
#endif

enum { OK, NOT_REACHED, FAILED };
enum plan_of { NOBODYS, OWN, EMPTY, ANCESTORS, CONTAINERS };

static const char *const *environment;

/* ---- reading in pieces: files of /proc have no size --------------------------------------------------------------- */

struct reader {
    long file;
    long length, at;
    bool cut; /* the rest of a piece that was too long is to be passed over */
    char text[PIECE];
};

static long start(struct reader *reader, const char *path)
{
    reader->length = reader->at = 0;
    reader->cut = false;
    reader->file = rd_syscall(NR_OPENAT, AT_FDCWD, (long)path, OPENS_FILE | O_NOFOLLOW, 0, 0, 0);
    return reader->file;
}

static void end(struct reader *reader)
{
    if (!rd_failed(reader->file)) {
        rd_syscall(NR_CLOSE, reader->file, 0, 0, 0, 0, 0);
    }
    reader->file = -1;
}

/* More of the file behind what is left of it; false at its end, or where there is no room. */
static bool fill(struct reader *reader)
{
    __builtin_memmove(reader->text, reader->text + reader->at, (size_t)(reader->length - reader->at));
    reader->length -= reader->at;
    reader->at = 0;
    long more = rd_failed(reader->file) ? 0
                                        : rd_syscall(NR_READ, reader->file, (long)(reader->text + reader->length),
                                                     PIECE - reader->length, 0, 0, 0);
    if (more <= 0) {
        return false;
    }
    reader->length += more;
    return true;
}

/* The next piece up to the mark or the end, cut off at PIECE; false after the last one. */
static bool next(struct reader *reader, char mark, struct rd_text *piece)
{
    for (long looked = 0;;) {
        char *text = reader->text + reader->at;
        long left = reader->length - reader->at;
        while (looked < left && text[looked] != mark) {
            looked++;
        }
        bool whole = looked < left;
        if (!whole && left < PIECE && fill(reader)) {
            continue;
        }
        if (!whole && left == 0) {
            end(reader);
            return false;
        }
        bool rest = reader->cut;
        reader->cut = !whole && left == PIECE;
        reader->at += looked + whole;
        if (!rest) {
            *piece = (struct rd_text){text, (size_t)looked};
            return true;
        }
        looked = 0;
    }
}

static const char *path_of(char path[64], int pid, const char *file)
{
    struct rd_out out = rd_out(path, 64);
    rd_put(&out, "/proc/");
    rd_put_number(&out, pid);
    rd_put(&out, file);
    return path;
}

static bool begins(struct rd_text text, const char *with)
{
    size_t length = rd_length(with);
    return text.length >= length && rd_text_is((struct rd_text){text.at, length}, with);
}

static bool ends(struct rd_text text, const char *with)
{
    size_t length = rd_length(with);
    return text.length >= length && rd_text_is((struct rd_text){text.at + text.length - length, length}, with);
}

static struct rd_text after(struct rd_text text, size_t count)
{
    return (struct rd_text){text.at + count, text.length - count};
}

static struct rd_text base_of(struct rd_text path)
{
    size_t last = 0;
    for (size_t i = 0; i < path.length; i++) {
        last = path.at[i] == '/' ? i + 1 : last;
    }
    return after(path, last);
}

/* ---- one process -------------------------------------------------------------------------------------------------- */

/* Characters, since pointers would be relocated in every process. */
#define LIBRARY(stem, runtime, has_variables) {stem, runtime},
static const struct {
    char stem[28];
    unsigned char runtime;
} libraries[] = {RD_LIBRARIES(LIBRARY)};
#define RUNTIME(runtime, name) name,
static const char names_of_runtimes[][20] = {RD_RUNTIMES(RUNTIME)};

struct process {
    int pid, parent;
    unsigned user;
    char command[64];
    char threads[12];
    bool lives, readable; /* it has memory, so it is no thread of the kernel's and has not ended */
    enum plan_of whose;
    char plan[RD_MAX_PLAN_TEXT + 1];
    char counts[512]; /* "OMP_NUM_THREADS=2 ..." */
    char completed[512]; /* what its parent's door had completed, which its own has taken out */
    char literals[RD_MAX_LITERALS + 1];
    bool door, glibc, musl, python;
    bool late; /* its Python was not there at its start: a frozen program, a module of another language */
    char closed_by; /* the letter of Python's option */
    unsigned runtimes; /* a bit for each of enum rd_runtime */
    char marks[4096]; /* one after the other, each ended by a line feed */
    bool reached;
    const char *why;
};

static void keep(char *to, size_t size, struct rd_text text)
{
    struct rd_out out = rd_out(to, size);
    for (size_t i = 0; i < text.length; i++) {
        rd_put_char(&out, text.at[i] < ' ' || text.at[i] > '~' ? '?' : text.at[i]);
    }
}

static int number_of(struct rd_text text)
{
    uint64_t number;
    return rd_number(text, &number) && number < INT32_MAX ? (int)number : -1;
}

static void read_status(struct reader *reader, struct process *one)
{
    char path[64];
    struct rd_text line, word;
    long file = start(reader, path_of(path, one->pid, "/status"));
    /* Nobody's business, by how /proc is mounted. */
    one->lives = file == -EPERM || file == -EACCES;
    keep(one->command, sizeof one->command, rd_text_of("?"));
    while (next(reader, '\n', &line)) {
        struct rd_text rest;
        struct rd_text name = rd_split(line, ':', &rest, NULL);
        struct rd_text all = rest;
        word = rd_next_word(&rest);
        if (rd_text_is(name, "Name")) {
            keep(one->command, sizeof one->command, all.length > 0 ? after(all, 1) : all);
        } else if (rd_text_is(name, "PPid")) {
            one->parent = number_of(word);
        } else if (rd_text_is(name, "Uid")) {
            one->user = (unsigned)number_of(word);
        } else if (rd_text_is(name, "Threads")) {
            keep(one->threads, sizeof one->threads, word);
        } else if (rd_text_is(name, "VmSize")) {
            one->lives = true;
        }
    }
}

/* A variable that holds a number and nothing else; its name is plain. */
static bool is_count(struct rd_text name, struct rd_text value)
{
    for (size_t i = 0; i < name.length; i++) {
        if (name.at[i] != '_' && (name.at[i] < 'A' || name.at[i] > 'Z')) {
            return false;
        }
    }
    return number_of(value) >= 0
           && (ends(name, "_THREADS") || ends(name, "_CPU_COUNT") || ends(name, "MAXPROCS")
               || ends(name, "THREADPOOL_SIZE"));
}

/* One more count, unless its parent's door has set it. */
static void add_count(struct process *one, struct rd_text variable)
{
    struct rd_text value, part, rest = rd_text_of(one->completed);
    struct rd_out counts = {one->counts, sizeof one->counts, rd_length(one->counts)};
    struct rd_text name = rd_split(variable, '=', &value, NULL);
    while (rest.length > 0) {
        part = rd_split(rest, ';', &rest, NULL);
        if (rd_text_same(part, variable)) {
            return;
        }
    }
    if (is_count(name, value) && counts.length + variable.length + 2 < counts.size) {
        rd_put(&counts, counts.length > 0 ? " " : "");
        rd_put_text(&counts, variable);
    }
}

/* Takes the plan from a variable of the nearest environment that has it. */
static void note(struct process *one, struct rd_text name, struct rd_text value, enum plan_of whose)
{
    if (rd_text_is(name, "RADDLE_PLAN") && one->whose == NOBODYS) {
        one->whose = value.length > 0 ? whose : EMPTY;
        keep(one->plan, sizeof one->plan, value);
    }
    if (rd_text_is(name, "RADDLE_LITERALS") && one->literals[0] == '\0') {
        keep(one->literals, sizeof one->literals, value);
    }
}

/* What an environment says, the process's own or an ancestor's. True where it is one: a program that changes its title
 * may write over it. */
static bool read_environment(struct reader *reader, struct process *one, int pid)
{
    char path[64];
    struct rd_text piece, value;
    bool any = false, sane = false;
    long file = start(reader, path_of(path, pid, "/environ"));
    if (pid == one->pid) {
        one->readable = file != -EACCES && file != -EPERM;
    }
    while (next(reader, '\0', &piece)) {
        bool is_variable;
        struct rd_text name = rd_split(piece, '=', &value, &is_variable);
        any = true;
        sane |= is_variable;
        note(one, name, value, pid == one->pid ? OWN : ANCESTORS);
        if (pid == one->pid && rd_text_is(name, "RADDLE_COMPLETED")) {
            keep(one->completed, sizeof one->completed, value);
        }
    }
    if (pid == one->pid) {
        start(reader, path);
        while (next(reader, '\0', &piece)) {
            add_count(one, piece);
        }
        one->completed[0] = '\0';
    }
    return sane || !any;
}

/* A process that was started without variables gets its plan from the nearest of those that started it. */
static void find_plan(struct reader *reader, struct process *one)
{
    if (!read_environment(reader, one, one->pid)) {
        /* The container has given us the same. */
        for (const char *const *entry = environment; *entry != NULL; entry++) {
            struct rd_text value;
            struct rd_text name = rd_split(rd_text_of(*entry), '=', &value, NULL);
            note(one, name, value, CONTAINERS);
        }
    }
    int parent = one->parent;
    for (int i = 0; i < MAX_ANCESTORS && parent > 0 && one->whose == NOBODYS; i++) {
        char path[64];
        struct rd_text line, rest;
        read_environment(reader, one, parent);
        start(reader, path_of(path, parent, "/status"));
        parent = 0;
        while (next(reader, '\n', &line)) {
            if (rd_text_is(rd_split(line, ':', &rest, NULL), "PPid")) {
                parent = number_of(rd_next_word(&rest));
            }
        }
    }
}

/* Whether a variable stands among its counts. */
static bool has_count(const struct process *one, struct rd_text name)
{
    struct rd_text value, rest = rd_text_of(one->counts);
    while (rest.length > 0) {
        if (rd_text_same(rd_split(rd_split(rest, ' ', &rest, NULL), '=', &value, NULL), name)) {
            return true;
        }
    }
    return false;
}

/* The counts that the process's door has completed: /proc shows the environment that it was started with. */
static void add_completed(struct process *one)
{
    struct rd_plan plan;
    struct rd_completed counts[RD_COMPLETED_COUNTS];
    char problem[64], text[96];
    struct rd_out error = rd_out(problem, sizeof problem);
    if (!one->door || one->whose == NOBODYS || one->late || !rd_plan_parse(one->plan, &plan, &error)) {
        return;
    }
    rd_completed_counts(&plan, counts);
    struct rd_text name, value, rest = rd_text_of(one->literals);
    while (one->closed_by == 0 && rd_next_literal(&rest, &name, &value)) {
        struct rd_out out = rd_out(text, sizeof text);
        rd_put_text(&out, name);
        rd_put_char(&out, '=');
        rd_put_text(&out, value);
        if (!has_count(one, name)) {
            add_count(one, rd_text_of(text));
        }
    }
    for (int i = 0; i < RD_COMPLETED_COUNTS; i++) {
        struct rd_out out = rd_out(text, sizeof text);
        rd_put(&out, counts[i].name);
        rd_put_char(&out, '=');
        rd_put_number(&out, counts[i].count);
        /* A session's mark has its count. */
        bool is_ort = rd_starts(counts[i].name, "ORT_"), shown = is_ort ? one->marks[0] == '\0' : one->closed_by == 0;
        if (counts[i].count > 0 && shown && !has_count(one, rd_text_of(counts[i].name))) {
            add_count(one, rd_text_of(text));
        }
    }
}

static bool is_python(struct rd_text name)
{
    return begins(name, "python") || begins(name, "pypy");
}

static bool needs_python;

static bool look_for_python(const char *name, const char *version)
{
    (void)version;
    name = rd_base_name(name);
    needs_python |= rd_starts(name, "libpython") || rd_starts(name, "libpypy");
    return true;
}

/* Whether the program's own file is a Python. */
static bool is_python_s(int pid)
{
    char path[64], target[1024];
    long length = rd_syscall(NR_READLINKAT, AT_FDCWD, (long)path_of(path, pid, "/exe"), (long)target, sizeof target, 0,
                             0);
    return !rd_failed(length) && is_python(base_of((struct rd_text){target, (size_t)length}));
}

/* Whether the program is a Python, or is linked to one: then the door knew it when the process began. */
static bool starts_with_python(int pid)
{
    char path[64];
    needs_python = is_python_s(pid);
    if (!needs_python) {
        rd_loadable(path_of(path, pid, "/exe"), look_for_python);
    }
    return needs_python;
}

static void read_mapping(struct process *one, struct rd_text line)
{
    for (int i = 0; i < 5; i++) {
        rd_next_word(&line);
    }
    while (line.length > 0 && *line.at == ' ') {
        line = after(line, 1);
    }
    if (begins(line, "/memfd:" RD_MARK)) {
        line = after(line, rd_length("/memfd:" RD_MARK));
        line.length -= ends(line, " (deleted)") ? rd_length(" (deleted)") : 0;
        size_t used = rd_length(one->marks);
        if (used + line.length + 2 < sizeof one->marks) {
            keep(one->marks + used, sizeof one->marks - used, line);
            struct rd_out marks = {one->marks, sizeof one->marks, used + line.length};
            rd_put_char(&marks, '\n');
        }
        return;
    }
    if (line.length == 0 || *line.at != '/') {
        return;
    }
    struct rd_text name = base_of(line);
    one->door |= begins(name, "libraddle.so");
    one->glibc |= begins(name, "libc.so.6") || begins(name, "libc-2.");
    one->musl |= begins(name, "ld-musl-") || rd_text_is(name, "libc.so");
    one->python |= begins(name, "libpython") || is_python(name);
    for (unsigned i = 0; i < sizeof libraries / sizeof libraries[0]; i++) {
        size_t length = rd_length(libraries[i].stem);
        if (begins(name, libraries[i].stem) && name.length > length
            && (name.at[length] == '.' || name.at[length] == '_' || name.at[length] == '-')) {
            one->runtimes |= 1u << libraries[i].runtime;
        }
    }
}

static void read_maps(struct reader *reader, struct process *one)
{
    char path[64];
    struct rd_text line;
    long file = start(reader, path_of(path, one->pid, "/maps"));
    one->readable &= file != -EACCES && file != -EPERM;
    while (next(reader, '\n', &line)) {
        read_mapping(one, line);
    }
}

/* Python's option that closes the door, by its command line. */
static char closing_option(struct reader *reader, int pid)
{
    char path[64];
    char *words[MAX_WORDS];
    int count = 0;
    start(reader, path_of(path, pid, "/cmdline"));
    while (fill(reader)) {
    }
    end(reader);
    long length = reader->length < PIECE ? reader->length : PIECE - 1;
    reader->text[length] = '\0';
    for (long at = 0; at < length && count < MAX_WORDS; at += (long)rd_length(reader->text + at) + 1) {
        words[count++] = reader->text + at;
    }
    return rd_python_closed(is_python_s(pid) ? "python" : "", count, words);
}

/* Whether the shim reaches the process, and why not. */
static void judge(struct process *one)
{
    bool has_onnxruntime = (one->runtimes >> RD_RUNTIME_ONNXRUNTIME & 1) != 0;
    one->why = "";
    if (one->marks[0] != '\0') {
        one->reached = true;
    } else if (!one->door) {
        one->why = one->musl     ? "its libc is musl, whose loader reads no /etc/ld.so.preload"
                   : !one->glibc ? "it is linked statically, so no loader reads /etc/ld.so.preload"
                                 : "libraddle.so is not in it";
    } else if (one->whose == EMPTY) {
        one->why = "RADDLE_PLAN is empty, so the shim does nothing";
    } else if (one->whose == NOBODYS) {
        one->why = "there is no RADDLE_PLAN in its environment";
    } else if (one->python && one->closed_by != 0) {
        one->why = one->closed_by == 'S' ? "Python's option -S disables sitecustomize"
                   : one->closed_by == 'E' ? "Python's option -E makes it ignore the environment"
                                         : "Python's option -I makes it ignore the environment";
    } else if (one->late) {
        one->why = "its Python is frozen, or embedded in another program";
    } else if (has_onnxruntime && !one->python) {
        one->why = "the shim has not configured a session of its onnxruntime yet";
    } else {
        one->reached = true;
    }
}

static void look(struct reader *reader, struct process *one, int pid)
{
    one->pid = pid;
    read_status(reader, one);
    if (!one->lives) {
        return;
    }
    find_plan(reader, one);
    if (one->readable) {
        read_maps(reader, one);
    }
    if (one->python) {
        one->closed_by = closing_option(reader, pid);
        one->late = !starts_with_python(pid);
    }
    add_completed(one);
    judge(one);
}

/* ---- printing ----------------------------------------------------------------------------------------------------- */

struct totals {
    unsigned processes, open, with_runtime, reached, unreadable;
};

/* False where nobody takes it. */
static bool flush(struct rd_out *out)
{
    size_t written = 0;
    while (written < out->length) {
        long part = rd_syscall(NR_WRITE, 1, (long)(out->at + written), (long)(out->length - written), 0, 0, 0);
        if (part <= 0) {
            return false;
        }
        written += (size_t)part;
    }
    out->length = 0;
    return true;
}

static void put_column(struct rd_out *out, const char *text, size_t width, bool right)
{
    size_t length = rd_length(text);
    for (size_t i = length; right && i < width; i++) {
        rd_put_char(out, ' ');
    }
    rd_put(out, text);
    for (size_t i = length; !right && i < width; i++) {
        rd_put_char(out, ' ');
    }
    rd_put(out, "  ");
}

/* The names of its runtimes, each between the marks. */
static void put_runtimes(struct rd_out *out, const struct process *one, const char *mark, const char *between)
{
    const char *gap = "";
    for (unsigned i = 0; i < RD_RUNTIME_COUNT; i++) {
        if ((one->runtimes >> i & 1) != 0) {
            rd_put(out, gap);
            rd_put(out, mark);
            rd_put(out, names_of_runtimes[i]);
            rd_put(out, mark);
            gap = between;
        }
    }
}

static void put_marks(struct rd_out *out, const struct process *one, bool json)
{
    struct rd_text mark, rest = rd_text_of(one->marks);
    for (const char *gap = ""; rest.length > 0; gap = json ? "," : "; ") {
        mark = rd_split(rest, '\n', &rest, NULL);
        rd_put(out, gap);
        if (json) {
            rd_put_string(out, mark.at, mark.length);
        } else {
            rd_put_text(out, mark);
        }
    }
}

static void put_row(struct rd_out *out, const struct process *one)
{
    static const char plans[][8] = {"none", "yes", "off", "yes", "yes"};
    char text[128];
    struct rd_out cell = rd_out(text, sizeof text);
    rd_put_number(&cell, one->pid);
    put_column(out, text, 7, true);
    put_column(out, one->command, 15, false);
    put_column(out, !one->readable ? "?" : one->door ? "open" : "closed", 6, false);
    put_column(out, !one->readable ? "?" : plans[one->whose], 4, false);
    put_column(out, one->threads, 7, true);
    cell = rd_out(text, sizeof text);
    put_runtimes(&cell, one, "", ", ");
    put_column(out, !one->readable ? "?" : one->runtimes == 0 ? "-" : text, 21, false);
    if (!one->readable) {
        rd_put(out, "may not be read: it is of user ");
        rd_put_unsigned(out, one->user);
    } else if (one->runtimes != 0 && !one->reached) {
        rd_put(out, "not reached: ");
        rd_put(out, one->why);
    } else if (one->marks[0] != '\0') {
        put_marks(out, one, false);
    } else if (one->counts[0] == '\0' || one->runtimes == 0) {
        rd_put_char(out, '-');
    }
    if (one->counts[0] != '\0' && one->runtimes != 0) {
        rd_put(out, one->reached && one->marks[0] == '\0' ? "" : "; ");
        rd_put(out, one->counts);
    }
    rd_put_char(out, '\n');
}

static void put_member(struct rd_out *out, const char *name, const char *text)
{
    rd_put(out, ",\"");
    rd_put(out, name);
    rd_put(out, "\":");
    rd_put_string(out, text, RD_MAX_PLAN_TEXT);
}

static void put_switch(struct rd_out *out, const char *name, bool on)
{
    rd_put(out, ",\"");
    rd_put(out, name);
    rd_put(out, on ? "\":true" : "\":false");
}

static void put_counts(struct rd_out *out, const char *counts)
{
    struct rd_text rest = rd_text_of(counts), value;
    rd_put(out, ",\"counts\":{");
    for (const char *gap = "\""; rest.length > 0; gap = ",\"") {
        struct rd_text name = rd_split(rd_split(rest, ' ', &rest, NULL), '=', &value, NULL);
        rd_put(out, gap);
        rd_put_text(out, name);
        rd_put(out, "\":\"");
        rd_put_text(out, value);
        rd_put_char(out, '"');
    }
    rd_put_char(out, '}');
}

static void put_object(struct rd_out *out, const struct process *one)
{
    rd_put(out, "{\"pid\":");
    rd_put_number(out, one->pid);
    put_member(out, "command", one->command);
    put_switch(out, "readable", one->readable);
    if (one->readable) {
        static const char sources[][12] = {"", "own", "own", "ancestor", "container"};
        rd_put(out, ",\"threads\":");
        rd_put(out, one->threads[0] == '\0' ? "0" : one->threads);
        put_switch(out, "door", one->door);
        put_member(out, "libc", one->musl ? "musl" : one->glibc ? "glibc" : "none");
        put_switch(out, "python", one->python);
        if (one->whose != NOBODYS) {
            put_member(out, "plan", one->plan);
            put_member(out, "planFrom", sources[one->whose]);
        }
        put_counts(out, one->counts);
        rd_put(out, ",\"runtimes\":[");
        put_runtimes(out, one, "\"", ",");
        rd_put_char(out, ']');
        rd_put(out, ",\"marks\":[");
        put_marks(out, one, true);
        rd_put_char(out, ']');
        if (one->runtimes != 0) {
            put_switch(out, "reached", one->reached);
            put_member(out, "why", one->why);
        }
    }
    rd_put_char(out, '}');
}

/* "reached: 2 of 3 processes with a runtime" */
static void put_closing(struct rd_out *out, const struct totals *totals)
{
    rd_put(out, "reached: ");
    if (totals->with_runtime > 0) {
        rd_put_unsigned(out, totals->reached);
        rd_put(out, " of ");
        rd_put_unsigned(out, totals->with_runtime);
        rd_put(out, totals->with_runtime == 1 ? " process with a runtime" : " processes with a runtime");
    } else {
        rd_put(out, "no process has a runtime; the door is open to ");
        rd_put_unsigned(out, totals->open);
        rd_put(out, " of ");
        rd_put_unsigned(out, totals->processes - totals->unreadable);
    }
    if (totals->unreadable > 0) {
        rd_put(out, "; ");
        rd_put_unsigned(out, totals->unreadable);
        rd_put(out, " may not be read");
    }
    rd_put_char(out, '\n');
}

static int fail(const char *line)
{
    char text[200];
    struct rd_out out = rd_out(text, sizeof text);
    rd_put(&out, "raddle: ");
    rd_put(&out, line);
    rd_put_char(&out, '\n');
    rd_syscall(NR_WRITE, 2, (long)text, (long)out.length, 0, 0, 0);
    return FAILED;
}

/* Prints each process when it has been looked at: there may be more than memory would hold. */
static int list(bool json)
{
    struct process *one = rd_map(sizeof *one);
    struct reader *reader = rd_map(sizeof *reader);
    char *room = rd_map(ROOM);
    struct rd_dir dir;
    struct totals totals = {0, 0, 0, 0, 0};
    if (one == NULL || reader == NULL || room == NULL) {
        return fail("out of memory");
    }
    struct rd_out out = rd_out(room, ROOM);
    rd_put(&out, json ? "{\"v\":1,\"raddle\":\"" RD_VERSION "\",\"processes\":["
                      : "    PID  COMMAND          DOOR    PLAN  THREADS  RUNTIMES               SETTINGS\n");
    bool taken = true;
    for (const char *name = rd_dir_open(&dir, "", "/proc"); name != NULL && taken; name = rd_dir_next(&dir)) {
        int pid = number_of(rd_text_of(name));
        if (pid <= 0 || pid == rd_pid()) {
            continue;
        }
        __builtin_memset(one, 0, sizeof *one);
        look(reader, one, pid);
        if (!one->lives) {
            continue;
        }
        rd_put(&out, json && totals.processes > 0 ? "," : "");
        (json ? put_object : put_row)(&out, one);
        totals.processes++;
        totals.unreadable += !one->readable;
        totals.open += one->door;
        totals.with_runtime += one->runtimes != 0;
        totals.reached += one->runtimes != 0 && one->reached;
        taken = flush(&out);
    }
    rd_dir_close(&dir);
    if (totals.processes == 0) {
        return fail("/proc shows no other process");
    }
    if (json) {
        rd_put(&out, "],\"withRuntime\":");
        rd_put_unsigned(&out, totals.with_runtime);
        rd_put(&out, ",\"reached\":");
        rd_put_unsigned(&out, totals.reached);
        rd_put(&out, ",\"unreadable\":");
        rd_put_unsigned(&out, totals.unreadable);
        rd_put(&out, "}\n");
    } else {
        put_closing(&out, &totals);
    }
    if (!taken || !flush(&out)) {
        return fail("can't write to standard output");
    }
    return totals.reached == totals.with_runtime ? OK : NOT_REACHED;
}

static const char help[] =
    "usage: raddle [-o table|json]\n"
    "\n"
    "Shows which processes of this container Raddle's shim reaches, and their settings.\n"
    "\n"
    "examples:\n"
    "  kubectl exec POD -- /opt/raddle/raddle\n"
    "  kubectl exec POD -c CONTAINER -- /opt/raddle/raddle -o json\n"
    "\n"
    "exit status:\n"
    "  0  every process with a runtime is reached\n"
    "  1  one is not\n"
    "  2  wrong arguments, or no process can be inspected\n";

static int command(int count, const char *const *words)
{
    bool json = false;
    for (int i = 1; i < count; i++) {
        const char *form = rd_starts(words[i], "-o") ? words[i] + 2 : "?";
        if (rd_same(words[i], "-h") || rd_same(words[i], "--help")) {
            struct rd_out out = {(char *)(uintptr_t)help, sizeof help, sizeof help - 1};
            return flush(&out) ? OK : FAILED;
        }
        if (*form == '\0' && i + 1 < count) {
            form = words[++i];
        }
        json = rd_same(form, "json");
        if (!json && !rd_same(form, "table")) {
            return fail("wrong arguments; see raddle --help");
        }
    }
    return list(json);
}

extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const Elf64_Dyn _DYNAMIC[] __attribute__((visibility("hidden")));

/* What a loader would have done: all relocations of the file but those of symbols that may be missing, and are. */
static void relocate(void)
{
    Elf64_Addr base = (Elf64_Addr)__ehdr_start;
    const Elf64_Rela *one = NULL;
    size_t size = 0;
    for (const Elf64_Dyn *entry = _DYNAMIC; entry->d_tag != DT_NULL; entry++) {
        one = entry->d_tag == DT_RELA ? (const Elf64_Rela *)(base + entry->d_un.d_ptr) : one;
        size = entry->d_tag == DT_RELASZ ? entry->d_un.d_val : size;
    }
    for (; size >= sizeof *one; one++, size -= sizeof *one) {
        if (ELF64_R_TYPE(one->r_info) == RELATIVE) {
            *(Elf64_Addr *)(base + one->r_offset) = base + (Elf64_Addr)one->r_addend;
        }
    }
}

/* Called by rd_start with the stack as the kernel makes it: the number of words, they, NULL, the environment. */
__attribute__((noreturn, used)) void rd_program(const long *stack)
{
    relocate();
    const char *const *words = (const char *const *)(stack + 1);
    environment = words + stack[0] + 1;
    int status = command((int)stack[0], words);
    for (;;) {
        rd_syscall(NR_EXIT_GROUP, status, 0, 0, 0, 0, 0);
    }
}
