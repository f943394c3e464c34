// The C++ operators new and delete: every form, the new-handler, bad_alloc, threads, containers; every size; and known
// numbers of bytes for a heap profile.
#include "check.h"
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <malloc.h>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <vector>

static int handler_calls;

static void count_then_give_up() {
    if (++handler_calls == 3) std::set_new_handler(nullptr);
}

static void throw_own() { throw std::bad_alloc(); }

struct Own {
    int value = 7;
};
static void throw_foreign() { throw Own(); }

struct alignas(256) Wide {
    unsigned char bytes[300];
};

// volatile: the compiler may drop or refuse an allocation it can see through.
static volatile std::size_t too_much = static_cast<std::size_t>(PTRDIFF_MAX) - 4096;

template <typename Call> static bool throws_bad_alloc(Call call) {
    try {
        call();
    } catch (const std::bad_alloc &) {
        return true;
    }
    return false;
}

static void refused() {
    const std::align_val_t wide{512};
    CHECK(throws_bad_alloc([] { return ::operator new(too_much); }));
    CHECK(throws_bad_alloc([] { return ::operator new[](too_much); }));
    CHECK(throws_bad_alloc([=] { return ::operator new(too_much, wide); }));
    CHECK(throws_bad_alloc([=] { return ::operator new[](too_much, wide); }));
    CHECK(::operator new(too_much, std::nothrow) == nullptr);
    CHECK(::operator new[](too_much, std::nothrow) == nullptr);
    CHECK(::operator new(too_much, wide, std::nothrow) == nullptr);
    CHECK(::operator new[](too_much, wide, std::nothrow) == nullptr);

    // The handler is called until it gives up; then bad_alloc.
    handler_calls = 0;
    std::set_new_handler(count_then_give_up);
    CHECK(throws_bad_alloc([] { return ::operator new(too_much); }));
    CHECK(handler_calls == 3 && std::get_new_handler() == nullptr);
    handler_calls = 0;
    std::set_new_handler(count_then_give_up);
    CHECK(::operator new(too_much, std::nothrow) == nullptr);
    CHECK(handler_calls == 3);
    handler_calls = 0;
    std::set_new_handler(count_then_give_up);
    CHECK(::operator new[](too_much, wide, std::nothrow) == nullptr);
    CHECK(handler_calls == 3);

    // A handler may throw; the nothrow forms swallow bad_alloc.
    std::set_new_handler(throw_own);
    CHECK(throws_bad_alloc([] { return ::operator new[](too_much); }));
    CHECK(::operator new(too_much, std::nothrow) == nullptr);
    CHECK(::operator new(too_much, wide, std::nothrow) == nullptr);
    std::set_new_handler(throw_foreign);
    bool passed_through = false;
    try {
        ::operator delete(::operator new(too_much));
    } catch (const Own &own) {
        passed_through = own.value == 7;
    }
    CHECK(passed_through);
    std::set_new_handler(nullptr);

    // Malloc's errno is no business of operator new's callers, but the heap is whole afterwards.
    std::vector<std::string> strings;
    for (int i = 0; i < 10000; i++) strings.push_back(std::string(i % 200, 'x'));
    for (int i = 0; i < 10000; i++) CHECK(strings[i].size() == static_cast<std::size_t>(i % 200));
}

