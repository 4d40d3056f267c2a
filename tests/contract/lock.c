/* Takes a lock that a thread of the parent held at the fork, for test_native_contract.py. */
#include "raddle.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
    struct rd_lock lock = {0};
    int status = 0;
    printf("alone %d\n", rd_try_lock(&lock));
    printf("held %d\n", rd_try_lock(&lock));
    fflush(stdout);
    if (fork() == 0) {
        printf("forked %d\n", rd_try_lock(&lock));
        printf("held %d\n", rd_try_lock(&lock));
        rd_unlock(&lock);
        printf("free %d\n", rd_try_lock(&lock));
        return 0;
    }
    wait(&status);
    return status;
}
