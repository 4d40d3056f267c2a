/* RADDLE_PLAN: flat text, `key=value` joined by `;`. This gives the same answers as runtime/raddle/env.py, without
 * allocating and in one pass. It is untrusted input: numbers and words of fixed lists only. */
#include "raddle.h"

#define MAX_QUOTED 40

struct key {
    const char *name;
    int low;
    uint64_t high;
    const char *words; /* joined by ", "; NULL: a number; RD_LISTS: CPU lists */
};

#define RD_LISTS lists
static const char lists[] = "";

#define ROW(key, ...) [key] = {__VA_ARGS__},
static const struct key keys[RD_KEYS] = {RD_KEY_ROWS(ROW)};

/* The start of a text that the user may know again. */
static void put_quoted(struct rd_out *out, struct rd_text text)
{
    text.length = text.length < MAX_QUOTED ? text.length : MAX_QUOTED;
    rd_put_char(out, '\'');
    rd_put_text(out, text);
    rd_put_char(out, '\'');
}

static void put_field(struct rd_out *out, enum rd_key key, struct rd_text value)
{
    rd_put(out, "plan field ");
    rd_put(out, keys[key].name);
    rd_put_char(out, '=');
    put_quoted(out, value);
}

/* The word's number in the list, or -1; `nth` is set to the word of that number where it is asked for. */
static int word_in(const char *words, struct rd_text word, int number, struct rd_text *nth)
{
    struct rd_text rest = rd_text_of(words);
    for (int i = 0; rest.length > 0; i++) {
        bool found;
        struct rd_text one = rd_split(rest, ',', &rest, &found);
        if (found) {
            rest.at++;
            rest.length--;
        }
        if (nth != NULL && i == number) {
            *nth = one;
        }
        if (one.length == word.length && word.length > 0 && __builtin_memcmp(one.at, word.at, word.length) == 0) {
            return i;
        }
    }
    return -1;
}

static bool parse_number(struct rd_plan *plan, enum rd_key key, struct rd_text text)
{
    const struct key *known = &keys[key];
    bool negative = known->low < 0 && text.length > 0 && text.at[0] == '-';
    if (negative) {
        text.at++;
        text.length--;
    }
    /* Twenty digits, as Python's: a number beyond 64 bits is beyond every bound too. */
    if (text.length == 0 || text.length > 20) {
        return false;
    }
    uint64_t value = 0;
    for (size_t i = 0; i < text.length; i++) {
        uint64_t digit = (uint64_t)(unsigned char)text.at[i] - '0';
        if (digit > 9 || __builtin_mul_overflow(value, (uint64_t)10, &value)
            || __builtin_add_overflow(value, digit, &value)) {
            return false;
        }
    }
    negative = negative && value != 0;
    if (negative ? value > (uint64_t)-known->low : value > known->high) {
        return false;
    }
    if (!negative && known->low > 0 && value < (uint64_t)known->low) {
        return false;
    }
    plan->has[key] = true;
    plan->negative[key] = negative;
    plan->value[key] = value;
    return true;
}

/* Keeps the text of lists, none of one that has other characters or is too long: then CPUs are only counted. */
static void keep_list(struct rd_plan *plan, enum rd_key key, struct rd_text value)
{
    char *list = plan->list[key - RD_LIST_FIRST];
    __builtin_memset(list, 0, sizeof plan->list[0]);
    plan->has[key] = true;
    for (size_t i = 0; i < value.length; i++) {
        char one = value.at[i];
        if (value.length > RD_MAX_LIST_TEXT
            || ((one < '0' || one > '9') && one != ',' && one != '-' && one != ':' && one != '/' && one != '|')) {
            return;
        }
    }
    __builtin_memcpy(list, value.at, value.length);
}

