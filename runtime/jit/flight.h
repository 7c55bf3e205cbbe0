/*
 * flight.h: a table in which each value is built once, however many threads ask.
 */
#ifndef LATHE_RT_FLIGHT_H
#define LATHE_RT_FLIGHT_H

#include <pthread.h>

#include "lathe.h"

enum { FLIGHT_KEY_BYTES = 144, FLIGHT_BUCKETS = 256 };
struct flight_slot;
struct flight {
    pthread_mutex_t lock;
    pthread_cond_t done;
    struct flight_slot *bucket[FLIGHT_BUCKETS];
};
void lathe__flight_init(struct flight *f);
/* Free all slots; `drop` is called for each value. No thread may be inside. */
void lathe__flight_destroy(struct flight *f, void (*drop)(void *value));
/* LATHE_OK and *value: it is there (built now by another thread, perhaps). LATHE_OK and *value NULL: the
   caller has to build it and to call lathe__flight_end with *slot. Other: the builder failed, with its error.
   `key` is FLIGHT_KEY_BYTES long, zero-padded. */
lathe_status lathe__flight_begin(struct flight *f, const unsigned char *key, void **value,
                                 struct flight_slot **slot, lathe_error *err);
/* value NULL: failed with `status` and *err; the slot is removed, so that a later call tries again. */
void lathe__flight_end(struct flight *f, struct flight_slot *slot, void *value, lathe_status status,
                       const lathe_error *err);

#endif
