/* A program that uses one of odd.c's libraries, as far as it can be used, and prints what it got. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct base { const void* (*get_api)(uint32_t); const char* (*get_version)(void); };

const struct base* OrtGetApiBase(void);

int main(void) {
    const char* odd = getenv("ODD");
    const struct base* base = OrtGetApiBase();
    if (!base) return puts("no base") < 0;
    if (!base->get_api) return puts("no functions") < 0;
    if (!strcmp(odd, "data")) return puts("data") < 0;
    int (*const* table)(void) = (int (*const*)(void))base->get_api(16);
    printf("version %zu, first slot %d\n", strlen(base->get_version()), table[0] ? table[0]() : 0);
    return 0;
}
