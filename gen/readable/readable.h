/*
 * readable.h: what a person reads of a kernel's text: without what the kernel does not use.
 */
#ifndef LATHE_GEN_READABLE_H
#define LATHE_GEN_READABLE_H

#include <stdbool.h>
#include <stddef.h>

struct text_buf;

/* A CUDA text that compiles alone, less the branches of `if constexpr` that its numbers rule out, and less
   the declarations that no kernel uses. Its machine code is the same. A text that is not understood is given
   as it is; `out` fails where memory runs out. */
void readable_text(const char *text, size_t size, struct text_buf *out);

#endif
