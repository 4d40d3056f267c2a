/* The serving half of a measured C program, as tools/load/server.py has it for Python: one thread a connection,
 * a request of a few bytes in, the same bytes out once the work is done; it serves until its stdin closes. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static void answer(uint64_t number);

static void *serve_one(void *argument) {
    int connection = (int)(intptr_t)argument;
    uint64_t number = 0;
    char request[8];
    ssize_t length;
    while ((length = read(connection, request, sizeof request)) > 0) {
        answer(number++);
        if (write(connection, request, (size_t)length) != length) {
            break;
        }
    }
    close(connection);
    return NULL;
}

static void *accept_all(void *argument) {
    int listener = (int)(intptr_t)argument;
    for (;;) {
        pthread_t thread;
        int connection = accept(listener, NULL, NULL);
        if (connection >= 0 && pthread_create(&thread, NULL, serve_one, (void *)(intptr_t)connection) == 0) {
            pthread_detach(thread);
        }
    }
    return NULL;
}

/* Says that it is ready, on stdout as one line of JSON, and serves. */
static int serve(const char *path, const char *version, int pool_threads) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    pthread_t thread;
    char byte;
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0 || listen(listener, 64) != 0 ||
        pthread_create(&thread, NULL, accept_all, (void *)(intptr_t)listener) != 0) {
        perror("serve");
        return 1;
    }
    printf("{\"version\": \"%s\", \"pool_threads\": %d, \"created_s\": 0, \"raddle\": %s}\n", version, pool_threads,
           getenv("RADDLE_PLAN") != NULL ? "true" : "false");
    fflush(stdout);
    while (read(0, &byte, 1) > 0) {
    }
    _exit(0);
}
