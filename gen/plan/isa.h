/*
 * isa.h: the instructions that a template is written for. A further set is a row of isas.def.
 */
#ifndef LATHE_GEN_ISA_H
#define LATHE_GEN_ISA_H

#include <stdbool.h>

struct device;

enum isa { /* ISA_SM80, ... */
#define ISA(name, sm, arch, has, gpu, fmas) ISA_##name,
#include "gen/plan/isas.def"
#undef ISA
           ISA_COUNT
};

struct isa_row { /* see isas.def */
    int sm;
    const char *arch;
    const char *has;
    const char *gpu;
    double fmas;
};
extern const struct isa_row isas[ISA_COUNT];

/* The sets that code for this device may use: bit 1 << isa of each. */
unsigned isas_of(const struct device *device);
static inline bool isa_among(enum isa isa, unsigned set)
{
    return (set >> isa & 1) != 0;
}
/* Is there a set among them that only code for one architecture has? */
bool isa_is_own(const struct device *device);
/* False: code for this device has none of it; says why in `why` (REASON_BYTES). */
bool isa_serves(enum isa isa, const struct device *device, char *why);

#endif
