/*
 * bytes.c: numbers in files, little-endian whatever the host.
 */
#include "runtime/base/base.h"

void lathe__store_le(unsigned char *p, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        p[i] = (unsigned char)(value >> (8 * i));
}

uint64_t lathe__load_le(const unsigned char *p, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)p[i] << (8 * i);
    return value;
}
