/*
 * fake_nccl.c: a libnccl that pretends, for ranks that are threads of one process and memory of the host: the
 * entries that runtime/dist/nccl.c opens. A group keeps its sends and receives until ncclGroupEnd, where all
 * ranks meet. What the entries must keep to is checked as NCCL would: sizes of a send and its receive agree,
 * nothing waits for a rank that has aborted.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 8, MOST_OPS = 64, UINT8 = 1, FLOAT32 = 7, FLOAT64 = 8, REMOTE_ERROR = 6 };

struct op {
    char kind; /* 's'end, 'r'eceive, reduce to 'R'oot */
    const void *from;
    void *to;
    size_t count;
    int type, peer;
};

struct ncclComm {
    int rank, ranks, n;
    struct op op[MOST_OPS];
};
struct id {
    char bytes[128];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct ncclComm *member[MOST_RANKS];
static int here, broken;
static unsigned round_number;
static _Thread_local struct ncclComm *own; /* a rank is a thread */

/* All of them, or an error where one has aborted. */
static int meet(int ranks)
{
    pthread_mutex_lock(&lock);
    const unsigned mine = round_number;
    if (!broken && ++here == ranks) {
        here = 0;
        round_number++;
        pthread_cond_broadcast(&changed);
    }
    while (!broken && mine == round_number)
        pthread_cond_wait(&changed, &lock);
    const int result = mine == round_number ? REMOTE_ERROR : 0;
    pthread_mutex_unlock(&lock);
    return result;
}

static size_t bytes_of(int type)
{
    return type == FLOAT64 ? 8 : type == FLOAT32 ? 4 : 1;
}

/* Send number k of `from` to `to`; NULL: there is none. */
static const struct op *send_to(const struct ncclComm *from, int to, int k)
{
    for (int i = 0; i < from->n; i++)
        if (from->op[i].kind == 's' && from->op[i].peer == to && k-- == 0)
            return &from->op[i];
    return NULL;
}

static void add(const struct op *mine, int ranks, int number)
{
    for (int r = 0; r < ranks; r++)
        for (size_t i = 0; i < mine->count; i++)
            if (mine->type == FLOAT64)
                ((double *)mine->to)[i] =
                    (r ? ((double *)mine->to)[i] : 0) + ((const double *)member[r]->op[number].from)[i];
            else
                ((float *)mine->to)[i] =
                    (r ? ((float *)mine->to)[i] : 0) + ((const float *)member[r]->op[number].from)[i];
}

static int run_group(struct ncclComm *c)
{
    int taken[MOST_RANKS] = {0};
    int result = meet(c->ranks);
    for (int i = 0; i < c->n && result == 0; i++) {
        const struct op *mine = &c->op[i];
        if (mine->kind == 'R' && mine->peer == c->rank)
            add(mine, c->ranks, i);
        if (mine->kind != 'r')
            continue;
        const struct op *other = send_to(member[mine->peer], c->rank, taken[mine->peer]++);
        if (!other || other->count != mine->count)
            abort(); /* NCCL would hang */
        memcpy(mine->to, other->from, mine->count);
    }
    if (result == 0)
        result = meet(c->ranks);
    c->n = 0;
    return result;
}

static int take(struct ncclComm *c, struct op op)
{
    if (c->n == MOST_OPS)
        abort();
    c->op[c->n++] = op;
    return 0;
}

int ncclGetUniqueId(struct id *id)
{
    memset(id, 0, sizeof *id);
    strcpy(id->bytes, "pretended");
    return 0;
}

int ncclCommInitRank(struct ncclComm **out, int ranks, struct id id, int rank)
{
    struct ncclComm *c = calloc(1, sizeof *c);
    if (!c || ranks > MOST_RANKS || strcmp(id.bytes, "pretended") != 0)
        return 4;
    c->rank = rank;
    c->ranks = ranks;
    own = member[rank] = *out = c;
    return meet(ranks);
}

int ncclCommDestroy(struct ncclComm *c)
{
    const int result = meet(c->ranks); /* others may read its list */
    free(c);
    return result;
}

int ncclCommAbort(struct ncclComm *c)
{
    (void)c; /* others may read its list */
    pthread_mutex_lock(&lock);
    broken = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return 0;
}

int ncclCommGetAsyncError(struct ncclComm *c, int *result)
{
    (void)c;
    pthread_mutex_lock(&lock);
    *result = broken ? REMOTE_ERROR : 0;
    pthread_mutex_unlock(&lock);
    return 0;
}

int ncclGroupStart(void)
{
    return 0;
}

int ncclGroupEnd(void)
{
    return run_group(own);
}

int ncclSend(const void *from, size_t count, int type, int peer, struct ncclComm *c, void *stream)
{
    (void)stream;
    return take(c, (struct op){'s', from, NULL, count * bytes_of(type), type, peer});
}

int ncclRecv(void *to, size_t count, int type, int peer, struct ncclComm *c, void *stream)
{
    (void)stream;
    return take(c, (struct op){'r', NULL, to, count * bytes_of(type), type, peer});
}

int ncclReduce(const void *from, void *to, size_t count, int type, int op, int root, struct ncclComm *c,
               void *stream)
{
    (void)op, (void)stream;
    return take(c, (struct op){'R', from, to, count, type, root});
}

int ncclAllGather(const void *from, void *to, size_t count, int type, struct ncclComm *c, void *stream)
{
    const size_t bytes = count * bytes_of(type);
    (void)stream;
    for (int r = 0; r < c->ranks; r++) {
        take(c, (struct op){'s', from, NULL, bytes, type, r});
        take(c, (struct op){'r', NULL, (char *)to + (size_t)r * bytes, bytes, type, r});
    }
    return run_group(c);
}

int ncclReduceScatter(const void *from, void *to, size_t count, int type, int op, struct ncclComm *c,
                      void *stream)
{
    for (int r = 0; r < c->ranks; r++)
        ncclReduce((const char *)from + (size_t)r * count * bytes_of(type), to, count, type, op, r, c,
                   stream);
    return run_group(c);
}

const char *ncclGetErrorString(int result)
{
    return result == REMOTE_ERROR ? "remote process exited or there was a network error" : "no error";
}
