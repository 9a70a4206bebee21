/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether a stack that the recorder shows is true where events were lost: each frame
 * it names is there, in this order, and what it leaves out is marked as unknown.
 */
#ifndef EMBER_TEST_LOSSY_STACKS_H
#define EMBER_TEST_LOSSY_STACKS_H

#include "synthetic_vm.h"

enum { LOSSY_MOST_TOKENS = 512, LOSSY_MOST_FRAMES = 512 };

/* The functions that are shown, from the captured call on, and the real frames. */
struct lossy_stack {
    const struct vm *vm;
    const struct vm_process *process;
    const struct naive_stack *naive;
    uint32_t tokens[LOSSY_MOST_TOKENS];
    uint32_t token_count;
    bool failed[LOSSY_MOST_TOKENS + 1][LOSSY_MOST_FRAMES + 1]; /* tried in vain */
};

static inline const struct ember_track *lossy_track(const struct vm *vm, const struct vm_process *p,
                                                    const struct naive_stack *stack)
{
    uint64_t id = ember_run_value(stack->run->id, stack->run->capture);
    for (uint32_t i = 0; i <= vm->recorder.process_mask; i++) {
        const struct ember_traced *traced = vm->recorder.processes[i];
        for (const struct ember_track *t = traced && traced->pid == p->pid ? traced->tracks : NULL;
             t; t = t->next_in_process)
            if (t->run->id == id)
                return t;
    }
    return NULL;
}

static inline void lossy_read(struct lossy_stack *stack, const struct ember_track *track)
{
    stack->token_count = 0;
    for (uint32_t i = 0; i < track->depth; i++)
        if (!track->frames[i].hidden)
            stack->tokens[stack->token_count++] =
                vm_function_of(&stack->vm->recorder, track->frames[i].function);
}

static inline bool lossy_is_shown(const struct lossy_stack *stack, uint32_t function)
{
    return !stack->vm->untraced[function] && vm_is_shown(stack->vm, stack->naive, function);
}

static inline bool lossy_has_entry(const struct naive_stack *naive, uint32_t frame)
{
    for (uint32_t i = 0; i < naive->count; i++)
        if (naive->entries[i].frame == frame && naive->entries[i].function != EMBER_NONE)
            return true;
    return false;
}

/* Whether something that is shown has run in the frame; in that of the captured call,
 * since that call, and in a window since it began or when it did. */
static inline bool lossy_has_run(const struct lossy_stack *stack, uint32_t frame)
{
    bool later = stack->naive->base && stack->naive->entries[0].frame == frame;
    if (later || stack->naive->window)
        return lossy_has_entry(stack->naive, frame);
    for (uint32_t function = 0; function < VM_FUNCTIONS; function++)
        if (stack->process->frames[frame].ran >> function & 1 && lossy_is_shown(stack, function))
            return true;
    return false;
}

static inline bool lossy_match(struct lossy_stack *stack, uint32_t token, uint32_t frame);

/* The tokens from `token` on that are functions of this frame, the last of which runs
 * there now, unless it is unknown what followed. */
static inline bool lossy_match_in_frame(struct lossy_stack *stack, uint32_t token, uint32_t frame)
{
    const struct vm_frame *real = &stack->process->frames[frame];
    for (uint32_t t = token; t < stack->token_count; t++) {
        uint32_t function = stack->tokens[t];
        if (function != EMBER_UNKNOWN && !(real->ran >> function & 1))
            return false;
        bool runs = function == real->function || function == EMBER_UNKNOWN ||
                    !lossy_is_shown(stack, real->function);
        if (runs && lossy_match(stack, function == EMBER_UNKNOWN ? t : t + 1, frame + 1))
            return true;
    }
    return false;
}

static inline bool lossy_try(struct lossy_stack *stack, uint32_t token, uint32_t frame)
{
    bool unknown = token < stack->token_count && stack->tokens[token] == EMBER_UNKNOWN;
    if (frame == stack->process->frame_count)
        return token == stack->token_count || (unknown && lossy_match(stack, token + 1, frame));
    if (unknown && (lossy_match(stack, token + 1, frame) || lossy_match(stack, token, frame + 1)))
        return true;
    if (!lossy_has_run(stack, frame) && lossy_match(stack, token, frame + 1))
        return true;
    return lossy_match_in_frame(stack, token, frame);
}

static inline bool lossy_match(struct lossy_stack *stack, uint32_t token, uint32_t frame)
{
    if (stack->failed[token][frame])
        return false;
    bool matched = lossy_try(stack, token, frame);
    stack->failed[token][frame] = !matched;
    return matched;
}

static inline void lossy_print(const struct lossy_stack *stack, uint32_t first)
{
    fprintf(stderr, "shown:");
    for (uint32_t i = 0; i < stack->token_count; i++)
        fprintf(stderr, " %d", (int)stack->tokens[i]);
    fprintf(stderr, "\nreal:");
    for (uint32_t i = first; i < stack->process->frame_count; i++)
        fprintf(stderr, " %u@%ld(ran %lx)", stack->process->frames[i].function,
                (long)stack->process->frames[i].depth,
                (unsigned long)stack->process->frames[i].ran);
    fprintf(stderr, "\n");
}

/* Not while the recorder has yet to be told of losses, of returns or of an exception. A child's
 * stack begins above the frame that it was made with. */
static inline void lossy_check(const struct vm *vm, const struct vm_process *p)
{
    static struct lossy_stack stack;
    if (p->gap.events || p->unclear || p->left_from != EMBER_NONE ||
        p->frame_count > LOSSY_MOST_FRAMES)
        return;
    for (uint32_t i = 0; i < p->stack_count; i++) {
        const struct naive_stack *naive = &p->stacks[i];
        const struct ember_track *track = lossy_track(vm, p, naive);
        if (!track || naive->run->ended || track->depth > LOSSY_MOST_TOKENS)
            continue;
        uint32_t first = naive->base ? naive->entries[0].frame : 1;
        stack = (struct lossy_stack){.vm = vm, .process = p, .naive = naive};
        lossy_read(&stack, track);
        bool matched = lossy_match(&stack, 0, first);
        if (!matched)
            lossy_print(&stack, first);
        cr_assert(matched, "seed %lu %s: a wrong stack", (unsigned long)vm->seed, vm->doing);
    }
}

#endif
