/*
 * cases.h: which cases there are; harness.h has what runs one of them.
 *
 * A case is a spec with sizes, a dtype, a memory layout and a kind of data. Neighbours in the list that share
 * what is compiled in make a job: one process, which compiles each of its kernels once.
 */
#ifndef LATHE_TESTS_EMULATE_CASES_H
#define LATHE_TESTS_EMULATE_CASES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "emulate.h"
#include "own_specs.h"
#include "gen/gen.h"
#include "runtime/rt.h"

/* ---- cases.c: which cases there are -------------------------------------------------------------- */

enum layout {
    LAYOUT_COMPACT,
    LAYOUT_SWAPPED,    /* tokens before heads */
    LAYOUT_PADDED,     /* aligned rows with poison before and between them */
    LAYOUT_MISALIGNED, /* the same, rows aligned to their element alone */
    LAYOUT_SPREAD,     /* q, k, v and do with a last stride other than 1; do is one value */
    LAYOUT_COUNT
};

#define SKEWED_SPREAD 6.3

enum {
    SEQUENCES_ALONE = 8
}; /* so many packed sequences of attention: some have queries or keys alone, full of NaN */

struct test_case {
    int place; /* in the order in which groups made their cases */
    const char *group;
    lathe_pass pass;
    const char *spec;      /* the name of a shipped spec, or of the text below */
    const char *text;      /* of a spec; NULL: shipped */
    const char *reference; /* what the host device computes in its place, with doubles; NULL: the same */
    lathe_dtype dtype;
    int sm;                    /* compute capability that is planned for */
    const char *template_name; /* NULL: a portable one */
    const char *tile;          /* a row of tiles by its name; NULL: any */
    int blocks;                /* that take tiles in turn; 0: as planned */
    int beside;             /* that run at the same time, one on each multiprocessor of a device that has no
                               more; 0: one after the other, of a device as large as there are */
    int64_t dim[SYM_COUNT]; /* -1: not in this problem */
    int leading;            /* rowwise: leading dims, 1 to 3; elementwise: those that are left out */
    const char *sizes;      /* elementwise: "b=2,t=5": dims with names of their own; NULL: other kinds */
    const char *dtypes;     /* the same: "m=f32": dtypes of tensors that are not `dtype` */
    enum layout layout;
    bool has_q_start;
    int32_t q_start;
    int32_t kv_start; /* attention, where dim[SYM_ALL_KV] says how many keys there are in all */
    int32_t h_start;  /* the same of dim[SYM_ALL_H] */
    int32_t kv_chunk; /* keys lie in chunks of so many, every kv_step; 0: they do not */
    int32_t kv_step;
    bool skewed;   /* logits of deviation 40: q and k of SKEWED_SPREAD */
    double loud;   /* deviation of q and k, where it is not 0 */
    bool infinite; /* inputs have values of -inf */
    bool absent;   /* what is optional is left out; of a backward pass, gradients excepted */
    unsigned
        unwanted; /* backward: a bit for each gradient, in the order of the signature, that is left out */
    bool may_refuse;
    const char *without;   /* backward: names of arguments that are left out, between spaces; NULL: none */
    const char *with;      /* linear attention: names of arguments that few calls have, between spaces */
    int64_t ends;          /* the same: where packed sequences end, of t tokens; 0: all are of sequences */
    uint8_t deterministic; /* enum determinism; BATCH: sequences run alone, too */
    bool parts;            /* attention: parts of rows in the place of o and the finals */
    bool in_place;         /* linear attention: last states lie over the first ones */
    double exact; /* of 16 bits: of what rows and gradients may be off by, the part that they are allowed; 0:
                     all */
    bool hollow; /* an input that the spec reads has no elements, which the host device refuses: what a kernel
                    touches is judged, no value */
};
static inline bool case_has_pages(const struct test_case *c) /* of attention */
{
    return c->dim[SYM_PAGE] >= 0;
}
bool case_has(const struct test_case *c, const char *name); /* is it named in `with`? case.c */
struct inline_spec {                                        /* a spec of this test's own */
    const char *name;
    const char *text;
};
extern const char DISTANCES[]; /* a score of two terms of at.q - at.kv, which become one value */
extern const char HASHES[];
extern const char PARTIAL_ROTARY[];

