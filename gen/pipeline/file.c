/*
 * file.c: a kernel as one CUDA file, as people read and nvcc compiles it. In: its texts and recipe, the spec
 * and signature that they are of, the device. Out: the caller's text.
 */
#include "gen/base/text.h"
#include "gen/ir/spec.h"
#include "gen/arguments/problem.h"
#include "gen/pipeline/source.h"
#include "lathe_types.h"
#include "runtime/recipe/recipe.h"

#include <inttypes.h>

static void add_grid(struct text_buf *t, const struct signature *sig, const struct product *p)
{
    const char *times = "";
    if (p->scale != 1 || p->n == 0) {
        text_add(t, "%" PRId64, p->scale);
        times = " * ";
    }
    for (int i = 0; i < p->n; i++, times = " * ") {
        const int sym = p->factor[i].sym;
        if (sym == FACTOR_ROW_TILES)
            text_add(t, "%stiles(of 16 or %d rows of a key head)", times, p->factor[i].plus);
        else if (sym == FACTOR_KEY_PARTS || sym == FACTOR_EVEN_KEY_PARTS)
            text_add(t, "%sparts(of keys, for %d blocks)", times, p->factor[i].tile);
        else if (p->factor[i].times > 1)
            text_add(t, "%sceil(%d * %s / %d)", times, p->factor[i].times, sym_name(sig, sym),
                     p->factor[i].tile);
        else if (p->factor[i].tile == 1)
            text_add(t, "%s%s", times, sym_name(sig, sym));
        else if (p->factor[i].tile == INT32_MAX)
            text_add(t, "%s(%s ? 1 : 0)", times, sym_name(sig, sym));
        else
            text_add(t, "%sceil(%s / %d)", times, sym_name(sig, sym), p->factor[i].tile);
    }
    if (p->grouped)
        text_add(t, " where %s > %s", sym_name(sig, SYM_H), sym_name(sig, SYM_H_K));
}

static void add_opening(struct text_buf *t, const struct source *s, const struct ir *ir,
                        const struct signature *sig, const struct device *device)
{
    text_add(t, "// %s\n// Made by lathe %s from the spec %s for %s.\n", s->label, LATHE_VERSION, ir->name,
             device->arch);
    for (int i = 0; i < ir->n_params; i++)
        text_add(t, "// Parameter: %s = %.17g (%s:%d)\n", ir->param[i].name, ir->param[i].value,
                 ir->file[ir->n_files - 1], ir->param[i].line);
    text_add(t, "// Compile: nvcc -cubin -std=c++20 -arch=%s FILE.cu\n// Launch, in order:\n", device->arch);
    for (int i = 0; i < s->n_launches; i++) {
        const struct launch *l = &s->launch[i];
        text_add(t, "//   %s: blocks ", l->entry);
        add_grid(t, sig, &l->grid);
        if (l->grid_share > 1)
            text_add(t, ", divided by %d and rounded up", l->grid_share);
        text_add(t, "; %d threads, %d bytes of dynamic shared memory; %u bytes of parameters\n", l->threads,
                 l->smem_bytes, l->param_bytes);
    }
    text_add(t, "#ifdef __NVCC__ // constants of the headers that this kernel leaves unused\n"
                "#pragma nv_diag_suppress 177\n#endif\n");
}

void emit_file(const struct source *source, const struct ir *ir, const struct signature *sig,
               const struct device *device, struct text_buf *out)
{
    add_opening(out, source, ir, sig, device);
    emit_inline(source, out);
}
