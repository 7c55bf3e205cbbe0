/*
 * request.h: one kernel that is wanted, with the spec lowered for it.
 */
#ifndef LATHE_GEN_REQUEST_H
#define LATHE_GEN_REQUEST_H

#include "lathe_types.h"

struct attention_kernel;
struct device;
struct feature;
struct ir;
struct linear_kernel;
struct map_kernel;
struct problem;
struct row_kernel;
struct signature;
struct template_row;

enum { REASON_BYTES = 256 };

/* One kernel that is wanted. The caller gives the first part; kernel_open of pipeline/kernel.h lowers the
   spec for it, once; planners and emitters read, and change nothing. */
struct kernel_request {
    const struct ir *ir;
    lathe_pass pass;
    const struct signature *sig; /* of that pass */
    const struct problem *problem;
    const struct device *device;

    const struct template_row *templates; /* of its kind */
    const struct feature *features;       /* of its kind, up to one without a name; NULL: none */
    const struct ir *spec;                /* whose formulas are computed: `ir`, or the gradient of its maps */
    union {                               /* by kind, made by its row's `lower` */
        struct attention_kernel *attention;
        struct row_kernel *rows;
        struct map_kernel *maps;
        struct linear_kernel *linear;
    };
    char refused[REASON_BYTES]; /* why there is no such kernel on any device; "": there may be */

    /* of a search among plans; pipeline/pick.c */
    int *skip;        /* so many rows of tiles that serve are passed over, for `lathe tune`; NULL: none */
    const char *only; /* the one template to consider, if it would be taken anyhow; NULL: all */
};

/* What has come of lowering: that the formulas are too many is a refusal, and OK. */
lathe_status request_settle(struct kernel_request *r, lathe_status status);

#endif
