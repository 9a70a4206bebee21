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

/* A process that a window records, as it was seen just before. */
struct ember_window_process {
    uint64_t pid;
    enum ember_activity activity;
    bool complete;   /* these are all its frames: */
    uint32_t frames; /* index of the oldest ... */
    uint32_t frame_count;
};

/* The processes that a window records, from where they are, to its end. */
struct ember_window {
    uint64_t run; /* see ember_run_value */
    struct ember_window_process *processes;
    uint32_t count;
    struct ember_function_key *frames;
};

/* What happens to what was recorded. */
struct ember_outlet {
    void *context;
    /* A run has ended; it is the callee's to destroy. Returns how many bytes are
     * kept of it, which count for the capture's memory limit. */
    size_t (*on_run)(void *context, struct ember_run *run, const struct ember_capture *capture,
                     const struct ember_function_table *functions);
    /* A run has ended and is now a part of the capture's one, which comes when
     * the capture is closed. */
    void (*on_merged)(void *context, const struct ember_run *run);
    /* A capture has passed its memory limit and was closed; its runs came before. */
    void (*on_limit)(void *context, uint32_t capture);
    /* How many events were lost until now, in all. */
    uint64_t (*lost)(void *context);
    /* Whether the run has ended otherwise than with its capture. */
    bool (*ended)(void *context, uint64_t run);
    /* All events until now have been taken; NULL: no matter. */
    void (*on_drained)(void *context);
};

#define EMBER_MOST_FRAMES 1024 /* that are told of a stack */

struct ember_recorder {
    struct ember_outlet outlet;
    struct ember_stack_layout layout;
    struct ember_function_table functions;
    struct ember_capture captures[EMBER_MAX_CAPTURES];
    bool open[EMBER_MAX_CAPTURES];
    bool starved[EMBER_MAX_CAPTURES];             /* there was no memory for a run */
    uint64_t to_keep[EMBER_MAX_CAPTURES];         /* calls, where only slow ones are kept */
    size_t kept[EMBER_MAX_CAPTURES];              /* bytes of its runs that were given out */
    struct ember_run *merged[EMBER_MAX_CAPTURES]; /* NULL: none yet */
    struct ember_timeline_budget budgets[EMBER_MAX_CAPTURES]; /* for timelines */
    struct ember_run *runs;
    struct ember_traced **processes; /* open addressing by pid; NULL: free */
    uint32_t process_mask;
    uint32_t process_count;
    struct ember_traced *recent; /* the process of the last event, or NULL */
    const uint32_t *own_modules; /* sorted: never shown */
    uint32_t own_module_count;
    struct {
        uint64_t pid; /* whose stack is being told of; the frames come in a row */
        bool broken;  /* some were lost */
        uint32_t count;
        struct ember_event events[EMBER_MOST_FRAMES];
    } walk;
    uint64_t now; /* time of the last event, ticks */
};

bool ember_recorder_init(struct ember_recorder *recorder, const struct ember_outlet *outlet,
                         const struct ember_stack_layout *layout);
void ember_recorder_fini(struct ember_recorder *recorder);

/* From now on BEGINs for this slot count. Takes over capture->modules. */
void ember_recorder_open(struct ember_recorder *recorder, uint32_t slot,
                         const struct ember_capture *capture);

/* Opens a slot for a window, which begins at `ticks`. Takes over capture->modules; of the
 * window nothing is kept. */
void ember_recorder_open_window(struct ember_recorder *recorder, uint32_t slot,
                                const struct ember_capture *capture,
                                const struct ember_window *window, uint64_t ticks);

/* Forgets what a window has counted until `ticks`, but not where its processes are. From
 * then on it lasts `max_ticks` at most. The number of its events until then. Words of an
 * interval that lasts count as of its end. */
uint64_t ember_recorder_restart_window(struct ember_recorder *recorder, uint32_t slot,
                                       uint64_t ticks, uint64_t max_ticks);

/* Gives out the capture's unfinished runs, cut at `ticks`, and forgets it. */
void ember_recorder_close(struct ember_recorder *recorder, uint32_t slot, uint64_t ticks);

void ember_recorder_event(struct ember_recorder *recorder, const struct ember_event *event);

/* Ends the runs whose end was lost. Call it between looks at the rings: it takes three
 * calls, so that all events that were written before the first have been seen. */
void ember_recorder_check_ends(struct ember_recorder *recorder);

/* Closes the captures that use more memory than they may. */
void ember_recorder_check_memory(struct ember_recorder *recorder);

#endif