static void all_forms() {
    for (std::size_t size = 0; size < 100000; size = size * 3 / 2 + 1) {
        void *one = ::operator new(size);
        CHECK(one != nullptr);
        fill(one, size);
        CHECK(holds(one, size));
        ::operator delete(one);
        ::operator delete(::operator new(size), size);
        ::operator delete[](::operator new[](size));
        ::operator delete[](::operator new[](size), size);
        ::operator delete(::operator new(size, std::nothrow), std::nothrow);
        ::operator delete[](::operator new[](size, std::nothrow), std::nothrow);
        for (std::size_t power = 16; power <= 8192; power *= 8) {
            const std::align_val_t alignment{power};
            void *wide = ::operator new(size, alignment);
            CHECK(wide != nullptr && reinterpret_cast<std::uintptr_t>(wide) % power == 0);
            fill(wide, size);
            ::operator delete(wide, alignment);
            ::operator delete(::operator new(size, alignment), size, alignment);
            ::operator delete[](::operator new[](size, alignment), alignment);
            ::operator delete[](::operator new[](size, alignment), size, alignment);
            ::operator delete(::operator new(size, alignment, std::nothrow), alignment, std::nothrow);
            ::operator delete[](::operator new[](size, alignment, std::nothrow), alignment, std::nothrow);
        }
    }
    ::operator delete(nullptr);
    ::operator delete[](nullptr);
    ::operator delete(nullptr, std::size_t{10});
    ::operator delete(nullptr, std::align_val_t{64});
}

static void containers(unsigned seed) {
    std::map<int, std::vector<std::string>> tree;
    for (unsigned i = 0; i < 20000; i++) {
        seed = seed * 1103515245 + 12345;
        tree[static_cast<int>(seed >> 20)].push_back(std::string(seed % 300, 'a' + seed % 26));
    }
    for (auto &entry : tree)
        for (auto &text : entry.second) CHECK(text.empty() || (text.front() == text.back()));
    auto wide = std::make_unique<Wide>();
    CHECK(reinterpret_cast<std::uintptr_t>(wide.get()) % 256 == 0);
    std::vector<Wide> many(100);
    for (auto &one : many) CHECK(reinterpret_cast<std::uintptr_t>(&one) % 256 == 0);
}

static void forms() {
    Dl_info info;
    void *operator_new = dlsym(RTLD_DEFAULT, "_Znwm");
    char resolved[PATH_MAX];
    CHECK(operator_new != nullptr && dladdr(operator_new, &info) != 0);
    CHECK(realpath(info.dli_fname, resolved) != nullptr);
    CHECK(strcmp(resolved, getenv("EBB_TEST_LIBRARY")) == 0);
    all_forms();
    refused();
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < 4; i++) threads.emplace_back(containers, i);
    for (auto &thread : threads) thread.join();
}

// The throwing operators new at every size: 2^k - 1, 2^k, 2^k + 1 for all k, the ends of the range, and each with every
// alignment. The answer is address space or bad_alloc, and it touches no more pages for a larger size.
// As in huge.c: a failure first gives back everything that is free.
constexpr long MOST_FAULTS = 1500;

const char *form;
std::size_t size_asked, align_asked;
long served, thrown;

#define HOLDS(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            char line[300];                                                                                            \
            snprintf(line, sizeof line, "%s of %#zx aligned to %#zx: %s\n", form, size_asked, align_asked,             \
                     #condition);                                                                                      \
            say(line);                                                                                                 \
            _exit(99);                                                                                                 \
        }                                                                                                              \
    } while (0)

long faults() {
    rusage usage;
    CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
    return usage.ru_minflt;
}

template <typename New, typename Delete>
void one(const char *name, std::size_t size, std::size_t align, New make, Delete unmake) {
    form = name, size_asked = size, align_asked = align;
    long before = faults();
    void *block = nullptr;
    bool threw = false;
    try {
        block = make();
    } catch (const std::bad_alloc &) {
        threw = true;
    }
    HOLDS(threw == (block == nullptr));
    if (block != nullptr) {
        HOLDS(malloc_usable_size(block) >= size);
        HOLDS(reinterpret_cast<std::uintptr_t>(block) % align == 0);
        unmake(block);
        served++;
    } else {
        // Every machine has these.
        HOLDS(size > 1 << 20 || align > 1 << 20);
        thrown++;
    }
    HOLDS(faults() - before < MOST_FAULTS);
}

