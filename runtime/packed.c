/*
 * packed.c: sequences packed one behind the other: lengths, starts, ids, positions, chunks. In: arrays of the
 * caller. Out: the same; nothing is kept. What does not ascend, or overflows, is an error with its entry.
 */
#include <stddef.h>

#include "lathe_packed.h"
#include "runtime/base/base.h"

static lathe_status check_count(int32_t n, const char *what, lathe_error *err)
{
    return n >= 0 ? LATHE_OK : lathe__fail(err, LATHE_ARG, "%s: expected 0 or more, given %d", what, n);
}

/* An array of so many entries; of none, it is not looked at. */
static lathe_status check_array(const void *array, int64_t count, const char *what, lathe_error *err)
{
    return array || count <= 0
               ? LATHE_OK
               : lathe__fail(err, LATHE_ARG, "%s: expected %lld numbers, given NULL", what, (long long)count);
}

/* n + 1 entries from 0 that do not fall. */
static lathe_status check_starts(const int32_t *starts, int32_t n, const char *what, lathe_error *err)
{
    TRY(check_count(n, "n", err));
    TRY(check_array(starts, (int64_t)n + 1, what, err));
    if (starts[0] != 0)
        return lathe__fail(err, LATHE_ARG, "%s: expected entry 0 to be 0, given %d", what, starts[0]);
    for (int32_t i = 0; i < n; i++)
        if (starts[i + 1] < starts[i])
            return lathe__fail(err, LATHE_ARG, "%s: expected entry %d to be at least %d, given %d", what,
                               i + 1, starts[i], starts[i + 1]);
    return LATHE_OK;
}

/* out[i + 1] = out[i] + the count of i. */
static lathe_status add_up(int64_t total, int32_t count, int32_t i, int32_t *out, lathe_error *err)
{
    if (total + count > INT32_MAX)
        return lathe__fail(err, LATHE_ARG,
                           "packed: expected fewer than 2^31 in all, sequence %d makes it more", i);
    out[i + 1] = (int32_t)(total + count);
    return LATHE_OK;
}

lathe_status lathe_packed_starts(const int32_t *lengths, int32_t n, int32_t *cu_seqlens, lathe_error *err)
{
    TRY(check_count(n, "n", err));
    TRY(check_array(lengths, n, "lengths", err));
    TRY(check_array(cu_seqlens, (int64_t)n + 1, "cu_seqlens", err));
    cu_seqlens[0] = 0;
    for (int32_t i = 0; i < n; i++) {
        if (lengths[i] < 0)
            return lathe__fail(err, LATHE_ARG, "lengths: expected entry %d to be 0 or more, given %d", i,
                               lengths[i]);
        TRY(add_up(cu_seqlens[i], lengths[i], i, cu_seqlens, err));
    }
    return LATHE_OK;
}

lathe_status lathe_packed_lengths(const int32_t *cu_seqlens, int32_t n, int32_t *lengths, lathe_error *err)
{
    TRY(check_starts(cu_seqlens, n, "cu_seqlens", err));
    TRY(check_array(lengths, n, "lengths", err));
    for (int32_t i = 0; i < n; i++)
        lengths[i] = cu_seqlens[i + 1] - cu_seqlens[i];
    return LATHE_OK;
}

lathe_status lathe_packed_tokens(const int32_t *cu_seqlens, int32_t n, int32_t *sequence_ids,
                                 int32_t *positions, lathe_error *err)
{
    TRY(check_starts(cu_seqlens, n, "cu_seqlens", err));
    for (int32_t i = 0; i < n; i++)
        for (int32_t t = cu_seqlens[i]; t < cu_seqlens[i + 1]; t++) {
            if (sequence_ids)
                sequence_ids[t] = i;
            if (positions)
                positions[t] = t - cu_seqlens[i];
        }
    return LATHE_OK;
}

lathe_status lathe_packed_starts_of_ids(const int32_t *sequence_ids, int32_t tokens, int32_t n,
                                        int32_t *cu_seqlens, lathe_error *err)
{
    TRY(check_count(n, "n", err));
    TRY(check_count(tokens, "tokens", err));
    TRY(check_array(sequence_ids, tokens, "sequence_ids", err));
    TRY(check_array(cu_seqlens, (int64_t)n + 1, "cu_seqlens", err));
    int32_t next = 0; /* the first sequence whose start is not known */
    for (int32_t t = 0; t < tokens; t++) {
        const int32_t least = t > 0 ? sequence_ids[t - 1] : 0;
        if (sequence_ids[t] < least || sequence_ids[t] >= n)
            return lathe__fail(err, LATHE_ARG, "sequence_ids: expected entry %d to be in %d..%d, given %d", t,
                               least, n - 1, sequence_ids[t]);
        while (next <= sequence_ids[t])
            cu_seqlens[next++] = t;
    }
    while (next <= n)
        cu_seqlens[next++] = tokens;
    return LATHE_OK;
}

lathe_status lathe_packed_starts_of_positions(const int32_t *positions, int32_t tokens, int32_t *n,
                                              int32_t *cu_seqlens, lathe_error *err)
{
    TRY(check_count(tokens, "tokens", err));
    TRY(check_array(positions, tokens, "positions", err));
    TRY(check_array(n, 1, "n", err));
    TRY(check_array(cu_seqlens, (int64_t)tokens + 1, "cu_seqlens", err));
    *n = 0;
    for (int32_t t = 0; t < tokens; t++) {
        const int32_t next = t > 0 ? positions[t - 1] + 1 : 0;
        if (positions[t] != 0 && positions[t] != next)
            return lathe__fail(err, LATHE_ARG, "positions: expected entry %d to be 0 or %d, given %d", t,
                               next, positions[t]);
        if (positions[t] == 0)
            cu_seqlens[(*n)++] = t;
    }
    cu_seqlens[*n] = tokens;
    return LATHE_OK;
}

lathe_status lathe_packed_chunk_offsets(const int32_t *cu_seqlens, int32_t n, int32_t chunk,
                                        int32_t *chunk_offsets, lathe_error *err)
{
    TRY(check_starts(cu_seqlens, n, "cu_seqlens", err));
    if (chunk < 1)
        return lathe__fail(err, LATHE_ARG, "chunk: expected 1 token or more, given %d", chunk);
    TRY(check_array(chunk_offsets, (int64_t)n + 1, "chunk_offsets", err));
    chunk_offsets[0] = 0;
    for (int32_t i = 0; i < n; i++) {
        const int32_t length = cu_seqlens[i + 1] - cu_seqlens[i];
        chunk_offsets[i + 1] = chunk_offsets[i] + length / chunk + (length % chunk != 0);
    }
    return LATHE_OK;
}

lathe_status lathe_packed_chunk_indices(const int32_t *chunk_offsets, int32_t n, int32_t *chunk_indices,
                                        lathe_error *err)
{
    TRY(check_starts(chunk_offsets, n, "chunk_offsets", err));
    TRY(check_array(chunk_indices, chunk_offsets[n], "chunk_indices", err));
    for (int32_t i = 0; i < n; i++)
        for (int32_t c = chunk_offsets[i]; c < chunk_offsets[i + 1]; c++) {
            chunk_indices[2 * (size_t)c] = i;
            chunk_indices[2 * (size_t)c + 1] = c - chunk_offsets[i];
        }
    return LATHE_OK;
}
