/* What the native shim makes of its inputs, line by line, for the contract tests. Compiled with the shim's pure parts
 * and the sanitizers by test_native_contract.py.
 *
 *     resolve             plan, CPU list, quota in CPUs, workers seen and who says that the CPUs are the container's own,
 *                         joined by tabs -> the effective values
 *     resolve --global    the same -> the size of the global pool, "-" for none
 *     resolve --because   the same -> the reasons, joined by "|"
 *     resolve --completed a plan -> the counts that the door completes from it
 *     resolve --error     a plan -> what is wrong with it, "-" for nothing
 *     resolve --quota     the root of a tree -> the quota in CPUs, "-" for none
 *     resolve --place     plan, CPU list, a pool's size, the quota and who says that the CPUs are the container's
 *                         own -> how many threads there is room for and in words, what that comes to and why, the workers'
 *                         CPU lists by ";"; all by "|"
 *     resolve --owner     CPU list, the text of nri-plugins' file with "|" between its lines, and variables -> who says
 *                         that the CPUs are the container's own, "-" for nobody
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
    printf(value == 0 ? "%s-" : "%s%d", name, value);
}

static void resolve(const char *mode, char *line)
{
    static const char *const spinning[] = {"-", "never", "bounded", "always"};
    struct rd_plan plan;
    struct rd_facts facts = {.workers_seen = 1};
    struct rd_effective found;
    char problem[256];
    struct rd_out error = rd_out(problem, sizeof problem);
    const char *text = part(&line), *cpus = part(&line), *quota = part(&line), *workers = part(&line), *owner = part(&line);
    bool parsed = rd_plan_parse(text, &plan, &error);
    if (strcmp(mode, "--error") == 0) {
        puts(parsed ? "-" : problem);
        return;
    }
    if (!parsed) {
        puts("error");
        return;
    }
    if (strcmp(mode, "--completed") == 0) {
        struct rd_completed counts[RD_COMPLETED_COUNTS];
        rd_completed_counts(&plan, counts);
        for (int i = 0; i < RD_COMPLETED_COUNTS; i++) {
            if (counts[i].count > 0) {
                printf("%s=%lld ", counts[i].name, (long long)counts[i].count);
            }
        }
        puts("");
        return;
    }
    facts.knows_cpus = cpus[0] != '\0' && rd_cpus_parse(rd_text_of(cpus), &facts.cpus);
    facts.cpu_count = rd_cpus_count(&facts.cpus);
    facts.has_quota = quota[0] != '\0';
    facts.quota_cpus = strtod(quota, NULL);
    facts.workers_seen = (unsigned)atoi(workers);
    facts.owner = owner[0] != '\0' ? owner : NULL;
    rd_resolve(&plan, &facts, &found);
    if (strcmp(mode, "--global") == 0) {
        shown("global_intra_op=", found.global_intra);
        puts("");
        return;
    }
    if (strcmp(mode, "--because") == 0) {
        printf("%s|%s|%s|%s\n", found.intra_because, found.inter_because, found.global_because, found.spin_because);
        return;
    }
    shown("intra_op=", found.intra);
    shown(" inter_op=", found.inter);
    printf(" spinning=%s spin_duration_us=%d", spinning[found.spin + 1], found.spin_us);
    shown(" cap=", found.cap);
    printf(" exclusive=%d\n", found.exclusive);
}

static void quota(const char *root)
{
    double quota_cpus;
    if (rd_quota_read(root, &quota_cpus)) {
        printf("%.17g", quota_cpus);
    } else {
        printf("-");
    }
    puts("");
}

static void place(char *line)
{
    static const char *const spinning[] = {"-", "never", "bounded", "always"};
    struct rd_plan plan;
    struct rd_facts facts = {.workers_seen = 1, .knows_cpus = true};
    struct rd_effective found;
    char problem[256];
    struct rd_out error = rd_out(problem, sizeof problem);
    const char *text = part(&line), *cpus = part(&line);
    int threads = atoi(part(&line));
    const char *quota = part(&line), *owner = part(&line);
    if (!rd_plan_parse(text, &plan, &error) || !rd_cpus_parse(rd_text_of(cpus), &facts.cpus)) {
        puts("error");
        return;
    }
    facts.cpu_count = rd_cpus_count(&facts.cpus);
    facts.has_quota = quota[0] != '\0';
    facts.quota_cpus = strtod(quota, NULL);
    facts.owner = owner[0] != '\0' ? owner : NULL;
    rd_place(&plan, &facts);
    rd_resolve(&plan, &facts, &found);
    printf("%u|%s|", facts.units, facts.units_words);
    shown("", found.intra);
    printf("|%s|%s|%s|", spinning[found.spin + 1], found.intra_because, found.spin_because);
    char text_of_group[8192];
    struct rd_cpus *group = calloc(threads > 1 ? (size_t)threads : 1, sizeof *group);
    int affinity = (int)rd_plan_get(&plan, RD_AFFINITY, RD_AFFINITY_NONE);
    bool has = rd_affinity_groups(&plan, &facts.cpus, threads, affinity, group);
    for (int i = 0; has && i < threads - 1; i++) {
        fputs(i > 0 ? ";" : "", stdout);
        struct rd_out list = rd_out(text_of_group, sizeof text_of_group);
        rd_cpus_put(&list, &group[i], 0);
        fputs(text_of_group, stdout);
    }
    puts("");
    free(group);
}

static void owner(char *line)
{
    struct rd_cpus cpus;
    char *variables[16] = {NULL};
    bool parsed = rd_cpus_parse(rd_text_of(part(&line)), &cpus);
    char *resources = strsep(&line, "\t");
    for (char *mark = resources; mark != NULL && (mark = strchr(mark, '|')) != NULL;) {
        *mark = '\n';
    }
    for (int i = 0; line != NULL && i < 15; i++) {
        variables[i] = strsep(&line, "\t");
    }
    const char *found = rd_owner_of(&cpus, variables, rd_text_of(resources == NULL ? "" : resources));
    puts(!parsed ? "error" : found == NULL ? "-" : found);
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
        } else if (strcmp(mode, "--place") == 0) {
            place(line);
        } else if (strcmp(mode, "--owner") == 0) {
            owner(line);
        } else {
            resolve(mode, line);
        }
    }
    free(line);
    return 0;
}
