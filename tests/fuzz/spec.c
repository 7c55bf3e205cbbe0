/*
 * spec.c: libFuzzer target of the spec loader. In: any bytes as the text of a spec.
 * Out: nothing; a crash, a leak, an endless loop or a sanitizer's finding is the failure.
 * A text that is refused must have been refused with a reason.
 */
#include "gen/gen.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct diag *diag = calloc(1, sizeof *diag);
    struct ir *ir;

    if (diag == NULL) {
        return 0;
    }
    ir = spec_load("fuzz.lua", (const char *)data, size, diag);
    if ((ir == NULL) != (diag->n > 0)) {
        abort();
    }
    if (ir != NULL) {
        struct text_buf text = {0};
        struct signature *signature = calloc(1, sizeof *signature);
        ir_print(ir, &text);
        if (signature != NULL) {
            signature_make(ir, LATHE_FORWARD, signature);
        }
        free(signature);
        text_free(&text);
    }
    ir_free(ir);
    free(diag);
    return 0;
}
