/* The report of this process, where RADDLE_REPORT names a folder: docs/reference/report.md describes it. */
#include "raddle.h"
#include "syscalls.h"

#define RUNTIME "onnxruntime"
#define MAX_FILES 64
#define MAX_BYTES 16384
#define MAX_BURST 8
#define MAX_SAMPLES 30
#define MAX_COMPLAINTS 16

struct session {
    uint64_t at_ms;
    uint64_t took_us;
    struct rd_totals totals;
    bool has_quota;
    double quota_cpus;
    unsigned workers_seen;
    char effective[960];
    char because[640];
};

static struct rd_lock lock;
static struct session sessions[RD_MAX_SESSIONS];
static unsigned session_count;
static struct {
    uint64_t at_ms;
    struct rd_totals totals;
} samples[MAX_SAMPLES];
static unsigned sample_count;
static struct rd_lock complaint_lock;
static char complaints[MAX_COMPLAINTS][304];
static int complaint_count;
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
    rd_cpus_put(&list, &last_facts.cpus, 0);
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

/* The program's name without its folder and arguments, which may hold secrets. JavaScript's is the script's, where
 * nothing stands before it; its main thread may be called anything. */
static void put_command(struct rd_out *out)
{
    char text[4096] = "";
    const char *name = text;
    long file = rd_syscall(NR_OPENAT, AT_FDCWD, (long)(rd_is_javascript() ? "/proc/self/cmdline" : "/proc/self/comm"),
                           O_CLOEXEC, 0, 0, 0);
    if (!rd_failed(file)) {
        long length = rd_syscall(NR_READ, file, (long)text, sizeof text - 2, 0, 0, 0);
        text[length < 0 ? 0 : length] = text[length < 0 ? 1 : length + 1] = '\0';
        rd_syscall(NR_CLOSE, file, 0, 0, 0, 0, 0);
    }
    const char *script = text + rd_length(text) + 1;
    if (rd_is_javascript() && script[0] != '-' && script[0] != '\0') {
        name = script;
    }
    for (const char *one = name; *one != '\0'; one++) {
        name = *one == '/' ? one + 1 : name;
    }
    size_t length = rd_length(name);
    rd_put_string(out, name, length > 0 && name[length - 1] == '\n' ? length - 1 : length < 64 ? length : 64);
}

static void put_session(struct rd_out *out, unsigned number, const char *plan)
{
    const struct session *session = &sessions[number];
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
    rd_put(out, "},\"totals\":{");
    rd_totals_put(out, &session->totals);
    rd_put_char(out, '}');
    if (session->totals.tasks != RD_UNKNOWN) {
        rd_put(out, ",\"tasks\":");
        rd_put_unsigned(out, session->totals.tasks);
    }
    rd_runs_put(out, number);
    rd_put_char(out, '}');
}

static void put_at(struct rd_out *out, uint64_t at_ms, const struct rd_totals *totals)
{
    rd_put(out, "{\"at\":");
    put_thousandths(out, at_ms);
    rd_totals_put(out, totals);
    rd_put_char(out, '}');
}

/* The newest sessions, from this one on. False where they do not fit. */
static bool put_sessions(struct rd_out *out, unsigned first, const char *plan)
{
    rd_put(out, ",\"sessions\":[");
    for (unsigned i = first; i < session_count; i++) {
        rd_put(out, i > first ? "," : "");
        put_session(out, i % RD_MAX_SESSIONS, plan);
    }
    rd_put_char(out, ']');
    if (first > 0) {
        rd_put(out, ",\"truncated\":");
        rd_put_unsigned(out, first);
    }
    rd_put(out, "}\n");
    return out->length + 1 < out->size;
}

static void put_samples(struct rd_out *out)
{
    unsigned first = sample_count > MAX_SAMPLES ? sample_count - MAX_SAMPLES : 0;
    for (unsigned i = first; i < sample_count; i++) {
        rd_put(out, i > first ? "," : ",\"samples\":[");
        put_at(out, samples[i % MAX_SAMPLES].at_ms, &samples[i % MAX_SAMPLES].totals);
    }
    rd_put(out, sample_count > 0 ? "]" : "");
}

