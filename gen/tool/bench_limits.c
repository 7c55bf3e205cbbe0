/*
 * bench_limits.c: what data sheets promise of a device: 16-bit tensor cores without sparsity, with sums in
 * f32, and memory. In: the name that the driver gives it. A name of several rows is the first's that is a
 * part of it.
 */
#include "gen/tool/bench.h"

#include <string.h>

static const struct {
    const char *part;
    double tflops, tbs;
} SHEETS[] = {
    {"GH200", 989, 4.0},
    {"H200", 989, 4.8},
    {"H100 PCIe", 756, 2.0},
    {"H100 NVL", 835, 3.9},
    {"H100", 989, 3.35},
    {"B200", 2250, 8.0},
    {"A100-SXM4-80", 312, 2.039},
    {"A100 80GB PCIe", 312, 1.935},
    {"A100", 312, 1.555},
    {"A40", 149.7, 0.696},
    {"A10G", 70, 0.6},
    {"A10", 125, 0.6},
    {"A30", 165, 0.933},
    {"L40S", 362, 0.864},
    {"L40", 181, 0.864},
    {"L4", 121, 0.3},
    {"RTX 4090", 165.2, 1.008},
    {"RTX 3090", 71, 0.936},
};

double bench_limit(const char *device, bool is_flop)
{
    for (size_t i = 0; i < sizeof SHEETS / sizeof *SHEETS; i++)
        if (strstr(device, SHEETS[i].part))
            return is_flop ? SHEETS[i].tflops : SHEETS[i].tbs;
    return 0;
}
