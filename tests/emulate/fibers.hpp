// fibers.hpp: reports, random order and what a fiber is. A room of emulator.cpp.

unsigned warp_of(unsigned thread) { return thread / LANES; }
unsigned lane_of(unsigned thread) { return thread % LANES; }

// ---- reports ---------------------------------------------------------------------------------------------------

const char *short_name(const char *file)
{
    const char *slash = std::strrchr(file, '/');
    return slash ? slash + 1 : file;
}

void write_report(const void *address, const char *format, va_list arguments)
{
    emulate_report &r = *core.report;
    const int used = std::snprintf(r.text, sizeof r.text, "block %u, thread %u (warp %u, lane %u): ", blockIdx.x, core.thread,
                                   warp_of(core.thread), lane_of(core.thread));
    std::vsnprintf(r.text + used, sizeof r.text - static_cast<std::size_t>(used), format, arguments);
    r.address = address;
    core.failed = true;
}

[[noreturn]] void escape() { siglongjmp(core.escape, 1); } // from a fiber, never to come back to it

[[noreturn, gnu::format(printf, 1, 2)]] void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    write_report(nullptr, format, arguments);
    va_end(arguments);
    escape();
}

[[noreturn, gnu::format(printf, 2, 3)]] void fail_at(const void *address, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    write_report(address, format, arguments);
    va_end(arguments);
    escape();
}

[[gnu::format(printf, 2, 3)]] void note_fault(const void *address, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    write_report(address, format, arguments);
    va_end(arguments);
}

void on_signal(int number, siginfo_t *info, void *)
{
    if (!core.running) {
        std::signal(number, SIG_DFL);
        return; // the same again, without us
    }
    const unsigned char *at = static_cast<const unsigned char *>(info->si_addr);
    const unsigned char *stacks = core.stacks;
    if (number == SIGFPE) {
        note_fault(nullptr, "an integer division by zero or overflow");
    } else if (number == SIGILL) {
        note_fault(nullptr, "an index outside of its array, a misaligned vector or a shift out of range");
    } else if (at >= stacks && at < stacks + GUARDED_STACKS * (STACK_BYTES + GUARD_BYTES)) {
        note_fault(nullptr, "the stack of %zu bytes is too small", STACK_BYTES);
    } else {
        note_fault(at, "accesses memory that is no argument's");
    }
    escape();
}

// ---- random order --------------------------------------------------------------------------------------------------

std::uint64_t mix(std::uint64_t x) // splitmix64
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

unsigned draw() // xorshift
{
    now->random ^= now->random << 13;
    now->random ^= now->random >> 7;
    now->random ^= now->random << 17;
    return static_cast<unsigned>(now->random >> 32);
}

unsigned draw_order() // the same for the order of blocks
{
    std::uint64_t &x = core.random;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return static_cast<unsigned>(x >> 32);
}

unsigned one_bit_of(unsigned mask) // any of them; mask is not 0
{
    const unsigned turn = draw() % 32;
    const unsigned turned = mask >> turn | (turn ? mask << (32 - turn) : 0);
    return (static_cast<unsigned>(__builtin_ctz(turned)) + turn) % 32;
}

// ---- fibers -----------------------------------------------------------------------------------------------------------

#if defined(__x86_64__)
extern "C" void emulate_switch(void **save, void *load);
asm(".text\n"
    ".type emulate_switch, @function\n"
    "emulate_switch:\n"
    "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n    pushq %r13\n    pushq %r14\n    pushq %r15\n"
    "    movq %rsp, (%rdi)\n"
    "    movq %rsi, %rsp\n"
    "    popq %r15\n    popq %r14\n    popq %r13\n    popq %r12\n    popq %rbx\n    popq %rbp\n"
    "    ret\n"
    ".size emulate_switch, . - emulate_switch\n");

void make_context(context *c, void *stack, std::size_t size, void (*entry)())
{
    void **top = reinterpret_cast<void **>(static_cast<unsigned char *>(stack) + size);
    *--top = nullptr; // where entry would return to; leaves the stack as at a function's first instruction
    *--top = reinterpret_cast<void *>(entry);
    top -= 6;
    std::memset(top, 0, 6 * sizeof *top);
    c->stack_pointer = top;
}

void switch_context(context *from, context *to) { emulate_switch(&from->stack_pointer, to->stack_pointer); }
#else
void make_context(context *c, void *stack, std::size_t size, void (*entry)())
{
    getcontext(c);
    c->uc_stack.ss_sp = stack;
    c->uc_stack.ss_size = size;
    c->uc_link = nullptr;
    makecontext(c, entry, 0);
}

void switch_context(context *from, context *to) { swapcontext(from, to); }
#endif

void become(unsigned thread)
{
    core.thread = thread;
    threadIdx.x = thread;
}

void set_ready(unsigned w, unsigned lanes)
{
    now->warps[w].ready |= lanes;
    now->warps_ready |= 1u << w;
}

