/*
 * cmd_cache.c: `lathe cache info|verify|clear`. In: the action. Out: lines on standard output; broken
 * entries are removed by verify (they would be rebuilt anyway) and give exit code 1. Exit code 3 where the
 * folder cannot be used.
 */
#include "tool.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "../runtime/rt.h"

/* What lathe_options.cache_bytes is by default. */
static const uint64_t BUDGET = UINT64_C(1) << 30;

static void log_line(void *user, int level, const char *text)
{
    (void)user;
    if (level == 0)
        complain("%s", text);
}

static void print_item(const struct cache_item *item)
{
    char when[32] = "";
    struct tm tm;
    const time_t used = (time_t)item->used;
    if (localtime_r(&used, &tm))
        strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", &tm);
    printf("%.16s %9" PRIu64 " bytes  %s  %s%s\n", item->key, item->bytes, when,
           item->label[0] ? item->label : "(no label)", item->broken ? "  BROKEN" : "");
}

static int info(struct cache *cache)
{
    struct cache_list list = {0};
    lathe_error err = {0};
    if (lathe__cache_list(cache, &list, &err) != LATHE_OK)
        return complain_error(&err);
    printf("%s: %d kernels, %" PRIu64 " of %" PRIu64 " bytes\n", cache->path, list.n, list.bytes,
           cache->budget);
    for (int i = 0; i < list.n; i++)
        print_item(&list.item[i]);
    if (list.n_temporary)
        printf("%d temporary files of writers that are at work, or died\n", list.n_temporary);
    lathe__cache_list_free(&list);
    return CODE_OK;
}

static int verify(struct cache *cache)
{
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

static int clear(struct cache *cache)
{
    int removed = 0;
    lathe_error err = {0};
    if (lathe__cache_clear(cache, &removed, &err) != LATHE_OK)
        return complain_error(&err);
    printf("%s: %d kernels removed\n", cache->path, removed);
    return CODE_OK;
}

int cmd_cache(const struct options *o)
{
    struct environment environment;
    struct cache cache;
    const char *action = o->operand[0];
    int (*run)(struct cache * cache) = strcmp(action, "info") == 0     ? info
                                       : strcmp(action, "verify") == 0 ? verify
                                       : strcmp(action, "clear") == 0  ? clear
                                                                       : NULL;
    if (!run) {
        complain("cache: expected info, verify or clear, given '%s'", action);
        return CODE_USAGE;
    }
    lathe__environment_read(&environment);
    const char *path = o->cache_dir ? o->cache_dir : environment.cache_dir;
    if (!*path) {
        complain("cache: no folder is known (HOME is not set); give --cache-dir DIR");
        return CODE_ENVIRONMENT;
    }
    lathe__cache_open(&cache, path, BUDGET, false, (struct reporter){log_line, NULL});
    const int code = cache.dir_fd < 0 ? CODE_ENVIRONMENT : run(&cache);
    lathe__cache_close(&cache);
    return code;
}
