/*
 * pack.c: a cache as one file: what comes back is what went in; every damaged byte, every cut and every name
 * that no cache has is refused and changes nothing; what is there is kept. Also the makers that travel with
 * it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "runtime/rt.h"

enum { IMAGE_BYTES = 300, FILES = 4096 };

static void silent_cache(struct cache *cache, const char *name)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", check_temp_dir(), name);
    lathe__cache_open(cache, path, 0, false, (struct reporter){NULL, NULL});
    CHECK(cache->dir_fd >= 0);
}

static void temp_path(char out[PATH_BYTES], const char *name)
{
    snprintf(out, PATH_BYTES, "%s/%s", check_temp_dir(), name);
}

static void make_key(int seed, unsigned char key[KEY_BYTES])
{
    struct sha256 s;
    lathe__sha256_start(&s);
    lathe__sha256_add(&s, &seed, sizeof seed);
    lathe__sha256_finish(&s, key);
}

static void add(struct cache *cache, int seed)
{
    unsigned char key[KEY_BYTES];
    unsigned char image[IMAGE_BYTES];
    char log[] = "log";
    char readable[] = "// text\n";
    struct cache_blob blob = {.image = image, .image_size = sizeof image, .log = log, .log_size = 3};
    blob.readable = readable;
    blob.readable_size = sizeof readable - 1;
    for (int i = 0; i < IMAGE_BYTES; i++)
        image[i] = (unsigned char)(i * 7 + seed);
    snprintf(blob.label, sizeof blob.label, "kernel_%d", seed);
    make_key(seed, key);
    CHECK(lathe__cache_store(cache, key, &blob));
}

static bool has(struct cache *cache, int seed)
{
    unsigned char key[KEY_BYTES];
    struct cache_blob blob;
    make_key(seed, key);
    if (!lathe__cache_read(cache, key, &blob))
        return false;
    CHECK_EQ(blob.image_size, IMAGE_BYTES);
    for (int i = 0; i < IMAGE_BYTES; i++)
        CHECK_EQ(blob.image[i], (unsigned char)(i * 7 + seed));
    lathe__blob_free(&blob);
    return true;
}

static struct compiler a_compiler(int major, const char *identity)
{
    struct compiler c = {.major = major, .minor = 1, .n_archs = 3, .arch = {80, 90, 100}};
    snprintf(c.identity, sizeof c.identity, "%s", identity);
    return c;
}

static int entries(struct cache *cache)
{
    struct cache_list list;
    CHECK_EQ(lathe__cache_list(cache, &list, NULL), LATHE_OK);
    const int n = list.n;
    CHECK_EQ(list.n_temporary, 0);
    lathe__cache_list_free(&list);
    return n;
}

static size_t read_bytes(const char *path, unsigned char *out, size_t most)
{
    FILE *f = fopen(path, "rb");
    CHECK(f != NULL);
    const size_t n = fread(out, 1, most, f);
    fclose(f);
    return n;
}

static void write_bytes(const char *path, const void *data, size_t size)
{
    FILE *f = fopen(path, "wb");
    CHECK(f != NULL);
    CHECK_EQ(fwrite(data, 1, size, f), size);
    CHECK_EQ(fclose(f), 0);
}

/* Two kernels and the compiler that made them, in a file. */
static void make_pack(char path[PATH_BYTES])
{
    struct cache cache;
    struct move_report report;
    lathe_error err;
    const struct compiler maker = a_compiler(12, "nvrtc 12.1 777");
    silent_cache(&cache, "from");
    add(&cache, 1);
    add(&cache, 2);
    CHECK_EQ(lathe__maker_write(&cache, &maker), 0);
    temp_path(path, "pack");
    CHECK_EQ(lathe__cache_export(&cache, path, true, &report, &err), LATHE_OK);
    CHECK_EQ(report.moved, 2);
    CHECK_EQ(report.broken, 0);
    lathe__cache_close(&cache);
}

static lathe_status import(struct cache *cache, const char *path, struct move_report *report,
                           lathe_error *err)
{
    return lathe__cache_import(cache, path, report, err);
}

