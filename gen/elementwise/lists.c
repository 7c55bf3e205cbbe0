/*
 * lists.c: whether tensors of lists have elements in common. In: the lists of a call on the host device,
 * which can read where their tensors lie; a GPU updates all tensors at once and nobody there looks. Out:
 * LATHE_OK, or a sentence about a tensor that is written in memory that the call also reads or writes
 * elsewhere, as tied weights that are given twice. Scratch is freed before the return.
 */
#include "gen/elementwise/lists.h"
#include "gen/host/host.h"

#include <inttypes.h>
#include <stdlib.h>

struct span { /* of a tensor that has elements, in bytes */
    uintptr_t first, end;
    const struct tensor_list *list;
    int64_t number;
};

static int by_first(const void *one, const void *other)
{
    const struct span *a = one;
    const struct span *b = other;
    return a->first < b->first ? -1 : a->first > b->first;
}

static int64_t add_spans(struct span *to, const struct tensor_list *list, const int32_t *length, int64_t n)
{
    void *const *data = list->arg->data;
    const uintptr_t element = lathe_dtype_size(list->arg->dtype);
    int64_t n_spans = 0;
    for (int64_t i = 0; i < n; i++)
        if (length[i] > 0)
            to[n_spans++] = (struct span){(uintptr_t)data[i],
                                          (uintptr_t)data[i] + (uintptr_t)length[i] * element, list, i};
    return n_spans;
}

/* Is one of them the result that may lie where the other does? */
static bool lies_over(const struct span *a, const struct span *b)
{
    return a->number == b->number && a->first == b->first && a->end == b->end &&
           (a->list->over == b->list->arg || b->list->over == a->list->arg);
}

static lathe_status refuse(const struct span *written, const struct span *other, lathe_error *err)
{
    return lathe__fail(err, LATHE_ARG,
                       "argument '%s': expected tensors with memory of their own, given tensor %" PRId64
                       " in some of that of tensor %" PRId64 " of '%s'",
                       written->list->name, written->number, other->number, other->list->name);
}

/* spans: in the order of their first bytes. */
static lathe_status check_spans(const struct span *span, int64_t n, lathe_error *err)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = i + 1; k < n && span[k].first < span[i].end; k++) {
            const bool is_later = span[k].list->is_written;
            if ((is_later || span[i].list->is_written) && !lies_over(&span[i], &span[k]))
                return refuse(&span[is_later ? k : i], &span[is_later ? i : k], err);
        }
    return LATHE_OK;
}

lathe_status check_tensor_lists(const struct tensor_list *list, int n_lists, const int32_t *length, int64_t n,
                                lathe_error *err)
{
    struct span *span = calloc((size_t)(n_lists * n) + 1, sizeof *span);
    if (!span)
        return host_out_of_memory(err);
    int64_t n_spans = 0;
    for (int i = 0; i < n_lists; i++)
        n_spans += add_spans(span + n_spans, &list[i], length, n);
    qsort(span, (size_t)n_spans, sizeof *span, by_first);
    const lathe_status status = check_spans(span, n_spans, err);
    free(span);
    return status;
}