void one_size(std::size_t size) {
    one("new", size, 16, [=] { return ::operator new(size); }, [](void *block) { ::operator delete(block); });
    one(
        "new, sized delete", size, 16, [=] { return ::operator new(size); },
        [=](void *block) { ::operator delete(block, size); });
    one("new[]", size, 16, [=] { return ::operator new[](size); }, [](void *block) { ::operator delete[](block); });
    one(
        "new[], sized delete[]", size, 16, [=] { return ::operator new[](size); },
        [=](void *block) { ::operator delete[](block, size); });
}

void one_alignment(std::size_t size, std::size_t align) {
    const std::align_val_t wide{align};
    one(
        "aligned new", size, align, [=] { return ::operator new(size, wide); },
        [=](void *block) { ::operator delete(block, wide); });
    one(
        "aligned new[]", size, align, [=] { return ::operator new[](size, wide); },
        [=](void *block) { ::operator delete[](block, size, wide); });
}

static void every_size() {
    one_size(0);
    for (int k = 0; k < 64; k++)
        for (int d = -1; d <= 1; d++) one_size((std::size_t{1} << k) + static_cast<std::size_t>(d));
    for (std::size_t below : std::initializer_list<std::size_t>{0, 1, 15, 4095, 4096, 65535, 65536})
        one_size(SIZE_MAX - below);
    one_size(static_cast<std::size_t>(PTRDIFF_MAX) - 1);
    CHECK(served > 0 && thrown > 0);
    // An alignment must be a power of two here.
    for (int a = 0; a < 64; a++) {
        std::size_t align = std::size_t{1} << a;
        for (int k = 0; k < 64; k++)
            for (int d = -1; d <= 1; d++) one_alignment((std::size_t{1} << k) + static_cast<std::size_t>(d), align);
        one_alignment(SIZE_MAX - align, align);
        one_alignment(SIZE_MAX - align + 1, align);
        one_alignment(static_cast<std::size_t>(PTRDIFF_MAX) - align, align);
    }
    // The heap is whole afterwards.
    churn(7, 20000);
}

struct Node {
    char bytes[400];
    Node *next;
};

__attribute__((noinline)) static Node *make_node() { return new Node(); }

__attribute__((noinline)) static std::vector<std::string> make_strings(int count) {
    std::vector<std::string> strings;
    strings.reserve(count);
    for (int i = 0; i < count; i++) strings.emplace_back(2000, 'x');
    return strings;
}

// Keeps known numbers of bytes, for a heap profile to find.
static void profiled() {
    Node *first = nullptr;
    for (int i = 0; i < 20000000 / 416; i++) {
        Node *node = make_node();
        node->next = first;
        first = node;
    }
    // Never freed: what lives at the end is what is looked at.
    auto *strings = new std::vector<std::string>(make_strings(10000));
    std::printf("%p %zu\n", static_cast<void *>(first), strings->size());
}

// Clauses that the cases above leave out: no two blocks of nothing are one, and a handler may find memory.
static void lift_the_limit() {
    handler_calls++;
    const rlimit none{RLIM_INFINITY, RLIM_INFINITY};
    CHECK(setrlimit(RLIMIT_DATA, &none) == 0);
}

static void clauses() {
    void *one = ::operator new(0), *two = ::operator new[](0);
    CHECK(one != nullptr && two != nullptr && one != two);
    ::operator delete(one);
    ::operator delete[](two);
    const std::size_t asked = std::size_t{256} << 20;
    const rlimit little{asked / 4, RLIM_INFINITY};
    CHECK(setrlimit(RLIMIT_DATA, &little) == 0);
    std::set_new_handler(lift_the_limit);
    handler_calls = 0;
    void *found = ::operator new(asked);
    CHECK(found != nullptr && handler_calls == 1);
    ::operator delete(found);
    std::set_new_handler(nullptr);
}

CASES(CASE(forms), CASE(clauses), CASE(every_size), CASE(profiled))
