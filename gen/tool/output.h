/*
 * output.h: files that the tool writes. In: a path and bytes. Out: the whole file under that name, or what
 * was there before. Functions that fail give false, with errno.
 */
#ifndef LATHE_GEN_OUTPUT_H
#define LATHE_GEN_OUTPUT_H

#include <stdbool.h>
#include <stdio.h>

/* Owned by who opened it, until output_close. */
struct output {
    FILE *file;
    char *path;    /* of the file that is made or replaced: behind links */
    char *partial; /* where it is written until it is whole; NULL: in its place */
    bool is_new;   /* there was none */
};

/* Pipes and devices, and files in folders where no other can be made, are written in their place. */
bool output_open(struct output *out, const char *path);
/* `good`: all of it was written; errno says why where it is false. Half a file does not stay. */
bool output_close(struct output *out, bool good);

#endif
