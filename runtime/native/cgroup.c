/* The process's CPU quota by the cgroups of version 1 and 2 that it can see: a port of that part of
 * runtime/raddle/cgroup.py. A limit of any ancestor holds, so the tightest one counts. */
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
 * names it, else the unified one. 0 where there is neither. The last line of several counts. */
static int own_path(struct rd_text text, char *path, size_t size)
{
    int version = 0;
    for (bool more = true; more;) {
        struct rd_text rest;
        bool first, second;
        struct rd_text line = rd_split(text, '\n', &text, &more);
        rd_split(line, ':', &rest, &first);
        struct rd_text controllers = rd_split(rest, ':', &rest, &second);
        if (!first || !second) {
            continue;
        }
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
    } escapes[] = {{"\\040", ' '}, {"\\011", '\t'}, {"\\012", '\n'}, {"\\134", '\\'}};
    struct rd_out out = rd_out(to, size);
    for (size_t i = 0; i < text.length; i++) {
        char one = text.at[i];
        for (unsigned k = 0; k < 4 && one == '\\' && i + 4 <= text.length; k++) {
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
 * hierarchy. Empty where only the mount's top is known to be above the process: see visible_path in cgroup.py. */
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

/* The folders from the mount's top down to the process's own cgroup: how many of them are there, and the tightest
 * quota among them. `path` is where the top is; it is used up. */
static int tightest(struct scratch *scratch, int version, struct rd_text below, double *quota_cpus)
{
    struct rd_out path = {scratch->path, sizeof scratch->path, rd_length(scratch->path)};
    struct rd_text name = {NULL, 0};
    int visible = 0;
    *quota_cpus = 0;
    for (int depth = 0; depth <= MAX_DEPTH; depth++) {
        double quota;
        if (is_directory(path.at)) {
            visible++;
            if (quota_of(scratch, version, path.at, &quota) && (*quota_cpus == 0 || quota < *quota_cpus)) {
                *quota_cpus = quota;
            }
        }
        if (!next_name(&below, &name)) {
            break;
        }
        rd_put_char(&path, '/');
        rd_put_text(&path, name);
    }
    return visible;
}

/* Of one line of mountinfo: whether it mounts the hierarchy, and its root and mount point into the scratch. */
static bool is_mount(struct scratch *scratch, struct rd_text line, int version)
{
    struct rd_text fields[5], rest = line, kind[3];
    bool more = true;
    size_t dash = 0;
    while (dash + 3 <= line.length && __builtin_memcmp(line.at + dash, " - ", 3) != 0) {
        dash++;
    }
    if (dash + 3 > line.length) {
        return false;
    }
    rest.length = dash;
    for (int i = 0; i < 5; i++) {
        if (!more) {
            return false;
        }
        fields[i] = rd_split(rest, ' ', &rest, &more);
    }
    rest = (struct rd_text){line.at + dash + 3, line.length - dash - 3};
    more = true;
    for (int i = 0; i < 3; i++) {
        if (!more) {
            return false;
        }
        kind[i] = rd_split(rest, ' ', &rest, &more);
    }
    if (!rd_text_is(kind[0], version == 2 ? "cgroup2" : "cgroup") || (version == 1 && !has_name(kind[2], "cpu"))) {
        return false;
    }
    unescape(fields[3], scratch->mount_root, sizeof scratch->mount_root);
    unescape(fields[4], scratch->mount_point, sizeof scratch->mount_point);
    return true;
}

static bool read_quota(struct scratch *scratch, const char *root, double *quota_cpus)
{
    struct rd_out path = rd_out(scratch->path, sizeof scratch->path);
    rd_put(&path, root);
    rd_put(&path, "/proc/self/cgroup");
    long length = rd_read_file(scratch->path, scratch->own, sizeof scratch->own);
    if (length < 0) {
        return false;
    }
    int version = own_path((struct rd_text){scratch->own, (size_t)length}, scratch->hierarchy,
                           sizeof scratch->hierarchy);
    path = rd_out(scratch->path, sizeof scratch->path);
    rd_put(&path, root);
    rd_put(&path, "/proc/self/mountinfo");
    length = rd_read_file(scratch->path, scratch->mounts, sizeof scratch->mounts);
    if (version == 0 || length < 0) {
        return false;
    }
    struct rd_text text = {scratch->mounts, (size_t)length};
    int most = 0;
    *quota_cpus = 0;
    for (bool more = true; more;) {
        struct rd_text below;
        double quota;
        struct rd_text line = rd_split(text, '\n', &text, &more);
        if (!is_mount(scratch, line, version)
            || !visible_path(rd_text_of(scratch->hierarchy), rd_text_of(scratch->mount_root), &below)) {
            continue;
        }
        const char *point = scratch->mount_point;
        while (*point == '/') {
            point++;
        }
        path = rd_out(scratch->path, sizeof scratch->path);
        rd_put(&path, root);
        rd_put_char(&path, '/');
        rd_put(&path, point);
        /* The mount that shows most of the process's path is the one that counts. */
        int visible = tightest(scratch, version, below, &quota);
        if (visible > most) {
            most = visible;
            *quota_cpus = quota;
        }
    }
    return *quota_cpus > 0;
}

bool rd_quota_read(const char *root, double *quota_cpus)
{
    struct scratch *scratch = rd_map(sizeof *scratch);
    bool found = scratch != NULL && read_quota(scratch, root, quota_cpus);
    rd_unmap(scratch, sizeof *scratch);
    return found;
}
