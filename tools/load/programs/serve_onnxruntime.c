/* A C program that serves a model with ONNX Runtime: serve_onnxruntime MODEL SIDE SOCKET THREADS SPIN.
 * THREADS 0 and SPIN "default" leave the options as they are; SPIN may be never, always, or microseconds. */
#include <dirent.h>
#include <onnxruntime_c_api.h>

#include "serve.h"

static const OrtApi *api;
static OrtSession *session;
static OrtMemoryInfo *memory;
static int64_t shape[] = {1, 3, 0, 0};
static float *image;
static size_t values;
static const char *INPUT[] = {"image"};
static const char *OUTPUT[] = {"features"};

static void check(OrtStatus *status) {
    if (status != NULL) {
        fprintf(stderr, "%s\n", api->GetErrorMessage(status));
        exit(1);
    }
}

static int threads(void) {
    DIR *folder = opendir("/proc/self/task");
    int found = -2; /* . and .. */
    while (folder != NULL && readdir(folder) != NULL) {
        found++;
    }
    closedir(folder);
    return found;
}

static void answer(uint64_t number) {
    OrtValue *input = NULL, *output = NULL;
    (void)number;
    check(api->CreateTensorWithDataAsOrtValue(memory, image, values * sizeof *image, shape, 4,
                                              ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, &input));
    check(api->Run(session, NULL, INPUT, (const OrtValue *const *)&input, 1, OUTPUT, 1, &output));
    api->ReleaseValue(output);
    api->ReleaseValue(input);
}

static void entry(OrtSessionOptions *options, const char *key, const char *value) {
    check(api->AddSessionConfigEntry(options, key, value));
}

/* What a user can write into the code. */
static void set(OrtSessionOptions *options, int threads, const char *spin) {
    if (threads > 0) {
        check(api->SetIntraOpNumThreads(options, threads));
    }
    if (strcmp(spin, "default") != 0) {
        entry(options, "session.intra_op.allow_spinning", strcmp(spin, "never") == 0 ? "0" : "1");
    }
    if (atoi(spin) > 0) {
        entry(options, "session.intra_op.spin_duration_us", spin);
    }
}

int main(int count, char **arguments) {
    OrtEnv *env = NULL;
    OrtSessionOptions *options = NULL;
    int before;
    if (count != 6) {
        return 2;
    }
    /* The oldest API that has what is used here, so that any newer library will do. */
    api = OrtGetApiBase()->GetApi(11);
    srand(7);
    shape[2] = shape[3] = atoi(arguments[2]);
    values = (size_t)(3 * shape[2] * shape[3]);
    image = malloc(values * sizeof *image);
    if (image == NULL) {
        return 1;
    }
    for (size_t i = 0; i < values; i++) {
        image[i] = (float)rand() / (float)RAND_MAX - 0.5F;
    }
    check(api->CreateEnv(ORT_LOGGING_LEVEL_WARNING, "serve", &env));
    check(api->CreateSessionOptions(&options));
    set(options, atoi(arguments[4]), arguments[5]);
    before = threads();
    check(api->CreateSession(env, arguments[1], options, &session));
    int pool = threads() - before + 1; /* the caller works too */
    check(api->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &memory));
    for (uint64_t number = 0; number < 3; number++) {
        answer(number);
    }
    return serve(arguments[3], OrtGetApiBase()->GetVersionString(), pool);
}
