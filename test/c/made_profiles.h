/* SPDX-License-Identifier: Apache-2.0
 *
 * Profiles made by hand, for what joins and checks them. The test links as
 * failing_malloc.h says.
 */
#ifndef EMBER_TEST_MADE_PROFILES_H
#define EMBER_TEST_MADE_PROFILES_H

#include "profile.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_FUNCTIONS = 300, MOST_PROCESSES = 20, MOST_NODES = 2000 };

static struct ember_profile *start_profile(void)
{
    struct ember_profile *profile = ember_profile_create();
    profile->functions = calloc(MOST_FUNCTIONS, sizeof *profile->functions);
    profile->processes = calloc(MOST_PROCESSES, sizeof *profile->processes);
    profile->nodes = calloc(MOST_NODES, sizeof *profile->nodes);
    return profile;
}

static char *numbered(const char *prefix, uint32_t number)
{
    char text[40];
    snprintf(text, sizeof text, "%s%u", prefix, number);
    return strdup(text);
}

/* m0:f0/0, m1:f0/0, m0:f1/0, m1:f1/0, m0:f0/1 and so on. */
static uint32_t add_function(struct ember_profile *profile, uint32_t number)
{
    profile->functions[profile->function_count] =
        (struct ember_function){.module = numbered("m", number % 2),
                                .name = numbered("f", number / 2 % 2),
                                .text = numbered("text", number),
                                .arity = (uint8_t)(number / 4)};
    return profile->function_count++;
}

static uint32_t add_node(struct ember_profile *profile, uint32_t parent, uint32_t function,
                         uint64_t weight)
{
    uint32_t process = parent == EMBER_NONE ? profile->process_count - 1
                                            : profile->nodes[parent].process;
    profile->nodes[profile->node_count] = (struct ember_node){
        parent, function, process, {weight, weight * 2, weight * 3, weight * 4, -(int64_t)weight}};
    return profile->node_count++;
}

/* Returns the root's index. */
static uint32_t add_process(struct ember_profile *profile, uint32_t pid, const char *name,
                            uint32_t parent)
{
    profile->processes[profile->process_count++] =
        (struct ember_process){.pid = pid,
                               .pid_text = numbered("pid", pid),
                               .name = name ? strdup(name) : NULL,
                               .parent = parent,
                               .root = profile->node_count};
    return add_node(profile, EMBER_NONE, EMBER_NONE, 0);
}

/* main (m0:f0/0 -> m1:f0/0), then its child. */
static struct ember_profile *small_profile(uint64_t weight)
{
    struct ember_profile *profile = start_profile();
    uint32_t outer = add_function(profile, 0);
    uint32_t inner = add_function(profile, 1);
    uint32_t root = add_process(profile, 1, "main", EMBER_NONE);
    uint32_t node = add_node(profile, root, outer, weight);
    add_node(profile, node, inner, weight);
    root = add_process(profile, 2, NULL, 0);
    add_node(profile, root, inner, weight);
    profile->info.target = strdup("m0:f0/0");
    profile->info.otp_release = strdup("27");
    profile->info.calls = 1;
    cr_assert(ember_profile_check(profile));
    return profile;
}

static inline void cr_assert_metrics(struct ember_metrics metrics, uint64_t weight)
{
    cr_assert_eq(metrics.calls, weight);
    cr_assert_eq(metrics.own_ns, weight * 2);
    cr_assert_eq(metrics.off_cpu_ns, weight * 3);
    cr_assert_eq(metrics.gc_ns, weight * 4);
    cr_assert_eq(metrics.words, -(int64_t)weight);
}

static inline struct ember_profile *merged(struct ember_profile *const *profiles, uint32_t count)
{
    struct ember_profile *profile =
        ember_profile_merge((const struct ember_profile *const *)profiles, count);
    cr_assert(profile);
    cr_assert(ember_profile_check(profile));
    return profile;
}

static void destroy_all(struct ember_profile *const *profiles, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        ember_profile_destroy(profiles[i]);
}

#endif
