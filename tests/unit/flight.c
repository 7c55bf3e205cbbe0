/*
 * flight.c: the table that builds once: threads that ask for one key together, and a build that fails.
 */
#include <string.h>
#include <time.h>

#include "check.h"
#include "runtime/rt.h"

struct shared {
    struct flight flight;
    atomic_int builds;
    bool fail;
};

static void *ask(void *user)
{
    static int value;
    struct shared *s = user;
    const unsigned char key[FLIGHT_KEY_BYTES] = {1};
    struct flight_slot *slot;
    void *found;
    lathe_error err;
    if (lathe__flight_begin(&s->flight, key, &found, &slot, &err) != LATHE_OK)
        return strcmp(err.text, "it failed") == 0 ? s : NULL;
    if (found)
        return found;
    const struct timespec pause = {0, 100000000};
    atomic_fetch_add(&s->builds, 1);
    nanosleep(&pause, NULL);
    if (s->fail)
        lathe__fail(&err, LATHE_COMPILE, "it failed");
    lathe__flight_end(&s->flight, slot, s->fail ? NULL : &value, s->fail ? LATHE_COMPILE : LATHE_OK, &err);
    return s->fail ? (void *)s : &value;
}

static void keep(void *value)
{
    (void)value;
}

static void ask_from_threads(struct shared *s, void **results)
{
    pthread_t thread[8];
    for (int i = 0; i < 8; i++)
        CHECK_EQ(pthread_create(&thread[i], NULL, ask, s), 0);
    for (int i = 0; i < 8; i++)
        CHECK_EQ(pthread_join(thread[i], &results[i]), 0);
}

TEST(threads_build_once)
{
    struct shared s = {.fail = false};
    void *result[8];
    lathe__flight_init(&s.flight);
    ask_from_threads(&s, result);
    CHECK_EQ(s.builds, 1);
    for (int i = 0; i < 8; i++)
        CHECK(result[i] != NULL && result[i] == result[0]);
    lathe__flight_destroy(&s.flight, keep);
}

TEST(a_failure_reaches_all_who_wait_and_is_tried_again)
{
    struct shared s = {.fail = true};
    void *result[8];
    lathe__flight_init(&s.flight);
    ask_from_threads(&s, result);
    for (int i = 0; i < 8; i++)
        CHECK(result[i] == &s);
    CHECK(s.builds >= 1 && s.builds <= 8);
    const int before = s.builds;
    s.fail = false;
    CHECK(ask(&s) != &s);
    CHECK_EQ(s.builds, before + 1);
    lathe__flight_destroy(&s.flight, keep);
}
