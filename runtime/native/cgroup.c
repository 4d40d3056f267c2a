/* The calling thread's CPU quota by the cgroups of version 1 and 2 that it can see: a port of that part of
 * runtime/raddle/process/cgroup.py and cgroupfs.py. A limit of any ancestor holds, so the tightest one counts. Trees that lack
 * mountinfo are read by Python only: a running process has it. */
#include "raddle.h"
#include "syscalls.h"

#define FILE_BYTES 65536
/* A host may have thousands of mounts. */
#define MOUNTINFO_BYTES (4 * 1024 * 1024)
#define MAX_DEPTH 64
#define PATH_BYTES 4096

/* One piece of memory for a whole reading, given back at its end: nothing stays in the user's process. */
struct scratch {
    char mounts[MOUNTINFO_BYTES];
    char own[FILE_BYTES];
    char file[FILE_BYTES];
    char path[PATH_BYTES];
    char hierarchy[PATH_BYTES];
    char mount_root[PATH_BYTES];
    char mount_point[PATH_BYTES];
};

static bool is_directory(const char *path)
{
    long file = rd_syscall(NR_OPENAT, AT_FDCWD, (long)path, O_CLOEXEC | O_DIRECTORY | O_PATH, 0, 0, 0);
    if (rd_failed(file)) {
        return false;
    }
    rd_syscall(NR_CLOSE, file, 0, 0, 0, 0, 0);
    return true;
}

/* The path's file as text of at most FILE_BYTES; empty where it can't be read. */
static struct rd_text read_text(struct scratch *scratch, const char *folder, const char *name)
{
    char path[PATH_BYTES];
    struct rd_out out = rd_out(path, sizeof path);
    rd_put(&out, folder);
    rd_put(&out, name);
    long length = rd_read_file(path, scratch->file, sizeof scratch->file);
    return (struct rd_text){scratch->file, length < 0 ? 0 : (size_t)length};
}

static bool read_number(struct scratch *scratch, const char *folder, const char *name, uint64_t *value)
{
    struct rd_text text = read_text(scratch, folder, name);
    struct rd_text word = rd_next_word(&text);
    return rd_next_word(&text).length == 0 && rd_number(word, value);
}

/* The cgroup's own quota in CPUs. */
static bool quota_of(struct scratch *scratch, int version, const char *folder, double *quota_cpus)
{
    uint64_t quota_us, period_us;
    if (version == 2) {
        struct rd_text text = read_text(scratch, folder, "/cpu.max");
        struct rd_text quota = rd_next_word(&text), period = rd_next_word(&text);
        if (rd_next_word(&text).length != 0 || !rd_number(quota, &quota_us) || !rd_number(period, &period_us)) {
            return false;
        }
    } else if (!read_number(scratch, folder, "/cpu.cfs_quota_us", &quota_us) || quota_us == 0
               || !read_number(scratch, folder, "/cpu.cfs_period_us", &period_us)) {
        /* -1 is "no quota". */
        return false;
    }
    if (quota_us == 0 || period_us == 0) {
        return false;
    }
    *quota_cpus = (double)quota_us / (double)period_us;
    return true;
}

static bool has_name(struct rd_text list, const char *name)
{
    for (bool more = true; more;) {
        if (rd_text_is(rd_split(list, ',', &list, &more), name)) {
            return true;
        }
    }
    return false;
}

/* The process's path in the hierarchy that has the controller "cpu", from /proc/PID/cgroup: of version 1 where one
 * names it, else the unified one. 0 where there is neither, -1 where no hierarchy is told at all. The last line of
 * several counts. */
static int own_path(struct rd_text text, char *path, size_t size)
{
    int version = -1;
    for (bool more = true; more;) {
        struct rd_text rest;
        bool first, second;
        struct rd_text line = rd_split(text, '\n', &text, &more);
        rd_split(line, ':', &rest, &first);
        struct rd_text controllers = rd_split(rest, ':', &rest, &second);
        if (!first || !second) {
            continue;
        }
        version = version < 0 ? 0 : version;
        int found = has_name(controllers, "cpu") ? 1 : has_name(controllers, "") ? 2 : 0;
        if (found == 1 || (found == 2 && version != 1)) {
            version = found;
            struct rd_out out = rd_out(path, size);
            rd_put_text(&out, rest);
        }
    }
    return version;
}

