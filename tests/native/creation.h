/* The options that CreateEnvWithOptions takes, with one field more than any known version has. */
#pragma once

#include <stdint.h>

#define LATER_VERSION 30

struct creation {
    uint32_t version;
    int32_t level;
    const char *id;
    const void *logger;
    void *parameter;
    const struct options *threading;
    const void *entries;
    uint64_t later;
};
