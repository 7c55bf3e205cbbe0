/*
 * faults.c: values with a fault that a kernel might have, to see whether the bounds of a group catch it: a
 * query or a row that is 1 % too large, or a key, or an element of a row, that is read as zeros. Linear
 * attention has values that are 1 % too large as well, since many a spec makes unit vectors of its queries.
 *
 * In: values, and which fault. Out: the reference is given the wrong ones. The caller frees them.
 */
#include "cases.h"

#include <stdlib.h>
#include <string.h>

static bool is_one_of(const char *name, const char *const *list)
{
    while (*list && strcmp(*list, name) != 0) {
        list++;
    }
    return *list != NULL;
}

void fault_values(double *value, const struct tensor *t, enum fault_kind kind, enum fault fault)
{
    static const char *const KEYS[] = {"k", "v", NULL};
    static const char *const SCALED[] = {"x", "q", "v", NULL}; /* v of sums alone */
    const bool map = kind == FAULT_MAP;
    const bool row = map || strcmp(t->row.name, "x") == 0;
    const bool of_keys = !map && is_one_of(t->row.name, KEYS);
    const bool scaled =
        map || (is_one_of(t->row.name, SCALED) && (kind == FAULT_SUMS || t->row.name[0] != 'v'));
    const int64_t n = t->ndim > 0 ? t->shape[t->ndim - 1] : 1;
    const int64_t keys = t->ndim > 1 ? t->shape[t->ndim - 2] : 1;
    for (int64_t i = 0; i < t->count; i++) {
        const bool lost = (of_keys && i / n % keys == keys / 2) || (row && i % n == n / 2);
        if (fault == FAULT_SCALE && scaled) {
            value[i] *= 1.01;
        } else if (fault == FAULT_KEY && lost) {
            value[i] = 0.0;
        }
    }
}

double *fault_copy(const double *value, const struct tensor *t, enum fault_kind kind, enum fault fault)
{
    double *wrong = calloc(t->count > 0 ? (size_t)t->count : 1, sizeof *wrong);
    if (wrong) {
        memcpy(wrong, value, (size_t)t->count * sizeof *wrong);
        fault_values(wrong, t, kind, fault);
    }
    return wrong;
}

bool fault_data_open(struct case_data *wrong, const struct test_case *c, const struct case_data *data,
                     enum fault fault)
{
    memset(wrong, 0, sizeof *wrong);
    wrong->n = data->n;
    memcpy(wrong->row, data->row, sizeof wrong->row);
    for (int i = 0; i < data->n; i++) {
        struct tensor t;
        tensor_shape(&t, &data->row[i], c);
        if (data->value[i]) {
            wrong->value[i] = fault_copy(data->value[i], &t, FAULT_ROWS, fault);
            if (!wrong->value[i]) {
                return false;
            }
        }
    }
    return true;
}
