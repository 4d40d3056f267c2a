/* guise CPUS COMMAND...: runs the command so that it may use that many CPUs, as it and all that it starts can tell.

   sched_getaffinity and sched_setaffinity are answered by a process beside it, through seccomp, so that programs are
   reached whatever they are written in, static ones too. What a thread is bound to is only remembered: it runs where
   the kernel likes. A thread that was never bound may use all CPUs, whatever the one that started it is bound to. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#endif

enum { MOST_BYTES = 128, BOUND = 1 << 16 };

static unsigned char every[MOST_BYTES];
static size_t bytes;
static struct {
    pid_t thread;
    unsigned char mask[MOST_BYTES];
} bound[BOUND];

static void fail(const char *what) {
    fprintf(stderr, "guise: %s: %s\n", what, strerror(errno));
    exit(125);
}

/* The thread's place among those that were bound: its own, or a free one. */
static int place(pid_t thread) {
    int at = thread % BOUND;
    for (int tried = 0; tried < BOUND && bound[at].thread && bound[at].thread != thread; tried++)
        at = (at + 1) % BOUND;
    return at;
}

/* What the system call comes to: a count of bytes or 0, or an error below 0. */
static long answer(const struct seccomp_notif *asked) {
    pid_t thread = asked->data.args[0] ? (pid_t)asked->data.args[0] : (pid_t)asked->pid;
    size_t length = asked->data.args[1];
    struct iovec theirs = {(void *)asked->data.args[2], 0}, ours = {0};
    int at = place(thread);
    if (asked->data.nr == __NR_sched_getaffinity) {
        if (length < bytes || length % sizeof(long))
            return -EINVAL;
        ours.iov_base = bound[at].thread == thread ? bound[at].mask : every;
        ours.iov_len = theirs.iov_len = bytes;
        return process_vm_writev(asked->pid, &ours, 1, &theirs, 1, 0) < 0 ? -EFAULT : (long)bytes;
    }
    unsigned char mask[MOST_BYTES] = {0}, any = 0;
    ours.iov_base = mask;
    ours.iov_len = theirs.iov_len = length < bytes ? length : bytes;
    if (process_vm_readv(asked->pid, &ours, 1, &theirs, 1, 0) < 0)
        return -EFAULT;
    for (size_t i = 0; i < bytes; i++)
        any |= mask[i] &= every[i];
    if (!any)
        return -EINVAL;
    bound[at].thread = thread;
    memcpy(bound[at].mask, mask, bytes);
    return 0;
}

/* Answers until nobody is left who could ask. */
static void supervise(int listener) {
    struct pollfd waiting = {.fd = listener, .events = POLLIN};
    for (;;) {
        if (poll(&waiting, 1, -1) < 0 && errno != EINTR)
            return;
        if (waiting.revents & POLLIN) {
            struct seccomp_notif asked = {0};
            if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &asked))
                continue; /* it was interrupted, and asks again */
            long result = answer(&asked);
            struct seccomp_notif_resp said = {.id = asked.id};
            if (result < 0)
                said.error = (int)result;
            else
                said.val = result;
            ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &said);
        } else if (waiting.revents)
            return;
    }
}

static void send_descriptor(int to, int descriptor) {
    char byte = 0, space[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec one = {&byte, 1};
    struct msghdr message = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
    if (sendmsg(to, &message, 0) < 0)
        fail("sendmsg");
}

static int received_descriptor(int from) {
    char byte, space[CMSG_SPACE(sizeof(int))];
    struct iovec one = {&byte, 1};
    struct msghdr message = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    if (recvmsg(from, &message, 0) <= 0 || !CMSG_FIRSTHDR(&message))
        exit(125);
    int descriptor;
    memcpy(&descriptor, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
    return descriptor;
}

int main(int argc, char **argv) {
    int cpus = argc > 2 ? atoi(argv[1]) : 0;
    if (cpus < 1 || cpus > MOST_BYTES * 8) {
        fprintf(stderr, "usage: guise CPUS COMMAND...\n");
        return 125;
    }
    for (int cpu = 0; cpu < cpus; cpu++)
        every[cpu / 8] |= 1 << cpu % 8;
    bytes = (cpus + 63) / 64 * 8;
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
        fail("socketpair");
    /* Twice, so that the command has no child that it did not start. */
    pid_t between = fork();
    if (between < 0)
        fail("fork");
    if (between == 0) {
        if (fork() == 0) {
            close(ends[0]);
            int listener = received_descriptor(ends[1]);
            setsid(); /* a signal for the command's group is none for this */
            for (int file = 0; file <= 2; file++)
                close(file); /* who reads the command's output waits for its end */
            supervise(listener);
        }
        _exit(0);
    }
    waitpid(between, NULL, 0);
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_sched_getaffinity, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_sched_setaffinity, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    int listener = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
    if (listener < 0)
        fail("seccomp");
    send_descriptor(ends[0], listener);
    close(listener);
    close(ends[0]);
    execvp(argv[2], argv + 2);
    fail(argv[2]);
}
