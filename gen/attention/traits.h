/*
 * traits.h: what the templates of attention are beside the numbers of a plan (struct attention_traits), by
 * their rows in templates.c.
 */
#ifndef LATHE_ATTENTION_TRAITS_H
#define LATHE_ATTENTION_TRAITS_H

#include <stdbool.h>

struct attention_traits;
struct kernel_request;
struct plan;

/* Portable kernels, which go by mma.sync; the second: of the whole backward pass. */
extern const struct attention_traits attention_portable, attention_portable_back;
/* Of warpgroups, one of which loads; in the backward pass by head dims. */
extern const struct attention_traits attention_forward_sm90, attention_narrow_sm90, attention_wide_sm90,
    attention_latent_sm90;

/* Of the kernel of the forward pass: the template's own or, in front of a backward pass, a portable one. That
   of the backward pass has those of its row. */
const struct attention_traits *attention_forward_traits(const struct plan *plan);
/* Bytes behind the row values of a backward pass's tile, which say where its norms are. */
int attention_record_bytes(const struct plan *plan);
/* Is there a template for such head dims that keeps rows whole? */
bool attention_whole_rows(const struct kernel_request *r);

#endif
