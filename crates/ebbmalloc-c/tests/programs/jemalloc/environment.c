/* Settings of the environment against those compiled in: what comes later wins, key by key. Run
 * with MALLOC_CONF=dirty_decay_ms:777,narenas:2 */
#include "control.h"

const char *malloc_conf = "dirty_decay_ms:1234,muzzy_decay_ms:55,narenas:5";

int main(void) {
    require_preload();
    CHECK(GET(ssize_t, "opt.dirty_decay_ms") == 777);
    CHECK(GET(ssize_t, "opt.muzzy_decay_ms") == 55);
    CHECK(GET(unsigned, "opt.narenas") == 2);
    CHECK(GET(ssize_t, "arena.0.dirty_decay_ms") == 777);
    return passed();
}
