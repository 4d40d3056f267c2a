// Parallel regions of a C++ program over libtorch; as in units.py. Declared as in ATen/Parallel.h: the package has no headers.
#include <chrono>
#include <cmath>
#include <cstdio>

namespace at {
int get_num_threads();
void init_num_threads();
}  // namespace at

static double work() {
    double sum = 0;
#pragma omp parallel for reduction(+ : sum)
    for (int i = 0; i < 1000000; i++) sum += std::sqrt(i);
    return sum;
}

int main() {
    at::init_num_threads();
    double sum = work(), most;
    std::printf("{\"says\": %d}\n", at::get_num_threads());
    std::fflush(stdout);
    while (std::scanf("%lf", &most) == 1) {
        const auto start = std::chrono::steady_clock::now();
        double seconds = 0;
        int units = 0;
        for (; seconds < most; units++) {
            sum += work();
            seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        }
        std::printf("{\"units\": %d, \"seconds\": %f}\n", units, seconds);
        std::fflush(stdout);
    }
    return sum < 1;
}