static void put_report(struct rd_out *out, bool at_exit)
{
    const char *plan = rd_env("RADDLE_PLAN");
    plan = plan == NULL ? "" : plan;
    rd_put(out, "{\"v\":1,\"raddle\":\"" RD_VERSION "\",\"language\":\"");
    rd_put(out, rd_is_javascript() ? "node" : "native");
    rd_put(out, "\",\"pid\":");
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
    for (int i = 0; i < __atomic_load_n(&complaint_count, __ATOMIC_ACQUIRE); i++) {
        rd_put(out, i > 0 ? "," : "");
        rd_put_string(out, complaints[i], 120);
    }
    rd_put_char(out, ']');
    if (at_exit) {
        struct rd_totals totals;
        rd_totals_read(rd_quota_folder(), &totals);
        rd_put(out, ",\"atExit\":");
        put_at(out, wall_ms(), &totals);
    }
    if (out->length < MAX_BYTES / 2) {
        put_samples(out);
    }
    /* The newest that fit; the rest of the report is far shorter than the file may be. */
    size_t length = out->length;
    unsigned first = session_count > RD_MAX_SESSIONS ? session_count - RD_MAX_SESSIONS : 0;
    while (!put_sessions(out, first, plan) && first < session_count) {
        out->length = length;
        first++;
    }
}

/* The files of the folder, -1 where it can't be read. */
static long count_files(const char *folder)
{
    struct rd_dir dir;
    long found = 0;
    for (const char *name = rd_dir_open(&dir, "", folder); name != NULL; name = rd_dir_next(&dir)) {
        found++;
    }
    return dir.found ? found : -1;
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

static void write_report(const char *folder, bool at_exit)
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
    put_report(&json, at_exit);
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

/* NULL where nobody reads reports. */
static const char *folder_of_reports(void)
{
    const char *folder = rd_env("RADDLE_REPORT");
    return folder == NULL || folder[0] == '\0' ? NULL : folder;
}

bool rd_report_wanted(void)
{
    return folder_of_reports() != NULL;
}

/* Brings the report up to date, where one is asked for. */
static void update(void)
{
    const char *folder = folder_of_reports();
    if (folder != NULL && rd_try_lock(&lock)) {
        if (may_write()) {
            write_report(folder, false);
        }
        rd_unlock(&lock);
    }
}

void rd_complain(const char *line)
{
    char kept[sizeof complaints[0]];
    struct rd_out out = rd_out(kept, sizeof kept);
    rd_put(&out, line);
    bool fresh = false;
    if (rd_try_lock(&complaint_lock)) {
        fresh = complaint_count < MAX_COMPLAINTS;
        for (int i = 0; i < complaint_count; i++) {
            fresh &= !rd_same(complaints[i], kept);
        }
        if (fresh) {
            out = rd_out(complaints[complaint_count], sizeof kept);
            rd_put(&out, kept);
            __atomic_store_n(&complaint_count, complaint_count + 1, __ATOMIC_RELEASE);
        }
        rd_unlock(&complaint_lock);
    }
    if (fresh) {
        rd_log(line);
        update();
    }
}

void rd_report_sample(void)
{
    if (rd_try_lock(&lock)) {
        samples[sample_count % MAX_SAMPLES].at_ms = wall_ms();
        rd_totals_read(rd_quota_folder(), &samples[sample_count % MAX_SAMPLES].totals);
        sample_count++;
        rd_unlock(&lock);
    }
    update();
}

/* At the end of the process the last report, where it has one. A child of fork that has made none of its own has not. */
__attribute__((destructor)) static void report_exit(void)
{
    const char *folder = file_pid == 0 || file_pid != rd_pid() ? NULL : folder_of_reports();
    if (folder != NULL && rd_try_lock(&lock)) {
        write_report(folder, true);
        rd_unlock(&lock);
    }
}

void rd_record(const void *made, const char *version, const struct rd_facts *facts, const char *effective,
               const char *because, uint64_t took_us)
{
    if (!rd_report_wanted() || !rd_try_lock(&lock)) {
        return;
    }
    unsigned number = session_count++ % RD_MAX_SESSIONS;
    struct session *session = &sessions[number];
    rd_runs_begin(number, made);
    rd_totals_read(rd_quota_folder(), &session->totals);
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
    update();
}
