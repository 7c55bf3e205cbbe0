/*
 * manual.c: `lathe manual` and `lathe completion`: the tables of commands and options as a manual page for
 * man(1) and as completions for shells. Both are written when lathe is installed.
 */
#include "gen/tool/commands.h"

#include <stdio.h>
#include <string.h>

static const char *const SHELLS[] = {"bash", "zsh", "fish"};

/* ---- the manual page ---------------------------------------------------------------------------- */

/* Text for roff: no line begins with a dot or a quote, and a hyphen is one. */
static void put_roff(const char *text)
{
    bool begins = true;
    for (const char *c = text; *c; c++) {
        if (begins && (*c == '.' || *c == '\''))
            fputs("\\&", stdout);
        if (*c == '\\')
            fputs("\\e", stdout);
        else if (*c == '-')
            fputs("\\-", stdout);
        else
            putchar(*c);
        begins = *c == '\n';
    }
}

/* Help is wrapped for a terminal: roff wraps again. */
static void put_paragraph(const char *text)
{
    char last = '\n';
    for (const char *c = text; *c; c++) {
        const char one[2] = {*c, 0};
        if (*c == '\n' || (*c == ' ' && last == ' ')) {
            if (last != ' ' && last != '\n')
                putchar(*c == '\n' ? '\n' : ' ');
        } else if (!(*c == ' ' && last == '\n')) {
            put_roff(one);
        }
        last = *c == '\n' ? '\n' : *c;
    }
    if (last != '\n')
        putchar('\n');
}

/* Lines that are indented are a table, `NAME  what it does`, and stay as they are. */
static void put_details(const char *text)
{
    if (!*text)
        return;
    fputs(*text == ' ' ? ".PP\n.nf\n" : ".PP\n", stdout);
    if (*text == ' ')
        put_roff(text);
    else
        put_paragraph(text);
    fputs(*text == ' ' ? ".fi\n" : "", stdout);
}

static void put_options(const struct tool_tables *t, const struct command *c)
{
    for (const struct option_row *row = t->options; row->name; row++) {
        if (!(row->commands & c->bit))
            continue;
        fputs(".TP\n.B ", stdout);
        put_roff(row->name);
        if (row->value) {
            fputs(" \\fR", stdout);
            put_roff(row->value);
        }
        putchar('\n');
        put_paragraph(row->help);
    }
}

int cmd_manual(const struct options *o)
{
    printf(".TH LATHE 1 \"\" \"lathe %s\" \"User Commands\"\n.SH NAME\nlathe \\- shapes GPU kernels from "
           "short Lua "
           "files\n",
           lathe_version());
    fputs(".ad l\n.SH SYNOPSIS\n.B lathe\n.I COMMAND\n[...]\n.SH DESCRIPTION\n", stdout);
    put_paragraph(o->tables->about);
    fputs(".SH COMMANDS\n", stdout);
    for (const struct command *c = o->tables->commands; c->name; c++) {
        fputs(".SS lathe ", stdout);
        put_roff(c->name);
        putchar(' ');
        put_roff(c->operands);
        fputs("\n.PP\n", stdout);
        put_paragraph(c->summary);
        put_details(c->details);
        put_options(o->tables, c);
    }
    fputs(".SH EXIT STATUS\n.nf\n", stdout);
    put_roff(o->tables->exit_codes);
    fputs(".fi\n.SH ENVIRONMENT\n", stdout);
    fputs(".PP\n.nf\n", stdout);
    put_roff(
        "  LATHE_CACHE_DIR         the user's cache of kernels; else $XDG_CACHE_HOME/lathe, else "
        "~/.cache/lathe\n"
        "  LATHE_SYSTEM_CACHE_DIR  the cache that is read and never written (default: "
        "/usr/share/lathe/cache)\n"
        "  LATHE_OFFLINE           nothing is compiled, unless it is empty or 0\n"
        "  LATHE_TEMPLATE          names of templates to plan with, with commas\n"
        "  LATHE_TILE              a row of tiles to plan with, as `lathe tune` names it, for measurements\n"
        "  CUDA_HOME               where the CUDA toolkit is, of which NVRTC is a part\n"
        "  CC, AR                  the C compiler and the archiver of `lathe aot`\n");
    fputs(".fi\n", stdout);
    return CODE_OK;
}

