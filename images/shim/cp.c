/*
 * cp for the init container, without a libc: `cp -r SOURCE TARGET` puts what lies below the folder SOURCE below the
 * folder TARGET, which is there already. Folders and files only. A file of the same name is replaced, not written over,
 * since a process may have it mapped; modes are 0755 and 0644 whatever the umask, since a container reads the files as
 * another user.
 *
 * A file that can't be written whole, as on a full disk, is removed, and the rest is left out with a line on stderr and
 * exit code 0: an init container that fails would keep the pod from starting, and without the shim it only does without.
 */
#include "../../runtime/native/syscalls.h"

#define O_EXCLUSIVE 0200
#if defined(__x86_64__)
#define NR_UMASK 95
#define NR_EXIT 60
#define NR_MKDIRAT 258
#else
#define NR_UMASK 166
#define NR_EXIT 93
#define NR_MKDIRAT 34
#endif
#define ERROR_EXISTS (-17)
#define ERROR_MISSING (-2)
#define ERROR_NO_SPACE (-28)
#define TYPE_UNKNOWN 0
#define TYPE_FOLDER 4
#define TYPE_FILE 8
#define MAX_DEPTH 32

struct entry {
    unsigned long inode;
    long offset;
    unsigned short length;
    unsigned char type;
    char name[];
};

static int is_full;

static long call(long number, long a, long b, long c, long d)
{
#if defined(__x86_64__)
    long result;
    register long r10 __asm__("r10") = d;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10)
                     : "rcx", "r11", "memory");
    return result;
#else
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
    return x0;
#endif
}

static int same(const char *a, const char *b)
{
    while (*a && *a == *b) {
        a++;
        b++;
    }
    return *a == *b;
}

static void say(const char *text)
{
    long length = 0;
    while (text[length]) {
        length++;
    }
    call(NR_WRITE, 2, (long)text, length, 0);
}

static int fail(const char *what, const char *name)
{
    say("cp: can't ");
    say(what);
    say(" ");
    say(name);
    say("\n");
    return 1;
}

static int write_all(long file, const char *data, long size)
{
    while (size > 0) {
        long written = call(NR_WRITE, file, (long)data, size, 0);
        if (written <= 0) {
            return 1;
        }
        data += written;
        size -= written;
    }
    return 0;
}

static int copy_file(long from, long to, const char *name)
{
    static char data[65536];
    long size = 0;
    int failed;
    long source = call(NR_OPENAT, from, (long)name, O_CLOEXEC, 0);
    if (source < 0) {
        return fail("read", name);
    }
    long removed = call(NR_UNLINKAT, to, (long)name, 0, 0);
    long target = call(NR_OPENAT, to, (long)name, O_WRITE | O_CREATE | O_EXCLUSIVE | O_CLOEXEC, 0644);
    failed = (removed < 0 && removed != ERROR_MISSING) || target < 0;
    while (!failed && (size = call(NR_READ, source, (long)data, sizeof data, 0)) != 0) {
        failed = size < 0 || write_all(target, data, size);
    }
    call(NR_CLOSE, source, 0, 0, 0);
    if (target >= 0) {
        call(NR_CLOSE, target, 0, 0, 0);
    }
    if (!failed) {
        return 0;
    }
    is_full = size > 0 || target == ERROR_NO_SPACE;
    if (target >= 0) {
        call(NR_UNLINKAT, to, (long)name, 0, 0);
    }
    return fail("write", name);
}

/* Some file systems leave the type of an entry open. */
static int is_folder(long in, const struct entry *one)
{
    if (one->type != TYPE_UNKNOWN) {
        return one->type == TYPE_FOLDER;
    }
    long opened = call(NR_OPENAT, in, (long)one->name, O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
    if (opened < 0) {
        return 0;
    }
    call(NR_CLOSE, opened, 0, 0, 0);
    return 1;
}

static int copy_below(long from, long to, const char *name, int depth);

static int copy_folder(long from, long to, int depth)
{
    /* One for each level, since a level is read on after the one below it. */
    static char entries[MAX_DEPTH][4096] __attribute__((aligned(8)));
    long size;
    if (depth == MAX_DEPTH) {
        return fail("go", "that deep");
    }
    while ((size = call(NR_GETDENTS64, from, (long)entries[depth], sizeof entries[depth], 0)) > 0) {
        for (long place = 0; place < size;) {
            struct entry *one = (struct entry *)(entries[depth] + place);
            place += one->length;
            if (same(one->name, ".") || same(one->name, "..")) {
                continue;
            }
            if (is_folder(from, one)) {
                if (copy_below(from, to, one->name, depth + 1)) {
                    return 1;
                }
            } else if (one->type == TYPE_FILE || one->type == TYPE_UNKNOWN) {
                if (copy_file(from, to, one->name)) {
                    return 1;
                }
            }
        }
    }
    return size < 0 ? fail("read", "a folder") : 0;
}

static int copy_below(long from, long to, const char *name, int depth)
{
    long made = call(NR_MKDIRAT, to, (long)name, 0755, 0);
    long source = call(NR_OPENAT, from, (long)name, O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
    long target = call(NR_OPENAT, to, (long)name, O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
    if ((made < 0 && made != ERROR_EXISTS) || source < 0 || target < 0) {
        is_full = made == ERROR_NO_SPACE;
        return fail("make", name);
    }
    int failed = copy_folder(source, target, depth);
    call(NR_CLOSE, source, 0, 0, 0);
    call(NR_CLOSE, target, 0, 0, 0);
    return failed;
}

__attribute__((used)) static int run(long count, char **arguments)
{
    if (count != 4 || !same(arguments[1], "-r")) {
        say("usage: cp -r SOURCE TARGET\n");
        return 2;
    }
    call(NR_UMASK, 0, 0, 0, 0);
    long source = call(NR_OPENAT, AT_FDCWD, (long)arguments[2], O_DIRECTORY | O_CLOEXEC, 0);
    if (source < 0) {
        return fail("open", arguments[2]);
    }
    long target = call(NR_OPENAT, AT_FDCWD, (long)arguments[3], O_DIRECTORY | O_CLOEXEC, 0);
    if (target < 0) {
        return fail("open", arguments[3]);
    }
    return copy_folder(source, target, 0) && !is_full;
}

__attribute__((used)) static void start(long *stack)
{
    call(NR_EXIT, run(stack[0], (char **)(stack + 1)), 0, 0, 0);
    __builtin_unreachable();
}

/* The kernel starts a program with the count of arguments, and then themselves, on the stack. */
#if defined(__x86_64__)
__asm__(".globl _start\n_start:\n xor %ebp,%ebp\n mov %rsp,%rdi\n and $-16,%rsp\n call start\n");
#else
__asm__(".globl _start\n_start:\n mov x29,#0\n mov x0,sp\n bl start\n");
#endif
