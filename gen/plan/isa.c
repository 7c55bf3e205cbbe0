/*
 * isa.c: sets of instructions, and which of them a device has. In: a device. Out: a set of sets, or a
 * sentence.
 */
#include "gen/plan/isa.h"
#include "gen/plan/request.h"
#include "runtime/recipe/recipe.h"

#include <stdio.h>
#include <string.h>

const struct isa_row isas[ISA_COUNT] = {
#define ISA(name, sm, arch, has, gpu, fmas) [ISA_##name] = {sm, arch, has, gpu, fmas},
#include "gen/plan/isas.def"
#undef ISA
};

static bool has(const struct device *device, const struct isa_row *row)
{
    return row->arch ? strcmp(device->arch, row->arch) == 0 : device->sm >= row->sm;
}

unsigned isas_of(const struct device *device)
{
    unsigned set = 0;
    for (int i = 0; i < ISA_COUNT; i++)
        set |= has(device, &isas[i]) ? 1u << i : 0;
    return set;
}

bool isa_is_own(const struct device *device)
{
    bool own = false;
    for (int i = 0; i < ISA_COUNT; i++)
        own = own || (isas[i].arch && has(device, &isas[i]));
    return own;
}

bool isa_serves(enum isa isa, const struct device *device, char *why)
{
    const struct isa_row *row = &isas[isa];
    if (has(device, row))
        return true;
    if (row->arch && device->sm == row->sm)
        snprintf(why, REASON_BYTES, "code for %s, which runs on later devices, too; it needs %s (%s)",
                 device->arch, row->arch, row->has);
    else
        snprintf(why, REASON_BYTES, "compute capability %d.%d; it needs %d.%d (%s)", device->sm / 10,
                 device->sm % 10, row->sm / 10, row->sm % 10, row->has);
    return false;
}
