/* Text without a libc: pieces of it, and text that is built up in a fixed place. */
#include "raddle.h"

size_t rd_length(const char *text)
{
    size_t length = 0;
    while (text[length] != '\0') {
        length++;
    }
    return length;
}

bool rd_same(const char *one, const char *other)
{
    while (*one != '\0' && *one == *other) {
        one++;
        other++;
    }
    return *one == *other;
}

bool rd_starts(const char *text, const char *start)
{
    while (*start != '\0' && *text == *start) {
        text++;
        start++;
    }
    return *start == '\0';
}

struct rd_text rd_text_of(const char *text)
{
    return (struct rd_text){text, rd_length(text)};
}

bool rd_text_is(struct rd_text text, const char *other)
{
    size_t i = 0;
    while (i < text.length && other[i] != '\0' && text.at[i] == other[i]) {
        i++;
    }
    return i == text.length && other[i] == '\0';
}

bool rd_contains(const char *text, const char *word)
{
    for (; *text != '\0'; text++) {
        size_t i = 0;
        while (word[i] != '\0' && (text[i] == word[i] || text[i] == word[i] - 'a' + 'A')) {
            i++;
        }
        if (word[i] == '\0') {
            return true;
        }
    }
    return false;
}

bool rd_text_same(struct rd_text one, struct rd_text other)
{
    return one.length == other.length && __builtin_memcmp(one.at, other.at, one.length) == 0;
}

struct rd_text rd_split(struct rd_text text, char mark, struct rd_text *rest, bool *found)
{
    size_t i = 0;
    while (i < text.length && text.at[i] != mark) {
        i++;
    }
    bool has = i < text.length;
    if (found != NULL) {
        *found = has;
    }
    *rest = (struct rd_text){text.at + i + has, text.length - i - has};
    return (struct rd_text){text.at, i};
}

struct rd_text rd_line(const char *text, const char *start)
{
    while (*text != '\0' && !rd_starts(text, start)) {
        text++;
    }
    struct rd_text rest;
    return rd_split(rd_text_of(*text == '\0' ? "" : text + rd_length(start)), '\n', &rest, NULL);
}

const char *rd_base_name(const char *path)
{
    const char *base = path;
    for (; *path != '\0'; path++) {
        if (*path == '/') {
            base = path + 1;
        }
    }
    return base;
}

bool rd_number(struct rd_text text, uint64_t *value)
{
    if (text.length == 0 || text.length > 19) {
        return false;
    }
    *value = 0;
    for (size_t i = 0; i < text.length; i++) {
        if (text.at[i] < '0' || text.at[i] > '9') {
            return false;
        }
        *value = *value * 10 + (uint64_t)(text.at[i] - '0');
    }
    return true;
}

struct rd_out rd_out(char *at, size_t size)
{
    at[0] = '\0';
    return (struct rd_out){at, size, 0};
}

void rd_put_char(struct rd_out *out, char one)
{
    if (out->length + 1 < out->size) {
        out->at[out->length++] = one;
        out->at[out->length] = '\0';
    }
}

void rd_put_text(struct rd_out *out, struct rd_text text)
{
    for (size_t i = 0; i < text.length; i++) {
        rd_put_char(out, text.at[i]);
    }
}

void rd_put(struct rd_out *out, const char *text)
{
    rd_put_text(out, rd_text_of(text));
}

void rd_put_unsigned(struct rd_out *out, uint64_t value)
{
    char digits[20];
    int count = 0;
    do {
        digits[count++] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    while (count > 0) {
        rd_put_char(out, digits[--count]);
    }
}

void rd_put_number(struct rd_out *out, int64_t value)
{
    if (value < 0) {
        rd_put_char(out, '-');
    }
    rd_put_unsigned(out, value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
}

void rd_put_double(struct rd_out *out, double value)
{
    /* Nobody has more CPUs than fit. */
    uint64_t millionths = value > 0 ? (uint64_t)((value < 1e12 ? value : 1e12) * 1e6 + 0.5) : 0;
    rd_put_unsigned(out, millionths / 1000000);
    uint64_t rest = millionths % 1000000;
    if (rest > 0) {
        rd_put_char(out, '.');
    }
    for (uint64_t unit = 100000; rest > 0; unit /= 10) {
        rd_put_char(out, (char)('0' + rest / unit));
        rest %= unit;
    }
}

void rd_put_string(struct rd_out *out, const char *text, size_t most)
{
    rd_put_char(out, '"');
    for (size_t i = 0; text[i] != '\0' && i < most; i++) {
        unsigned char one = (unsigned char)text[i];
        if (one == '"' || one == '\\') {
            rd_put_char(out, '\\');
            rd_put_char(out, (char)one);
        } else {
            rd_put_char(out, one < ' ' || one >= 0x7f ? '?' : (char)one);
        }
    }
    rd_put_char(out, '"');
}

static bool is_space(char one)
{
    return one == ' ' || (one >= '\t' && one <= '\r');
}

struct rd_text rd_next_word(struct rd_text *text)
{
    while (text->length > 0 && is_space(*text->at)) {
        text->at++;
        text->length--;
    }
    struct rd_text word = {text->at, 0};
    while (text->length > 0 && !is_space(*text->at)) {
        text->at++;
        text->length--;
        word.length++;
    }
    return word;
}
