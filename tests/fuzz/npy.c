/*
 * npy.c: libFuzzer target: any bytes as a .npy file, into every dtype. A file that is read has as many
 * elements as its shape says; nothing leaks or reads outside its bytes (the sanitizers watch that).
 */
#include "gen/gen.h"
#include "gen/tool/npy.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const lathe_dtype wanted[] = {LATHE_F32, LATHE_F16, LATHE_BF16, LATHE_I32,
                                         LATHE_U8,  LATHE_F64, LATHE_I8,   LATHE_F8_E4M3};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        struct npy array;
        lathe_error err = {0};
        const lathe_status status = npy_parse(&array, "fuzz", data, size, wanted[i], &err);
        if (status != LATHE_OK) {
            if (!err.text[0] || array.data)
                abort();
            continue;
        }
        int64_t count = 1;
        for (int k = 0; k < array.ndim; k++)
            count = array.shape[k] == 0 || count == 0 ? 0 : count * array.shape[k];
        if (count != array.count || array.count < 0)
            abort();
        npy_free(&array);
    }
    return 0;
}
