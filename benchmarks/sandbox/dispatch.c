/* An interpreter as small as one can be that works as CPython's does: instructions with an operand, values on a stack in
   memory, and one way or another from an instruction to the next. benchmarks/sandbox/dispatch.py builds it each way. */
#include <stdint.h>

enum { LOAD, STORE, CONSTANT, ADD, SUBTRACT, MULTIPLY, XOR, DUPLICATE, SWAP, DROP, LESS, JUMP, JUMP_IF, NOTHING, COUNT, STOP };

/* sum = 0; for count in range(n): sum = (sum + count * 3) ^ count */
static const uint8_t PROGRAM[] = {
    LOAD, 0, LOAD, 1, CONSTANT, 3, MULTIPLY, 0, ADD, 0, LOAD, 1, XOR, 0, STORE, 0, /* the sum */
    LOAD, 1, CONSTANT, 1, ADD, 0, STORE, 1, NOTHING, 0,                             /* the count */
    LOAD, 1, LOAD, 2, LESS, 0, JUMP_IF, 0, STOP, 0,
};

#if defined(TAIL)
typedef int64_t (*Handler)(const uint8_t *, int64_t *, int64_t *);
extern const Handler HANDLERS[16];
#define DISPATCH() __attribute__((musttail)) return HANDLERS[next[0]](next, top, locals)
#define CASE(NAME) static int64_t do_##NAME(const uint8_t *next, int64_t *top, int64_t *locals)
#define BODY(...) { uint8_t operand = next[1]; next += 2; (void)operand; __VA_ARGS__; DISPATCH(); }
#else
#define BODY(...) { uint8_t operand = next[1]; next += 2; (void)operand; __VA_ARGS__; DISPATCH(); }
#endif

#define ALL(CASE)                                              \
    CASE(LOAD) BODY(*top++ = locals[operand])                  \
    CASE(STORE) BODY(locals[operand] = *--top)                 \
    CASE(CONSTANT) BODY(*top++ = operand)                      \
    CASE(ADD) BODY(top--; top[-1] += top[0])                   \
    CASE(SUBTRACT) BODY(top--; top[-1] -= top[0])              \
    CASE(MULTIPLY) BODY(top--; top[-1] *= top[0])              \
    CASE(XOR) BODY(top--; top[-1] ^= top[0])                   \
    CASE(DUPLICATE) BODY(*top = top[-1]; top++)                \
    CASE(SWAP) BODY(int64_t kept = top[-1]; top[-1] = top[-2]; top[-2] = kept) \
    CASE(DROP) BODY(top--)                                     \
    CASE(LESS) BODY(top--; top[-1] = top[-1] < top[0])         \
    CASE(JUMP) BODY(next = PROGRAM + operand)                  \
    CASE(JUMP_IF) BODY(if (*--top) next = PROGRAM + operand)   \
    CASE(NOTHING) BODY()                                       \
    CASE(COUNT) BODY(locals[operand]++)

#if defined(TAIL)
ALL(CASE)
CASE(STOP) { return locals[0]; }
const Handler HANDLERS[16] = {do_LOAD, do_STORE, do_CONSTANT, do_ADD, do_SUBTRACT, do_MULTIPLY, do_XOR, do_DUPLICATE,
                              do_SWAP, do_DROP, do_LESS, do_JUMP, do_JUMP_IF, do_NOTHING, do_COUNT, do_STOP};
#endif

__attribute__((visibility("default"))) int64_t run(int32_t turns) {
    int64_t stack[16], locals[3] = {0, 0, turns};
    int64_t *volatile hidden = stack; /* the stack stays in memory, as CPython's */
    int64_t *top = hidden;
    const uint8_t *volatile start = PROGRAM;
    const uint8_t *next = start;
#if defined(TAIL)
    return HANDLERS[next[0]](next, top, locals);
#elif defined(GOTO)
    static const void *const LABELS[] = {&&LOAD_, &&STORE_, &&CONSTANT_, &&ADD_, &&SUBTRACT_, &&MULTIPLY_, &&XOR_, &&DUPLICATE_,
                                         &&SWAP_, &&DROP_, &&LESS_, &&JUMP_, &&JUMP_IF_, &&NOTHING_, &&COUNT_, &&STOP_};
#define DISPATCH() goto *LABELS[next[0]]
#define LABEL(NAME) NAME##_:
    DISPATCH();
    ALL(LABEL)
STOP_:
    return locals[0];
#else
#define DISPATCH() goto again
#define LABEL(NAME) case NAME:
again:
    switch (next[0]) {
        ALL(LABEL)
    default:
        return locals[0];
    }
#endif
}
