/*
 * bytecode.c: what Lua made of the text of a chunk. Every instruction gets a number of its own, which Lua
 * then takes for its line, so a hook knows the very instruction that runs, however the text is spelled. In: a
 * function that luaL_loadbuffer made. Out: the same function with numbers for lines, and its instructions
 * with their true lines, by number. The format is that of lua_dump in Lua 5.4; another is an error. All
 * memory is Lua's.
 */
#include "gen/lang/trace.h"

#include <string.h>

#if LUA_VERSION_NUM != 504
#error "bytecode.c knows the bytecode of Lua 5.4 only"
#endif

enum {
    LINES_APART = 120, /* instructions between absolute lines; Lua 5.4 expects one in at most 128 */
    LINE_IS_ABSOLUTE = 0x80,
    SIZE_BYTES_MAX = 10 /* of one size in the dump */
};

/* ---- the dump, read and written ---------------------------------------------------------------- */

struct dump {
    const uint8_t *at;
    const uint8_t *end;
    uint8_t *out;             /* NULL: nothing is written yet */
    struct instruction *slot; /* NULL: they are counted */
    int first;                /* number of the chunk's first slot */
    int n;                    /* slots so far */
    bool bad;                 /* not as lua_dump of Lua 5.4 writes it */
};

static const uint8_t *take(struct dump *d, size_t n)
{
    static const uint8_t zeros[SIZE_BYTES_MAX] = {0};
    if (d->bad || n > (size_t)(d->end - d->at)) {
        d->bad = true;
        return n <= sizeof zeros ? zeros : NULL;
    }
    d->at += n;
    return d->at - n;
}

static void put(struct dump *d, const void *bytes, size_t n)
{
    if (!d->out || d->bad || n == 0)
        return;
    memcpy(d->out, bytes, n);
    d->out += n;
}

static void copy(struct dump *d, size_t n)
{
    const uint8_t *bytes = take(d, n);
    put(d, bytes, n);
}

static uint8_t copy_byte(struct dump *d)
{
    const uint8_t byte = *take(d, 1);
    put(d, &byte, 1);
    return byte;
}

/* Seven bits a byte, the highest first; the last byte has its top bit set. */
static size_t take_size(struct dump *d)
{
    size_t value = 0;
    for (int i = 0; i < SIZE_BYTES_MAX && !d->bad; i++) {
        const uint8_t byte = *take(d, 1);
        value = value << 7 | (byte & 0x7f);
        if (byte & 0x80)
            return value;
    }
    d->bad = true;
    return 0;
}

static void put_size(struct dump *d, size_t value)
{
    uint8_t bytes[SIZE_BYTES_MAX];
    int n = 0;
    for (bytes[n++] = (value & 0x7f) | 0x80; value >>= 7;)
        bytes[n++] = value & 0x7f;
    while (n-- > 0)
        put(d, &bytes[n], 1);
}

/* How many there are of something that takes at least a byte each. */
static size_t take_count(struct dump *d)
{
    const size_t n = take_size(d);
    if (n > (size_t)(d->end - d->at))
        d->bad = true;
    return d->bad ? 0 : n;
}

static size_t copy_count(struct dump *d)
{
    const size_t n = take_count(d);
    put_size(d, n);
    return n;
}

static void copy_string(struct dump *d)
{
    const size_t n = take_size(d); /* 0: none; else one more than its bytes */
    put_size(d, n);
    copy(d, n > 0 ? n - 1 : 0);
}

/* ---- functions ---------------------------------------------------------------------------------- */

static void copy_constants(struct dump *d)
{
    enum { NIL = 0x00, FALSE = 0x01, TRUE = 0x11, INTEGER = 0x03, FLOAT = 0x13, SHORT = 0x04, LONG = 0x14 };
    for (size_t n = copy_count(d); n > 0 && !d->bad; n--) {
        const uint8_t type = copy_byte(d);
        if (type == INTEGER)
            copy(d, sizeof(lua_Integer));
        else if (type == FLOAT)
            copy(d, sizeof(lua_Number));
        else if (type == SHORT || type == LONG)
            copy_string(d);
        else if (type != NIL && type != FALSE && type != TRUE)
            d->bad = true;
    }
}

