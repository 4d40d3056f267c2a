/* A C program whose work is one OpenMP loop of about a millisecond: serve_openmp SOCKET. */
#include <math.h>
#include <omp.h>

#include "serve.h"

#define VALUES 200000

static double values[VALUES];

static void answer(uint64_t number) {
    double seed = (double)(number % 16);
#pragma omp parallel for
    for (int i = 0; i < VALUES; i++) {
        values[i] = sqrt(values[i] + seed) + sin(seed + i);
    }
}

int main(int count, char **arguments) {
    char version[16];
    if (count != 2) {
        return 2;
    }
    snprintf(version, sizeof version, "%d", _OPENMP);
    for (uint64_t number = 0; number < 3; number++) {
        answer(number);
    }
    return serve(arguments[1], version, omp_get_max_threads());
}
