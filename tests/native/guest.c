/* Says what it was given: arguments, environment, open descriptors, rights. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>
#ifdef WITH_THREADS
#include <pthread.h>
static void *turn(void *number)
{
    static __thread long own;
    own = (long)number;
    return (void *)own;
}
#endif
#ifdef OWN_FUNCTIONS
/* As some programs have them; the library may meet these names, but has no business with them. */
int setenv(const char *name, const char *value, int overwrite)
{
    (void)overwrite;
    printf("setenv %s=%s\n", name, value);
    return 0;
}
int unsetenv(const char *name)
{
    printf("unsetenv %s\n", name);
    return 0;
}
char *getenv(const char *name)
{
    (void)name;
    return NULL;
}
#endif

extern char **environ;

int main(int count, char **arguments, char **given)
{
    char target[256];
    for (int i = 0; i < count; i++) {
        printf("argument %s\n", arguments[i]);
    }
    for (char **one = environ; one != NULL && *one != NULL; one++) {
        printf("variable %s\n", *one);
    }
    int variables = 0;
    while (given != NULL && given[variables] != NULL) {
        variables++;
    }
    printf("main is given %d, secure %lu, user %d\n", variables, getauxval(AT_SECURE), (int)geteuid());
    for (int i = 0; i < 64; i++) {
        char name[64];
        snprintf(name, sizeof name, "/proc/self/fd/%d", i);
        ssize_t length = readlink(name, target, sizeof target - 1);
        if (length > 0) {
            printf("descriptor %d\n", i);
        }
    }
#ifdef WITH_THREADS
    pthread_t threads[64];
    long sum = 0;
    for (long i = 0; i < 64; i++) {
        pthread_create(&threads[i], NULL, turn, (void *)i);
    }
    for (int i = 0; i < 64; i++) {
        void *result;
        pthread_join(threads[i], &result);
        sum += (long)result;
    }
    printf("64 threads: %ld\n", sum);
#endif
    void *memory = malloc(1000);
    memset(memory, 1, 1000);
    free(memory);
    return 0;
}
