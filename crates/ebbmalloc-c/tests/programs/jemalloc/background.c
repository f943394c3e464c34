/* background_thread: switched on and off at run time; returns memory of an idle process. */
#include "control.h"

int main(void) {
    require_preload();
    bool initial = GET(bool, "background_thread");
    size_t most = GET(size_t, "max_background_threads");
    CHECK(most >= 1 && most == GET(size_t, "opt.max_background_threads"));
    SET(bool, "background_thread", false);
    CHECK(!GET(bool, "background_thread"));
    CHECK(SWAP(bool, "background_thread", true) == false);
    CHECK(GET(bool, "background_thread"));
    SET(bool, "background_thread", true);
    SET(size_t, "max_background_threads", 1);
    CHECK(GET(size_t, "max_background_threads") == 1);

    /* With it on, free memory goes though nobody calls. */
    SET(ssize_t, "arenas.dirty_decay_ms", 100);
    SET(ssize_t, "arenas.muzzy_decay_ms", 0);
    unsigned arena = GET(unsigned, "arenas.create");
    SET(unsigned, "thread.arena", arena);
    free(malloc(100));
    size_t before = resident_bytes();
    void *block = malloc(40 * MIB);
    memset(block, 1, 40 * MIB);
    CHECK(resident_bytes() >= before + 39 * MIB);
    free(block);
    bool gone = false;
    for (int wait = 0; wait < 200 && !gone; wait++) {
        sleep_ms(50);
        gone = resident_bytes() < before + 4 * MIB;
    }
    CHECK(gone);
    refresh();
    CHECK(GET(size_t, "stats.background_thread.num_threads") <= 4);
    (void)GET(uint64_t, "stats.background_thread.num_runs");
    (void)GET(uint64_t, "stats.background_thread.run_interval");
    SET(bool, "background_thread", initial);
    return passed();
}
