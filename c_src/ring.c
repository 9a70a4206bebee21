/* SPDX-License-Identifier: Apache-2.0 */
#include "ring.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Slots are mapped, not allocated: untouched pages cost nothing, so there can
 * be a ring for every thread the VM might ever start. */
static struct ember_event *map_slots(size_t capacity)
{
    void *slots = mmap(NULL, capacity * sizeof(struct ember_event), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return slots == MAP_FAILED ? NULL : slots;
}

struct ember_ring *ember_ring_create(size_t capacity)
{
    assert(capacity > 0 && (capacity & (capacity - 1)) == 0);
    struct ember_ring *ring = aligned_alloc(EMBER_CACHE_LINE, sizeof *ring);
    if (!ring)
        return NULL;
    memset(ring, 0, sizeof *ring);
    ring->constant.mask = capacity - 1;
    ring->constant.slots = map_slots(capacity);
    if (!ring->constant.slots) {
        free(ring);
        return NULL;
    }
    return ring;
}

void ember_ring_destroy(struct ember_ring *ring)
{
    if (!ring)
        return;
    munmap(ring->constant.slots, (ring->constant.mask + 1) * sizeof(struct ember_event));
    free(ring);
}
