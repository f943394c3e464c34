// The throwing operators new at every size: 2^k - 1, 2^k, 2^k + 1 for all k, the ends of the range, and each with every
// alignment. The answer is address space or bad_alloc, and it touches no more pages for a larger size.
#include "check.h"
#include <cstdint>
#include <initializer_list>
#include <malloc.h>
#include <new>
#include <sys/resource.h>

namespace {

// As in huge.c: a failure first gives back everything that is free.
constexpr long MOST_FAULTS = 1500;

const char *form;
std::size_t size_asked, align_asked;
long served, refused;

#define HOLDS(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            char line[300];                                                                        \
            snprintf(line, sizeof line, "%s of %#zx aligned to %#zx: %s\n", form, size_asked,      \
                     align_asked, #condition);                                                     \
            say(line);                                                                             \
            _exit(99);                                                                             \
        }                                                                                          \
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
        refused++;
    }
    HOLDS(faults() - before < MOST_FAULTS);
}

void one_size(std::size_t size) {
    one("new", size, 16, [=] { return ::operator new(size); }, [](void *block) { ::operator delete(block); });
    one("new, sized delete", size, 16, [=] { return ::operator new(size); },
        [=](void *block) { ::operator delete(block, size); });
    one("new[]", size, 16, [=] { return ::operator new[](size); }, [](void *block) { ::operator delete[](block); });
    one("new[], sized delete[]", size, 16, [=] { return ::operator new[](size); },
        [=](void *block) { ::operator delete[](block, size); });
}

void one_alignment(std::size_t size, std::size_t align) {
    const std::align_val_t wide{align};
    one("aligned new", size, align, [=] { return ::operator new(size, wide); },
        [=](void *block) { ::operator delete(block, wide); });
    one("aligned new[]", size, align, [=] { return ::operator new[](size, wide); },
        [=](void *block) { ::operator delete[](block, size, wide); });
}

} // namespace

int main() {
    require_preload();
    one_size(0);
    for (int k = 0; k < 64; k++)
        for (int d = -1; d <= 1; d++) one_size((std::size_t{1} << k) + static_cast<std::size_t>(d));
    for (std::size_t below : std::initializer_list<std::size_t>{0, 1, 15, 4095, 4096, 65535, 65536}) one_size(SIZE_MAX - below);
    one_size(static_cast<std::size_t>(PTRDIFF_MAX) - 1);
    CHECK(served > 0 && refused > 0);
    // An alignment must be a power of two here.
    for (int a = 0; a < 64; a++) {
        std::size_t align = std::size_t{1} << a;
        for (int k = 0; k < 64; k++)
            for (int d = -1; d <= 1; d++)
                one_alignment((std::size_t{1} << k) + static_cast<std::size_t>(d), align);
        one_alignment(SIZE_MAX - align, align);
        one_alignment(SIZE_MAX - align + 1, align);
        one_alignment(static_cast<std::size_t>(PTRDIFF_MAX) - align, align);
    }
    // The heap is whole afterwards.
    churn set;
    churn_start(&set, 7);
    for (int i = 0; i < 20000; i++) churn_step(&set);
    churn_end(&set);
    return passed();
}
