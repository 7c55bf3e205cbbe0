/*
 * code_text.h: a C++ text without what its compiler does not see: code_text.c.
 */
#ifndef LATHE_EMULATE_CODE_TEXT_H
#define LATHE_EMULATE_CODE_TEXT_H

#include <stddef.h>

/* Writes the code of a text, at most `size` bytes, to `out`; returns how many. */
size_t code_text(const char *text, size_t size, char *out);

#endif