static void copy_code(struct dump *d, int entry, size_t n)
{
    const uint8_t *code = take(d, n * sizeof(uint32_t));
    put(d, code, n * sizeof(uint32_t));
    for (size_t i = 0; d->slot && !d->bad && i < n; i++)
        memcpy(&d->slot[entry + 1 + (int)i].code, code + i * sizeof(uint32_t), sizeof(uint32_t));
}

/* Takes the true lines of n instructions, and puts numbers in their place. */
static void number_lines(struct dump *d, int entry, size_t n, int line)
{
    const bool same = take_size(d) == n;
    const int8_t *step = (const int8_t *)take(d, n);
    const size_t n_absolute = take_count(d);
    for (size_t i = 0, k = 0; i < n && same && !d->bad; i++) {
        if ((uint8_t)step[i] == LINE_IS_ABSOLUTE) {
            d->bad = k++ == n_absolute || take_size(d) != i;
            line = (int)take_size(d);
        } else {
            line += step[i];
        }
        if (d->slot)
            d->slot[entry + 1 + (int)i].line = line;
    }
    d->bad = d->bad || !same;
    put_size(d, n);
    for (size_t i = 0; i < n; i++)
        put(d, i % LINES_APART == 0 ? "\x80" : "\1", 1);
    put_size(d, (n + LINES_APART - 1) / LINES_APART);
    for (size_t i = 0; i < n; i += LINES_APART) {
        put_size(d, i);
        put_size(d, (size_t)(d->first + entry + 1) + i);
    }
}

static void copy_names(struct dump *d)
{
    for (size_t n = copy_count(d); n > 0 && !d->bad; n--) { /* of locals */
        copy_string(d);
        put_size(d, take_size(d));
        put_size(d, take_size(d));
    }
    for (size_t n = copy_count(d); n > 0 && !d->bad; n--) /* of upvalues */
        copy_string(d);
}

/* A function and those inside of it, of which Lua allows 200 in one another. */
static void copy_function(struct dump *d) /* NOLINT(misc-no-recursion): as deep as the parser's */
{
    copy_string(d);
    const int entry = d->n;
    const size_t line = take_size(d);
    put_size(d, line == 0 ? 0 : (size_t)(d->first + entry)); /* 0 is how Lua knows the main function */
    put_size(d, take_size(d));                               /* its last line */
    copy(d, 3); /* parameters, whether there are more, registers */
    const size_t n = copy_count(d);
    d->n += 1 + (int)n;
    if (d->slot)
        d->slot[entry] = (struct instruction){.code = (uint32_t)n, .line = (int32_t)line};
    copy_code(d, entry, n);
    copy_constants(d);
    copy(d, 3 * copy_count(d)); /* upvalues */
    for (size_t k = copy_count(d); k > 0 && !d->bad; k--)
        copy_function(d);
    number_lines(d, entry, n, (int)line);
    copy_names(d);
}

static void copy_dump(struct dump *d)
{
    const lua_Integer whole = 0x5678;
    const lua_Number half = 370.5;
    uint8_t header[31] = "\x1bLua\x54\x00\x19\x93\r\n\x1a\n";
    header[12] = sizeof(uint32_t);
    header[13] = sizeof whole;
    header[14] = sizeof half;
    memcpy(header + 15, &whole, sizeof whole);
    memcpy(header + 15 + sizeof whole, &half, sizeof half);
    const uint8_t *given = take(d, sizeof header);
    if (!d->bad && memcmp(given, header, sizeof header) != 0)
        d->bad = true;
    put(d, header, sizeof header);
    copy_byte(d); /* upvalues of the main function */
    copy_function(d);
    d->bad = d->bad || d->at != d->end;
}

/* ---- Lua ----------------------------------------------------------------------------------------- */

struct bytes {
    uint8_t *data; /* NULL: they are counted */
    size_t n;
};

static int write_bytes(lua_State *lua, const void *data, size_t n, void *user)
{
    (void)lua;
    struct bytes *b = user;
    if (b->data && n > 0)
        memcpy(b->data + b->n, data, n);
    b->n += n;
    return 0;
}

