/* Blocks from a constructor that ran before main are whole, and exit frees them without harm. */
#include "check.h"

int main(void) {
    require_preload();
    int (*early_blocks_hold)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "early_blocks_hold");
    CHECK(early_blocks_hold != NULL && early_blocks_hold());
    struct churn set;
    churn_start(&set, 1);
    for (int i = 0; i < 20000; i++) churn_step(&set);
    churn_end(&set);
    CHECK(early_blocks_hold());
    return passed();
}