TEST(what_went_in_comes_out)
{
    char path[PATH_BYTES];
    struct cache cache;
    struct move_report report;
    struct compiler *maker;
    lathe_error err;
    make_pack(path);
    silent_cache(&cache, "to");
    CHECK_EQ(import(&cache, path, &report, &err), LATHE_OK);
    CHECK_EQ(report.moved, 2);
    CHECK_EQ(report.there, 0);
    CHECK(has(&cache, 1) && has(&cache, 2) && !has(&cache, 3));
    CHECK_EQ(lathe__makers_read(&cache, &maker), 1);
    CHECK_STR(maker->identity, "nvrtc 12.1 777");
    CHECK_EQ(maker->n_archs, 3);
    CHECK_EQ(maker->arch[2], 100);
    free(maker);
    CHECK_EQ(import(&cache, path, &report, &err), LATHE_OK);
    CHECK_EQ(report.moved, 0);
    CHECK_EQ(report.there, 2);
    lathe__cache_close(&cache);
}

/* The same entries give the same bytes, in whatever order they came. */
TEST(exports_are_reproducible)
{
    static unsigned char a[FILES];
    static unsigned char b[FILES];
    char path[PATH_BYTES];
    char again[PATH_BYTES];
    struct cache cache;
    struct move_report report;
    lathe_error err;
    const struct compiler maker = a_compiler(12, "nvrtc 12.1 777");
    make_pack(path);
    silent_cache(&cache, "other");
    CHECK_EQ(lathe__maker_write(&cache, &maker), 0);
    add(&cache, 2);
    add(&cache, 1);
    temp_path(again, "again");
    CHECK_EQ(lathe__cache_export(&cache, again, true, &report, &err), LATHE_OK);
    const size_t size = read_bytes(path, a, sizeof a);
    CHECK_EQ(size, report.bytes);
    CHECK_EQ(read_bytes(again, b, sizeof b), size);
    CHECK(memcmp(a, b, size) == 0);
    lathe__cache_close(&cache);
}

static void refused(struct cache *cache, const char *path, const char *part)
{
    struct move_report report;
    lathe_error err = {0};
    CHECK_EQ(import(cache, path, &report, &err), LATHE_ARG);
    CHECK_HAS(err.text, path);
    CHECK_HAS(err.text, part);
    CHECK_EQ(report.moved, 0);
}

TEST(every_damaged_byte_is_found)
{
    static unsigned char data[FILES];
    char path[PATH_BYTES];
    char wrong[PATH_BYTES];
    struct cache cache;
    make_pack(path);
    temp_path(wrong, "wrong");
    silent_cache(&cache, "to");
    const size_t size = read_bytes(path, data, sizeof data);
    CHECK(size > 1000 && size < sizeof data);
    for (size_t i = 0; i < size; i++) {
        data[i] = (unsigned char)(data[i] ^ (1u << i % 8));
        write_bytes(wrong, data, size);
        refused(&cache, wrong, "cannot be imported: ");
        data[i] = (unsigned char)(data[i] ^ (1u << i % 8));
    }
    CHECK_EQ(entries(&cache), 0);
    lathe__cache_close(&cache);
}

TEST(cut_files_and_foreign_ones)
{
    static unsigned char data[FILES + 1];
    char path[PATH_BYTES];
    char wrong[PATH_BYTES];
    struct cache cache;
    make_pack(path);
    temp_path(wrong, "wrong");
    silent_cache(&cache, "to");
    const size_t size = read_bytes(path, data, FILES);
    for (size_t n = 0; n < size; n += n < 300 ? 1 : 37) {
        write_bytes(wrong, data, n);
        refused(&cache, wrong, n < 8 ? "not an exported cache" : "it is cut short");
    }
    write_bytes(wrong, data, size + 1);
    refused(&cache, wrong, "something follows its end");
    data[8] = 2;
    write_bytes(wrong, data, size);
    refused(&cache, wrong, "of another format");
    refused(&cache, check_temp_dir(), "given a folder");
    refused(&cache, "/dev/null", "not a file");
    temp_path(wrong, "nowhere");
    refused(&cache, wrong, "No such file");
    CHECK_EQ(entries(&cache), 0);
    lathe__cache_close(&cache);
}

