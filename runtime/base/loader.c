/*
 * loader.c: whether this program may open libraries at run time. A fully static one of glibc has a C library
 * of its own beside that of every library it opens, and ends in a crash inside of them. musl refuses by
 * dlerror's words.
 */
#include <link.h>

#include "runtime/base/base.h"

/* Of the program itself, which comes first: a dynamic one names its loader. */
static int find_loader(struct dl_phdr_info *info, size_t size, void *found)
{
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_INTERP)
            *(bool *)found = true;
    return 1; /* the others do not count */
}

lathe_status lathe__need_loader(const char *what, lathe_error *err)
{
    bool found = false;
#ifdef __GLIBC__
    dl_iterate_phdr(find_loader, &found);
#else
    (void)find_loader;
    found = true;
#endif
    if (found)
        return LATHE_OK;
    return lathe__fail(
        err, LATHE_CUDA,
        "%s cannot be opened: this program is linked statically with all of glibc (-static), which cannot "
        "open libraries at run time; link libc dynamically, and the rest as you like (-Wl,-Bstatic "
        "-llathe -Wl,-Bdynamic)",
        what);
}
