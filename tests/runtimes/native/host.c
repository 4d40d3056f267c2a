/* A program that knows nothing of ONNX Runtime and opens a plugin that is linked to it, as Java and Node.js do. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int main(void) {
    void* plugin = dlopen(getenv("CALLER_PLUGIN"), RTLD_NOW | RTLD_LOCAL);
    if (!plugin) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    int (*run)(void) = (int (*)(void))dlsym(plugin, "caller_main");
    return run();
}
