/* SPDX-License-Identifier: Apache-2.0
 *
 * Profile files made block by block, with right headers and checksums around
 * whatever content a test likes.
 */
#ifndef EMBER_TEST_PROFILE_BLOCKS_H
#define EMBER_TEST_PROFILE_BLOCKS_H

#include "profile_format.h"
#include "sink.h"

#include <stdlib.h>
#include <string.h>
#include <zstd.h>

static uint32_t blocks_put;

static inline void begin_file(struct ember_sink *sink)
{
    static const char header[EMBER_FORMAT_HEADER_SIZE];
    blocks_put = 0;
    ember_sink_init(sink);
    ember_sink_bytes(sink, header, sizeof header);
}

static inline void put_crc(unsigned char *header, size_t size)
{
    ember_format_put(header + size - 4, 4, ember_format_crc(header, size - 4));
}

static inline void put_block(struct ember_sink *sink, const char *kind, uint32_t items,
                             const void *content, size_t size)
{
    unsigned char header[EMBER_FORMAT_BLOCK_HEADER_SIZE] = {0};
    size_t bound = ZSTD_compressBound(size);
    void *frame = malloc(bound);
    ZSTD_CCtx *zstd = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(zstd, ZSTD_c_checksumFlag, 1);
    ZSTD_CCtx_setParameter(zstd, ZSTD_c_compressionLevel, 1);
    size_t stored = ZSTD_compress2(zstd, frame, bound, content, size);
    memcpy(header, kind, 4);
    ember_format_put(header + 4, 4, items);
    ember_format_put(header + 8, 4, stored);
    ember_format_put(header + 12, 4, size);
    put_crc(header, sizeof header);
    ember_sink_bytes(sink, header, sizeof header);
    ember_sink_bytes(sink, frame, stored);
    ZSTD_freeCCtx(zstd);
    free(frame);
    blocks_put++;
}

static inline void end_file(struct ember_sink *sink)
{
    unsigned char *header = (unsigned char *)sink->data;
    memcpy(header, EMBER_FORMAT_MAGIC, 8);
    ember_format_put(header + 8, 2, EMBER_FORMAT_MAJOR);
    ember_format_put(header + 10, 2, EMBER_FORMAT_MINOR);
    ember_format_put(header + 12, 4, blocks_put);
    ember_format_put(header + 16, 8, sink->size);
    put_crc(header, EMBER_FORMAT_HEADER_SIZE);
}

#endif
