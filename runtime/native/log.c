/* What the shim says: on stderr, and by the name of a mapping. */
#include "raddle.h"
#include "syscalls.h"

#define RUNTIME "onnxruntime"
#define MAX_COMPLAINTS 16

static bool announced;

/* What number 2 was at the start of the process: an application that closes it may get the number for a file of its own. */
static uint64_t first_stderr[2];

/* Its device and inode; zeroes where it is closed. */
static void read_stderr(uint64_t identity[2])
{
    uint64_t found[STAT_WORDS];
    bool open = !rd_failed(rd_syscall(NR_FSTAT, 2, (long)found, 0, 0, 0, 0));
    identity[0] = open ? found[0] : 0;
    identity[1] = open ? found[1] : 0;
}

void rd_remember_stderr(void)
{
    read_stderr(first_stderr);
}

/* Without the signal of a pipe that nobody reads: by its default action, it would end the program. */
static void write_stderr(const char *text, size_t length)
{
    static const long at_once[2] = {0, 0};
    uint64_t signal = (uint64_t)1 << (SIGPIPE - 1), pending = 0, before = 0;
    rd_syscall(NR_RT_SIGPENDING, (long)&pending, sizeof pending, 0, 0, 0, 0);
    rd_syscall(NR_RT_SIGPROCMASK, SIG_BLOCK, (long)&signal, (long)&before, sizeof before, 0, 0);
    rd_syscall(NR_WRITE, 2, (long)text, (long)length, 0, 0, 0);
    if ((pending & signal) == 0) {
        rd_syscall(NR_RT_SIGTIMEDWAIT, (long)&signal, 0, (long)at_once, sizeof signal, 0, 0);
    }
    rd_syscall(NR_RT_SIGPROCMASK, SIG_SETMASK, (long)&before, 0, sizeof before, 0, 0);
}

void rd_log(const char *line)
{
    const char *log = rd_env("RADDLE_LOG");
    uint64_t now[2];
    read_stderr(now);
    if ((log != NULL && rd_same(log, "0")) || now[0] != first_stderr[0] || now[1] != first_stderr[1]) {
        return;
    }
    char text[600];
    struct rd_out out = rd_out(text, sizeof text - 1);
    rd_put(&out, "raddle: ");
    for (const char *one = line; *one != '\0'; one++) {
        /* A runtime's version or message may hold anything. */
        rd_put_char(&out, *one == '\n' ? ' ' : *one < ' ' || *one > '~' ? '?' : *one);
    }
    out.size++;
    rd_put_char(&out, '\n');
    write_stderr(text, out.length);
}

/* Whether this is the process's only thread: the environment may be changed only then. */
static bool is_alone(void)
{
    struct rd_dir dir;
    int threads = 0;
    for (const char *name = rd_dir_open(&dir, "", "/proc/self/task"); name != NULL; name = rd_dir_next(&dir)) {
        threads++;
    }
    return threads == 1;
}

/* Children of this process stay silent. Where other threads run, one of them may be reading the environment; then
 * children that make sessions themselves say their own line. */
static void mark_tree(const char *before)
{
    int (*set)(const char *, const char *, int) = (int (*)(const char *, const char *, int))rd_symbol("setenv", NULL);
    if (set == NULL || !is_alone()) {
        return;
    }
    char value[200];
    struct rd_out out = rd_out(value, sizeof value);
    if (before != NULL && before[0] != '\0') {
        rd_put(&out, before);
        rd_put_char(&out, ',');
    }
    rd_put(&out, RUNTIME);
    set("RADDLE_ANNOUNCED", value, 1);
}

bool rd_announce(const char *line)
{
    if (__atomic_exchange_n(&announced, true, __ATOMIC_RELAXED)) {
        return false;
    }
    const char *before = rd_env("RADDLE_ANNOUNCED");
    struct rd_text rest = rd_text_of(before == NULL ? "" : before);
    for (bool more = true; more;) {
        if (rd_text_is(rd_split(rest, ',', &rest, &more), RUNTIME)) {
            return false;
        }
    }
    mark_tree(before);
    rd_log(line);
    return true;
}

static long map_named(const char *name)
{
    long file = rd_syscall(NR_MEMFD_CREATE, (long)name, MEMFD_CLOEXEC | MEMFD_NOEXEC_SEAL, 0, 0, 0, 0);
    if (file == -EINVAL) {
        /* Linux before 6.3 does not know the seal; later ones may ask for it. */
        file = rd_syscall(NR_MEMFD_CREATE, (long)name, MEMFD_CLOEXEC, 0, 0, 0, 0);
    }
    if (rd_failed(file)) {
        return file;
    }
    /* Neither writable nor ever touched: the file is empty. */
    long memory = rd_syscall(NR_MMAP, 0, 1, 1, 2, file, 0);
    rd_syscall(NR_CLOSE, file, 0, 0, 0, 0, 0);
    if (!rd_failed(memory)) {
        /* A child of a fork has none of the sessions. */
        rd_syscall(NR_MADVISE, memory, 1, MADV_DONTFORK, 0, 0, 0);
    }
    return memory;
}

void rd_mark(enum rd_mark about, const char *line)
{
    static struct {
        struct rd_lock lock;
        long memory;
        int pid;
        /* As long as a name may be. */
        char name[250];
    } marks[RD_MARKS];
    char name[sizeof marks[0].name];
    struct rd_out out = rd_out(name, sizeof name);
    rd_put(&out, RD_MARK);
    rd_put(&out, line);
    if (!rd_try_lock(&marks[about].lock)) {
        return;
    }
    bool inherited = marks[about].pid != rd_pid();
    if (inherited || !rd_same(marks[about].name, name)) {
        long memory = map_named(name);
        if (!rd_failed(memory)) {
            if (!inherited && marks[about].memory != 0) {
                rd_syscall(NR_MUNMAP, marks[about].memory, 1, 0, 0, 0, 0);
            }
            marks[about].memory = memory;
            marks[about].pid = rd_pid();
            out = rd_out(marks[about].name, sizeof marks[about].name);
            rd_put(&out, name);
        }
    }
    rd_unlock(&marks[about].lock);
}

void rd_complain(const char *line)
{
    static struct rd_lock lock;
    static char complaints[MAX_COMPLAINTS][304];
    static int count;
    char kept[sizeof complaints[0]];
    struct rd_out out = rd_out(kept, sizeof kept);
    rd_put(&out, line);
    bool fresh = false;
    if (rd_try_lock(&lock)) {
        fresh = count < MAX_COMPLAINTS;
        for (int i = 0; i < count; i++) {
            fresh &= !rd_same(complaints[i], kept);
        }
        if (fresh) {
            out = rd_out(complaints[count++], sizeof kept);
            rd_put(&out, kept);
        }
        rd_unlock(&lock);
    }
    if (fresh) {
        rd_log(line);
        rd_mark(RD_MARK_COMPLAINT, line);
    }
}
