/* Whose the environment's counts are: Raddle's, or those of somebody else, which win. A port of own_counts of
 * runtime/raddle/adapters/onnxruntime/capabilities.py. */
#include "ort.h"

/* Where these variables were at the start of the process. One that is set has moved, to whatever value. */
enum { PLAN, INTRA, INTER, OMP, VARIABLES };
static const char *const names[VARIABLES] = {"RADDLE_PLAN", "ORT_INTRA_OP_NUM_THREADS", "ORT_INTER_OP_NUM_THREADS",
                                             "OMP_NUM_THREADS"};
static const char *at_start[VARIABLES];
/* Whether the door has completed it: any other is the image's, or a parent's. */
static bool completed[VARIABLES];

void rd_remember_counts(void)
{
    const char *text = rd_env("RADDLE_COMPLETED");
    for (int i = 0; i < VARIABLES; i++) {
        struct rd_text value, rest = rd_text_of(text == NULL ? "" : text);
        at_start[i] = rd_env(names[i]);
        while (rest.length > 0 && !completed[i]) {
            completed[i] = rd_text_is(rd_split(rd_split(rest, ';', &rest, NULL), '=', &value, NULL), names[i]);
        }
    }
}

/* The count that a variable holds, 0 for none; whether it is Raddle's. */
static int count_in(int variable, int64_t planned, bool *is_planned)
{
    const char *text = rd_env(names[variable]);
    uint64_t count = 0;
    struct rd_text value = rd_text_of(text == NULL ? "" : text);
    count = value.length <= 9 && rd_number(value, &count) ? count : 0;
    /* Where the plan has moved too, the program keeps a copy of its environment. */
    bool is_set = text != at_start[variable] && rd_env(names[PLAN]) == at_start[PLAN];
    *is_planned = (int64_t)count == planned && completed[variable] && !is_set;
    return (int)count;
}

void rd_read_counts(void)
{
    const struct rd_plan *plan = &rd_runtime.plan;
    bool omp_planned, intra_planned, inter_planned;
    int64_t planned = rd_plan_get(plan, RD_INTRA_OP_WITHOUT_SHIM, rd_plan_get(plan, RD_INTRA_OP, 0));
    int intra = count_in(INTRA, planned, &intra_planned);
    int inter = count_in(INTER, rd_plan_get(plan, RD_INTER_OP, 0), &inter_planned);
    int omp = count_in(OMP, rd_plan_get(plan, RD_OMP, 0), &omp_planned);
    if (rd_runtime.respect) {
        rd_runtime.env_counts[0] = intra_planned ? 0 : intra;
        rd_runtime.env_counts[1] = inter_planned ? 0 : inter;
        rd_runtime.raddle_counts[0] = omp_planned ? omp : 0;
        rd_runtime.raddle_counts[1] = intra_planned ? intra : 0;
        rd_runtime.raddle_counts[2] = inter_planned ? inter : 0;
    }
}
