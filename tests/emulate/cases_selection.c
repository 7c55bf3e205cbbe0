/*
 * cases_selection.c: row-wise specs that put a row in order: ranks, the first elements in it, chosen blocks.
 *
 * In: nothing. Out: cases at the end of the list; see cases.c.
 */
#include "cases.h"

#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

/* Places in falling order, among equal elements, -inf and NaN; beside a reduction, a sum up
 * to each and a gradient of another row. */
static const char RANKS[] =
    "return rowwise { inputs = { b = tensor('float', 'rows', 'n', { grad = true }) },\n"
    "  forward = function(x, at, p)\n"
    "    local s = floor(4.0 * (x - rowmax(x)))\n"
    "    s = where(eq(at.i % 5, 3), -inf, where(eq(at.i % 7, 2), log(-1.0 - abs(x)), s))\n"
    "    local r = rank(s)\n"
    "    local y = where(lt(r, 9) & gt(s, -inf), x * p.b(at.row, at.i), 0.0) + 0.01 * cumsum(x, 0.0)\n"
    "    return y, { place = r, low = f32(r % 128), back = rank(f32(r)) }\n  end }\n";

/* A spec that is shipped and one of here in turn, both passes, over lengths of rows. */
struct in_turn {
    const char *shipped, *name, *text;
    int longest, most, most_of_text; /* beyond these, more tensors than a thread has registers for: refused */
};

static void add_in_turn(struct case_list *list, const struct in_turn *t)
{
    static const int N[] = {1, 7, 32, 33, 257, 512, 1024, 1025, 2048};
    static const lathe_dtype DTYPE[] = {LATHE_F32, LATHE_F16, LATHE_BF16};
    static const enum layout LAYOUT[] = {LAYOUT_COMPACT, LAYOUT_PADDED, LAYOUT_MISALIGNED};
    for (int i = 0; i < (COUNT(N) + 1) * 4; i++) {
        const int n = i / 4 < COUNT(N) ? N[i / 4] : t->longest;
        struct test_case c = case_of_attention("scans", i % 2 ? t->name : t->shipped, i % 2 ? t->text : NULL,
                                               DTYPE[i / 2 % 3], -1, -1, i % 3 ? 90 : 80);
        c.pass = i / 2 % 2 ? LATHE_BACKWARD : LATHE_FORWARD;
        c.dim[SYM_ROWS0] = 1;
        c.dim[SYM_ROWS1] = i % 3 ? 2 : 1;
        c.dim[SYM_ROWS] = n > 1024 ? 1 : 5;
        c.dim[SYM_N] = n;
        c.leading = i % 3 ? 2 : 1;
        c.layout = LAYOUT[i / 4 % 3];
        c.may_refuse = n > (i % 2 ? t->most_of_text : t->most);
        case_add(list, &c);
    }
}

void group_ranks(struct case_list *list)
{
    add_in_turn(list, &(struct in_turn){"largest", "ranks", RANKS, 8192, 4096, 4096});
}

/* Rows in the order of other values, and back again; more first elements than a row may have, and fewer. */
static const char ORDERS[] =
    "return rowwise { inputs = { b = tensor('float', 'rows', 'n', { grad = true }) },\n"
    "  forward = function(x, at, p)\n"
    "    local b = p.b(at.row, at.i)\n"
    "    local s = where(eq(at.i % 7, 2), log(-1.0 - abs(x)), floor(4.0 * (x - rowmax(x))))\n"
    "    local r = rank(s)\n"
    "    local order = placed(x * b, r)\n"
    "    return 0.5 * order + taken(x, r), { values = first(order, 33, 2.5), few = first(order, 3, -inf),\n"
    "      places = first(placed(1 - at.i * 70000, r), 37, -7) }\n  end }\n";

void group_orders(struct case_list *list)
{
    add_in_turn(list, &(struct in_turn){"topk", "orders", ORDERS, 4096, 4096, 1024});
}

/* Blocks that are forced, of the future, of another sequence; more places than blocks. */
void group_selections(struct case_list *list)
{
    static const int N[] = {1, 7, 33, 257, 1024, 4096};
    static const lathe_dtype DTYPE[] = {LATHE_F32, LATHE_F16, LATHE_BF16};
    static const enum layout LAYOUT[] = {LAYOUT_COMPACT, LAYOUT_PADDED, LAYOUT_MISALIGNED};
    for (int i = 0; i < COUNT(N) * 2; i++) {
        struct test_case c =
            case_of_attention("scans", "nsa_select", NULL, DTYPE[(i + i / 2) % 3], -1, -1, i % 3 ? 90 : 80);
        c.dim[SYM_ROWS0] = 1;
        c.dim[SYM_ROWS1] = 2;
        c.dim[SYM_ROWS] = 7;
        c.dim[SYM_N] = N[i / 2];
        c.leading = 2;
        c.layout = LAYOUT[i % 3];
        case_add(list, &c);
    }
}
