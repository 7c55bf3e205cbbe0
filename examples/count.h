/*
 * count.h: how many of something a program is asked for on its command line.
 */
#ifndef LATHE_EXAMPLES_COUNT_H
#define LATHE_EXAMPLES_COUNT_H

#include <stdio.h>
#include <stdlib.h>

/* A whole number from 1 to `most`; anything else ends the program with a sentence and the exit code 2. */
static inline int count_of(const char *text, const char *what, int most)
{
    char *end = NULL;
    const long count = strtol(text, &end, 10);
    if (end != text && *end == 0 && count >= 1 && count <= most)
        return (int)count;
    fprintf(stderr, "%s: expected a whole number from 1 to %d, given '%s'\n", what, most, text);
    exit(2);
}

#endif