/* Undoes the octal escapes of fs/proc_namespace.c. */
static void unescape(struct rd_text text, char *to, size_t size)
{
    static const struct {
        const char *code;
        char one;
    } escapes[] = {{"\\040", ' '}, {"\\011", '\t'}, {"\\012", '\n'}, {"\\043", '#'}, {"\\134", '\\'}};
    struct rd_out out = rd_out(to, size);
    for (size_t i = 0; i < text.length; i++) {
        char one = text.at[i];
        for (unsigned k = 0; k < 5 && one == '\\' && i + 4 <= text.length; k++) {
            if (__builtin_memcmp(text.at + i, escapes[k].code, 4) == 0) {
                one = escapes[k].one;
                i += 3;
                break;
            }
        }
        rd_put_char(&out, one);
    }
}

/* The names of a path, without empty ones. */
static bool next_name(struct rd_text *path, struct rd_text *name)
{
    while (path->length > 0) {
        *name = rd_split(*path, '/', path, NULL);
        if (name->length > 0) {
            return true;
        }
    }
    return false;
}

/* The part of the process's path that lies below the mount's root; false where the mount shows another part of the
 * hierarchy. Empty, and not `within`, where only the mount's top is known to be above the process: see visible_path in
 * cgroupfs.py. */
static bool visible_path(struct rd_text own, struct rd_text mount_root, struct rd_text *below)
{
    struct rd_text above = mount_root, rest = own, name, other;
    bool within = true;
    while (within && next_name(&above, &name)) {
        within = next_name(&rest, &other) && name.length == other.length
                  && __builtin_memcmp(name.at, other.at, name.length) == 0;
    }
    if (within) {
        *below = rest;
        while (next_name(&rest, &name)) {
            if (rd_text_is(name, "..")) {
                return false;
            }
        }
        return true;
    }
    *below = (struct rd_text){"", 0};
    above = mount_root;
    while (next_name(&above, &name)) {
        if (!rd_text_is(name, "..")) {
            return false;
        }
    }
    return true;
}

/* Lowers *quota_cpus (0: none yet) to the tightest quota from the mount's top down to the process's own cgroup, as far
 * as the folders exist. scratch->path is where the top is; it is used up. */
static void tighten(struct scratch *scratch, int version, struct rd_text below, double *quota_cpus)
{
    struct rd_out path = {scratch->path, sizeof scratch->path, rd_length(scratch->path)};
    struct rd_text name = {NULL, 0};
    for (int depth = 0; depth <= MAX_DEPTH; depth++) {
        double quota;
        if (quota_of(scratch, version, path.at, &quota) && (*quota_cpus == 0 || quota < *quota_cpus)) {
            *quota_cpus = quota;
        }
        if (!next_name(&below, &name)) {
            break;
        }
        rd_put_char(&path, '/');
        rd_put_text(&path, name);
    }
}

/* The first `count` fields of a text that spaces part; false where there are fewer. */
static bool split_fields(struct rd_text text, struct rd_text *fields, int count)
{
    bool more = true;
    for (int i = 0; i < count; i++) {
        if (!more) {
            return false;
        }
        fields[i] = rd_split(text, ' ', &text, &more);
    }
    return true;
}

/* A line of mountinfo: root and mount point are its fields 3 and 4, the kind of file system and its options 0 and 2 of
 * what follows the dash. */
static bool split_mount(struct rd_text line, struct rd_text fields[5], struct rd_text kind[3])
{
    size_t dash = 0;
    while (dash + 3 <= line.length && __builtin_memcmp(line.at + dash, " - ", 3) != 0) {
        dash++;
    }
    return dash + 3 <= line.length && split_fields((struct rd_text){line.at, dash}, fields, 5)
           && split_fields((struct rd_text){line.at + dash + 3, line.length - dash - 3}, kind, 3);
}

/* Whether one of these lines mounts something over the mount point. */
static bool is_covered(struct rd_text lines, struct rd_text point)
{
    for (bool more = true; more;) {
        struct rd_text fields[5], kind[3];
        struct rd_text line = rd_split(lines, '\n', &lines, &more);
        if (split_mount(line, fields, kind) && fields[4].length == point.length
            && __builtin_memcmp(fields[4].at, point.at, point.length) == 0) {
            return true;
        }
    }
    return false;
}

/* Of one line of mountinfo: whether it mounts the hierarchy and can be seen past the lines after it, and its root and
 * mount point into the scratch. */
static bool is_mount(struct scratch *scratch, struct rd_text line, struct rd_text after, int version)
{
    struct rd_text fields[5], kind[3];
    if (!split_mount(line, fields, kind) || !rd_text_is(kind[0], version == 2 ? "cgroup2" : "cgroup")
        || (version == 1 && !has_name(kind[2], "cpu")) || is_covered(after, fields[4])) {
        return false;
    }
    unescape(fields[3], scratch->mount_root, sizeof scratch->mount_root);
    unescape(fields[4], scratch->mount_point, sizeof scratch->mount_point);
    return true;
}

