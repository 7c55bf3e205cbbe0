/*
 * code_main.c: the program lathe_code, which tests/stamps.sh calls: the text of standard input as code_text.c
 * leaves it, on standard output.
 */
#include "code_text.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    enum { MOST_BYTES = 1 << 24 };
    char *text = malloc(2 * (size_t)MOST_BYTES);
    const size_t size = text ? fread(text, 1, MOST_BYTES, stdin) : 0;
    const bool good = text && size < MOST_BYTES && !ferror(stdin);
    const size_t code = good ? code_text(text, size, text + MOST_BYTES) : 0;
    const bool written = good && fwrite(text + MOST_BYTES, 1, code, stdout) == code && fflush(stdout) == 0;
    free(text);
    return written ? EXIT_SUCCESS : EXIT_FAILURE;
}
