/* Loads each of the named libraries, calls its `caller`, and unloads it again, with all that it needed. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(int count, char **arguments)
{
    char *session[] = {"caller", NULL}, *late[] = {"caller", "0", "late", NULL};
    for (int i = 1; i < count; i++) {
        void *library = dlopen(arguments[i], RTLD_NOW | RTLD_LOCAL);
        if (library == NULL) {
            printf("%s\n", dlerror());
            return 1;
        }
        int (*caller)(int, char **) = (int (*)(int, char **))dlsym(library, "caller");
        if (caller(1, session) != 0 || caller(3, late) != 0 || dlclose(library) != 0) {
            return 2;
        }
        char line[4096];
        FILE *maps = fopen("/proc/self/maps", "r");
        while (fgets(line, sizeof line, maps) != NULL) {
            if (strstr(line, "libonnxruntime") != NULL) {
                printf("still loaded\n");
                return 3;
            }
        }
        fclose(maps);
    }
    return 0;
}
