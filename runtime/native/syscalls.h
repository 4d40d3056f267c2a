/* System calls by number, and the constants that they take: asm/unistd.h and asm/fcntl.h of the two architectures. */
#ifndef RADDLE_SYSCALLS_H
#define RADDLE_SYSCALLS_H

#if defined(__x86_64__)
#define NR_READ 0
#define NR_WRITE 1
#define NR_CLOSE 3
#define NR_FSTAT 5
#define NR_MMAP 9
#define NR_MUNMAP 11
#define NR_MADVISE 28
#define NR_RT_SIGPROCMASK 14
#define NR_SCHED_YIELD 24
#define NR_NANOSLEEP 35
#define NR_GETPID 39
#define NR_EXECVE 59
#define NR_GETPPID 110
#define NR_RT_SIGPENDING 127
#define NR_RT_SIGTIMEDWAIT 128
#define NR_PRCTL 157
#define NR_GETTID 186
#define NR_TGKILL 234
#define NR_SCHED_SETAFFINITY 203
#define NR_SCHED_GETAFFINITY 204
#define NR_GETDENTS64 217
#define NR_CLOCK_GETTIME 228
#define NR_EXIT_GROUP 231
#define NR_OPENAT 257
#define NR_NEWFSTATAT 262
#define NR_READLINKAT 267
#define NR_FACCESSAT 269
#define NR_MEMFD_CREATE 319
#define O_DIRECTORY 0200000
#define O_NOFOLLOW 0400000
#elif defined(__aarch64__)
#define NR_FACCESSAT 48
#define NR_OPENAT 56
#define NR_CLOSE 57
#define NR_GETDENTS64 61
#define NR_READ 63
#define NR_WRITE 64
#define NR_READLINKAT 78
#define NR_NEWFSTATAT 79
#define NR_FSTAT 80
#define NR_EXIT_GROUP 94
#define NR_NANOSLEEP 101
#define NR_CLOCK_GETTIME 113
#define NR_SCHED_SETAFFINITY 122
#define NR_SCHED_GETAFFINITY 123
#define NR_SCHED_YIELD 124
#define NR_RT_SIGPROCMASK 135
#define NR_TGKILL 131
#define NR_RT_SIGPENDING 136
#define NR_RT_SIGTIMEDWAIT 137
#define NR_PRCTL 167
#define NR_GETPID 172
#define NR_GETPPID 173
#define NR_GETTID 178
#define NR_MUNMAP 215
#define NR_EXECVE 221
#define NR_MMAP 222
#define NR_MADVISE 233
#define NR_MEMFD_CREATE 279
#define O_DIRECTORY 040000
#define O_NOFOLLOW 0100000
#else
#error "only x86-64 and aarch64"
#endif

#define EPERM 1
#define EACCES 13
#define EINVAL 22
#define SIGPIPE 13
#define SIG_BLOCK 0
#define SIG_SETMASK 2
#define CLOCK_MONOTONIC 1
#define CLOCK_BOOTTIME 7
#define AT_FDCWD (-100)
/* Keys of the auxiliary vector. */
#define AT_SECURE 23
#define AT_EXECFN 31
#define O_NONBLOCK 04000
#define O_WRONLY 1
#define O_CLOEXEC 02000000
#define O_PATH 010000000
#define MEMFD_CLOEXEC 1
#define MEMFD_NOEXEC_SEAL 8
#define MADV_DONTFORK 10
/* Where struct stat has the file's size, as a number of 8-byte words; device and inode are the first two. */
#define STAT_WORDS 32
#define STAT_SIZE 6

#endif
