/*
 * host_parts.h: a row of attention as a part of it, on the host device: host_row.c.
 */
#ifndef LATHE_ATTENTION_HOST_PARTS_H
#define LATHE_ATTENTION_HOST_PARTS_H

#include "gen/host/host.h"

struct host_part_views {
    struct host_view o, rows; /* [b, h, q, d_v] and [b, h, q, states + 1]; data NULL: not given */
};

/* The row that was entered, ahead of the epilogue. weight: scratch, len_kv numbers. */
lathe_status host_part_row(struct host_head *head, const struct host_part_views *out, double *weight,
                           lathe_error *err);

#endif
