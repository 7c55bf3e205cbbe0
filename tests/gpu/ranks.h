/*
 * ranks.h: one problem over ranks that share one device: the whole of it in host memory, and calls with a
 * part.
 */
#ifndef LATHE_TESTS_GPU_RANKS_H
#define LATHE_TESTS_GPU_RANKS_H

#include "cases.h"
#include "transport.h"

enum { MOST_VALUES = 20, WHOLE = -1 };

enum cut { CUT_EVEN, CUT_UNEVEN /* one rank of four has no tokens */ };
enum how {
    QUICK = 1,         /* it is of the quick form, too */
    FAULTS = 2,        /* it is run with messages that go wrong, too */
    ON_COMM = 4,       /* options.comm_stream */
    ON_SECOND = 8,     /* options.second_compute_stream */
    FEW_HEADS = 16,    /* options.heads_at_once = 2 */
    MERGED = 32,       /* options.most_bytes = 1 */
    PARALLEL = 64,     /* options.parallel_states */
    PACKED_CALL = 128, /* sequences of one batch, by cu_q */
};

struct ranks_case {
    const char *spec;
    lathe_scheme scheme;
    int ranks;
    lathe_shards shards;
    enum cut cut;
    int h, h_kv, d;
    int tokens;  /* keys of a rank; uneven: about as many */
    int queries; /* scheme keys: of all ranks; 0: each rank has those of its tokens */
    int interleave;
    int passes; /* 1: forward alone; 2: both */
    int how;    /* enum how */
};

struct value { /* a tensor of the problem, or a number */
    char name[16];
    lathe_dtype dtype;
    int ndim;
    int64_t shape[CASE_DIMS];
    bool used[2];         /* in the passes */
    bool written[2];      /* by them */
    int cut;              /* the dim that is cut between ranks; -1: all have all of it */
    bool by_query;        /* into shards of queries, else of keys or tokens */
    bool is_share;        /* the gradient of an input that all ranks have: each rank's part of the sum */
    unsigned char *bytes; /* of results: what one rank left */
    size_t size;
};

struct problem {
    const struct ranks_case *c;
    lathe_spec *spec;
    bool linear;
    int n;
    struct value value[MOST_VALUES];
    int64_t q_edge[MOST_RANKS + 1], kv_edge[MOST_RANKS + 1];
    int64_t q_tokens[MOST_RANKS], kv_tokens[MOST_RANKS];
    int32_t window;
    int h, h_kv, d;
};

/* small: as the host device takes it; values: of all tensors that are read, else there are shapes. False: err
   says why; problem_close either way. */
bool problem_open(struct problem *p, const struct ranks_case *c, bool small, bool values, lathe_error *err);
void problem_close(struct problem *p);
/* Streams may be NULL. */
lathe_dist_options problem_options(const struct problem *p, lathe_stream comm, lathe_stream second);

struct call_of_rank { /* the arguments of a pass: a rank's part of each, or WHOLE */
    int rank, n;
    const struct value *of[MOST_VALUES];
    lathe_arg arg[MOST_VALUES];
    int64_t shape[MOST_VALUES][CASE_DIMS];
    size_t size[MOST_VALUES];
};
/* Without memory, but for numbers. */
void call_of_rank(const struct problem *p, lathe_pass pass, int rank, struct call_of_rank *out);
/* Device memory, with values or poison. call_of_rank_free either way. */
bool call_of_rank_fill(const struct problem *p, lathe_pass pass, const struct device *device,
                       struct call_of_rank *call);
void call_of_rank_free(const struct device *device, struct call_of_rank *call);
/* The part of a value's bytes that is the rank's, in `out`. */
void problem_part(const struct problem *p, const struct value *v, int rank, unsigned char *out);

#endif
