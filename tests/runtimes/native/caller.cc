// An application of ONNX Runtime's C++ API: it fetches the API in static initialisers, before main.
// Its commands and answers are those of caller.c, as far as it has them.
#include <cstdlib>
#include <iostream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <onnxruntime_cxx_api.h>

namespace {

Ort::SessionOptions at_start;  // before main, in whatever order the linker chose

std::optional<Ort::Env> env;
std::map<std::string, Ort::SessionOptions> options;
std::map<std::string, Ort::Session> sessions;

std::map<std::string, std::string> pairs(std::istringstream& words) {
    std::map<std::string, std::string> found;
    for (std::string word; words >> word;) {
        auto equals = word.rfind('=');
        found[word.substr(0, equals)] = word.substr(equals + 1);
    }
    return found;
}

void make_env(const std::map<std::string, std::string>& wanted) {
    if (wanted.empty()) {
        env.emplace(ORT_LOGGING_LEVEL_WARNING, "caller");
        return;
    }
    Ort::ThreadingOptions threading;
    for (const auto& [key, value] : wanted) {
        if (key == "intra") threading.SetGlobalIntraOpNumThreads(std::stoi(value));
        if (key == "inter") threading.SetGlobalInterOpNumThreads(std::stoi(value));
        if (key == "spin") threading.SetGlobalSpinControl(std::stoi(value));
    }
    env.emplace(threading, ORT_LOGGING_LEVEL_WARNING, "caller");
}

void set(Ort::SessionOptions& to, const std::string& key, const std::string& value) {
    int number = std::atoi(value.c_str());
    if (key == "intra") to.SetIntraOpNumThreads(number);
    else if (key == "inter") to.SetInterOpNumThreads(number);
    else if (key == "parallel") to.SetExecutionMode(number ? ORT_PARALLEL : ORT_SEQUENTIAL);
    else if (key == "graph") to.SetGraphOptimizationLevel(static_cast<GraphOptimizationLevel>(number));
    else if (key == "optimized") to.SetOptimizedModelFilePath(value.c_str());
    else if (key == "arena") number ? to.EnableCpuMemArena() : to.DisableCpuMemArena();
    else if (key == "memPattern") number ? to.EnableMemPattern() : to.DisableMemPattern();
    else if (key == "shared") to.DisablePerSessionThreads();
    else if (key.rfind("entry.", 0) == 0) to.AddConfigEntry(key.c_str() + 6, value.c_str());
    else std::abort();
}

void run(Ort::Session& session) {
    static std::vector<float> input(64 * 256);
    const int64_t shape[] = {64, 256};
    const char *in[] = {"input"}, *out[] = {"y3"};
    auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
    auto given = Ort::Value::CreateTensor<float>(memory, input.data(), input.size(), shape, 2);
    session.Run(Ort::RunOptions{nullptr}, in, &given, 1, out, 1);
}

void obey(std::istringstream words) {
    const char* model = std::getenv("CALLER_MODEL");
    std::string verb, name, other;
    words >> verb;
    if (verb == "env") {
        make_env(pairs(words));
        return;
    }
    words >> name;
    if (verb == "options") {
        Ort::SessionOptions made;
        for (const auto& [key, value] : pairs(words)) set(made, key, value);
        options.insert_or_assign(name, std::move(made));
    } else if (verb == "clone") {
        words >> other;
        options.insert_or_assign(other, options.at(name).Clone());
    } else if (verb == "drop") {
        options.erase(name);
    } else if (verb == "session") {
        words >> other;
        const Ort::SessionOptions& chosen = other == "-" ? at_start : options.at(other);
        sessions.insert_or_assign(name, Ort::Session(*env, model, chosen));
    } else if (verb == "run") {
        run(sessions.at(name));
    } else if (verb == "release") {
        sessions.erase(name);
    } else {
        std::abort();
    }
}

}  // namespace

int main() {
    std::cout << "= version " << OrtGetApiBase()->GetVersionString() << std::endl;
    for (std::string line; std::getline(std::cin, line);) {
        std::string answer = "ok";
        try {
            obey(std::istringstream(line));
        } catch (const std::exception& error) {
            answer = std::string("error ") + error.what();
        }
        for (char& letter : answer)
            if (letter == '\n') letter = ' ';
        std::cout << "= " << answer << std::endl;
    }
    sessions.clear();
    options.clear();
    env.reset();
}
