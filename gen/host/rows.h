/*
 * rows.h: sums over rows of numbers in double precision, where the host device spends most of its time. Four
 * numbers are taken at a time: compilers make vectors of them at -O2, and a sum does not wait for its own
 * last addition.
 */
#ifndef LATHE_GEN_HOST_ROWS_H
#define LATHE_GEN_HOST_ROWS_H

static inline double row_dot(const double *a, const double *b, int n)
{
    double sum[4] = {0.0};
    int i = 0;
    for (; i + 4 <= n; i += 4)
        for (int k = 0; k < 4; k++)
            sum[k] += a[i + k] * b[i + k];
    for (; i < n; i++)
        sum[0] += a[i] * b[i];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* to += factor * row */
static inline void row_add(double *restrict to, double factor, const double *restrict row, int n)
{
    int i = 0;
    for (; i + 4 <= n; i += 4)
        for (int k = 0; k < 4; k++)
            to[i + k] += factor * row[i + k];
    for (; i < n; i++)
        to[i] += factor * row[i];
}

#endif
