// One parallel region of a C++ program over libtorch. Declared as in ATen/Parallel.h: the package has no headers.
#include <cstdio>

namespace at {
int get_num_threads();
void init_num_threads();
}  // namespace at

int main() {
    at::init_num_threads();
    int team = 0;
#pragma omp parallel reduction(+ : team)
    team += 1;
    std::printf("{\"says\": %d}\n", at::get_num_threads());
    std::fflush(stdout);
    std::getchar();
    return team < 1;
}
