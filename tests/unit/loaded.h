/*
 * loaded.h: a spec and the signature of one of its passes, for tests of what comes behind them.
 */
#ifndef LATHE_TEST_LOADED_H
#define LATHE_TEST_LOADED_H

#include <string.h>

#include "check.h"
#include "gen/gen.h"

/* spec: a text, or the name of a shipped one. The first mistake in it fails the test. */
static inline struct ir *load_spec(const char *spec)
{
    struct diag diag = {0};
    const bool is_text = strchr(spec, ' ') != NULL;
    struct ir *ir =
        is_text ? spec_load("test.lua", spec, strlen(spec), &diag) : spec_load(spec, NULL, 0, &diag);
    CHECK_STR(diag.n > 0 ? diag.entry[0].text : "", "");
    CHECK(ir != NULL);
    return ir;
}

static inline struct ir *load_signed(const char *spec, lathe_pass pass, struct signature *sig)
{
    struct ir *ir = load_spec(spec);
    signature_make(ir, pass, sig);
    return ir;
}

#endif
