/*
 * maps.h: what the rooms of the element-wise tests share: the table of their specs, and a case as the table
 * of sizes gives it.
 */
#ifndef LATHE_TESTS_GPU_MAPS_H
#define LATHE_TESTS_GPU_MAPS_H

#include "cases.h"

enum { MAP_ARGS = 14 };

/* Dims of an argument may be a product, "b t h 2*i"; a result's role is ROLE_RESULT, an operand's
 * ROLE_TENSOR. */
struct map_arg {
    struct arg_row row;
    const char *alias; /* of a result: the operand whose memory it may have; NULL: none */
    bool unread;       /* of an operand: no gradient reads it, so the backward pass may do without */
    bool scattered;    /* an input whose gradient is added up by atomics */
};

struct map_spec {
    const char *name;
    const char *const *sizes; /* "b=2,t=5", ends with NULL */
    int leading;              /* dims of every tensor that may be left out */
    bool list;                /* lists of tensors, of one dim */
    bool slow;                /* NVRTC takes minutes: a group of its own */
    bool no_grad;
    struct map_arg arg[MAP_ARGS]; /* ends with a name of "" */
};
extern const struct map_spec map_specs[];
extern const int map_spec_count;
/* Linear attention: its arguments are written down, and checked, as those of a map are. */
extern const struct map_spec linear_specs[];
extern const int linear_spec_count;
const char *linear_text(const char *name); /* of a spec that does not ship; NULL: it does */

enum memory {
    MEMORY_APART,   /* results have memory of their own */
    MEMORY_SAME,    /* a result with an alias is given at the address of that operand */
    MEMORY_LEFT_OUT /* such a result is left out */
};

struct map_case {
    const struct map_spec *spec;
    const char *sizes;
    int64_t tensors; /* of a list */
    int skip;        /* leading dims that are left out, all 1 */
    enum memory memory;
    bool strided;  /* elements of the last dim are 2 or 3 places apart */
    bool mixed;    /* every other tensor of dtype "float" is f32 */
    bool dithered; /* rounded at random */
};

/* Arguments of a pass, their dims as numbers in `text` (MAP_DIMS_BYTES each). Returns how many; at most
 * CASE_ARGS. */
enum { MAP_DIMS_BYTES = 64 };
struct map_given {
    struct map_arg arg[CASE_ARGS];
    char text[CASE_ARGS][MAP_DIMS_BYTES];
    int n;
    int results; /* of the forward pass */
};
void map_arguments(struct map_given *out, const struct test_case *c);
const struct map_arg *map_find(const struct map_given *given,
                               const char *name);      /* NULL where there is none */
int64_t map_size(const char *sizes, const char *name); /* -1: not there */
/* The dtype of an argument in a run; F64 in the reference, where it follows the problem. */
lathe_dtype map_dtype(const struct map_arg *arg, int number, const struct test_case *c, struct case_run run);

/* maps.c and lists.c: check one case, by all of its runs. */
void map_check(const struct bench *bench, const struct test_case *c, struct tally *tally);
void list_check(const struct bench *bench, const struct test_case *c, struct tally *tally);
/* "act_silu backward a=1,..." */
void map_name(const struct test_case *c, const char *pass, char *out, size_t size);
/* map_matrix.c: cases of "elementwise", "lists", "packed" and "linear". */
void cases_of_maps(struct case_list *list, const char *group, lathe_pass pass, bool quick);

#endif
