/* The report of this process, where RADDLE_REPORT names a folder: docs/reference/report.md describes it. */
#include "raddle.h"
#include "syscalls.h"

#define RUNTIME "onnxruntime"
#define MAX_SESSIONS 16
#define MAX_FILES 64
#define MAX_BYTES 16384
#define MAX_BURST 8
/* Its record's keys and numbers, and the two texts of `struct session`. */
#define LONGEST_SESSION 1280

struct session {
    uint64_t at_ms;
    uint64_t took_us;
    bool has_quota;
    double quota_cpus;
    unsigned workers_seen;
    char effective[320];
    char because[640];
};

static struct rd_lock lock;
static struct session sessions[MAX_SESSIONS];
static unsigned session_count;
static struct rd_facts last_facts;
static char last_version[32];
/* The report's file: made for this process, refilled at one write a second. */
static int file_pid;
static char file_name[40];
static bool file_exists;
static uint64_t file_started_ms;
static int64_t write_tokens;
static uint64_t tokens_at_ms;

static uint64_t wall_ms(void)
{
    int64_t now[2] = {0, 0};
    rd_syscall(NR_CLOCK_GETTIME, 0, (long)now, 0, 0, 0, 0);
    return (uint64_t)now[0] * 1000 + (uint64_t)now[1] / 1000000;
}

/* Milliseconds as seconds, microseconds as milliseconds. */
static void put_thousandths(struct rd_out *out, uint64_t ms)
{
    rd_put_unsigned(out, ms / 1000);
    rd_put_char(out, '.');
    rd_put_char(out, (char)('0' + ms / 100 % 10));
    rd_put_char(out, (char)('0' + ms / 10 % 10));
    rd_put_char(out, (char)('0' + ms % 10));
}

static void put_cpus(struct rd_out *out, const struct rd_cpus *cpus)
{
    bool first = true;
    for (int cpu = rd_cpus_next(cpus, -1); cpu >= 0;) {
        int last = cpu;
        while (rd_cpus_has(cpus, last + 1)) {
            last++;
        }
        rd_put(out, first ? "" : ",");
        rd_put_number(out, cpu);
        if (last > cpu) {
            rd_put_char(out, '-');
            rd_put_number(out, last);
        }
        first = false;
        cpu = rd_cpus_next(cpus, last);
    }
}

static void put_facts(struct rd_out *out)
{
    if (last_facts.workers_seen == 0) {
        /* No session has been made yet. */
        rd_put(out, "{}");
        return;
    }
    rd_put(out, "{\"workersSeen\":");
    rd_put_unsigned(out, last_facts.workers_seen);
    char cpus[512];
    struct rd_out list = rd_out(cpus, sizeof cpus);
    put_cpus(&list, &last_facts.cpus);
    if (last_facts.knows_cpus && list.length + 1 < list.size) {
        rd_put(out, ",\"cpus\":\"");
        rd_put(out, cpus);
        rd_put_char(out, '"');
    }
    if (last_facts.has_quota) {
        rd_put(out, ",\"quotaCPUs\":");
        rd_put_double(out, last_facts.quota_cpus);
    }
    rd_put_char(out, '}');
}

static void put_hex(struct rd_out *out, uint32_t value)
{
    for (int shift = 28; shift >= 0; shift -= 4) {
        rd_put_char(out, "0123456789abcdef"[value >> shift & 15]);
    }
}

/* CRC-32 as of zlib. */
static uint32_t checksum(const char *text)
{
    uint32_t sum = 0xffffffff;
    for (; *text != '\0'; text++) {
        sum ^= (unsigned char)*text;
        for (int bit = 0; bit < 8; bit++) {
            sum = sum >> 1 ^ (sum & 1 ? 0xedb88320 : 0);
        }
    }
    return ~sum;
}

