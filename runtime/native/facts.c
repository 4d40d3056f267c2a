/* What this process really has: its CPUs, its quota, the workers beside it. A port of read_facts in
 * runtime/raddle/adapters/live.py. What can't be read is absent. */
#include "raddle.h"
#include "syscalls.h"

#define FILE_BYTES 65536
#define MAX_SIBLINGS 128
#define MAX_PARENT_THREADS 64

/* One piece of memory for a whole reading, given back at its end: nothing stays in the user's process. */
struct scratch {
    char own[FILE_BYTES];
    char file[FILE_BYTES];
    char other[FILE_BYTES];
};

/* The process's command line without digits: a pool numbers its workers' pipes and sockets. -1 where unreadable. */
static long command_line(const char *process, char *to, size_t size)
{
    char path[64];
    struct rd_out out = rd_out(path, sizeof path);
    rd_put(&out, "/proc/");
    rd_put(&out, process);
    rd_put(&out, "/cmdline");
    long length = rd_read_file(path, to, size);
    long kept = 0;
    for (long i = 0; i < length; i++) {
        if (to[i] < '0' || to[i] > '9') {
            to[kept++] = to[i];
        }
    }
    return length < 0 ? -1 : kept;
}

/* Counts the children of one thread of the parent that run the same command line. */
static void count_children(struct scratch *scratch, const char *path, long mine, struct rd_facts *facts, int *lowest)
{
    long length = rd_read_file(path, scratch->file, sizeof scratch->file);
    struct rd_text text = {scratch->file, length < 0 ? 0 : (size_t)length};
    for (int i = 0; i < MAX_SIBLINGS; i++) {
        char process[24];
        uint64_t pid;
        struct rd_text word = rd_next_word(&text);
        if (!rd_number(word, &pid)) {
            break;
        }
        struct rd_out out = rd_out(process, sizeof process);
        rd_put_text(&out, word);
        long theirs = command_line(process, scratch->other, sizeof scratch->other);
        if (theirs == mine && __builtin_memcmp(scratch->other, scratch->own, (size_t)mine) == 0) {
            facts->workers_seen++;
            if (*lowest == 0 || (int)pid < *lowest) {
                *lowest = (int)pid;
            }
        }
    }
}

/* The parent's children with this process's command line, this one among them: /proc/<pid>/task/<tid>/children. */
static void read_workers(struct scratch *scratch, struct rd_facts *facts)
{
    facts->workers_seen = 0;
    facts->first_worker = true;
    int lowest = 0, threads = 0;
    long parent = rd_syscall(NR_GETPPID, 0, 0, 0, 0, 0, 0);
    long mine = command_line("self", scratch->own, sizeof scratch->own);
    char path[96];
    struct rd_out out = rd_out(path, sizeof path);
    rd_put(&out, "/proc/");
    rd_put_number(&out, parent);
    rd_put(&out, "/task");
    size_t folder = out.length;
    struct rd_names names;
    const char *thread = parent == 0 || mine < 0 ? NULL : rd_names(&names, "", path);
    for (; thread != NULL; thread = rd_names_next(&names)) {
        if (threads++ == MAX_PARENT_THREADS) {
            rd_names_end(&names);
            break;
        }
        path[out.length = folder] = '\0';
        rd_put_char(&out, '/');
        rd_put(&out, thread);
        rd_put(&out, "/children");
        count_children(scratch, path, mine, facts, &lowest);
    }
    if (lowest != 0) {
        facts->first_worker = lowest == rd_pid();
    }
    if (facts->workers_seen == 0) {
        facts->workers_seen = 1;
    }
}

static void read_cpus(struct rd_facts *facts)
{
    __builtin_memset(&facts->cpus, 0, sizeof facts->cpus);
    long length = rd_syscall(NR_SCHED_GETAFFINITY, 0, sizeof facts->cpus, (long)&facts->cpus, 0, 0, 0);
    facts->knows_cpus = !rd_failed(length);
    facts->cpu_count = facts->knows_cpus ? rd_cpus_count(&facts->cpus) : 0;
    facts->knows_cpus = facts->cpu_count > 0;
}

void rd_facts_refresh(struct rd_facts *facts)
{
    facts->has_quota = rd_quota_read_again(&facts->quota_cpus);
    read_cpus(facts);
}

void rd_facts_read(struct rd_facts *facts)
{
    __builtin_memset(facts, 0, sizeof *facts);
    facts->workers_seen = 1;
    facts->first_worker = true;
    facts->has_quota = rd_quota_read("", &facts->quota_cpus);
    read_cpus(facts);
    struct scratch *scratch = rd_map(sizeof *scratch);
    if (scratch == NULL) {
        return;
    }
    read_workers(scratch, facts);
    rd_unmap(scratch, sizeof *scratch);
}
