/* SPDX-License-Identifier: Apache-2.0
 *
 * Turns the ordered sequence of events into finished runs: knows the processes
 * that are recorded, the runs they take part in, and the captures behind the
 * runs. Consumer thread only; knows nothing of threads, rings or the VM.
 */
#ifndef EMBER_RECORDER_H
#define EMBER_RECORDER_H

#include "admission.h"
#include "function_table.h"
#include "run.h"
#include "traced.h"

/* What happens to what was recorded. */
struct ember_outlet {
    void *context;
    /* A run has ended; it is the callee's to destroy. */
    void (*on_run)(void *context, struct ember_run *run, const struct ember_capture *capture,
                   const struct ember_function_table *functions);
    /* A capture has passed its memory limit and was closed; its runs came before. */
    void (*on_limit)(void *context, uint32_t capture);
    /* How many events were lost until now, in all. */
    uint64_t (*lost)(void *context);
};

struct ember_recorder {
    struct ember_outlet outlet;
    struct ember_stack_layout layout;
    struct ember_function_table functions;
    struct ember_capture captures[EMBER_MAX_CAPTURES];
    bool open[EMBER_MAX_CAPTURES];
    bool starved[EMBER_MAX_CAPTURES]; /* there was no memory for a run */
    struct ember_run *runs;
    struct ember_traced **processes; /* open addressing by pid; NULL: free */
    uint32_t process_mask;
    uint32_t process_count;
    struct ember_traced *recent; /* the process of the last event, or NULL */
    uint64_t now;                /* time of the last event, ticks */
};

bool ember_recorder_init(struct ember_recorder *recorder, const struct ember_outlet *outlet,
                         const struct ember_stack_layout *layout);
void ember_recorder_fini(struct ember_recorder *recorder);

/* From now on BEGINs for this slot count. Takes over capture->modules. */
void ember_recorder_open(struct ember_recorder *recorder, uint32_t slot,
                         const struct ember_capture *capture);

/* Gives out the capture's unfinished runs, cut at `ticks`, and forgets it. */
void ember_recorder_close(struct ember_recorder *recorder, uint32_t slot, uint64_t ticks);

void ember_recorder_event(struct ember_recorder *recorder, const struct ember_event *event);

/* Closes the captures that use more memory than they may. */
void ember_recorder_check_memory(struct ember_recorder *recorder);

#endif
