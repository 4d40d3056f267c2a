/* System calls, the environment and a lock, without a libc. */
#include "raddle.h"
#include "syscalls.h"

long rd_syscall(long number, long a, long b, long c, long d, long e, long f)
{
#if defined(__x86_64__)
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
#else
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    return x0;
#endif
}

#ifndef RD_HOSTED
/* gcc may call these four for what it was not asked for, even in a freestanding build. */
void *memcpy(void *restrict to, const void *restrict from, size_t size)
{
    char *target = to;
    const char *source = from;
    for (size_t i = 0; i < size; i++) {
        target[i] = source[i];
    }
    return to;
}

void *memmove(void *to, const void *from, size_t size)
{
    char *target = to;
    const char *source = from;
    if (target < source) {
        return memcpy(to, from, size);
    }
    while (size-- > 0) {
        target[size] = source[size];
    }
    return to;
}

void *memset(void *to, int value, size_t size)
{
    char *target = to;
    for (size_t i = 0; i < size; i++) {
        target[i] = (char)value;
    }
    return to;
}

int memcmp(const void *one, const void *other, size_t size)
{
    const unsigned char *left = one, *right = other;
    for (size_t i = 0; i < size; i++) {
        if (left[i] != right[i]) {
            return left[i] - right[i];
        }
    }
    return 0;
}
#endif

long rd_read_file(const char *path, char *to, size_t size)
{
    /* Not blocking: a FIFO may stand where a file is expected. */
    long file = rd_syscall(NR_OPENAT, AT_FDCWD, (long)path, O_CLOEXEC | O_NONBLOCK, 0, 0, 0);
    if (rd_failed(file)) {
        return -1;
    }
    size_t length = 0;
    long part = 1;
    while (length < size) {
        part = rd_syscall(NR_READ, file, (long)(to + length), (long)(size - length), 0, 0, 0);
        if (part <= 0) {
            break;
        }
        length += (size_t)part;
    }
    rd_syscall(NR_CLOSE, file, 0, 0, 0, 0, 0);
    return part < 0 || length >= size ? -1 : (long)length;
}

const char *rd_dir_open(struct rd_dir *dir, const char *root, const char *folder)
{
    char path[512];
    struct rd_out out = rd_out(path, sizeof path);
    rd_put(&out, root);
    rd_put(&out, folder);
    dir->length = dir->at = 0;
    dir->file = rd_syscall(NR_OPENAT, AT_FDCWD, (long)path, O_CLOEXEC | O_DIRECTORY, 0, 0, 0);
    dir->found = !rd_failed(dir->file);
    return rd_dir_next(dir);
}

const char *rd_dir_next(struct rd_dir *dir)
{
    while (!rd_failed(dir->file)) {
        if (dir->at >= dir->length) {
            dir->at = 0;
            dir->length = rd_syscall(NR_GETDENTS64, dir->file, (long)dir->text, sizeof dir->text, 0, 0, 0);
            if (dir->length <= 0) {
                rd_dir_close(dir);
                break;
            }
        }
        /* struct linux_dirent64: inode, offset, 16 bits of size, a byte of type, the name. */
        const char *entry = dir->text + dir->at;
        uint16_t size;
        __builtin_memcpy(&size, entry + 16, sizeof size);
        dir->at += size;
        if (!rd_same(entry + 19, ".") && !rd_same(entry + 19, "..")) {
            return entry + 19;
        }
    }
    return NULL;
}

void rd_dir_close(struct rd_dir *dir)
{
    if (!rd_failed(dir->file)) {
        rd_syscall(NR_CLOSE, dir->file, 0, 0, 0, 0, 0);
        dir->file = -1;
    }
}

void *rd_map(size_t size)
{
    /* Readable and writable, private and anonymous. */
    long memory = rd_syscall(NR_MMAP, 0, (long)size, 3, 0x22, -1, 0);
    return rd_failed(memory) ? NULL : (void *)memory;
}

void rd_unmap(void *memory, size_t size)
{
    if (memory != NULL) {
        rd_syscall(NR_MUNMAP, (long)memory, (long)size, 0, 0, 0, 0);
    }
}

int rd_pid(void)
{
    return (int)rd_syscall(NR_GETPID, 0, 0, 0, 0, 0, 0);
}

uint64_t rd_now_ms(void)
{
    int64_t now[2] = {0, 0};
    rd_syscall(NR_CLOCK_GETTIME, CLOCK_MONOTONIC, (long)now, 0, 0, 0, 0);
    return (uint64_t)now[0] * 1000 + (uint64_t)now[1] / 1000000;
}

bool rd_auxiliary(const uint64_t *pairs, uint64_t key, uint64_t *value)
{
    while (pairs[0] != 0 && pairs[0] != key) {
        pairs += 2;
    }
    *value = pairs[0] == key ? pairs[1] : *value;
    return pairs[0] == key;
}

/* The process's libc has it, under both names; a program with no libc at all has neither. */
extern char **environ __attribute__((weak));

char **rd_environment(void)
{
    return &environ == NULL ? NULL : environ;
}

void rd_set_environment(char **all)
{
    environ = all;
}

const char *rd_env(const char *name)
{
    char **environment = rd_environment();
    size_t length = rd_length(name);
    for (char **entry = environment; entry != NULL && *entry != NULL; entry++) {
        if (rd_starts(*entry, name) && (*entry)[length] == '=') {
            return *entry + length + 1;
        }
    }
    return NULL;
}

bool rd_try_lock(struct rd_lock *lock)
{
    int own = rd_pid();
    for (int i = 0; i < 100000; i++) {
        int holder = __atomic_load_n(&lock->holder, __ATOMIC_RELAXED);
        if (holder != own
            && __atomic_compare_exchange_n(&lock->holder, &holder, own, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
            return true;
        }
        if (i > 100) {
            rd_syscall(NR_SCHED_YIELD, 0, 0, 0, 0, 0, 0);
        }
    }
    return false;
}

void rd_unlock(struct rd_lock *lock)
{
    __atomic_store_n(&lock->holder, 0, __ATOMIC_RELEASE);
}
