/* System calls and text without a libc. */
#include "raddle.h"

#if defined(__x86_64__)
#define NR_READ 0
#define NR_CLOSE 3
#define NR_MMAP 9
#define NR_MUNMAP 11
#define NR_SCHED_YIELD 24
#define NR_GETPID 39
#define NR_CLOCK_GETTIME 228
#define NR_OPENAT 257
#elif defined(__aarch64__)
#define NR_OPENAT 56
#define NR_CLOSE 57
#define NR_READ 63
#define NR_CLOCK_GETTIME 113
#define NR_SCHED_YIELD 124
#define NR_GETPID 172
#define NR_MUNMAP 215
#define NR_MMAP 222
#else
#error "only x86-64 and aarch64"
#endif

#define AT_FDCWD (-100)
#define O_NONBLOCK 04000
#define O_CLOEXEC 02000000

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

uint64_t rd_now_us(void)
{
    int64_t now[2] = {0, 0};
    rd_syscall(NR_CLOCK_GETTIME, 1, (long)now, 0, 0, 0, 0);
    return (uint64_t)now[0] * 1000000 + (uint64_t)now[1] / 1000;
}

uint64_t rd_now_ms(void)
{
    return rd_now_us() / 1000;
}

/* The process's libc has it, under both names; a program with no libc at all has neither. */
extern char **environ __attribute__((weak));

char **rd_environment(void)
{
    return &environ == NULL ? NULL : environ;
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

size_t rd_length(const char *text)
{
    size_t length = 0;
    while (text[length] != '\0') {
        length++;
    }
    return length;
}

bool rd_same(const char *one, const char *other)
{
    while (*one != '\0' && *one == *other) {
        one++;
        other++;
    }
    return *one == *other;
}

bool rd_starts(const char *text, const char *start)
{
    while (*start != '\0' && *text == *start) {
        text++;
        start++;
    }
    return *start == '\0';
}

struct rd_text rd_text_of(const char *text)
{
    return (struct rd_text){text, rd_length(text)};
}

bool rd_text_is(struct rd_text text, const char *other)
{
    size_t i = 0;
    while (i < text.length && other[i] != '\0' && text.at[i] == other[i]) {
        i++;
    }
    return i == text.length && other[i] == '\0';
}

struct rd_text rd_split(struct rd_text text, char mark, struct rd_text *rest, bool *found)
{
    size_t i = 0;
    while (i < text.length && text.at[i] != mark) {
        i++;
    }
    bool has = i < text.length;
    if (found != NULL) {
        *found = has;
    }
    *rest = (struct rd_text){text.at + i + has, text.length - i - has};
    return (struct rd_text){text.at, i};
}

bool rd_number(struct rd_text text, uint64_t *value)
{
    if (text.length == 0 || text.length > 19) {
        return false;
    }
    *value = 0;
    for (size_t i = 0; i < text.length; i++) {
        if (text.at[i] < '0' || text.at[i] > '9') {
            return false;
        }
        *value = *value * 10 + (uint64_t)(text.at[i] - '0');
    }
    return true;
}

struct rd_out rd_out(char *at, size_t size)
{
    at[0] = '\0';
    return (struct rd_out){at, size, 0};
}

void rd_put_char(struct rd_out *out, char one)
{
    if (out->length + 1 < out->size) {
        out->at[out->length++] = one;
        out->at[out->length] = '\0';
    }
}

void rd_put_text(struct rd_out *out, struct rd_text text)
{
    for (size_t i = 0; i < text.length; i++) {
        rd_put_char(out, text.at[i]);
    }
}

void rd_put(struct rd_out *out, const char *text)
{
    rd_put_text(out, rd_text_of(text));
}

void rd_put_unsigned(struct rd_out *out, uint64_t value)
{
    char digits[20];
    int count = 0;
    do {
        digits[count++] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    while (count > 0) {
        rd_put_char(out, digits[--count]);
    }
}

void rd_put_number(struct rd_out *out, int64_t value)
{
    if (value < 0) {
        rd_put_char(out, '-');
    }
    rd_put_unsigned(out, value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
}

void rd_put_double(struct rd_out *out, double value)
{
    if (!(value > 0)) {
        rd_put_char(out, '0');
        return;
    }
    /* value = 0.d1d2... x 10^(exponent + 1); powers up to 10^22 are exact. */
    int exponent = 0;
    double power = 1;
    while (value >= power * 10 && exponent < 21) {
        power *= 10;
        exponent++;
    }
    double scaled = exponent > 5 ? value : value * 100000 / power;
    for (int i = exponent; i > 5; i--) {
        scaled /= 10;
    }
    while (scaled < 100000 && exponent > -21) {
        scaled *= 10;
        exponent--;
    }
    /* Six digits, rounded to the even one where two are as near; 999999.5 becomes the next power of ten. */
    uint64_t digits = (uint64_t)scaled;
    double rest = scaled - (double)digits;
    digits += rest > 0.5 || (rest == 0.5 && digits % 2 == 1);
    if (digits >= 1000000) {
        digits /= 10;
        exponent++;
    }
    char text[6];
    for (int i = 5; i >= 0; i--) {
        text[i] = (char)('0' + digits % 10);
        digits /= 10;
    }
    int last = 5;
    while (last > 0 && text[last] == '0') {
        last--;
    }
    bool scientific = exponent < -4 || exponent >= 6;
    int whole = scientific ? 0 : exponent;
    if (whole < 0) {
        rd_put(out, "0.");
        for (int i = -1; i > whole; i--) {
            rd_put_char(out, '0');
        }
    }
    for (int i = 0; i <= (last > whole ? last : whole); i++) {
        rd_put_char(out, text[i]);
        if (i == whole && i < last) {
            rd_put_char(out, '.');
        }
    }
    if (scientific) {
        rd_put_char(out, 'e');
        rd_put_char(out, exponent < 0 ? '-' : '+');
        int size = exponent < 0 ? -exponent : exponent;
        if (size < 10) {
            rd_put_char(out, '0');
        }
        rd_put_number(out, size);
    }
}

bool rd_try_lock(struct rd_lock *lock)
{
    for (int i = 0; i < 100000; i++) {
        if (__atomic_exchange_n(&lock->held, 1, __ATOMIC_ACQUIRE) == 0) {
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
    __atomic_store_n(&lock->held, 0, __ATOMIC_RELEASE);
}