/* ---- completions --------------------------------------------------------------------------------- */

static void put_options_of(const struct tool_tables *t, const struct command *c, const char *before)
{
    for (const struct option_row *row = t->options; row->name; row++)
        if (row->commands & c->bit)
            printf("%s%s", before, row->name);
}

static void put_commands(const struct tool_tables *t)
{
    for (const struct command *c = t->commands; c->name; c++)
        printf("%s%s", c == t->commands ? "" : " ", c->name);
}

static void put_bash(const struct tool_tables *t)
{
    puts("_lathe() {\n"
         "    local word=${COMP_WORDS[COMP_CWORD]} words=\n"
         "    if [ \"$COMP_CWORD\" -eq 1 ]; then");
    fputs("        words='--help --version help ", stdout);
    put_commands(t);
    fputs("'\n    else\n        case ${COMP_WORDS[1]} in\n        help) words='", stdout);
    put_commands(t);
    puts("' ;;");
    for (const struct command *c = t->commands; c->name; c++) {
        printf("        %s) words='--help", c->name);
        put_options_of(t, c, " ");
        printf("%s' ;;\n", strcmp(c->name, "cache") == 0        ? " info verify clear export import"
                           : strcmp(c->name, "completion") == 0 ? " bash zsh fish"
                                                                : "");
    }
    puts("        esac\n"
         "        case ${COMP_WORDS[1]} in\n"
         "        list | manual | completion | cache | help) ;;\n"
         "        *) words=\"$words $(lathe list --names 2>/dev/null)\" ;;\n"
         "        esac\n"
         "    fi\n"
         "    COMPREPLY=($(compgen -W \"$words\" -- \"$word\") $(compgen -f -X '!*.lua' -- \"$word\"))\n"
         "}\n"
         "complete -o filenames -F _lathe lathe");
}

static void put_fish_option(const struct command *c, const struct option_row *row)
{
    const bool is_long = strncmp(row->name, "--", 2) == 0;
    printf("complete -c lathe -n '__fish_seen_subcommand_from %s' -%c %s%s\n", c->name, is_long ? 'l' : 's',
           row->name + (is_long ? 2 : 1), row->value ? " -r" : "");
}

static void put_fish(const struct tool_tables *t)
{
    for (const struct command *c = t->commands; c->name; c++) {
        printf("complete -c lathe -n __fish_use_subcommand -a %s -d '%s'\n", c->name, c->summary);
        for (const struct option_row *row = t->options; row->name; row++)
            if (row->commands & c->bit)
                put_fish_option(c, row);
    }
    puts("complete -c lathe -n __fish_use_subcommand -a help -d 'what a command does, and its options'\n"
         "complete -c lathe -n '__fish_seen_subcommand_from cache' -a 'info verify clear export import'\n"
         "complete -c lathe -n '__fish_seen_subcommand_from completion' -a 'bash zsh fish'");
    fputs("complete -c lathe -n '__fish_seen_subcommand_from help' -a '", stdout);
    put_commands(t);
    puts("'");
    puts("complete -c lathe -n 'not __fish_use_subcommand; and not __fish_seen_subcommand_from list manual "
         "completion "
         "cache help' -a '(lathe list --names 2>/dev/null)'");
}

int cmd_completion(const struct options *o)
{
    for (size_t i = 0; i < sizeof SHELLS / sizeof *SHELLS; i++) {
        if (strcmp(o->operand[0], SHELLS[i]) != 0)
            continue;
        if (i == 1) /* zsh reads those of bash */
            puts("#compdef lathe\nautoload -U +X bashcompinit && bashcompinit");
        if (i == 2)
            put_fish(o->tables);
        else
            put_bash(o->tables);
        return CODE_OK;
    }
    tool_complain("completion: expected bash, zsh or fish, given '%s'", o->operand[0]);
    return CODE_USAGE;
}
