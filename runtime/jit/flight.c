/*
 * flight.c: a table in which each value is built once, however many threads ask for it at the same time. In:
 * keys of a fixed size, zero-padded; out: values, which stay in the table until it is destroyed. Who finds no
 * value builds it outside the lock while the others wait. A failure goes to those who waited, with its error;
 * the next one to ask tries again. Used for kernels and for modules.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/base.h"
#include "runtime/jit/flight.h"

enum slot_state { SLOT_BUILDING, SLOT_READY, SLOT_FAILED };

struct flight_slot {
    unsigned char key[FLIGHT_KEY_BYTES];
    struct flight_slot *next;
    enum slot_state state;
    int waiting; /* threads that still have to read a failure */
    void *value;
    lathe_status status;
    lathe_error error;
};

static struct flight_slot **bucket_of(struct flight *f, const unsigned char *key)
{
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a over words; keys are not chosen by an adversary */
    for (size_t i = 0; i < FLIGHT_KEY_BYTES; i += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, key + i, sizeof word);
        hash = (hash ^ word) * 0x100000001b3u;
        hash ^= hash >> 29;
    }
    return &f->bucket[hash % FLIGHT_BUCKETS];
}

void lathe__flight_init(struct flight *f)
{
    memset(f, 0, sizeof *f);
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->done, NULL);
}

void lathe__flight_destroy(struct flight *f, void (*drop)(void *value))
{
    for (int i = 0; i < FLIGHT_BUCKETS; i++) {
        struct flight_slot *slot = f->bucket[i];
        while (slot) {
            struct flight_slot *next = slot->next;
            drop(slot->value);
            free(slot);
            slot = next;
        }
        f->bucket[i] = NULL;
    }
    pthread_cond_destroy(&f->done);
    pthread_mutex_destroy(&f->lock);
}

static struct flight_slot *find(struct flight_slot *first, const unsigned char *key)
{
    while (first && memcmp(first->key, key, FLIGHT_KEY_BYTES) != 0)
        first = first->next;
    return first;
}

/* Wait for the builder; the last one to read a failure frees the slot, which is off the table by then. */
static lathe_status await(struct flight *f, struct flight_slot *slot, void **value, lathe_error *err)
{
    slot->waiting++;
    while (slot->state == SLOT_BUILDING)
        pthread_cond_wait(&f->done, &f->lock);
    slot->waiting--;
    if (slot->state == SLOT_READY) {
        *value = slot->value;
        return LATHE_OK;
    }
    const lathe_status status = slot->status;
    if (err)
        *err = slot->error;
    if (slot->waiting == 0)
        free(slot);
    return status;
}

static struct flight_slot *add(struct flight_slot **bucket, const unsigned char *key)
{
    struct flight_slot *slot = calloc(1, sizeof *slot);
    if (!slot)
        return NULL;
    memcpy(slot->key, key, FLIGHT_KEY_BYTES);
    slot->state = SLOT_BUILDING;
    slot->next = *bucket;
    *bucket = slot;
    return slot;
}

lathe_status lathe__flight_begin(struct flight *f, const unsigned char *key, void **value,
                                 struct flight_slot **slot, lathe_error *err)
{
    struct flight_slot **bucket = bucket_of(f, key);
    lathe_status status = LATHE_OK;
    *value = NULL;
    *slot = NULL;
    pthread_mutex_lock(&f->lock);
    struct flight_slot *found = find(*bucket, key);
    if (found && found->state == SLOT_READY)
        *value = found->value;
    else if (found)
        status = await(f, found, value, err);
    else if ((*slot = add(bucket, key)) == NULL)
        status = lathe__fail_memory(err);
    pthread_mutex_unlock(&f->lock);
    return status;
}

static void unlink_slot(struct flight *f, const struct flight_slot *slot)
{
    struct flight_slot **at = bucket_of(f, slot->key);
    while (*at != slot)
        at = &(*at)->next;
    *at = slot->next;
}

void lathe__flight_end(struct flight *f, struct flight_slot *slot, void *value, lathe_status status,
                       const lathe_error *err)
{
    pthread_mutex_lock(&f->lock);
    slot->value = value;
    slot->state = value ? SLOT_READY : SLOT_FAILED;
    slot->status = status;
    if (!value) {
        if (err)
            slot->error = *err;
        unlink_slot(f, slot);
        if (slot->waiting == 0)
            free(slot);
    }
    pthread_cond_broadcast(&f->done);
    pthread_mutex_unlock(&f->lock);
}
