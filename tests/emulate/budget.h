/*
 * budget.h: how long one run may take for cases that have not passed before. LATHE_TEST_BUDGET says how many
 * seconds, and .ci/run sets it: a change of a template that many cases use would take hours of a machine that
 * has only minutes. Without it every case is run.
 */
#ifndef LATHE_TESTS_EMULATE_BUDGET_H
#define LATHE_TESTS_EMULATE_BUDGET_H

#include "harness.h"

/* Beside those of harness.h, on which all that is known of cases depends: neither passed nor failed. */
enum { VERDICT_NOT_RUN = VERDICT_FAILED + 1 };

/* Ahead of the processes that share it. False: out of memory. */
bool budget_open(double seconds);
bool budget_is_limited(void);
/* Before a case that is not known: whether it runs. The first one always does. */
bool budget_begin(void);
/* Behind it. */
void budget_end(void);

#endif
