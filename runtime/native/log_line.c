/* What a session's choice looks like to people: the line on stderr, which is its mark too. */
#include "ort.h"

static const char *const affinities[] = {"none", "numa", "core", "code"};

static void put_part(struct rd_out *line, const char *text, const char *because)
{
    rd_put(line, text);
    if (because != NULL && because[0] != '\0') {
        rd_put(line, " (");
        rd_put(line, because);
        rd_put_char(line, ')');
    }
}

static void put_count(struct rd_out *out, int count)
{
    if (count == 0) {
        rd_put(out, "default");
    } else {
        rd_put_number(out, count);
    }
}

/* "onnxruntime 1.31.1: intra_op=2 (planned 4, cut to quota 2), inter_op=1, spinning off, affinity none" */
static void put_line(struct rd_out *line, const struct rd_choice *choice)
{
    static const char *const spinning[] = {"off", "", "default", "as in the code"};
    rd_put(line, "onnxruntime ");
    rd_put(line, rd_runtime.version);
    rd_put(line, rd_runtime.minor > RD_NEWEST_TESTED ? " (newer than tested): intra_op=" : ": intra_op=");
    put_count(line, choice->intra);
    put_part(line, "", choice->intra_because);
    rd_put(line, ", inter_op=");
    put_count(line, choice->inter);
    put_part(line, "", choice->inter_because);
    rd_put(line, ", spinning ");
    if (choice->spin == RD_SPINNING_BOUNDED) {
        rd_put_number(line, choice->spin_us);
        rd_put(line, " us");
    }
    put_part(line, spinning[choice->spin], choice->spin_because);
    rd_put(line, ", affinity ");
    put_part(line, affinities[choice->affinity], choice->affinity_because);
}

void rd_choice_announce(const struct rd_choice *choice)
{
    char text[720];
    struct rd_out line = rd_out(text, sizeof text);
    put_line(&line, choice);
    rd_mark(RD_MARK_RUNTIME, text);
    if (choice->facts.first_worker && rd_announce(text)) {
        line = rd_out(text, sizeof text);
        if (rd_allocator_missing(&rd_runtime.plan, &line)) {
            rd_complain(text);
        }
    }
}
