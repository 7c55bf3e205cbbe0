/*
 * store.c: objects that were compiled and cases that passed before, under the digest of everything they are
 * made of. A change of one kernel compiles and runs the cases of that kernel; all others are known.
 *
 * In: files and bytes that go into digests. Out: paths of a folder that runs share: LATHE_TEST_CACHE, by
 * default lathe-tests in the user's cache folder; set to nothing, there is none. What has not been used for a
 * month is removed.
 */
#include "code_text.h"
#include "harness.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MONTH_DAYS = 30 };

/* ---- digests --------------------------------------------------------------------------------------------
 */

/* With its length in front, so that what follows cannot be mistaken for a part of it. */
void store_add(struct sha256 *s, const void *data, size_t size)
{
    const uint64_t bytes = size;
    lathe__sha256_add(s, &bytes, sizeof bytes);
    if (size > 0)
        lathe__sha256_add(s, data, size);
}

void store_add_text(struct sha256 *s, const char *text)
{
    store_add(s, text ? text : "", text ? strlen(text) : 0);
}

bool store_add_code(struct sha256 *s, const char *text, size_t size)
{
    char *code = malloc(size + 1);
    if (!code)
        return false;
    store_add(s, code, code_text(text, size, code));
    free(code);
    return true;
}

static bool add_stream(struct sha256 *s, FILE *f)
{
    char data[4096];
    size_t got;
    while (f && (got = fread(data, 1, sizeof data, f)) > 0)
        store_add(s, data, got);
    return f != NULL;
}

static bool add_code_of(struct sha256 *s, FILE *f)
{
    enum { MOST_BYTES = 1 << 20 };
    char *text = malloc(MOST_BYTES);
    const size_t size = text ? fread(text, 1, MOST_BYTES, f) : 0;
    const bool good = text && size < MOST_BYTES && !ferror(f) && store_add_code(s, text, size);
    free(text);
    return good;
}

static bool add_file(struct sha256 *s, const char *folder, const char *name)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    store_add_text(s, name);
    FILE *f = fopen(path, "r");
    const bool good = f && add_code_of(s, f);
    if (f)
        fclose(f);
    if (!good)
        fprintf(stderr, "lathe_emulate: %s, on which verdicts depend, cannot be read\n", path);
    return good;
}