/* A pack with one record, sound but for what is asked for. */
static void one_record(const char *path, const char *name, const void *data, size_t size)
{
    unsigned char bytes[FILES];
    struct sha256 digests;
    unsigned char *const head = bytes + PACK_HEADER_BYTES;
    const size_t all = PACK_HEADER_BYTES + PACK_HEAD_BYTES + size;
    CHECK(all <= sizeof bytes);
    lathe__pack_head(name, data, size, head);
    memcpy(head + PACK_HEAD_BYTES, data, size);
    lathe__sha256_start(&digests);
    lathe__sha256_add(&digests, head + PACK_HEAD_BYTES - KEY_BYTES, KEY_BYTES);
    lathe__pack_header(1, all, &digests, bytes);
    write_bytes(path, bytes, all);
}

TEST(names_that_no_cache_has)
{
    static const char *const NAMES[] = {
        "",       "lock",     "compiler",     "../nvrtc-1",         "nvrtc-../../x",
        "nvrtc-", "nvrtc-1x", "nvrtc-13.0-1", "/etc/nvrtc-13.0-12", ".tmp-1-1",
    };
    char path[PATH_BYTES];
    char name[PACK_NAME_BYTES];
    struct cache cache;
    temp_path(path, "made");
    silent_cache(&cache, "to");
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        one_record(path, NAMES[i], "text", 4);
        refused(&cache, path, "cannot be imported: a");
    }
    memset(name, 'a', sizeof name);
    snprintf(name + 64, sizeof name - 64, ".so");
    one_record(path, name, "text", 4);
    refused(&cache, path, "a name that no cache has");
    snprintf(name + 64, sizeof name - 64, ".bin");
    one_record(path, name, "text", 4);
    refused(&cache, path, "not what its name says");
    one_record(path, "nvrtc-13.0-5", "nvrtc 13.0 6\n13 0 1 80\n", 23);
    refused(&cache, path, "not what its name says");
    one_record(path, "nvrtc-13.0-5", "nvrtc 13.0 5\n13 0 9 80\n", 23);
    refused(&cache, path, "not what its name says");
    CHECK_EQ(entries(&cache), 0);
    lathe__cache_close(&cache);
}

static void damage(const struct cache *cache, int seed)
{
    unsigned char key[KEY_BYTES];
    char text[KEY_TEXT_BYTES];
    char name[KEY_TEXT_BYTES + 8];
    make_key(seed, key);
    lathe__key_text(key, text);
    snprintf(name, sizeof name, "%s.bin", text);
    const int fd = openat(cache->dir_fd, name, O_WRONLY);
    CHECK(fd >= 0);
    CHECK_EQ(pwrite(fd, "?", 1, 300), 1);
    close(fd);
}

TEST(damaged_entries_are_left_out_and_replaced)
{
    char path[PATH_BYTES];
    char part[PATH_BYTES];
    struct cache cache;
    struct move_report report;
    lathe_error err;
    make_pack(path);
    temp_path(part, "part");
    silent_cache(&cache, "from");
    damage(&cache, 1);
    CHECK(!has(&cache, 1));
    CHECK_EQ(lathe__cache_export(&cache, part, true, &report, &err), LATHE_OK);
    CHECK_EQ(report.moved, 1);
    CHECK_EQ(report.broken, 1);
    CHECK_EQ(import(&cache, path, &report, &err), LATHE_OK);
    CHECK_EQ(report.moved, 1);
    CHECK_EQ(report.there, 1);
    CHECK(has(&cache, 1) && has(&cache, 2));
    lathe__cache_close(&cache);
}

TEST(an_import_evicts_nothing)
{
    char path[PATH_BYTES];
    char to[PATH_BYTES];
    struct cache cache;
    struct move_report report;
    lathe_error err;
    make_pack(path);
    temp_path(to, "small");
    lathe__cache_open(&cache, to, 1, false, (struct reporter){NULL, NULL}); /* a budget of one byte */
    CHECK_EQ(import(&cache, path, &report, &err), LATHE_OK);
    CHECK(has(&cache, 1) && has(&cache, 2));
    lathe__cache_close(&cache);
}

