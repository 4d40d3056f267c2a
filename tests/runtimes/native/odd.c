/* Libraries that are not ONNX Runtime, or not a sound one, and yet have its entry point. ODD says which:
 *
 *   null      no table of entry points        short    a table that ends at a page nobody may read
 *   nothing   entry points that are NULL      holes    a table of NULL
 *   data      GetApi that is no function
 *   lies      a table of another size than its version has; its version is no text at all
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct base { const void* (*get_api)(uint32_t); const char* (*get_version)(void); };

static int seven(void) { return 7; }

static const void* api(uint32_t version) {
    static void* holes[512];
    static void* few[3] = {(void*)seven, (void*)seven, (void*)seven};
    const char* odd = getenv("ODD");
    (void)version;
    if (!strcmp(odd, "holes")) return holes;
    if (!strcmp(odd, "lies")) return few;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char* pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(pages + page, page, PROT_NONE);
    return memcpy(pages + page - sizeof few, few, sizeof few);
}
static const char* version(void) { return strcmp(getenv("ODD"), "lies") ? "1.20.0" : "\x01\xff"; }

const struct base* OrtGetApiBase(void) {
    static struct base sound = {api, version}, nothing, data;
    static char bytes[64];
    const char* odd = getenv("ODD");
    data.get_api = (const void* (*)(uint32_t))(void*)bytes;
    data.get_version = version;
    if (!strcmp(odd, "null")) return NULL;
    if (!strcmp(odd, "nothing")) return &nothing;
    return strcmp(odd, "data") ? &sound : &data;
}
