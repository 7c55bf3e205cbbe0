/*
 * commands.h: the tables of the tool: its commands and their options. Read by the command line, by help, and
 * by what writes the manual page and completions, so that none of them can say what is not so.
 */
#ifndef LATHE_TOOL_COMMANDS_H
#define LATHE_TOOL_COMMANDS_H

#include <stddef.h>

#include "gen/tool/tool.h"

struct command {
    const char *name;
    unsigned bit;
    int least; /* operands */
    int most;
    const char *operands;
    const char *summary;
    const char *details;
    int (*run)(const struct options *o);
};

struct option_row;
/* Takes the text of an option, NULL for a flag. False: it has complained. */
typedef bool option_taker(const struct option_row *row, const char *text, struct options *o);

struct option_row {
    const char *name;
    unsigned commands;
    const char *value; /* NULL: a flag */
    const char *help;
    option_taker *take;
    size_t member; /* of struct options, for takers of any one of its type */
    bool repeats;  /* of the others a second one would put the first aside */
};
enum { MOST_OPTIONS = 48 };

/* The last command and the last option have no name; about and exit_codes are lines of `lathe --help`. */
struct tool_tables {
    const struct command *commands;
    const struct option_row *options;
    const char *about;
    const char *exit_codes;
};
extern const struct tool_tables tool_tables;

/* version.c: `lathe --version`. */
void print_version(void);

/* ---- options.c: takers ------------------------------------------------------------------------- */

option_taker option_ir;
option_taker option_text, option_flag, option_count, option_real, option_pair, option_file; /* of a member */
option_taker option_pass, option_passes, option_arch, option_problems, option_device, option_seed,
    option_template, option_pixels, option_ranks;

/* ---- manual.c --------------------------------------------------------------------------------- */

int cmd_manual(const struct options *o);
int cmd_completion(const struct options *o);

#endif
