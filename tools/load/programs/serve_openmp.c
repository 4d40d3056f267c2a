/* A C program whose work is one OpenMP loop: serve_openmp VALUES SOCKET. */
#include <math.h>
#include <omp.h>

#include "serve.h"

static double *values;
static int count;

static void answer(uint64_t number) {
    double seed = (double)(number % 16);
#pragma omp parallel for
    for (int i = 0; i < count; i++) {
        values[i] = sqrt(values[i] + seed) + sin(seed + i);
    }
}

int main(int arguments_count, char **arguments) {
    char version[16];
    if (arguments_count != 3 || (count = atoi(arguments[1])) <= 0) {
        return 2;
    }
    values = calloc((size_t)count, sizeof *values);
    if (values == NULL) {
        return 1;
    }
    snprintf(version, sizeof version, "%d", _OPENMP);
    for (uint64_t number = 0; number < 3; number++) {
        answer(number);
    }
    return serve(arguments[2], version, omp_get_max_threads());
}