static long read_proc(struct scratch *scratch, const char *root, const char *name, char *to, size_t size)
{
    struct rd_out path = rd_out(scratch->path, sizeof scratch->path);
    rd_put(&path, root);
    rd_put(&path, "/proc/thread-self");
    if (!is_directory(path.at)) {
        path = rd_out(scratch->path, sizeof scratch->path);
        rd_put(&path, root);
        rd_put(&path, "/proc/self");
    }
    rd_put(&path, name);
    return rd_read_file(path.at, to, size);
}

/* The tightest quota of the process's cgroup and its ancestors by all mounts of the hierarchy; 0: there is none. */
static double quota_by(struct scratch *scratch, const char *root, struct rd_text lines, int version)
{
    double quota_cpus = 0;
    for (bool more = true; more;) {
        struct rd_text below;
        struct rd_text line = rd_split(lines, '\n', &lines, &more);
        if (!is_mount(scratch, line, lines, version)
            || !visible_path(rd_text_of(scratch->hierarchy), rd_text_of(scratch->mount_root), &below)) {
            continue;
        }
        const char *point = scratch->mount_point;
        while (*point == '/') {
            point++;
        }
        struct rd_out path = rd_out(scratch->path, sizeof scratch->path);
        rd_put(&path, root);
        rd_put_char(&path, '/');
        rd_put(&path, point);
        tighten(scratch, version, below, &quota_cpus);
    }
    return quota_cpus;
}

/* Lengths of what is in a scratch, negative where it can't be read. */
struct where {
    long own;
    long mounts;
};

/* Leaves of mountinfo the lines of cgroups and of what is mounted over one: of those it is asked for each session. */
static long keep_cgroups(char *text, long length)
{
    long kept = 0;
    struct rd_text lines = {text, length < 0 ? 0 : (size_t)length};
    for (bool more = true; more;) {
        struct rd_text fields[5], kind[3];
        struct rd_text line = rd_split(lines, '\n', &lines, &more);
        if (split_mount(line, fields, kind)
            && (rd_text_is(kind[0], "cgroup") || rd_text_is(kind[0], "cgroup2")
                || is_covered((struct rd_text){text, (size_t)kept}, fields[4]))) {
            __builtin_memmove(text + kept, line.at, line.length);
            kept += (long)line.length;
            text[kept++] = '\n';
        }
    }
    return length < 0 ? length : kept;
}

static struct where read_where(struct scratch *scratch, const char *root)
{
    long mounts = read_proc(scratch, root, "/mountinfo", scratch->mounts, sizeof scratch->mounts);
    return (struct where){
        .own = read_proc(scratch, root, "/cgroup", scratch->own, sizeof scratch->own),
        .mounts = keep_cgroups(scratch->mounts, mounts),
    };
}

static bool read_quota(struct scratch *scratch, const char *root, struct where where, double *quota_cpus)
{
    long own = where.own;
    int version = own_path((struct rd_text){scratch->own, own < 0 ? 0 : (size_t)own}, scratch->hierarchy,
                           sizeof scratch->hierarchy);
    if (version == 0 || where.mounts < 0) {
        return false;
    }
    struct rd_text lines = {scratch->mounts, (size_t)where.mounts};
    if (version < 0) {
        /* The path is not told: what holds at the mount's top holds here too. */
        struct rd_out top = rd_out(scratch->hierarchy, sizeof scratch->hierarchy);
        rd_put(&top, "/");
        *quota_cpus = quota_by(scratch, root, lines, 1);
        version = 2;
    }
    if (*quota_cpus == 0) {
        *quota_cpus = quota_by(scratch, root, lines, version);
    }
    return *quota_cpus > 0;
}

bool rd_quota_read(const char *root, double *quota_cpus)
{
    struct scratch *scratch = rd_map(sizeof *scratch);
    *quota_cpus = 0;
    bool found = scratch != NULL && read_quota(scratch, root, read_where(scratch, root), quota_cpus);
    rd_unmap(scratch, sizeof *scratch);
    return found;
}

/* Where the process is hardly ever changes, and the kernel takes longer to tell it than to tell the quota. */
static struct scratch *kept;
static struct where kept_where;
static bool is_kept;

void rd_quota_forget_place(void)
{
    is_kept = false;
}

bool rd_quota_read_again(double *quota_cpus)
{
    kept = kept == NULL ? rd_map(sizeof *kept) : kept;
    if (kept == NULL) {
        return rd_quota_read("", quota_cpus);
    }
    if (!is_kept) {
        kept_where = read_where(kept, "");
        is_kept = true;
    }
    *quota_cpus = 0;
    return read_quota(kept, "", kept_where, quota_cpus);
}
