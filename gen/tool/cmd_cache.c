/*
 * cmd_cache.c: `lathe cache info|verify|clear|export|import`. In: the action, and the file to move it to or
 * from. Out: lines on standard output; broken entries are removed by verify (they would be rebuilt anyway)
 * and give exit code 1. Exit code 3 where the folder cannot be used.
 */
#include "gen/tool/tool.h"
#include "gen/base/facts.h"
#include "runtime/base/environ.h"
#include "runtime/cache/cache.h"
#include "runtime/cache/pack.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <sys/stat.h>

static void log_line(void *user, int level, const char *text)
{
    (void)user;
    if (level == 0)
        tool_complain("%s", text);
}

static void add_item(struct facts *f, const struct cache_item *item)
{
    char when[32] = "";
    struct tm tm;
    const time_t used = (time_t)item->used;
    if (localtime_r(&used, &tm))
        strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", &tm);
    facts_open(f, NULL, '{');
    facts_string(f, "key", item->key);
    facts_integer(f, "bytes", (int64_t)item->bytes);
    facts_integer(f, "used", (int64_t)item->used);
    facts_string(f, "label", item->label);
    facts_bool(f, "broken", item->broken);
    facts_close(f);
    facts_line(f, "%.16s %9" PRIu64 " bytes  %s  %s%s\n", item->key, item->bytes, when,
               item->label[0] ? item->label : "(no label)", item->broken ? "  BROKEN" : "");
}

static int info(struct cache *cache, const struct options *o)
{
    struct cache_list list = {0};
    struct facts f;
    struct text_buf text = {0};
    lathe_error err = {0};
    if (lathe__cache_list(cache, &list, &err) != LATHE_OK)
        return complain_error(&err);
    facts_begin(&f, &text, o->json);
    facts_string(&f, "folder", cache->path);
    facts_integer(&f, "bytes", (int64_t)list.bytes);
    facts_integer(&f, "budget", (int64_t)cache->budget);
    facts_line(&f, "%s: %d kernels, %" PRIu64 " of %" PRIu64 " bytes\n", cache->path, list.n, list.bytes,
               cache->budget);
    facts_open(&f, "kernels", '[');
    for (int i = 0; i < list.n; i++)
        add_item(&f, &list.item[i]);
    facts_close(&f);
    facts_integer(&f, "temporary_files", list.n_temporary);
    if (list.n_temporary)
        facts_line(&f, "%d temporary files of writers that are at work, or died\n", list.n_temporary);
    facts_end(&f);
    lathe__cache_list_free(&list);
    return tool_print(&text) ? CODE_OK : CODE_ENVIRONMENT;
}

static void print_item(const struct cache_item *item)
{
    struct facts f;
    struct text_buf text = {0};
    facts_begin(&f, &text, false);
    add_item(&f, item);
    (void)tool_print(&text);
}

static int verify(struct cache *cache, const struct options *o)
{
    (void)o;
    struct cache_list list = {0};
    lathe_error err = {0};
    int broken = 0;
    if (lathe__cache_verify(cache, &list, &err) != LATHE_OK)
        return complain_error(&err);
    for (int i = 0; i < list.n; i++) {
        if (!list.item[i].broken)
            continue;
        print_item(&list.item[i]);
        broken++;
    }
    printf("%s: %d kernels read, %d broken\n", cache->path, list.n, broken);
    lathe__cache_list_free(&list);
    return broken ? CODE_FAILED : CODE_OK;
}

static int clear(struct cache *cache, const struct options *o)
{
    (void)o;
    int removed = 0;
    lathe_error err = {0};
    if (lathe__cache_clear(cache, &removed, &err) != LATHE_OK)
        return complain_error(&err);
    printf("%s: %d kernels removed\n", cache->path, removed);
    return CODE_OK;
}

static int export_to(struct cache *cache, const struct options *o)
{
    const char *file = o->operand[1];
    struct move_report report;
    lathe_error err = {0};
    if (lathe__cache_export(cache, file, o->texts, &report, &err) != LATHE_OK)
        return complain_error(&err);
    if (report.broken)
        tool_complain("kernel cache %s: %d damaged entries were left out", cache->path, report.broken);
    printf("%s: %d kernels of %s, %" PRIu64 " bytes\n", file, report.moved, cache->path, report.bytes);
    return CODE_OK;
}

