/* JSON that somebody else has written: whether it is any, and what is in it. RFC 8259; ASCII only. */
#include "raddle.h"

#define MAX_DEPTH 32

static const char *skip_space(const char *at)
{
    while (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r') {
        at++;
    }
    return at;
}

static bool is_digit(char one)
{
    return one >= '0' && one <= '9';
}

static bool is_hex(char one)
{
    return is_digit(one) || (one >= 'a' && one <= 'f') || (one >= 'A' && one <= 'F');
}

static const char *digits_end(const char *at)
{
    if (!is_digit(*at)) {
        return NULL;
    }
    while (is_digit(*at)) {
        at++;
    }
    return at;
}

static const char *number_end(const char *at)
{
    at += *at == '-';
    at = *at == '0' ? at + 1 : digits_end(at);
    if (at != NULL && *at == '.') {
        at = digits_end(at + 1);
    }
    if (at != NULL && (*at == 'e' || *at == 'E')) {
        at++;
        at = digits_end(at + (*at == '+' || *at == '-'));
    }
    return at;
}

static const char *string_end(const char *at)
{
    for (at++; *at != '"'; at++) {
        if (*at < ' ' || *at > '~') {
            return NULL;
        }
        if (*at == '\\') {
            at++;
            if (*at == 'u') {
                for (int i = 0; i < 4; i++) {
                    if (!is_hex(*++at)) {
                        return NULL;
                    }
                }
            } else if (*at != '"' && *at != '\\' && *at != '/' && *at != 'b' && *at != 'f' && *at != 'n' && *at != 'r'
                       && *at != 't') {
                return NULL;
            }
        }
    }
    return at + 1;
}

static const char *value_end(const char *at, int depth);

/* Of an object's members or an array's elements. */
static const char *items_end(const char *at, int depth)
{
    char closing = *at == '{' ? '}' : ']';
    at = skip_space(at + 1);
    if (*at == closing) {
        return at + 1;
    }
    for (;; at = skip_space(at + 1)) {
        if (closing == '}') {
            at = *at == '"' ? string_end(at) : NULL;
            at = at == NULL ? NULL : skip_space(at);
            if (at == NULL || *at != ':') {
                return NULL;
            }
            at = skip_space(at + 1);
        }
        at = value_end(at, depth + 1);
        at = at == NULL ? NULL : skip_space(at);
        if (at == NULL || *at != ',') {
            return at != NULL && *at == closing ? at + 1 : NULL;
        }
    }
}

static const char *value_end(const char *at, int depth)
{
    switch (*at) {
    case '{':
    case '[':
        return depth < MAX_DEPTH ? items_end(at, depth) : NULL;
    case '"':
        return string_end(at);
    case 't':
        return rd_starts(at, "true") ? at + 4 : NULL;
    case 'f':
        return rd_starts(at, "false") ? at + 5 : NULL;
    case 'n':
        return rd_starts(at, "null") ? at + 4 : NULL;
    default:
        return number_end(at);
    }
}

const char *rd_json_end(const char *at)
{
    return value_end(at, 0);
}

bool rd_json_next(const char **at, struct rd_text *name, struct rd_text *value)
{
    const char *start = skip_space(*at);
    /* Neither the end nor something that is no object. */
    if (*start != '{' && *start != ',') {
        return false;
    }
    start = skip_space(start + 1);
    if (*start != '"') {
        return false;
    }
    const char *end = string_end(start);
    *name = (struct rd_text){start + 1, (size_t)(end - start) - 2};
    start = skip_space(skip_space(end) + 1);
    end = value_end(start, 0);
    *value = (struct rd_text){start, (size_t)(end - start)};
    *at = end;
    return true;
}

const char *rd_json_member(const char *object, const char *name)
{
    struct rd_text found, value;
    if (object == NULL || *object != '{') {
        return NULL;
    }
    while (rd_json_next(&object, &found, &value)) {
        if (rd_text_is(found, name)) {
            return value.at;
        }
    }
    return NULL;
}

const char *rd_json_last(const char *array)
{
    if (array == NULL || *array != '[') {
        return NULL;
    }
    const char *last = NULL;
    for (const char *at = skip_space(array + 1); *at != ']'; at = skip_space(at + (*at == ','))) {
        last = at;
        at = skip_space(value_end(at, 0));
    }
    return last;
}
