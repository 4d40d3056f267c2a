/* The real runtime of this process: its table of functions, and what a function's answer means. */
#include "ort.h"

const void *const *rd_real;
struct rd_runtime rd_runtime;

bool rd_ok(rd_status status, char *message, size_t size)
{
    if (status == NULL) {
        return true;
    }
    if (message != NULL && size > 0) {
        struct rd_out out = rd_out(message, size);
        rd_put(&out, RD_REAL(GetErrorMessage, const char *(*)(const void *))(status));
    }
    RD_REAL(ReleaseStatus, rd_release)(status);
    return false;
}

unsigned rd_table_length(const void *const *real, unsigned least, unsigned most)
{
    size_t readable = rd_readable(real) / sizeof *real;
    uintptr_t start, end;
    unsigned count = least;
    if (readable < least) {
        return 0;
    }
    most = most < readable ? most : (unsigned)readable;
    bool known = count < most && rd_code_around(real[0], &start, &end);
    while (known && count < most
           && (real[count] == NULL || ((uintptr_t)real[count] >= start && (uintptr_t)real[count] < end))) {
        count++;
    }
    return count;
}