static int import_from(struct cache *cache, const struct options *o)
{
    const char *file = o->operand[1];
    struct move_report report;
    lathe_error err = {0};
    if (lathe__cache_import(cache, file, &report, &err) != LATHE_OK)
        return complain_error(&err);
    printf("%s: %d kernels imported from %s, %d were there\n", cache->path, report.moved, file, report.there);
    return CODE_OK;
}

static const struct action {
    const char *name;
    bool moves;     /* takes FILE [DIR] */
    bool read_only; /* leaves the cache as it is */
    int (*run)(struct cache *cache, const struct options *o);
} ACTIONS[] = {
    {"info", false, false, info},      {"verify", false, false, verify},     {"clear", false, false, clear},
    {"export", true, true, export_to}, {"import", true, false, import_from},
};

static const struct action *find_action(const struct options *o)
{
    for (size_t i = 0; i < sizeof ACTIONS / sizeof ACTIONS[0]; i++) {
        const struct action *a = &ACTIONS[i];
        if (strcmp(a->name, o->operand[0]) != 0)
            continue;
        if (a->moves ? o->n_operands > 1 : o->n_operands == 1)
            return a;
        tool_complain("usage: lathe cache %s%s (given %d operands)", a->name, a->moves ? " FILE [DIR]" : "",
                      o->n_operands - 1);
        return NULL;
    }
    tool_complain("cache: expected info, verify, clear, export or import, given '%s'", o->operand[0]);
    return NULL;
}

/* What is asked about a folder by name is there: a wrong name would be made, and found empty. */
static bool is_there(const struct action *a, const struct options *o)
{
    struct stat info;
    if (a->moves || !o->cache_dir || stat(o->cache_dir, &info) == 0)
        return true;
    tool_complain("kernel cache %s: it cannot be opened: %s", o->cache_dir, strerror(errno));
    return false;
}

/* A folder that was named as an operand is made for others to read, and nothing is evicted from it. */
static void open_cache(struct cache *cache, const struct action *a, const char *folder, const char *standard)
{
    const struct reporter report = {log_line, NULL};
    if (a->read_only)
        lathe__cache_open_tool(cache, folder ? folder : standard, true, report);
    else if (folder)
        lathe__cache_open_shared(cache, folder, report);
    else
        lathe__cache_open_tool(cache, standard, false, report);
}

int cmd_cache(const struct options *o)
{
    struct environment environment;
    struct cache cache;
    const struct action *a = find_action(o);
    if (!a)
        return CODE_USAGE;
    const char *folder = o->n_operands > 2 ? o->operand[2] : NULL;
    if (folder && o->cache_dir) {
        tool_complain("cache %s: expected a folder or --cache-dir, given both", a->name);
        return CODE_USAGE;
    }
    if (a->moves && (!*o->operand[1] || (folder && !*folder))) {
        tool_complain("cache %s: expected the name of a %s, given ''", a->name,
                      *o->operand[1] ? "folder" : "file");
        return CODE_USAGE;
    }
    if (o->texts && a->run != export_to) {
        tool_complain("cache %s: --texts is for export", a->name);
        return CODE_USAGE;
    }
    lathe__environment_read(&environment);
    const char *standard = o->cache_dir ? o->cache_dir : environment.cache_dir;
    if (!folder && !*standard) {
        tool_complain("cache: %s", o->cache_dir
                                       ? "--cache-dir: expected the name of a folder, given ''"
                                       : "no folder is known (HOME is not set); give --cache-dir DIR");
        return CODE_ENVIRONMENT;
    }
    if (!is_there(a, o))
        return CODE_ENVIRONMENT;
    open_cache(&cache, a, folder, standard);
    const int code = cache.dir_fd < 0 ? CODE_ENVIRONMENT : a->run(&cache, o);
    lathe__cache_close(&cache);
    return code;
}
