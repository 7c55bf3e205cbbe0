/*
 * names.c: names that a spec uses, in Lua tables and in tensors' dims. In: a Lua table, a name. Out: what is
 * not listed, what is tagged, which dim a name is.
 */
#include "gen/lang/slots.h"
#include "gen/ir/rules.h"
#include "gen/ir/spec.h"

#include <stdio.h>
#include <string.h>

const char *unlisted_behind(lua_State *lua, int table, const char *const *fields, const char *after)
{
    const char *first = NULL;
    for (lua_pushnil(lua); lua_next(lua, table); lua_pop(lua, 1)) {
        const char *name = lua_type(lua, -2) == LUA_TSTRING ? lua_tostring(lua, -2) : "";
        if (!is_listed(fields, name) && (!after || strcmp(name, after) > 0) &&
            (!first || strcmp(name, first) < 0))
            first = name;
    }
    return first;
}

const char *unlisted_field(lua_State *lua, int table, const char *const *fields)
{
    return unlisted_behind(lua, table, fields, NULL);
}

bool has_tag(lua_State *lua, int index, const char *tag)
{
    if (!lua_getmetatable(lua, index))
        return false;
    luaL_getmetatable(lua, tag);
    bool same = lua_rawequal(lua, -1, -2) != 0;
    lua_pop(lua, 2);
    return same;
}

const char *lang_dim_name(const struct ir *ir, const struct sig_dim *dim, char *out, size_t size)
{
    static const char *const names[] = {
#define SYM_TEXT(id, text, what) text,
        SYM_MAP(SYM_TEXT)
#undef SYM_TEXT
    };
    if (dim->literal > 0)
        snprintf(out, size, "%d", dim->literal);
    else
        snprintf(out, size, "%s",
                 dim->sym >= SYM_FREE ? ir->free_name[dim->sym - SYM_FREE] : names[dim->sym]);
    return out;
}

bool is_identifier(const char *s)
{
    if (!((*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') || *s == '_') ||
        strlen(s) >= NAME_MAX_BYTES - 8)
        return false;
    for (; *s; s++)
        if (!((*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') || *s == '_' || (*s >= '0' && *s <= '9')))
            return false;
    return true;
}

int dim_find(const struct ir *ir, const char *name)
{
    static const struct {
        const char *name;
        int sym;
        enum kind kind;
    } KNOWN[] = {{"b", SYM_B, KIND_ATTENTION},       {"h", SYM_H, KIND_ATTENTION},
                 {"h_kv", SYM_H_KV, KIND_ATTENTION}, {"q", SYM_Q, KIND_ATTENTION},
                 {"kv", SYM_KV, KIND_ATTENTION},     {"d", SYM_D, KIND_ATTENTION},
                 {"d_v", SYM_D_V, KIND_ATTENTION},   {"rows", SYM_ROWS, KIND_ROWWISE},
                 {"n", SYM_N, KIND_ROWWISE},         {"b", SYM_B, KIND_LINEAR},
                 {"h", SYM_H, KIND_LINEAR},          {"h_k", SYM_H_K, KIND_LINEAR},
                 {"t", SYM_T, KIND_LINEAR},          {"d", SYM_D, KIND_LINEAR},
                 {"d_v", SYM_D_V, KIND_LINEAR},      {"seqs", SYM_SEQS, KIND_LINEAR}};
    for (size_t i = 0; i < sizeof KNOWN / sizeof *KNOWN; i++)
        if (KNOWN[i].kind == ir->kind && strcmp(KNOWN[i].name, name) == 0)
            return KNOWN[i].sym;
    for (int i = 0; i < ir->n_free; i++)
        if (strcmp(ir->free_name[i], name) == 0)
            return SYM_FREE + i;
    return -1;
}

bool dim_is_taken(const struct ir *ir, const char *name)
{
    static const struct {
        const char *name;
        enum kind kind;
    } TAKEN[] = {{"seqs", KIND_ATTENTION},   {"page", KIND_ATTENTION}, {"most", KIND_ATTENTION},
                 {"pool", KIND_ATTENTION},   {"d2", KIND_ATTENTION},   {"parts", KIND_ATTENTION},
                 {"n_h_kv", KIND_ATTENTION}, {"slots", KIND_LINEAR},   {"kept", KIND_LINEAR},
                 {"rows0", KIND_ROWWISE},    {"rows1", KIND_ROWWISE},  {"tensors", KIND_ELEMENTWISE}};
    for (size_t i = 0; i < sizeof TAKEN / sizeof *TAKEN; i++)
        if (TAKEN[i].kind == ir->kind && strcmp(TAKEN[i].name, name) == 0)
            return true;
    return is_argument_of_kind(ir, name); /* a problem names arguments, too */
}

int dim_sym(struct ir *ir, const char *name)
{
    const int known = dim_find(ir, name);
    if (known >= 0 || ir->n_free == MAX_FREE_SYMS)
        return known;
    snprintf(ir->free_name[ir->n_free], NAME_MAX_BYTES, "%s", name);
    return SYM_FREE + ir->n_free++;
}
