/*
 * lathe_packed.h: sequences packed one behind the other, as numbers in host memory.
 *
 *     lengths        [n]       tokens of each sequence; 0 is allowed
 *     cu_seqlens     [n + 1]   where each begins; the last entry is the number of all tokens
 *     sequence ids   [tokens]  which sequence a token is of
 *     positions      [tokens]  0, 1, .. within its sequence
 *     chunk offsets  [n + 1]   chunks of the sequences before; the last entry is the number of all chunks
 *     chunk indices  [chunks][2]  sequence, and which of its chunks
 *
 * A sequence is cut into chunks of `chunk` tokens, the last one shorter; an empty one has none.
 *
 * For example lengths 3, 0, 4 in chunks of 2: cu_seqlens 0 3 3 7, chunk offsets 0 2 2 4, chunk indices
 * (0,0) (0,1) (2,0) (2,1). The specs packed_offsets, packed_tokens and packed_chunks make the same on the
 * device.
 *
 * Errors: ARG, with the entry that is wrong. Outputs do not overlap inputs; n >= 0, chunk >= 1. Totals stay
 * below 2^31.
 */
#ifndef LATHE_PACKED_H
#define LATHE_PACKED_H

#include "lathe_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* From lengths of n sequences where each begins, and back. */
LATHE_API LATHE_CHECK lathe_status lathe_packed_starts(const int32_t *lengths, int32_t n, int32_t *cu_seqlens,
                                                       lathe_error *err);
LATHE_API LATHE_CHECK lathe_status lathe_packed_lengths(const int32_t *cu_seqlens, int32_t n,
                                                        int32_t *lengths, lathe_error *err);
/* Which sequence each token is of, and its position there. Either output may be NULL. */
LATHE_API LATHE_CHECK lathe_status lathe_packed_tokens(const int32_t *cu_seqlens, int32_t n,
                                                       int32_t *sequence_ids, int32_t *positions,
                                                       lathe_error *err);
/* Back from ids, which do not fall and lie in 0 .. n - 1. From positions alone, sequences without tokens
 * cannot be told. */
LATHE_API LATHE_CHECK lathe_status lathe_packed_starts_of_ids(const int32_t *sequence_ids, int32_t tokens,
                                                              int32_t n, int32_t *cu_seqlens,
                                                              lathe_error *err);
/* Back from positions: each 0 begins a sequence. *n: how many there are; cu_seqlens has room for tokens + 1.
 */
LATHE_API LATHE_CHECK lathe_status lathe_packed_starts_of_positions(const int32_t *positions, int32_t tokens,
                                                                    int32_t *n, int32_t *cu_seqlens,
                                                                    lathe_error *err);
/* How many chunks there are ahead of each sequence. */
LATHE_API LATHE_CHECK lathe_status lathe_packed_chunk_offsets(const int32_t *cu_seqlens, int32_t n,
                                                              int32_t chunk, int32_t *chunk_offsets,
                                                              lathe_error *err);
/* Which sequence each chunk is of, and which of its chunks. chunk_indices: two numbers for each of
 * chunk_offsets[n] chunks. */
LATHE_API LATHE_CHECK lathe_status lathe_packed_chunk_indices(const int32_t *chunk_offsets, int32_t n,
                                                              int32_t *chunk_indices, lathe_error *err);

#ifdef __cplusplus
}
#endif
#endif
