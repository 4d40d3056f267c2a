// A stand-in for ONNX Runtime's CUDA provider where there is no GPU: the library that a libonnxruntime loads for it, with
// the functions of struct Provider in their order. It adds the options that it is told to the file $PROVIDER_OPTIONS, one
// a line, and makes no provider.
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <unordered_map>

using Options = std::unordered_map<std::string, std::string>;

struct Provider {
    virtual std::shared_ptr<void> make_with(const void*) { return nullptr; }
    virtual std::shared_ptr<void> make_on(int) { return nullptr; }
    virtual void* info() { return nullptr; }
    virtual Options told(const void*) { return {{"device_id", "0"}}; }
    virtual void tell(void*, const Options& options) {
        std::ofstream file(std::getenv("PROVIDER_OPTIONS"), std::ios::app);
        for (const auto& [key, value] : options) {
            file << key << "=" << value << "\n";
        }
    }
    // Start and end, and what other versions have before them.
    virtual void a() {}
    virtual void b() {}
    virtual void c() {}
    virtual void d() {}
    virtual void e() {}
    virtual void f() {}
};

extern "C" Provider* GetProvider() {
    static Provider provider;
    return &provider;
}
