/* Starts a program in a way of its own: guest_starts HOW PROGRAM ARGUMENTS... */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char *own[] = {"OWN=1", NULL};

static int wait_for(pid_t child)
{
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Kills for what no program needs to start: other processes' memory, sockets, new processes, newer calls. */
static void filter(void)
{
    struct sock_filter code[64];
    static const int killed[] = {SYS_ptrace, SYS_process_vm_readv, SYS_socket,  SYS_connect, SYS_clone,
                                 SYS_fork,   SYS_vfork,            SYS_unlink,
                                 SYS_kill,   SYS_memfd_create,     SYS_statx,   SYS_pipe2,   SYS_dup3,
                                 SYS_openat2, SYS_sched_setaffinity, SYS_faccessat, SYS_faccessat2, SYS_prctl,
                                 SYS_readlinkat};
    unsigned length = 0, count = sizeof killed / sizeof killed[0];
    code[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0);
    for (unsigned i = 0; i < count; i++) {
        code[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)killed[i], 0, 1);
        code[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    }
    code[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {(unsigned short)length, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        exit(77);
    }
}

int main(int count, char **arguments)
{
    (void)count;
    const char *how = arguments[1];
    char **program = arguments + 2;
    pid_t child;
    if (strcmp(how, "vfork") == 0) {
        child = vfork();
        if (child == 0) {
            execve(program[0], program, own);
            _exit(126);
        }
        return wait_for(child);
    }
    if (strcmp(how, "spawn") == 0) {
        return posix_spawn(&child, program[0], NULL, NULL, program, own) == 0 ? wait_for(child) : 126;
    }
    if (strcmp(how, "nothing") == 0) {
        /* Neither arguments nor environment. */
        syscall(SYS_execve, program[0], NULL, NULL);
    }
    if (strcmp(how, "bare") == 0) {
        execve(program[0], program, NULL);
    }
    if (strcmp(how, "closed") == 0) {
        close(0);
        close(2);
        execv(program[0], program);
    }
    if (strcmp(how, "seccomp") == 0) {
        filter();
        execv(program[0], program);
    }
    if (strncmp(how, "limit=", 6) == 0) {
        int resource;
        unsigned long most;
        sscanf(how, "limit=%d,%lu", &resource, &most);
        struct rlimit limit = {most, most};
        setrlimit((unsigned)resource, &limit);
        execv(program[0], program);
    }
    return 126;
}