static bool ends_in(const char *name, const char *end)
{
    const size_t n = strlen(name);
    const size_t m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

/* build.c has the compiler's flags. */
static bool is_emulator(const char *name)
{
    return ends_in(name, ".hpp") || ends_in(name, ".cuh") || ends_in(name, ".cpp") ||
           strcmp(name, "emulate.h") == 0 || strcmp(name, "build.c") == 0;
}

/* What makes a verdict of a kernel's results; not which cases there are, nor what the emulator has to report,
   nor how a case is prepared, since its digest has all that comes of that: neither the structs of harness.h.
 */
static bool is_judge(const char *name)
{
    static const char *const JUDGE[] = {"judge.c", "memory.c", "run.c"};
    bool found = false;
    for (size_t i = 0; i < sizeof JUDGE / sizeof *JUDGE; i++)
        found |= strcmp(name, JUDGE[i]) == 0;
    return found;
}

static bool add_folder(struct sha256 *s, const char *folder, bool (*wanted)(const char *name))
{
    struct dirent **entry = NULL;
    const int n = scandir(folder, &entry, NULL, alphasort);
    bool good = n > 0;
    for (int i = 0; i < n; i++) {
        if (wanted(entry[i]->d_name))
            good = add_file(s, folder, entry[i]->d_name) && good;
        free(entry[i]);
    }
    free(entry);
    return good;
}

/* The compiler, and the processor that -march=native means. */
static void add_compiler(struct sha256 *s)
{
    FILE *version = popen("g++ --version; grep -m 1 '^flags' /proc/cpuinfo", "r");
    add_stream(s, version);
    if (version)
        (void)pclose(version);
}

static void finish(struct sha256 *s, char hex[STORE_HEX])
{
    unsigned char digest[KEY_BYTES];
    lathe__sha256_finish(s, digest);
    for (int i = 0; i < KEY_BYTES; i++)
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
}

/* ---- the folder -----------------------------------------------------------------------------------------
 */

static bool make_folder(const char *path)
{
    return mkdir(path, 0700) == 0 || errno == EEXIST;
}

static bool name_folder(struct store *s)
{
    const char *named = getenv("LATHE_TEST_CACHE");
    const char *cache = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    const size_t size = sizeof s->folder;
    int n = 0;
    if (named)
        n = snprintf(s->folder, size, "%s", named);
    else if (cache && *cache)
        n = snprintf(s->folder, size, "%s/lathe-tests", cache);
    else if (home && *home)
        n = snprintf(s->folder, size, "%s/.cache/lathe-tests", home);
    return n > 0 && (size_t)n < size;
}

static bool make_folders(struct store *s)
{
    char path[400];
    for (char *at = s->folder + 1; *at; at++) { /* its parents */
        if (*at != '/')
            continue;
        *at = 0;
        (void)make_folder(s->folder);
        *at = '/';
    }
    snprintf(path, sizeof path, "%s/objects", s->folder);
    const bool good = make_folder(s->folder) && make_folder(path);
    snprintf(path, sizeof path, "%s/passed", s->folder);
    return good && make_folder(path);
}

static void remove_old(const struct store *s)
{
    char command[700];
    snprintf(command, sizeof command, "find '%s/objects' '%s/passed' -type f -mtime +%d -delete 2>/dev/null",
             s->folder, s->folder, MONTH_DAYS);
    if (!strchr(s->folder, '\''))
        (void)!system(command);
}

/* Texts alone, and with the compiler. */
static bool make_digests(struct store *s, const char *sources)
{
    struct sha256 digest;
    char texts[STORE_HEX];
    lathe__sha256_start(&digest);
    add_compiler(&digest);
    finish(&digest, s->compiler);
    lathe__sha256_start(&digest);
    bool good = add_folder(&digest, sources, is_emulator);
    finish(&digest, texts);
    lathe__sha256_start(&digest);
    store_add_text(&digest, texts);
    store_add_text(&digest, s->compiler);
    finish(&digest, s->emulator);
    lathe__sha256_start(&digest);
    store_add_text(&digest, texts);
    good = add_folder(&digest, sources, is_judge) && good;
    finish(&digest, s->judge);
    return good;
}

/* Nothing is known where --fresh says so, in a full run, or where LATHE_TEST_CACHE is set to nothing. */
static bool may_know(bool fresh)
{
    const char *full = getenv("LATHE_TEST_FULL");
    const char *cache = getenv("LATHE_TEST_CACHE");
    return !fresh && !(full && *full) && !(cache && !*cache);
}

bool store_open(struct store *s, const char *sources, bool fresh)
{
    memset(s, 0, sizeof *s);
    s->known = may_know(fresh);
    snprintf(s->lists, sizeof s->lists, "%s/../passed", sources);
    const bool good = make_digests(s, sources);
    if (!name_folder(s) || !make_folders(s))
        s->folder[0] = 0;
    else
        remove_old(s);
    return good;
}

void store_start(const struct store *s, struct sha256 *digest, bool judge)
{
    lathe__sha256_start(digest);
    store_add_text(digest, judge ? s->judge : s->emulator);
}

/* ---- objects and verdicts -------------------------------------------------------------------------------
 */

static void touch(const char *path)
{
    (void)utimensat(AT_FDCWD, path, NULL, 0);
}

bool store_object(const struct store *s, struct sha256 *digest, char *path, size_t size)
{
    char hex[STORE_HEX];
    finish(digest, hex);
    snprintf(path, size, "%s/objects/%s.so", s->folder, hex);
    if (s->folder[0] == 0 || access(path, R_OK) != 0)
        return false;
    touch(path);
    return true;
}

/* Another process may do the same at the same time: whoever comes last replaces what is equal. */
bool store_keep(const struct store *s, const char *object, const char *path)
{
    char temporary[700];
    char command[1400];
    if (s->folder[0] == 0 || strchr(path, '\'') || strchr(object, '\''))
        return false;
    snprintf(temporary, sizeof temporary, "%s.%ld", path, (long)getpid());
    snprintf(command, sizeof command, "cp '%s' '%s'", object, temporary);
    return system(command) == 0 && rename(temporary, path) == 0;
}

/* ---- verdicts -------------------------------------------------------------------------------------------
 */

/* Of a case that has passed on this machine, with this compiler. */
static void verdict_path(const struct store *s, const char hex[STORE_HEX], char *path, size_t size)
{
    snprintf(path, size, "%s/passed/%s.%.16s", s->folder, hex, s->compiler);
}

static void list_path(const struct store *s, const char *group, char *path, size_t size)
{
    snprintf(path, size, "%s/emulate.%s.txt", s->lists, group);
}

void store_take_list(struct store *s, const char *group)
{
    enum { MOST_BYTES = 1 << 20 };
    char path[600];
    list_path(s, group, path, sizeof path);
    FILE *f = s->known ? fopen(path, "r") : NULL;
    s->listed = f ? calloc(MOST_BYTES + 1, 1) : NULL;
    if (s->listed)
        (void)!fread(s->listed, 1, MOST_BYTES, f);
    if (f)
        fclose(f);
}

void store_close(struct store *s)
{
    free(s->listed);
    s->listed = NULL;
}

/* Some case of its group has passed on some machine, and the list is part of this tree. */
static bool passed_before(const struct store *s, const char hex[STORE_HEX])
{
    char line[LISTED_HEX + 2];
    snprintf(line, sizeof line, "%.*s\n", LISTED_HEX, hex);
    return s->listed && strstr(s->listed, line);
}

static void renew(const struct store *s, const char *group, const char hex[STORE_HEX])
{
    char line[100];
    const int file = s->renewed ? open(s->renewed, O_WRONLY | O_CREAT | O_APPEND, 0600) : -1;
    const int n = snprintf(line, sizeof line, "%s %.*s\n", group, LISTED_HEX, hex);
    if (file >= 0) {
        (void)!write(file, line, (size_t)n); /* in one piece, whoever else writes */
        (void)close(file);
    }
}

bool store_has_passed(const struct store *s, const char *group, struct sha256 *digest, char hex[STORE_HEX])
{
    char path[600];
    finish(digest, hex);
    verdict_path(s, hex, path, sizeof path);
    const bool here = s->folder[0] && s->known && access(path, R_OK) == 0;
    if (here)
        touch(path);
    if (!here && !passed_before(s, hex))
        return false;
    renew(s, group, hex);
    return true;
}

void store_passed(const struct store *s, const char *group, const char hex[STORE_HEX])
{
    char path[600];
    verdict_path(s, hex, path, sizeof path);
    const int file = s->folder[0] ? open(path, O_WRONLY | O_CREAT, 0600) : -1;
    if (file >= 0)
        (void)close(file);
    renew(s, group, hex);
}

/* Sorted, so that a line stays where it is when others come. The lists of groups that were not run stay, too.
 */
bool store_write_lists(const struct store *s)
{
    static const char SCRIPT[] =
        "LC_ALL=C sort -u '%s' | awk -v lists='%s' '{ print $2 >(lists \"/emulate.\" $1 "
        "\".txt\") }'";
    char command[1400];
    snprintf(command, sizeof command, SCRIPT, s->renewed, s->lists);
    return !strchr(s->lists, '\'') && !strchr(s->renewed, '\'') && make_folder(s->lists) &&
           system(command) == 0;
}
