/*
 * features.h: what not every template of attention takes (gen/plan/serves.h): rows of features.c, by number.
 */
#ifndef LATHE_ATTENTION_FEATURES_H
#define LATHE_ATTENTION_FEATURES_H

#include <stdint.h>

enum attention_feature {
    HAS_PACKED, /* sequences that lie one behind the other */
    HAS_USED,   /* lengths of batches */
    HAS_PAGES,
    HAS_ODD_PAGES, /* of a size that boxes of TMA do not have */
    HAS_PAIR,      /* q2 and k2 */
    HAS_V_IS_K,
    HAS_ODD_V_IS_K,        /* and a head dim that is no multiple of 8 */
    HAS_FOLDED,            /* strides that TMA does not take */
    HAS_COMBINE,           /* by which parts of a row become one */
    HAS_LISTS,             /* of blocks of keys, by the mask */
    HAS_ODD_LISTS,         /* whose blocks are no multiples of 16 keys */
    HAS_ONE_ORDER,         /* of sums, in the backward pass */
    HAS_PAIR_SUMS,         /* gradients of inputs that pairs add to */
    HAS_ORDERED_SEQUENCES, /* sums of sequences in one order */
    /* No template takes what follows. */
    HAS_ORDERED_INPUTS,
    HAS_UNALIGNED_DO,
    HAS_KEPT_SEQUENCES,
    HAS_MODS_OF_PAGES,
    HAS_UNALIGNED_PAGES,
    HAS_UNALIGNED_PARTS,
    HAS_ODD_DIMS,
    HAS_ODD_PAIR,
    HAS_NARROW_PAGES,    /* keys of 8 bits */
    HAS_MOD_OF_PAIR,     /* key_mod beside k2, or of keys that are values */
    HAS_NARROW_ADJOINTS, /* gradients of mods of keys of 8 bits */
    HAS_NARROW_QUERY     /* queries of 8 bits, and so keys and values */
};

#define FEATURE(name)         (UINT64_C(1) << HAS_##name)
#define FEATURES_OF_SEQUENCES (FEATURE(PACKED) | FEATURE(USED) | FEATURE(PAGES))

#endif
