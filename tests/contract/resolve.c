/* What the native shim makes of its inputs, line by line, for the contract tests. Compiled with the shim's pure parts
 * and the sanitizers by test_native_contract.py.
 *
 *     resolve             plan, CPU list, quota in CPUs and workers seen, joined by tabs -> the effective values
 *     resolve --global    the same -> the size of the global pool, "-" for none
 *     resolve --because   the same -> the reasons, joined by "|"
 *     resolve --error     a plan -> what is wrong with it, "-" for nothing
 *     resolve --quota     the root of a tree -> the quota in CPUs, "-" for none
 *     resolve --affinity  the root of a tree, CPU list, threads and numa or core -> ONNX Runtime's string
 */
#include "raddle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *part(char **line)
{
    char *start = strsep(line, "\t");
    return start == NULL ? "" : start;
}

static void shown(const char *name, int value)
{
    printf(value == 0 ? "%s=-" : "%s=%d", name, value);
}

static void resolve(const char *mode, char *line)
{
    static const char *const spinning[] = {"-", "never", "bounded", "always"};
    struct rd_plan plan;
    struct rd_facts facts = {.workers_seen = 1};
    struct rd_effective found;
    char problem[256];
    struct rd_out error = rd_out(problem, sizeof problem);
    const char *text = part(&line), *cpus = part(&line), *quota = part(&line), *workers = part(&line);
    bool parsed = rd_plan_parse(text, &plan, &error);
    if (strcmp(mode, "--error") == 0) {
        puts(parsed ? "-" : problem);
        return;
    }
    if (!parsed) {
        puts("error");
        return;
    }
    facts.knows_cpus = cpus[0] != '\0' && rd_cpus_parse(rd_text_of(cpus), &facts.cpus);
    facts.cpu_count = rd_cpus_count(&facts.cpus);
    facts.has_quota = quota[0] != '\0';
    facts.quota_cpus = strtod(quota, NULL);
    facts.workers_seen = (unsigned)atoi(workers);
    rd_resolve(&plan, &facts, &found);
    if (strcmp(mode, "--global") == 0) {
        shown("global_intra", found.global_intra);
        puts("");
        return;
    }
    if (strcmp(mode, "--because") == 0) {
        printf("%s|%s|%s|%s\n", found.intra_because, found.inter_because, found.global_because, found.spin_because);
        return;
    }
    shown("intra", found.intra);
    shown(" inter", found.inter);
    printf(" spin=%s spin_us=%d", spinning[found.spin + 1], found.spin_us);
    shown(" cap", found.cap);
    printf(" exclusive=%d\n", found.exclusive);
}

static void quota(const char *root)
{
    double quota_cpus;
    if (rd_quota_read(root, &quota_cpus)) {
        printf("%.17g\n", quota_cpus);
    } else {
        puts("-");
    }
}

/* ids from 1, each group a range or a list, at most 1024 characters: as affinity_text of adapters/ort_affinity.py. */
static void put_group(FILE *out, const struct rd_cpus *group)
{
    int first = rd_cpus_next(group, -1), last = first;
    while (rd_cpus_has(group, last + 1)) {
        last++;
    }
    if (last > first && rd_cpus_next(group, last) < 0) {
        fprintf(out, "%d-%d", first + 1, last + 1);
        return;
    }
    for (int cpu = first; cpu >= 0; cpu = rd_cpus_next(group, cpu)) {
        fprintf(out, cpu == first ? "%d" : ",%d", cpu + 1);
    }
}

static void affinity(char *line)
{
    struct rd_cpus set;
    const char *root = part(&line), *cpus = part(&line), *threads = part(&line), *kind = part(&line);
    int count = atoi(threads);
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    struct rd_cpus *group = calloc(count > 1 ? (size_t)count : 1, sizeof *group);
    if (rd_cpus_parse(rd_text_of(cpus), &set)
        && rd_affinity_groups(root, &set, count, strcmp(kind, "core") == 0 ? RD_AFF_CORE : RD_AFF_NUMA, group)) {
        for (int i = 0; i < count - 1; i++) {
            fputs(i > 0 ? ";" : "", out);
            put_group(out, &group[i]);
        }
    }
    fclose(out);
    puts(size <= 1024 ? text : "");
    free(text);
    free(group);
}

int main(int count, char **arguments)
{
    const char *mode = count > 1 ? arguments[1] : "";
    char *line = NULL;
    size_t size = 0;
    for (ssize_t length; (length = getline(&line, &size, stdin)) > 0;) {
        line[length - 1] = '\0';
        if (strcmp(mode, "--quota") == 0) {
            quota(line);
        } else if (strcmp(mode, "--affinity") == 0) {
            affinity(line);
        } else {
            resolve(mode, line);
        }
    }
    free(line);
    return 0;
}