TEST(what_cannot_be_written)
{
    unsigned char old[8];
    char path[PATH_BYTES];
    char to[PATH_BYTES + 8];
    struct cache cache;
    struct move_report report;
    lathe_error err;
    make_pack(path);
    temp_path(to, "from");
    lathe__cache_open(&cache, to, 0, true, (struct reporter){NULL, NULL});
    CHECK_EQ(lathe__cache_export(&cache, "/nowhere/pack", true, &report, &err), LATHE_CACHE);
    CHECK_HAS(err.text, "/nowhere/pack: the cache cannot be exported there: No such file");
    CHECK_EQ(lathe__cache_export(&cache, path, true, &report, &err), LATHE_OK); /* over the old one */
    if (access("/dev/full", W_OK) == 0) {
        CHECK_EQ(lathe__cache_export(&cache, check_temp_dir(), true, &report, &err),
                 LATHE_CACHE); /* a folder */
        CHECK_HAS(err.text, check_temp_dir());
        snprintf(to, sizeof to, "%.900s.tmp-%ld", check_temp_dir(), (long)getpid());
        CHECK(access(to, F_OK) != 0);
    }
    write_bytes(path, "old", 3);
    CHECK_EQ(lathe__cache_export(&cache, path, true, &report, &err), LATHE_OK);
    CHECK_EQ(read_bytes(path, old, sizeof old), 8);
    CHECK(memcmp(old, "LATHECX\n", 8) == 0);
    CHECK_EQ(import(&cache, path, &report, &err), LATHE_OK); /* nothing to write: all of it is there */
    lathe__cache_close(&cache);
    temp_path(to, "empty");
    CHECK_EQ(mkdir(to, 0700), 0);
    lathe__cache_open(&cache, to, 0, true, (struct reporter){NULL, NULL});
    CHECK_EQ(import(&cache, path, &report, &err), LATHE_CACHE);
    CHECK_HAS(err.text, "cannot be written");
    lathe__cache_close(&cache);
}

/* ---- makers --------------------------------------------------------------------------------------- */

TEST(makers_are_kept_once_and_read_newest_first)
{
    static const char *const IDENTITY[] = {"nvrtc 12.1 5", "nvrtc 13.1 9", "nvrtc 13.1 8"};
    struct cache cache;
    struct compiler *maker;
    int removed;
    silent_cache(&cache, "makers");
    CHECK_EQ(lathe__makers_read(&cache, &maker), 0);
    for (int i = 0; i < 6; i++) {
        const struct compiler c = a_compiler(i % 3 == 0 ? 12 : 13, IDENTITY[i % 3]);
        CHECK_EQ(lathe__maker_write(&cache, &c), 0);
    }
    CHECK_EQ(lathe__makers_read(&cache, &maker), 3);
    CHECK_STR(maker[0].identity, "nvrtc 13.1 8");
    CHECK_STR(maker[2].identity, "nvrtc 12.1 5");
    free(maker);
    const int fd = openat(cache.dir_fd, "nvrtc-12.1-5", O_WRONLY | O_TRUNC); /* damaged: not a maker */
    CHECK(fd >= 0);
    CHECK_EQ(write(fd, "nvrtc", 5), 5);
    close(fd);
    CHECK_EQ(lathe__makers_read(&cache, &maker), 2);
    free(maker);
    CHECK_EQ(entries(&cache), 0);
    CHECK_EQ(lathe__cache_clear(&cache, &removed, NULL), LATHE_OK);
    CHECK_EQ(lathe__makers_read(&cache, &maker), 0);
    lathe__cache_close(&cache);
}

/* However many there are, each serves, and all of them travel. */
TEST(many_makers)
{
    enum { MANY = 70 };
    char path[PATH_BYTES];
    char identity[64];
    struct cache cache;
    struct move_report report;
    struct compiler *maker;
    lathe_error err;
    silent_cache(&cache, "from");
    for (int i = 0; i < MANY; i++) {
        snprintf(identity, sizeof identity, "nvrtc 12.1 %d", 1000 + i);
        const struct compiler c = a_compiler(12, identity);
        CHECK_EQ(lathe__maker_write(&cache, &c), 0);
    }
    add(&cache, 1);
    temp_path(path, "pack");
    CHECK_EQ(lathe__cache_export(&cache, path, false, &report, &err), LATHE_OK);
    lathe__cache_close(&cache);
    silent_cache(&cache, "to");
    CHECK_EQ(import(&cache, path, &report, &err), LATHE_OK);
    CHECK_EQ(lathe__makers_read(&cache, &maker), MANY);
    for (int i = 0; i < MANY; i++) {
        snprintf(identity, sizeof identity, "nvrtc 12.1 %d", 1000 + i);
        CHECK_STR(maker[i].identity, identity);
    }
    free(maker);
    lathe__cache_close(&cache);
}

