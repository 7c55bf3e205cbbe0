/*
 * transport.h: ranks that are threads of this process and share one device: what they send each other is
 * copied on the receiver's stream, behind an event of the sender's.
 */
#ifndef LATHE_TESTS_GPU_TRANSPORT_H
#define LATHE_TESTS_GPU_TRANSPORT_H

#include "device.h"
#include "lathe_dist.h"

enum { MOST_RANKS = 8 };

/* What goes wrong on purpose: the first message of the last rank but one to the last one is not copied; or
   ranks from 2 on get what rank 1 sends where rank 0's is expected, and the other way round. */
enum message_fault { MESSAGE_WHOLE, MESSAGE_DROPPED, MESSAGES_SWAPPED };

struct thread_transport;
/* NULL: err says why. All ranks have ended their calls, and their streams are done, when it is closed. */
struct thread_transport *thread_transport_open(const struct device *device, lathe_ctx *ctx, int ranks,
                                               enum message_fault fault, lathe_error *err);
void thread_transport_close(struct thread_transport *transport);
/* One rank's end, which belongs to one thread at a time. */
lathe_transport thread_transport_of(struct thread_transport *transport, int rank);

#endif
