/* A C program that serves a model with ONNX Runtime's default options: serve_onnxruntime MODEL SOCKET. */
#include <dirent.h>
#include <onnxruntime_c_api.h>

#include "serve.h"

/* cnn-1ms of models.py: one image of 3 x 40 x 40. */
#define VALUES (3 * 40 * 40)

static const OrtApi *api;
static OrtSession *session;
static OrtMemoryInfo *memory;
static float image[VALUES];
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
    static const int64_t shape[] = {1, 3, 40, 40};
    OrtValue *input = NULL, *output = NULL;
    (void)number;
    check(api->CreateTensorWithDataAsOrtValue(memory, image, sizeof image, shape, 4,
                                              ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, &input));
    check(api->Run(session, NULL, INPUT, (const OrtValue *const *)&input, 1, OUTPUT, 1, &output));
    api->ReleaseValue(output);
    api->ReleaseValue(input);
}

int main(int count, char **arguments) {
    OrtEnv *env = NULL;
    OrtSessionOptions *options = NULL;
    int before;
    if (count != 3) {
        return 2;
    }
    /* The oldest API that has what is used here, so that any newer library will do. */
    api = OrtGetApiBase()->GetApi(11);
    srand(7);
    for (int i = 0; i < VALUES; i++) {
        image[i] = (float)rand() / (float)RAND_MAX - 0.5F;
    }
    check(api->CreateEnv(ORT_LOGGING_LEVEL_WARNING, "serve", &env));
    check(api->CreateSessionOptions(&options));
    before = threads();
    check(api->CreateSession(env, arguments[1], options, &session));
    int pool = threads() - before + 1; /* the caller works too */
    check(api->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &memory));
    for (uint64_t number = 0; number < 3; number++) {
        answer(number);
    }
    return serve(arguments[2], OrtGetApiBase()->GetVersionString(), pool);
}