/* The program's name without its folder and arguments, which may hold secrets. */
static void put_command(struct rd_out *out)
{
    char arguments[4096];
    long length = rd_read_file("/proc/self/comm", arguments, sizeof arguments - 1);
    while (length > 0 && arguments[length - 1] == '\n') {
        length--;
    }
    arguments[length < 0 ? 0 : length] = '\0';
    rd_put_string(out, arguments, 64);
}

static void put_session(struct rd_out *out, const struct session *session, const char *plan)
{
    rd_put(out, "{\"runtime\":\"" RUNTIME "\",\"version\":");
    rd_put_string(out, last_version, sizeof last_version);
    rd_put(out, ",\"createdAt\":");
    put_thousandths(out, session->at_ms);
    rd_put(out, ",\"createMs\":");
    put_thousandths(out, session->took_us);
    rd_put(out, ",\"plan\":\"");
    put_hex(out, checksum(plan));
    rd_put(out, "\",\"workersSeen\":");
    rd_put_unsigned(out, session->workers_seen);
    if (session->has_quota) {
        rd_put(out, ",\"quotaCPUs\":");
        rd_put_double(out, session->quota_cpus);
    }
    rd_put(out, ",\"effective\":{");
    rd_put(out, session->effective);
    rd_put(out, "},\"because\":{");
    rd_put(out, session->because);
    rd_put(out, "}}");
}

static void put_report(struct rd_out *out)
{
    const char *plan = rd_env("RADDLE_PLAN");
    plan = plan == NULL ? "" : plan;
    rd_put(out, "{\"v\":1,\"raddle\":\"" RD_VERSION "\",\"language\":\"native\",\"pid\":");
    rd_put_number(out, file_pid);
    rd_put(out, ",\"command\":");
    put_command(out);
    rd_put(out, ",\"startedAt\":");
    put_thousandths(out, file_started_ms);
    rd_put(out, ",\"writtenAt\":");
    put_thousandths(out, wall_ms());
    rd_put(out, ",\"plan\":");
    rd_put_string(out, plan, 4096);
    rd_put(out, ",\"facts\":");
    put_facts(out);
    rd_put(out, ",\"runtimes\":{");
    if (last_version[0] != '\0') {
        rd_put(out, "\"" RUNTIME "\":{\"version\":");
        rd_put_string(out, last_version, sizeof last_version);
        rd_put_char(out, '}');
    }
    rd_put(out, "},\"complaints\":[");
    for (int i = 0; rd_complaint(i) != NULL; i++) {
        rd_put(out, i > 0 ? "," : "");
        rd_put_string(out, rd_complaint(i), 120);
    }
    rd_put(out, "],\"sessions\":[");
    /* The newest that fit; the rest of the report is far shorter than the file may be. */
    unsigned fit = (unsigned)((out->size - out->length) / LONGEST_SESSION);
    fit = fit < MAX_SESSIONS ? fit : MAX_SESSIONS;
    unsigned first = session_count > fit ? session_count - fit : 0;
    for (unsigned i = first; i < session_count; i++) {
        rd_put(out, i > first ? "," : "");
        put_session(out, &sessions[i % MAX_SESSIONS], plan);
    }
    rd_put_char(out, ']');
    if (first > 0) {
        rd_put(out, ",\"truncated\":");
        rd_put_unsigned(out, first);
    }
    rd_put(out, "}\n");
}

/* The files of the folder, -1 where it can't be read. */
static long count_files(const char *folder)
{
    struct rd_names names;
    long found = 0;
    for (const char *name = rd_names(&names, "", folder); name != NULL; name = rd_names_next(&names)) {
        found++;
    }
    return names.found ? found : -1;
}

static bool write_file(const char *path, const char *text, size_t length)
{
    /* Not blocking: a FIFO may stand there. */
    long file = rd_syscall(NR_OPENAT, AT_FDCWD, (long)path,
                           O_WRITE | O_CREATE | O_TRUNCATE | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644, 0, 0);
    if (rd_failed(file)) {
        return false;
    }
    long written = rd_syscall(NR_WRITE, file, (long)text, (long)length, 0, 0, 0);
    rd_syscall(NR_CLOSE, file, 0, 0, 0, 0, 0);
    return written == (long)length;
}

