/*
 * sha256.c: SHA-256 against the examples of FIPS 180-4 and NIST's test vectors, in one piece and in pieces of
 * every size.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "runtime/rt.h"

static void hash(const void *data, size_t size, size_t step, char text[KEY_TEXT_BYTES])
{
    unsigned char digest[KEY_BYTES];
    struct sha256 s;
    lathe__sha256_start(&s);
    for (size_t at = 0; at < size; at += step)
        lathe__sha256_add(&s, (const char *)data + at, size - at < step ? size - at : step);
    lathe__sha256_finish(&s, digest);
    lathe__key_text(digest, text);
}

TEST(nist_vectors)
{
    static const struct {
        const char *message;
        const char *digest;
    } vector[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmno"
         "pqrstnopqrstu",
         "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
    };
    char text[KEY_TEXT_BYTES];
    for (size_t i = 0; i < sizeof vector / sizeof vector[0]; i++) {
        hash(vector[i].message, strlen(vector[i].message), 1000, text);
        CHECK_STR(text, vector[i].digest);
    }
}

TEST(a_million_letters_in_pieces)
{
    enum { MILLION = 1000000 };
    static const size_t step[] = {1, 63, 64, 65, 4096, MILLION};
    char text[KEY_TEXT_BYTES];
    char *data = malloc(MILLION);
    CHECK(data != NULL);
    memset(data, 'a', MILLION);
    for (size_t i = 0; i < sizeof step / sizeof step[0]; i++) {
        hash(data, MILLION, step[i], text);
        CHECK_STR(text, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    }
    free(data);
}

/* Lengths around the padding's edges: all ways to cut them agree. */
TEST(every_split_agrees)
{
    unsigned char data[130];
    char whole[KEY_TEXT_BYTES];
    char pieces[KEY_TEXT_BYTES];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)(i * 7 + 1);
    for (size_t size = 0; size <= sizeof data; size++) {
        hash(data, size, 1000, whole);
        for (size_t step = 1; step < 70; step += 3) {
            hash(data, size, step, pieces);
            CHECK_STR(pieces, whole);
        }
    }
}

/* Whichever of the two a machine takes: states and blocks of all kinds. */
TEST(the_processor_and_plain_c_agree)
{
    enum { BLOCKS = 5, ROUNDS = 500 };
    unsigned char data[64 * BLOCKS] = {0};
    uint32_t plain[8] = {0};
    uint32_t fast[8] = {0};
    uint64_t state = 1;
    if (!lathe__sha256_by_processor(fast, data, 0))
        SKIP("this processor has no instructions for SHA-256");
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < sizeof data; i++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            data[i] = (unsigned char)(state >> 56);
        }
        lathe__sha256_plainly(plain, data, (size_t)(round % (BLOCKS + 1)));
        CHECK(lathe__sha256_by_processor(fast, data, (size_t)(round % (BLOCKS + 1))));
        CHECK(memcmp(plain, fast, sizeof plain) == 0);
    }
}