/* The readable text travels where it is asked for. */
TEST(texts_stay_unless_they_are_asked_for)
{
    char path[PATH_BYTES];
    char text[KEY_TEXT_BYTES];
    char name[KEY_TEXT_BYTES + 8];
    unsigned char key[KEY_BYTES];
    struct cache cache;
    struct move_report report[2];
    lathe_error err;
    make_key(1, key);
    lathe__key_text(key, text);
    snprintf(name, sizeof name, "%s.cu", text);
    for (int texts = 0; texts < 2; texts++) {
        silent_cache(&cache, "from");
        add(&cache, 1);
        temp_path(path, "pack");
        CHECK_EQ(lathe__cache_export(&cache, path, texts == 1, &report[texts], &err), LATHE_OK);
        lathe__cache_close(&cache);
        silent_cache(&cache, texts ? "with" : "without");
        CHECK_EQ(import(&cache, path, &report[texts], &err), LATHE_OK);
        CHECK(has(&cache, 1));
        CHECK_EQ(faccessat(cache.dir_fd, name, F_OK, 0), texts ? 0 : -1);
        lathe__cache_close(&cache);
    }
    CHECK_EQ(report[1].bytes, report[0].bytes + PACK_HEAD_BYTES + strlen("// text\n"));
}

TEST(what_is_no_identity)
{
    char name[MAKER_NAME_BYTES];
    CHECK(lathe__maker_name("nvrtc 13.0 109338064", name));
    CHECK_STR(name, "nvrtc-13.0-109338064");
    CHECK(!lathe__maker_name("nvrtc", name));
    CHECK(!lathe__maker_name("", name));
    CHECK(!lathe__maker_name("nvrtc 13.0/../x", name));
    CHECK(!lathe__maker_name("clang 13.0 1", name));
}

/* ---- the system cache, and folders for others to read ----------------------------------------------- */

static void count_warning(void *user, int level, const char *text)
{
    *(int *)user += level == 0;
    (void)text;
}

static unsigned mode_of(const char *folder, const char *name)
{
    char path[2 * PATH_BYTES];
    struct stat status;
    snprintf(path, sizeof path, "%s%s%s", folder, name ? "/" : "", name ? name : "");
    CHECK_EQ(stat(path, &status), 0);
    return status.st_mode & 0777;
}

TEST(files_are_as_readable_as_their_folder)
{
    struct cache cache;
    char shared[PATH_BYTES];
    char own[PATH_BYTES];
    const struct compiler maker = a_compiler(13, "nvrtc 13.1 5");
    const mode_t old = umask(077);
    temp_path(shared, "a/shared");
    lathe__cache_open_shared(&cache, shared, (struct reporter){NULL, NULL});
    CHECK_EQ(lathe__maker_write(&cache, &maker), 0);
    CHECK_EQ(mode_of(shared, "nvrtc-13.1-5") & 022, 0);
    lathe__cache_close(&cache);
    CHECK_EQ(chmod(shared, 0755), 0);
    lathe__cache_open_shared(&cache, shared, (struct reporter){NULL, NULL});
    add(&cache, 1);
    lathe__cache_close(&cache);
    umask(old);
    char text[KEY_TEXT_BYTES];
    char name[KEY_TEXT_BYTES + 8];
    unsigned char key[KEY_BYTES];
    make_key(1, key);
    lathe__key_text(key, text);
    snprintf(name, sizeof name, "%s.bin", text);
    CHECK_EQ(mode_of(shared, name), 0644);
    silent_cache(&cache, "own");
    add(&cache, 1);
    temp_path(own, "own");
    CHECK_EQ(mode_of(own, NULL), 0700);
    CHECK_EQ(mode_of(own, name), 0600);
    lathe__cache_close(&cache);
}