static bool may_write(void)
{
    uint64_t now = rd_now_ms();
    if (file_pid != rd_pid()) {
        /* The first, or a child after fork: its own file. */
        file_pid = rd_pid();
        file_exists = false;
        file_started_ms = wall_ms();
        write_tokens = MAX_BURST * 1000;
        tokens_at_ms = now;
        struct rd_out out = rd_out(file_name, sizeof file_name);
        rd_put_number(&out, file_pid);
        rd_put_char(&out, '-');
        for (int shift = 28; shift >= 0; shift -= 4) {
            rd_put_char(&out, "0123456789abcdef"[file_started_ms >> shift & 15]);
        }
        rd_put(&out, ".json");
    }
    write_tokens += (int64_t)(now - tokens_at_ms);
    write_tokens = write_tokens < MAX_BURST * 1000 ? write_tokens : MAX_BURST * 1000;
    tokens_at_ms = now;
    if (write_tokens < 1000) {
        return false;
    }
    write_tokens -= 1000;
    return true;
}

static void write_report(const char *folder)
{
    char path[1024], unfinished[1024];
    struct rd_out out = rd_out(path, sizeof path);
    rd_put(&out, folder);
    rd_put_char(&out, '/');
    rd_put(&out, file_name);
    struct rd_out other = rd_out(unfinished, sizeof unfinished);
    rd_put(&other, folder);
    rd_put(&other, "/.");
    rd_put(&other, file_name);
    rd_put(&other, ".tmp");
    if (other.length + 1 >= sizeof unfinished) {
        return;
    }
    long files = file_exists ? 0 : count_files(folder);
    char *text = files < 0 || files >= MAX_FILES ? NULL : rd_map(MAX_BYTES);
    if (text == NULL) {
        return;
    }
    struct rd_out json = rd_out(text, MAX_BYTES);
    put_report(&json);
    bool done = write_file(unfinished, text, json.length)
                && rd_syscall(NR_RENAMEAT, AT_FDCWD, (long)unfinished, AT_FDCWD, (long)path, 0, 0) == 0;
    if (!done) {
        rd_syscall(NR_UNLINKAT, AT_FDCWD, (long)unfinished, 0, 0, 0, 0);
    } else if (!file_exists && count_files(folder) > MAX_FILES) {
        /* Others came at the same time; each takes its own back. */
        rd_syscall(NR_UNLINKAT, AT_FDCWD, (long)path, 0, 0, 0, 0);
    } else {
        file_exists = true;
    }
    rd_unmap(text, MAX_BYTES);
}

void rd_report(void)
{
    const char *folder = rd_env("RADDLE_REPORT");
    if (folder != NULL && folder[0] != '\0' && rd_try_lock(&lock)) {
        if (may_write()) {
            write_report(folder);
        }
        rd_unlock(&lock);
    }
}

void rd_record(const char *version, const struct rd_facts *facts, const char *effective, const char *because,
               uint64_t took_us)
{
    const char *folder = rd_env("RADDLE_REPORT");
    if (folder == NULL || folder[0] == '\0' || !rd_try_lock(&lock)) {
        return;
    }
    struct session *session = &sessions[session_count++ % MAX_SESSIONS];
    session->at_ms = wall_ms();
    session->took_us = took_us;
    session->has_quota = facts->has_quota;
    session->quota_cpus = facts->quota_cpus;
    session->workers_seen = facts->workers_seen;
    struct rd_out out = rd_out(session->effective, sizeof session->effective);
    rd_put(&out, effective);
    out = rd_out(session->because, sizeof session->because);
    rd_put(&out, because);
    out = rd_out(last_version, sizeof last_version);
    rd_put(&out, version);
    last_facts = *facts;
    rd_unlock(&lock);
    rd_report();
}
