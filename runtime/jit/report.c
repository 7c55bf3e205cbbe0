/*
 * report.c: what a report of a fault has to say of the machine: versions, devices, NVRTC, caches, settings.
 * In: nothing but the machine; out: lines, a text of the caller's. What is missing is said with its reason,
 * and is no error.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/utsname.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <gnu/libc-version.h>
#endif

#include "lathe_inspect.h"
#include "runtime/base/environ.h"
#include "runtime/jit/jit.h"

static void tell_machine(FILE *out)
{
    struct utsname machine;
    char place[PATH_BYTES];
    fprintf(out, "lathe      %s, %s\n", lathe_version(), lathe__own_place(place) ? place : "place unknown");
    if (uname(&machine) != 0)
        return;
    fprintf(out, "machine    %s, %ld cores, %s %s", machine.machine, sysconf(_SC_NPROCESSORS_ONLN),
            machine.sysname, machine.release);
#ifdef __GLIBC__
    fprintf(out, ", glibc %s", gnu_get_libc_version());
#endif
    fprintf(out, "\n");
}

static void tell_device(FILE *out, const struct driver *driver, int ordinal)
{
    int handle = 0;
    char name[256] = "";
    struct device device;
    lathe_error err = {0};
    lathe_status status =
        lathe__driver_check(driver, driver->cuDeviceGet(&handle, ordinal), "cuDeviceGet", &err);
    if (status == LATHE_OK)
        status = lathe__driver_check(driver, driver->cuDeviceGetName(name, (int)sizeof name, handle),
                                     "cuDeviceGetName", &err);
    if (status == LATHE_OK)
        status = lathe__driver_device(driver, ordinal, &device, &err);
    if (status == LATHE_OK)
        fprintf(out, "device     %d: %s, %s, %d multiprocessors\n", ordinal, name, device.arch,
                device.sm_count);
    else
        fprintf(out, "device     %d: %s\n", ordinal, err.text);
}

/* Returns the driver's version; 0: none. */
static int tell_devices(FILE *out)
{
    struct driver *driver = NULL;
    lathe_error err = {0};
    int count = 0;
    lathe_status status = lathe__driver_open(&driver, &err);
    const int version = status == LATHE_OK ? driver->version : 0;
    if (status == LATHE_OK) {
        fprintf(out, "driver     of CUDA %d.%d\n", version / 1000, version % 1000 / 10);
        status = lathe__driver_check(driver, driver->cuDeviceGetCount(&count), "cuDeviceGetCount", &err);
    }
    if (status != LATHE_OK)
        fprintf(out, "%s     none: %s\n", version ? "device" : "driver", err.text);
    for (int i = 0; i < count; i++)
        tell_device(out, driver, i);
    lathe__driver_close(driver);
    return version;
}

static void tell_compiler(FILE *out, const struct environment *environment, int driver_version)
{
    struct compiler *compiler = NULL;
    lathe_error err = {0};
    if (lathe__compiler_open(&compiler, environment->cuda_home, driver_version, &err) != LATHE_OK) {
        fprintf(out, "NVRTC      none: %s\n", err.text);
        return;
    }
    fprintf(out, "NVRTC      %d.%d, %s\n", compiler->major, compiler->minor,
            compiler->path[0] ? compiler->path : "in this program");
    fprintf(out, "fatbins    %s\n",
            compiler->nvfatbin       ? "by nvFatbin"
            : compiler->fatbinary[0] ? compiler->fatbinary
                                     : "neither nvFatbin nor fatbinary: one architecture an image");
    lathe__compiler_close(compiler);
}

static void tell_cache(FILE *out, const char *what, const char *path)
{
    struct cache cache;
    struct cache_list list = {0};
    lathe_error err = {0};
    if (!path[0] || access(path, F_OK) != 0) {
        fprintf(out, "%s %s%s\n", what, path[0] ? path : "none", path[0] ? ": not there yet" : "");
        return;
    }
    lathe__cache_open_tool(&cache, path, true, (struct reporter){NULL, NULL});
    if (lathe__cache_list(&cache, &list, &err) == LATHE_OK)
        fprintf(out, "%s %s: %d kernels, %llu bytes\n", what, path, list.n, (unsigned long long)list.bytes);
    else
        fprintf(out, "%s %s: %s\n", what, path, err.text);
    lathe__cache_list_free(&list);
    lathe__cache_close(&cache);
}

static void tell_settings(FILE *out, const struct environment *environment)
{
    fprintf(out, "settings   offline %s, CUDA_HOME %s, LATHE_TEMPLATE %s\n",
            environment->offline ? "yes" : "no",
            environment->cuda_home[0] ? environment->cuda_home : "not set",
            environment->template_name[0] ? environment->template_name : "not set");
}

lathe_status lathe_report(char **out, lathe_error *err)
{
    struct environment environment;
    size_t size = 0;
    if (!out)
        return lathe__fail(err, LATHE_ARG, "out: expected the address of a char pointer, given NULL");
    *out = NULL;
    lathe__error_clear(err);
    FILE *text = open_memstream(out, &size);
    if (!text)
        return lathe__fail_memory(err);
    lathe__environment_read(&environment);
    tell_machine(text);
    tell_compiler(text, &environment, tell_devices(text));
    tell_cache(text, "cache     ", environment.cache_dir);
    tell_cache(text, "of system ", environment.system_cache_dir);
    tell_settings(text, &environment);
    const bool whole = !ferror(text);
    if (fclose(text) == 0 && whole)
        return LATHE_OK;
    free(*out);
    *out = NULL;
    return lathe__fail_memory(err);
}