/* The function on top of the stack as bytes, which take its place. */
static struct bytes dump_function(lua_State *lua)
{
    struct bytes b = {NULL, 0};
    lua_dump(lua, write_bytes, &b, 0);
    uint8_t *data = lua_newuserdatauv(lua, b.n, 0);
    lua_insert(lua, -2);
    b = (struct bytes){data, 0};
    lua_dump(lua, write_bytes, &b, 0);
    lua_pop(lua, 1);
    return b;
}

static void refuse(lua_State *lua)
{
    luaL_error(lua,
               "this build's Lua writes another bytecode than Lua 5.4 (see gen/lang/bytecode.c), so what a "
               "traced function tests cannot be seen");
}

void bytecode_number(lua_State *lua, struct chunk *chunk, int first, const char *name)
{
    const struct bytes b = dump_function(lua);
    struct dump count = {.at = b.data, .end = b.data + b.n, .first = first};
    copy_dump(&count);
    if (count.bad)
        refuse(lua);
    const size_t slots = (size_t)count.n;
    struct dump d = {.at = b.data, .end = b.data + b.n, .first = first};
    d.slot = lua_newuserdatauv(lua, slots * sizeof *d.slot, 0);
    memset(d.slot, 0, slots * sizeof *d.slot);
    uint8_t *numbered = lua_newuserdatauv(lua, b.n + slots * 4 * SIZE_BYTES_MAX, 0);
    d.out = numbered;
    copy_dump(&d);
    const int status = luaL_loadbufferx(lua, (const char *)numbered, (size_t)(d.out - numbered), name, "b");
    if (status == LUA_ERRMEM)
        luaL_error(lua, "%s", trace_memory_reason(tracer_of(lua)));
    if (d.bad || status != LUA_OK)
        refuse(lua);
    lua_replace(lua, -4); /* the function where the bytes were */
    lua_pop(lua, 1);
    lua_rawsetp(lua, LUA_REGISTRYINDEX, d.slot);
    *chunk = (struct chunk){first, d.n, d.slot};
}

static int op_of(uint32_t code)
{
    return (int)(code & 0x7f);
}

bool bytecode_is_test(uint32_t code)
{
    enum { NOT = 51, EQ = 57, EQK = 60, EQI = 61, TEST = 66, TESTSET = 67 };
    const int op = op_of(code);
    return op == NOT || op == EQ || op == EQK || op == EQI || op == TEST || op == TESTSET;
}

bool bytecode_keyed(uint32_t code, int *table, int *key)
{
    enum { GETTABLE = 12, SETTABLE = 16 };
    const int a = (int)(code >> 7 & 0xff);
    const int b = (int)(code >> 16 & 0xff);
    const int c = (int)(code >> 24);
    *table = op_of(code) == GETTABLE ? b : a;
    *key = op_of(code) == GETTABLE ? c : b;
    return op_of(code) == GETTABLE || op_of(code) == SETTABLE;
}

/* Are the numbers of operations those that this file knows? Asks Lua's own compiler. */
void bytecode_probe(lua_State *lua)
{
    static const char text[] =
        "local a, b = ... b = not a b = a == b b = a == 'x' b = a == 1 b = a and b "
        "if a then b = a end a[b] = a b = a[b] return -a, #a, a .. b, a + b, a < b, b(a)";
    static const char *const expected = "ttttttkk"; /* tests, then keys */
    struct chunk chunk;
    char found[sizeof text] = "";
    size_t n = 0;
    if (luaL_loadbufferx(lua, text, sizeof text - 1, "=probe", "t") != LUA_OK)
        refuse(lua);
    bytecode_number(lua, &chunk, 1, "=probe");
    for (int i = 1; i < chunk.n; i++) {
        const uint32_t code = chunk.slot[i].code;
        int table;
        int key;
        if (bytecode_is_test(code) || bytecode_keyed(code, &table, &key))
            found[n++] = bytecode_is_test(code) ? 't' : 'k';
    }
    lua_pop(lua, 1);
    lua_pushnil(lua);
    lua_rawsetp(lua, LUA_REGISTRYINDEX, chunk.slot);
    if (strcmp(found, expected) != 0)
        refuse(lua);
}