static bool parse_field(struct rd_plan *plan, enum rd_key key, struct rd_text value, struct rd_out *error)
{
    const struct key *known = &keys[key];
    if (known->words == lists) {
        keep_list(plan, key, value);
        return true;
    }
    if (known->words != NULL) {
        int word = word_in(known->words, value, -1, NULL);
        if (word < 0) {
            put_field(error, key, value);
            rd_put(error, " must be one of ");
            rd_put(error, known->words);
            return false;
        }
        plan->has[key] = true;
        plan->negative[key] = false;
        plan->value[key] = (uint64_t)word;
        return true;
    }
    if (!parse_number(plan, key, value)) {
        put_field(error, key, value);
        rd_put(error, " must be an integer from ");
        rd_put_number(error, known->low);
        rd_put(error, " to ");
        rd_put_unsigned(error, known->high);
        return false;
    }
    return true;
}

bool rd_plan_parse(const char *text, struct rd_plan *plan, struct rd_out *error)
{
    __builtin_memset(plan, 0, sizeof *plan);
    struct rd_text rest = {text, 0}, version = {"", 0};
    while (text[rest.length] != '\0') {
        if (++rest.length > RD_MAX_PLAN_TEXT) {
            rd_put(error, "plan is longer than 4096 characters");
            return false;
        }
    }
    for (bool more = true; more;) {
        struct rd_text value;
        bool equals;
        struct rd_text part = rd_split(rest, ';', &rest, &more);
        struct rd_text name = rd_split(part, '=', &value, &equals);
        if (!equals) {
            rd_put(error, "plan part ");
            put_quoted(error, part);
            rd_put(error, " is not key=value");
            return false;
        }
        if (rd_text_is(name, "v")) {
            version = value;
            continue;
        }
        for (int key = 0; key < RD_KEYS; key++) {
            if (rd_text_is(name, keys[key].name)) {
                if (!parse_field(plan, (enum rd_key)key, value, error)) {
                    return false;
                }
                break;
            }
        }
    }
    if (!rd_text_is(version, "1")) {
        rd_put(error, "plan version is ");
        put_quoted(error, version);
        rd_put(error, ", this shim reads version 1");
        return false;
    }
    return true;
}

int64_t rd_plan_get(const struct rd_plan *plan, enum rd_key key, int64_t otherwise)
{
    if (!plan->has[key]) {
        return otherwise;
    }
    return plan->negative[key] ? -(int64_t)plan->value[key] : (int64_t)plan->value[key];
}

bool rd_plan_respects(const struct rd_plan *plan)
{
    return rd_plan_get(plan, RD_EXISTING_VALUES, RD_EXISTING_VALUES_RESPECT) == RD_EXISTING_VALUES_RESPECT;
}

struct rd_text rd_plan_list(const struct rd_plan *plan, enum rd_key key)
{
    return rd_text_of(plan->list[key - RD_LIST_FIRST]);
}

const char *rd_plan_key(enum rd_key key)
{
    return keys[key].name;
}

void rd_plan_value(const struct rd_plan *plan, enum rd_key key, struct rd_out *out)
{
    if (keys[key].words == lists) {
        rd_put_text(out, rd_plan_list(plan, key));
        return;
    }
    if (keys[key].words != NULL) {
        struct rd_text word = {"", 0};
        word_in(keys[key].words, word, (int)plan->value[key], &word);
        rd_put_text(out, word);
        return;
    }
    if (plan->negative[key]) {
        rd_put_char(out, '-');
    }
    rd_put_unsigned(out, plan->value[key]);
}

void rd_completed_counts(const struct rd_plan *plan, struct rd_completed counts[RD_COMPLETED_COUNTS])
{
    int64_t openmp = rd_plan_get(plan, RD_OMP, 0), intra = rd_plan_get(plan, RD_INTRA_OP, 0);
    counts[0] = (struct rd_completed){"ORT_INTRA_OP_NUM_THREADS", rd_plan_get(plan, RD_INTRA_OP_WITHOUT_SHIM, intra)};
    counts[1] = (struct rd_completed){"ORT_INTER_OP_NUM_THREADS", rd_plan_get(plan, RD_INTER_OP, 0)};
    counts[2] = (struct rd_completed){"OPENBLAS_NUM_THREADS", openmp == 0 ? rd_plan_get(plan, RD_BLAS, 0) : 0};
    counts[3] = (struct rd_completed){"OMP_NUM_THREADS", openmp};
}