struct case_list {
    int n;
    int capacity;
    struct test_case *item; /* free() */
};
/* Every case of the default run, or of the full one. False: out of memory. */
bool cases_make(struct case_list *list, bool full);
/* cases_folder.c: of every spec in a folder instead. False: there is none. */
bool cases_of_folder(struct case_list *list, const char *folder);
void case_add(struct case_list *list, const struct test_case *c);
/* Without sizes but head dims; free dims are 40. */
struct test_case case_of_attention(const char *group, const char *spec, const char *text, lathe_dtype dtype,
                                   int d, int d_v, int sm);
void group_backward(struct case_list *list, bool full); /* cases_backward.c */
void group_batch(struct case_list *list, bool full);    /* cases_batch.c */
void group_rows(struct case_list *list, bool full);     /* cases_rows.c */
/* cases_selection.c: rows in an order. group_rows() has other cases between them, by whose places dtypes go.
 */
void group_ranks(struct case_list *list);
void group_orders(struct case_list *list);
void group_selections(struct case_list *list);
void group_clusters(struct case_list *list, bool full);     /* cases_clusters.c */
void group_beside(struct case_list *list, bool full);       /* cases_beside.c */
void group_pairs(struct case_list *list, bool full);        /* cases_pairs.c */
void group_masks(struct case_list *list, bool full);        /* cases_masks.c */
void group_scores(struct case_list *list, bool full);       /* cases_scores.c */
void group_given(struct case_list *list);                   /* cases_given.c */
void group_positions(struct case_list *list, bool full);    /* cases_positions.c */
void group_linear(struct case_list *list, bool full);       /* cases_linear.c */
void group_served(struct case_list *list);                  /* cases_served.c */
void group_rules(struct case_list *list);                   /* cases_rules.c */
void group_sequences(struct case_list *list, bool full);    /* cases_sequences.c */
void group_pages(struct case_list *list, bool full);        /* cases_pages.c */
void group_pages_back(struct case_list *list, bool full);   /* cases_pages_back.c */
void group_narrow(struct case_list *list);                  /* cases_narrow.c */
void add_narrow_rows(struct case_list *list);               /* cases_narrow_rows.c */
void group_gathered(struct case_list *list);                /* cases_gathered.c */
void group_fp8(struct case_list *list);                     /* cases_fp8.c */
void group_selected(struct case_list *list, bool full);     /* cases_selected.c */
void group_decode(struct case_list *list, bool full);       /* cases_decode.c */
void group_mla(struct case_list *list, bool full);          /* cases_mla.c */
void group_shards(struct case_list *list);                  /* cases_shards.c */
void group_row_parts(struct case_list *list);               /* cases_parts.c */
void group_f32(struct case_list *list, bool full);          /* cases_f32.c */
void group_f32_backward(struct case_list *list, bool full); /* cases_backward.c */
void group_variants(struct case_list *list, bool full);     /* cases_variants.c */
void case_shape(struct test_case *c, int b, int h, int h_kv, int q, int kv);
bool same_job(const struct test_case *a, const struct test_case *b);
void case_name(const struct test_case *c, char *out, size_t size);
struct device device_of(int sm);

/* ---- cases_map.c: the same for elementwise ------------------------------------------------------------ */

void group_elementwise(struct case_list *list, bool full);
void group_rows_beside(struct case_list *list);
void group_deterministic_maps(struct case_list *list);
/* Gradients of inputs without elements. */
void group_hollow(struct case_list *list);
/* The number behind NAME= in "a=1,b=2"; -1: it is not there. */
int64_t named_size(const char *sizes, const char *name);

#endif