TEST(a_system_cache_is_read_only_and_trusted_only_if_nobody_else_writes_it)
{
    struct cache cache;
    char path[PATH_BYTES];
    unsigned char key[KEY_BYTES];
    struct cache_blob blob = {0};
    int warnings = 0;
    const struct reporter report = {count_warning, &warnings};
    make_key(1, key);
    silent_cache(&cache, "system");
    add(&cache, 1);
    lathe__cache_close(&cache);
    temp_path(path, "system");
    lathe__cache_open_system(&cache, path, false, report);
    CHECK(has(&cache, 1));
    CHECK(!lathe__cache_store(&cache, key, &blob));
    CHECK_EQ(lathe__cache_file_write(&cache, "lock", "", 0), EROFS);
    lathe__cache_close(&cache);
    CHECK_EQ(warnings, 0);
    CHECK_EQ(chmod(path, 0777), 0);
    lathe__cache_open_system(&cache, path, false, report);
    CHECK(cache.dir_fd < 0);
    CHECK_EQ(warnings, 1);
    temp_path(path, "nowhere"); /* the default place is often not there; one that was named should be */
    lathe__cache_open_system(&cache, path, false, report);
    CHECK(cache.dir_fd < 0);
    CHECK_EQ(warnings, 1);
    lathe__cache_open_system(&cache, path, true, report);
    CHECK_EQ(warnings, 2);
    CHECK(access(path, F_OK) != 0);
}

/* ---- choices that were measured --------------------------------------------------------------------- */

static const struct tuned A_CHOICE = {"attention_fwd_sm80", "64x64s2w4", 0.00125, "A GPU", "causal_m64n64"};

TEST(choices_travel_with_the_cache)
{
    struct cache from;
    struct cache to;
    struct move_report report;
    struct tuned found;
    lathe_error err;
    char path[PATH_BYTES];
    int removed;
    silent_cache(&from, "from");
    silent_cache(&to, "to");
    temp_path(path, "tuned.pack");
    add(&from, 1);
    CHECK(!lathe__tuned_read(&from, "what", 4, &found));
    CHECK_EQ(lathe__tuned_write(&from, "what", 4, &A_CHOICE), 0);
    CHECK_EQ(lathe__cache_export(&from, path, true, &report, &err), LATHE_OK);
    CHECK_EQ(lathe__cache_import(&to, path, &report, &err), LATHE_OK);
    CHECK_EQ(report.moved, 1); /* kernels */
    CHECK(!lathe__tuned_read(&to, "else", 4, &found));
    CHECK(lathe__tuned_read(&to, "what", 4, &found));
    CHECK_STR(found.template_name, "attention_fwd_sm80");
    CHECK_STR(found.tile, "64x64s2w4");
    CHECK_STR(found.device, "A GPU");
    CHECK_CLOSE(found.seconds, 0.00125, 1e-9);
    CHECK_EQ(lathe__cache_clear(&to, &removed, &err), LATHE_OK);
    CHECK(!lathe__tuned_read(&to, "what", 4, &found));
    lathe__cache_close(&from);
    lathe__cache_close(&to);
}

TEST(damaged_choices_are_none)
{
    static const char *const texts[] = {
        "",
        "lathe tuned 1\n",
        "lathe tuned 2\nattention_fwd_sm80\n64x64s2w4\n1250000\nA GPU\nlabel\n",
        "lathe tuned 1\n\n64x64s2w4\n1250000\nA GPU\nlabel\n",
        "lathe tuned 1\nattention_fwd_sm80\n64x64s2w4;\n1250000\nA GPU\nlabel\n",
        "lathe tuned 1\nattention_fwd_sm80\n64x64s2w4\n1250000\nA GPU\nlabel",
        "lathe tuned 1\nattention_fwd_sm80\n64x64s2w4\n1250000\nA GPU\nlabel\nmore\n",
        "lathe tuned 1\na_template_with_a_name_that_is_too_long\n64x64s2w4\n1250000\nA GPU\nlabel\n"};
    struct tuned t;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        CHECK(!lathe__tuned_parse(texts[i], strlen(texts[i]), &t));
    CHECK(lathe__tuned_is_name("tuned-0123456789abcdef0123456789abcdef01234567"));
    CHECK(!lathe__tuned_is_name("tuned-0123456789abcdef0123456789abcdef0123456/"));
    CHECK(!lathe__tuned_is_name("tuned-01"));
}
