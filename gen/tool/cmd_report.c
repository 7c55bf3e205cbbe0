/*
 * cmd_report.c: `lathe report`: what this machine has, for a report of a fault.
 */
#include <stdio.h>

#include "gen/tool/tool.h"
#include "lathe_inspect.h"

int cmd_report(const struct options *o)
{
    char *text = NULL;
    lathe_error err = {0};
    (void)o;
    if (lathe_report(&text, &err) != LATHE_OK)
        return complain_error(&err);
    const bool printed = fputs(text, stdout) >= 0;
    lathe_text_free(text);
    return printed ? CODE_OK : CODE_ENVIRONMENT;
}
